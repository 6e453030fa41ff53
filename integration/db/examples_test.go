package db

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
	"gpustack/integration/terminal"
)

// TestRepairExamples runs every example of repair-migration's help, in their order, on a database
// with a row to repair: an instance with the context of a migration that has failed. Only --root is
// added, and ssh prints what host guests prints on these hosts; cmd/gpustack runs the examples of
// the other commands.
func TestRepairExamples(t *testing.T) {
	help, err := exec.Command(gpustack, "help", "repair-migration").Output()
	hosttest.NoError(t, err)
	_, section, _ := strings.Cut(string(help), "\nEXAMPLES\n")
	var lines []string
	for line := range strings.Lines(section) {
		line, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "  ")
		if !ok {
			break
		}
		lines = append(lines, line)
	}
	if len(lines) < 6 {
		t.Fatalf("only %d examples:\n%s", len(lines), help)
	}

	const instance = "1f975a18-2c6e-4a6e-9d0d-3d7f4b7a8c11" // the examples name it
	reset(t)
	cell := database.Cell1
	gpu1, gpu2 := cell.Compute(t, "gpu1"), cell.Compute(t, "gpu2")
	cell.Instance(t, instance, "gpu1", "active", "")
	old := Row{"updated_at": Ago(time.Hour)}
	from, to := cell.Card(t, gpu1, first, "allocated", instance, old), cell.Card(t, gpu2, first, "available", "", old)
	migration := cell.Migration(t, 3, instance, "migration", "failed", "gpu1", "gpu2", old)
	cell.Context(t, instance, migration, []int64{from}, []int64{to})

	root, dir := machine(t), t.TempDir()
	reports := map[string]string{"gpu1": evidence.Write(t, evidence.Report("gpu1")), "gpu2": evidence.Write(t, evidence.Report("gpu2"))}
	for name, text := range map[string]string{
		"gpustack": "exec " + gpustack + ` "$@" --root ` + root,
		"ssh":      fmt.Sprintf(`[ "$2 $3 $4 $5 $6" = "gpustack host guests -o json" ] || exit 255; case $1 in gpu1) cat %s ;; gpu2) cat %s ;; *) exit 255 ;; esac`, reports["gpu1"], reports["gpu2"]),
	} {
		hosttest.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	repaired := false
	for _, line := range lines {
		cmd := exec.Command("bash", "-o", "pipefail", "-c", line)
		cmd.Dir = dir
		cmd.Env = []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "HOME=" + root, "LANG=C.UTF-8", "TERM=dumb"}
		s := terminal.Start(t, cmd, "")
		want := 0
		switch {
		case strings.Contains(line, "--apply"):
			s.Expect("/?] ")
			s.Type("y\n")
			repaired = true
		case strings.Contains(line, "gpustack repair-migration") && !repaired:
			want = 2
		}
		if status := s.Wait(); status != want {
			t.Errorf("%s: exit status %d instead of %d\n%s", line, status, want, s.Output())
		}
	}
	if left := cell.Dump(t, "instance_extra", "migration_context")[0][0]; !repaired || left != "NULL" && left != "" {
		t.Errorf("nothing was repaired: %s", left)
	}
}
