package guard

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
)

// TestEnded: what the kernel answers of a zombie, and of a process that is gone, says that it has
// ended. The same error of a process that runs does not.
func TestEnded(t *testing.T) {
	root, err := host.NewRoot("/")
	if err != nil {
		t.Fatal(err)
	}
	g := guard{root: root}
	child := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^$")
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	zombie := child.Process.Pid
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		text, err := root.ReadFile(host.ProcessFile(zombie, "stat"))
		if err != nil {
			t.Fatal(err)
		}
		if stat, err := host.ParseProcessStat(string(text)); err == nil && stat.State == 'Z' {
			break
		} else if time.Now().After(deadline) {
			t.Fatalf("does not end: %s, %v", text, err)
		}
	}
	_, mounts := g.mountsOf(zombie)
	if mounts == nil || !g.hasEnded(zombie, mounts) {
		t.Errorf("the mount table of a zombie: %v", mounts)
	}
	if namespace, err := g.namespaceOf(zombie); namespace != "" || err != nil {
		t.Errorf("the namespace of a zombie: %q, %v", namespace, err)
	}
	refused := fmt.Errorf("/proc/x: %w", unix.EACCES)
	for _, test := range []struct {
		name string
		pid  int
		err  error
		want bool
	}{
		{"a zombie that other users may not read", zombie, refused, true},
		{"a process that runs", os.Getpid(), refused, false},
		{"a file of it that is not as expected", os.Getpid(), mounts, false},
		{"another error of a zombie", zombie, unix.EIO, false},
	} {
		if got := g.hasEnded(test.pid, test.err); got != test.want {
			t.Errorf("%s: %v", test.name, got)
		}
	}
	if err := child.Wait(); err != nil {
		t.Fatal(err)
	}
	_, gone := g.mountsOf(zombie)
	if gone == nil || !g.hasEnded(zombie, gone) || !g.hasEnded(zombie, refused) {
		t.Errorf("a process that is gone: %v", gone)
	}
}

// TestEndedThreads: the first thread of a process has ended, and the others still use its devices.
func TestEndedThreads(t *testing.T) {
	root := tree(t, "proc/7/stat", "7 (main) Z 1 7 7 0 -1 0 0 0 0 0 0 0 0 0 20 0 3 0 9 0 0\n")
	g := guard{root: root}
	if g.hasEnded(7, unix.EACCES) {
		t.Error("a process with threads has ended")
	}
	root = tree(t, "proc/7/stat", "7\n")
	g = guard{root: root}
	if g.hasEnded(7, unix.EACCES) {
		t.Error("a process whose state is unknown has ended")
	}
}

// TestEachNamespace: of each namespace one process is read: the next one if the first has ended.
func TestEachNamespace(t *testing.T) {
	root := tree(t)
	for pid, namespace := range map[int]string{1: "mnt:[1]", 2: "mnt:[1]", 3: "mnt:[7]", 4: "mnt:[7]", 5: "mnt:[7]", 6: "mnt:[8]"} {
		dir := root.Path(host.ProcessFile(pid, "ns"))
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.Symlink(namespace, filepath.Join(dir, "mnt"))); err != nil {
			t.Fatal(err)
		}
	}
	g := guard{root: root}
	var read []int
	ended := func(pid int) error {
		read = append(read, pid)
		if pid == 3 {
			return unix.ESRCH
		}
		return nil
	}
	if err := g.eachNamespace("mnt:[1]", ended); err != nil || fmt.Sprint(read) != "[3 4 6]" {
		t.Errorf("%v, %v", read, err)
	}
	if err := g.eachNamespace("mnt:[1]", func(int) error { return unix.EIO }); !errors.Is(err, unix.EIO) {
		t.Errorf("%v, want %v", err, unix.EIO)
	}
}

// tree returns a root with files: names and contents.
func tree(t *testing.T, files ...string) host.Root {
	t.Helper()
	dir := t.TempDir()
	for i := 0; i+1 < len(files); i += 2 {
		name := filepath.Join(dir, files[i])
		if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(files[i+1]), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	root, err := host.NewRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	return root
}
