package db

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/terminal"
)

// TestInterruptedQuestion: Ctrl-C or SIGTERM at the questions of repair-migration and of its undo
// ends the run, and a y that follows writes no row.
func TestInterruptedQuestion(t *testing.T) {
	for name, interrupt := range map[string]func(*terminal.Session){
		"Ctrl-C":  func(s *terminal.Session) { s.Type(terminal.CtrlC) },
		"SIGTERM": func(s *terminal.Session) { s.Signal(syscall.SIGTERM) },
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			gpu1 := cell.Compute(t, "gpu1", LastSeen(time.Hour))
			cell.Compute(t, "gpu2")
			cell.Instance(t, UUID(2), "gpu2", "active", "")
			cell.Card(t, gpu1, first, "allocated", UUID(1))
			root := machine(t)
			ask := func(args ...string) {
				t.Helper()
				before := cell.Dump(t, "pci_devices")
				cmd := exec.Command(gpustack, append(args, "--root", root)...)
				cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "LANG=C.UTF-8", "TERM=dumb"}
				s := terminal.Start(t, cmd, "")
				s.Expect("/?] ")
				interrupt(s)
				s.Type("y\n")
				if status := s.Wait(); status != 130 || !strings.Contains(s.Output(), "\ngpustack: error: interrupted, nothing was changed\n") {
					t.Errorf("exit status %d:\n%s", status, s.Output())
				}
				hosttest.EqualIn(t, args[0], before, cell.Dump(t, "pci_devices"))
			}
			ask("repair-migration", "--host-is-off", "gpu1", "--apply", "--wait", "1s")
			if _, err := os.Stat(filepath.Join(root, "var")); !os.IsNotExist(err) {
				t.Errorf("a journal was left: %v", err)
			}
			if _, stderr, status := repairMigration(t, root, "--host-is-off", "gpu1", "--apply", "--yes", "--wait", "1s"); status != 0 {
				t.Fatalf("exit status %d, %s", status, stderr)
			}
			ask("undo")
		})
	}
}
