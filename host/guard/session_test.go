package guard_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"sync"
	"testing"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
)

// TestConnection: sudo and a shell do not pass SSH_CONNECTION on; the child of sshd has it.
func TestConnection(t *testing.T) {
	root := hosttest.Lay(t, `base64 proc/30/environ
-- proc/10/environ --
HOME=/root
-- proc/10/stat --
10 (sudo) S 20 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9
-- proc/20/environ --
-- proc/20/stat --
20 (a) b) S 30 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9
-- proc/30/environ --
SE9NRT0vAFNTSF9DT05ORUNUSU9OPTE5Mi4wLjIuNyA0NzExIDE5Mi4wLjIuMSAyMgBYPXkA
-- proc/40/environ --
-- proc/40/stat --
40 (systemd) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9
-- proc/50/stat --
`)
	for pid, want := range map[int]string{
		10: "192.0.2.7 4711 192.0.2.1 22 <nil>",
		40: " <nil>",
		50: " /proc/50/environ: no such file or directory",
	} {
		got, err := guard.Connection(root, pid)
		if text := fmt.Sprint(got, " ", err); text != want {
			t.Errorf("%d: %s", pid, text)
		}
	}
}

// ending removes a process once a file has been read.
type ending struct {
	once *sync.Once
	file string
	then func()
}

func (e ending) File(name string, _ []byte, _ error) {
	if name == e.file {
		e.once.Do(e.then)
	}
}

func (ending) Mode(string, fs.FileMode)    {}
func (ending) Link(string, string, error)  {}
func (ending) Dir(string, []string, error) {}

// TestConnectionEnded: an ancestor ends while it is read. The process then belongs to another one.
func TestConnectionEnded(t *testing.T) {
	stat := func(pid, parent int) string {
		return fmt.Sprintf("-- proc/%d/stat --\n%[1]d (sh) S %d 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0\n", pid, parent)
	}
	const environ = "-- proc/10/environ --\nSSH_CONNECTION=192.0.2.1 1 192.0.2.2 22\x00\n-- proc/11/environ --\n-- proc/12/environ --\n"
	tree := stat(10, 1) + stat(11, 10) + stat(12, 11) + strings.ReplaceAll(environ, "\x00\n", "\n")
	for _, test := range []struct {
		name   string
		parent int // of process 12 after 11 has ended
		err    bool
	}{
		{"the process has another parent", 10, false},
		{"nothing shows another parent", 11, true},
	} {
		root := hosttest.Lay(t, tree)
		e := ending{&sync.Once{}, "proc/12/stat", func() {
			text := strings.Replace(stat(12, test.parent), "-- proc/12/stat --\n", "", 1)
			if err := errors.Join(os.RemoveAll(root.Path("/proc/11")), os.WriteFile(root.Path("/proc/12/stat"), []byte(text), 0o600)); err != nil {
				t.Error(err)
			}
		}}
		got, err := guard.Connection(root.Recorded(e), 12)
		if (err != nil) != test.err || !test.err && strings.TrimSpace(got) != "192.0.2.1 1 192.0.2.2 22" {
			t.Errorf("%s: %q, %v", test.name, got, err)
		}
	}
}
