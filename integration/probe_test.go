package integration

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova/probe"
)

// TestProbeShells runs the tests of nova/probe's script with shells other
// than Debian's, dash: they run it by whatever sh is.
func TestProbeShells(t *testing.T) {
	t.Parallel()
	folder, err := filepath.Abs("../nova/probe")
	hosttest.NoError(t, err)
	tests := filepath.Join(t.TempDir(), "tests")
	run(t, "go", "test", "-c", "-o", tests, folder)
	// The programs that the script uses are Debian's, or those of busybox too.
	tools := strings.Fields("sh cat cut dd grep mkdir mv od readlink rm sed setsid sleep tail tr wc")
	for _, test := range []struct {
		name, shell string
		programs    []string
	}{{"bash", "bash", tools[:1]}, {"busybox", "busybox", tools[:1]}, {"busybox with its programs", "busybox", tools}} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			program, err := exec.LookPath(test.shell)
			hosttest.NoError(t, err)
			bin := t.TempDir()
			for _, name := range test.programs {
				hosttest.NoError(t, os.Symlink(program, filepath.Join(bin, name)))
			}
			cmd := exec.Command(tests, "-test.run", "^TestScript", "-test.v")
			cmd.Dir = folder
			cmd.Env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"))
			out, talk, status := try(t, cmd)
			if status != 0 || strings.Count(out, "--- PASS: TestScript") < 10 {
				t.Errorf("exit status %d\n%s%s", status, out, talk)
			}
		})
	}
}

// TestProbeNodes runs the script over each table of a real machine: all functions but bridges are
// reported, with their ids.
func TestProbeNodes(t *testing.T) {
	roots, err := layNodes()
	hosttest.NoError(t, err)
	const nonce = "0123abcd"
	functions := 0
	for table, root := range roots {
		var want, got []string
		for address, row := range parseTable(hosttest.Read(t, table)) {
			bridge := slices.ContainsFunc([]string{"0604", "0607", "0609"}, func(class string) bool { return strings.HasPrefix(row["class"], class) })
			if !bridge && row["vendor"] != "-" && row["device"] != "-" {
				want = append(want, fmt.Sprintf("%s %s:%s", address, row["vendor"], row["device"]))
			}
		}
		script := probe.Script(nonce, probe.Options{})
		for from, to := range map[string]string{" sys=/sys dev=/dev\n": " sys=" + filepath.Join(root, "sys") + " dev=" + t.TempDir() + "\n", " 5 5 0;": " 0;"} {
			if strings.Count(script, from) != 1 {
				t.Fatalf("the script has no %q", from)
			}
			script = strings.Replace(script, from, to, 1)
		}
		r, whole := probe.Parse(run(t, "sh", "-c", script), nonce)
		if !whole {
			t.Errorf("%s: no report", table)
		}
		for _, d := range r.Devices {
			got = append(got, fmt.Sprintf("%s %s", d.Address, d.ID))
		}
		slices.Sort(want)
		slices.Sort(got)
		if !slices.Equal(want, got) {
			t.Errorf("%s: %q, want %q", table, got, want)
		}
		functions += len(got)
	}
	t.Logf("%d functions", functions)
}
