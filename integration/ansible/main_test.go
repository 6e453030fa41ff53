package ansible

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/binary"
)

// gpustack is the binary under test; collections is the folder in which Ansible finds the
// collection, a copy of the checkout's.
var gpustack, collections string

// collection is the collection in the checkout.
const collection = "../../ansible"

func TestMain(m *testing.M) {
	binary.Main(m, "ansible", func(built, dir string) (stop func() error, err error) {
		gpustack, collections = built, filepath.Join(dir, "collections")
		// A user without privileges runs both.
		if err := os.Chmod(dir, 0o755); err != nil {
			return nil, err
		}
		copied := filepath.Join(collections, "ansible_collections/gpustack/nova")
		if err := os.MkdirAll(copied, 0o755); err != nil {
			return nil, err
		}
		if out, err := exec.Command("cp", "-RL", collection+"/.", copied).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("copy the collection: %w\n%s", err, out)
		}
		return func() error { return nil }, nil
	}, nil)
}

// An ansibleRun is a folder in which programs of Ansible run, with all files that they write.
type ansibleRun struct {
	dir string
	env []string
	uid uint32 // who runs them
}

// newRun makes such a folder, which goes with the test.
func newRun(t testing.TB, uid uint32) *ansibleRun {
	t.Helper()
	dir := t.TempDir()
	r := &ansibleRun{dir: dir, uid: uid}
	r.env = append(os.Environ(), "HOME="+dir, "ANSIBLE_HOME="+dir+"/ansible", "ANSIBLE_LOCAL_TEMP="+dir+"/local", "ANSIBLE_REMOTE_TMP="+dir+"/remote",
		"ANSIBLE_COLLECTIONS_PATH="+collections, "ANSIBLE_PIPELINING=1", "ANSIBLE_NOCOLOR=1", "ANSIBLE_LOCALHOST_WARNING=0",
		"ANSIBLE_INVENTORY_UNPARSED_WARNING=0",
		"ANSIBLE_CALLBACK_PLUGINS="+dir, "ANSIBLE_CALLBACKS_ENABLED=results", "RESULTS="+dir+"/results", "PYTHONDONTWRITEBYTECODE=1",
		"XDG_STATE_HOME="+dir+"/state")
	text := hosttest.Read(t, "testdata/results.py")
	r.write(t, "results.py", text, 0o644)
	// Another user must be able to reach the folder, and to write to it.
	for above := dir; above != filepath.Clean(os.TempDir()) && above != "/"; above = filepath.Dir(above) {
		hosttest.NoError(t, os.Chmod(above, 0o755))
	}
	hosttest.NoError(t, os.Chown(dir, int(uid), int(uid)))
	return r
}

// write writes a file below the folder, and returns its path.
func (r *ansibleRun) write(t testing.TB, name, text string, mode os.FileMode) (path string) {
	t.Helper()
	path = filepath.Join(r.dir, name)
	hosttest.NoError(t, errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), mode)))
	return path
}

// command runs a program, and returns what it printed and its exit status.
func (r *ansibleRun) command(t testing.TB, program string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Dir, cmd.Env = r.dir, r.env
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: r.uid, Gid: r.uid}}
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	begin := time.Now()
	err := cmd.Run()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatalf("%v (make integration runs the tests where all that they need is installed)", err)
	}
	t.Logf("%s: %s, %s of CPU", program, time.Since(begin).Round(time.Millisecond*100), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

// A task is a task of a playbook, as Ansible reads it.
type task map[string]any

// An outcome is what came of a task.
type outcome struct {
	Task, Host string
	Failed     bool
	Result     map[string]any
}

// play runs tasks on this machine, one after the other, whatever comes of each, and returns what
// came of them by their names, and all that ansible-playbook printed with -vvv.
func (r *ansibleRun) play(t testing.TB, tasks ...task) (outcomes map[string]outcome, printed string) {
	t.Helper()
	playbook, err := json.Marshal([]any{map[string]any{"hosts": "localhost", "connection": "local", "gather_facts": false, "ignore_errors": true,
		"vars": map[string]any{"ansible_python_interpreter": "/usr/bin/python3"}, "tasks": tasks}})
	hosttest.NoError(t, err)
	stdout, stderr, status := r.command(t, "ansible-playbook", "-vvv", r.write(t, "playbook.json", string(playbook), 0o644))
	if status != 0 {
		t.Fatalf("ansible-playbook: exit status %d\n%s%s", status, stdout, stderr)
	}
	text := hosttest.Read(t, r.dir+"/results")
	outcomes = map[string]outcome{}
	for line := range strings.Lines(text) {
		var o outcome
		hosttest.NoError(t, json.Unmarshal([]byte(line), &o))
		outcomes[o.Task] = o
	}
	return outcomes, stdout + stderr
}
