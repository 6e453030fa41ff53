package edit_test

import (
	"errors"
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

// TestReadOnly: where one folder is on a read-only file system, nothing is changed, and nothing is
// left to recover.
func TestReadOnly(t *testing.T) {
	if os.Geteuid() != 0 {
		return // only root can mount
	}
	runtime.LockOSThread() // the thread ends with the test, and its mounts with it
	root := hosttest.Lay(t, "-- etc/first --\nold\n-- usr/full/x --\n")
	usr := root.Path("/usr")
	err := errors.Join(unix.Unshare(unix.CLONE_FS|unix.CLONE_NEWNS), unix.Mount("", "/", "", unix.MS_PRIVATE|unix.MS_REC, ""),
		unix.Mount(usr, usr, "", unix.MS_BIND, ""), unix.Mount("", usr, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, ""))
	hosttest.NoError(t, err)
	defer unix.Unmount(usr, unix.MNT_DETACH)
	first, err := edit.Put(root, "/etc/first", []byte("new\n"), 0o644, false)
	hosttest.NoError(t, err)
	second, err := edit.Put(root, "/usr/lib/made/second", []byte("new\n"), 0o644, false)
	hosttest.NoError(t, err)
	third, err := edit.Put(root, "/usr/third", []byte("new\n"), 0o644, false)
	hosttest.NoError(t, err)
	fourth, err := edit.Observe(root, "/usr/full/x").Remove("/usr/full/x")
	hosttest.NoError(t, err)
	fourth.Dirs = []string{"/usr/full"} // which would be removed with its file
	for _, c := range []edit.Change{second, third, fourth} {
		err := edit.Changes{first, c}.Apply(t.Context(), root)
		if !errors.Is(err, unix.EROFS) || errors.Is(err, edit.ErrTorn) {
			t.Errorf("%s: %v", c.Name, err)
		}
		if text, err := os.ReadFile(root.Path("/etc/first")); err != nil || string(text) != "old\n" {
			t.Errorf("%s: %q, %v", c.Name, text, err)
		}
	}
	if names, err := root.ReadDir("/etc"); err != nil || len(names) != 1 {
		t.Errorf("left: %v, %v", names, host.Cause(err))
	}
}
