package guard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestEnded: what the kernel answers of a zombie, and of a process that is gone, says that it has
// ended. The same error of a process that runs does not.
func TestEnded(t *testing.T) {
	root := hosttest.Root(t, "/")
	mounts := func(pid int) error { _, err := root.ReadTable(host.ProcessFile(pid, "mounts")); return err }
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^$")
	hosttest.NoError(t, child.Start())
	zombie := child.Process.Pid
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, err := root.ReadFile(host.ProcessFile(zombie, "stat"))
		hosttest.NoError(t, err)
		// The first thread may end before the others, whose files can be read.
		if stat, err := host.ParseProcessStat(string(text)); err == nil && stat.State == 'Z' && stat.Threads <= 1 {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("does not end: %s, %v", text, err)
		}
	}
	for what, read := range map[string]func(int) error{
		"mounts":       mounts,
		"open files":   func(pid int) error { _, err := host.Descriptors(root, pid); return err },
		"mapped files": func(pid int) error { _, err := host.MappedDevices(root, pid); return err },
	} {
		if first := read(zombie); first == nil {
			t.Errorf("the %s of a zombie: no error", what)
		}
		if ended, err := host.ReadThreads(root, zombie, read); !ended || err != nil {
			t.Errorf("the %s of a zombie: %v, %v", what, ended, err)
		}
	}
	refused, malformed := fmt.Errorf("/proc/x: %w", unix.EACCES), fmt.Errorf("/proc/x: %w", unix.EINVAL)
	for _, test := range []struct {
		name  string
		pid   int
		err   error
		ended bool
	}{
		{"a zombie that other users may not read", zombie, refused, true},
		{"a process that runs", os.Getpid(), refused, false},
		{"a file of it that is not as expected", os.Getpid(), malformed, false},
		{"another error of a zombie", zombie, unix.EIO, false},
	} {
		ended, err := host.ReadThreads(root, test.pid, func(int) error { return test.err })
		if ended != test.ended || (err == nil) != test.ended {
			t.Errorf("%s: %v, %v", test.name, ended, err)
		}
	}
	hosttest.NoError(t, child.Wait())
	gone := mounts(zombie)
	for _, err := range []error{gone, refused} {
		if ended, err := host.ReadThreads(root, zombie, func(int) error { return err }); gone == nil || !ended || err != nil {
			t.Errorf("a process that is gone: %v, %v", ended, err)
		}
	}
}

// TestFirstThread: of a process whose first thread has ended, this kernel shows the mounts and the
// files by its other threads.
func TestFirstThread(t *testing.T) {
	root := hosttest.Root(t, "/")
	child := exec.CommandContext(t.Context(), "/proc/self/exe")
	child.Env = append(os.Environ(), "GPUSTACK_TEST_END_FIRST_THREAD=1")
	hosttest.NoError(t, child.Start())
	t.Cleanup(func() {
		if err := child.Process.Kill(); err != nil {
			t.Error(err)
		}
		child.Wait()
	})
	g, pid := guard{root: root}, child.Process.Pid
	mounts := func(pid int) error { _, err := root.ReadTable(host.ProcessFile(pid, "mounts")); return err }
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		if err := mounts(pid); errors.Is(err, unix.EINVAL) {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("its first thread does not end")
		}
	}
	if ended, err := host.ReadThreads(root, pid, mounts); ended || err != nil {
		t.Errorf("mounts: ended %v, %v", ended, err)
	}
	opened, err := g.opened(pid)
	if !slices.ContainsFunc(opened, func(d host.Descriptor) bool { return d.Name == "/dev/null" }) || err != nil {
		t.Errorf("open files: %v, %v", opened, err)
	}
}
