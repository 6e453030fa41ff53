package engine_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/engine"
	"gpustack/host/hosttest"
)

// TestErrors: what an engine says when it starts no container is an error of its own; what the
// program in the container says, with whatever exit status, is the program's.
func TestErrors(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		name, run string
		kind      error // nil: the program's
	}{
		{"no program, crun", "echo 'Error: crun: executable file `x` not found in $PATH: No such file or directory: OCI runtime attempted to " +
			"invoke a command that was not found' >&2; exit 127", engine.ErrNoProgram},
		{"no program, runc", `echo 'Error: runc: runc create failed: unable to start container process: exec: "x": executable file not found in ` +
			`$PATH' >&2; exit 127`, engine.ErrNoProgram},
		{"no program, docker", `echo 'docker: Error response from daemon: failed to create task for container: exec: "x": stat x: no such file or ` +
			`directory: unknown' >&2; exit 127`, engine.ErrNoProgram},
		{"no daemon", "echo 'docker: Cannot connect to the Docker daemon' >&2; exit 125", engine.ErrStart},
		{"a device", "echo 'Error: setting up CDI devices: unresolvable CDI devices gpustack.local/gpu=x' >&2; exit 126", engine.ErrStart},
		{"a node", `echo 'failed to stat CDI host device "/dev/nvidia7": no such file or directory' >&2; exit 127`, engine.ErrStart},
		{"a CDI device of a file that does not exist", `echo 'docker: Error response from daemon: CDI device injection failed: stat /etc/cdi/x: ` +
			`no such file or directory' >&2; exit 126`, engine.ErrStart},
		{"a library of an earlier driver", `echo 'docker: Error response from daemon: failed to create task for container: error mounting ` +
			`"/usr/lib/x86_64-linux-gnu/libcuda.so.535.161.07" to rootfs: stat /x: no such file or directory' >&2; exit 127`, engine.ErrStart},
		{"a hook that is missing", `echo 'Error: OCI runtime error: error running hook #0: fork/exec /usr/bin/nvidia-cdi-hook: no such file or ` +
			`directory' >&2; exit 127`, engine.ErrStart},
		{"a program's 125", "echo TOKEN >&2; exit 125", nil},
		{"a shell's command", "echo 'sh: 1: nbody: not found' >&2; exit 127", nil},
		{"a program's status", "echo 'not permitted' >&2; exit 126", nil},
		{"a program that fails", "exit 3", nil},
	} {
		t.Run(row.name, func(t *testing.T) {
			t.Parallel()
			r := runner(t)
			hosttest.Engine(t, r.Dirs[0], "podman", row.run)
			c := engine.Container{Image: "localhost/cuda", Engine: "podman", Network: "none"}
			_, err := c.Run(t.Context(), r, "test-", []string{"x", "--password", "SECRET"})
			if strings.Contains(fmt.Sprint(err), "SECRET") != (row.kind == nil) { // what a caller prints of a program is its own
				t.Errorf("%v", err)
			}
			if err == nil || row.kind != nil && (!errors.Is(err, row.kind) || !strings.HasPrefix(err.Error(), "localhost/cuda: ")) ||
				row.kind == nil && (errors.Is(err, engine.ErrNoProgram) || errors.Is(err, engine.ErrStart)) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestLeft: a container that outlives its time is removed; that it cannot be is an error, with the
// command.
func TestLeft(t *testing.T) {
	t.Parallel()
	for _, removal := range []string{"exit 0", "echo 'Error: no daemon' >&2; exit 125"} {
		r := runner(t)
		r.Limit = 300 * time.Millisecond
		script := "#!/bin/sh\n[ $1 = rm ] || exec sleep 60\necho $* >$0.asked\n" + removal + "\n"
		hosttest.Program(t, r.Dirs[0], "docker", script)
		_, err := engine.Container{Image: "localhost/cuda", Engine: "docker", Network: "none"}.Run(t.Context(), r, "test-", []string{"x"})
		asked, unread := os.ReadFile(filepath.Join(r.Dirs[0], "docker.asked"))
		if unread != nil || !strings.HasPrefix(string(asked), "rm --force --volumes test-") {
			t.Errorf("%s, %v", asked, unread)
		}
		left := removal != "exit 0"
		if errors.Is(err, engine.ErrLeft) != left || errors.Is(err, host.ErrLimit) == left ||
			left && !strings.HasPrefix(host.HintOf(err).String(), "docker rm --force test-") {
			t.Errorf("%s: %v, %s", removal, err, host.HintOf(err))
		}
	}
}

// TestNerdctl: it ends with 1 when it starts no container, and says nothing of an image that it
// does not have.
func TestNerdctl(t *testing.T) {
	t.Parallel()
	r := runner(t)
	script := "#!/bin/sh\n[ $1 = image ] && exit 0\necho $* >$0.asked\n" +
		`echo 'time="2026-11-28T08:00:00Z" level=fatal msg="failed to create shim task: exec: \"x\": executable file not found in $PATH"' >&2; exit 1` + "\n"
	hosttest.Program(t, r.Dirs[0], "nerdctl", script)
	if _, err := engine.Find(t.Context(), r, "localhost/cuda"); !errors.Is(err, engine.ErrNoImage) {
		t.Errorf("%v", err)
	}
	_, err := engine.Container{Image: "localhost/cuda", Engine: "nerdctl", Network: "none"}.Run(t.Context(), r, "test-", []string{"x"})
	if asked, unread := os.ReadFile(filepath.Join(r.Dirs[0], "nerdctl.asked")); unread != nil || strings.Contains(string(asked), "log-driver") {
		t.Errorf("%s, %v", asked, unread)
	}
	if !errors.Is(err, engine.ErrStart) && !errors.Is(err, engine.ErrNoProgram) {
		t.Errorf("%v", err)
	}
}
