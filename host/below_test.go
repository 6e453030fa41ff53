package host_test

import (
	"errors"
	"runtime"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestReadBelow: files are read as Root reads them, and no link leads out of the root. It is the
// same where openat2 is missing, as in RHEL 8, and where a filter that does not know it denies it.
func TestReadBelow(t *testing.T) {
	t.Run("with openat2", testReadBelow)
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
		t.Run("without openat2: "+errno.Error(), func(t *testing.T) {
			deny(t, errno, unix.SYS_OPENAT2, unix.SYS_FACCESSAT2)
			if _, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{}); !errors.Is(err, errno) {
				t.Fatalf("openat2: %v", err)
			}
			testReadBelow(t)
		})
	}
}

// deny makes system calls of the test's thread fail, which ends with the test (seccomp(2)).
func deny(t *testing.T, errno unix.Errno, calls ...uint32) {
	t.Helper()
	runtime.LockOSThread()                                                       // never unlocked: the thread ends with the goroutine
	filter := []unix.SockFilter{{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS}} // the number of the call
	for _, call := range calls {
		filter = append(filter,
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jf: 1, K: call},
			unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(errno)})
	}
	filter = append(filter, unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW})
	program := unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	_, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if err != 0 {
		t.Fatal(err)
	}
}

func testReadBelow(t *testing.T) {
	root := hosttest.Lay(t, `
mkdir sys/folder
symlink sys/devices/link -> ../../real/device
symlink sys/devices/absolute -> /real/device
symlink sys/devices/climbing -> ../../../../../../../../../../../../real/device
symlink sys/devices/outside -> /etc
symlink real/device/last -> config
symlink real/device/dangling -> none
-- real/device/config --
0123456789
`)
	c := counter{of: map[string]int{}}
	top, err := root.Recorded(&c).OpenDir("/")
	if err != nil {
		t.Fatal(err)
	}
	defer top.Close()
	for name, want := range map[string]bool{"sys/devices/link/last": true, "sys/devices/link/dangling": false} {
		if ok, err := top.ExistsBelow(name); ok != want || err != nil {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
	if data, err := top.ReadBelow("sys/devices/link/last", make([]byte, 4)); string(data) != "0123" || err != nil {
		t.Errorf("by a link: %q, %v", data, err)
	}
	for _, dir := range []string{"sys/devices/link", "/sys/devices/absolute", "sys/devices/climbing", "real/device"} {
		for n, want := range map[int]string{4: "0123", 64: "0123456789\n"} {
			if data, err := top.ReadBelow(dir+"/config", make([]byte, n)); err != nil || string(data) != want {
				t.Errorf("%s: %q, %v, want %q", dir, data, err, want)
			}
		}
		if ok, err := top.ExistsBelow(dir + "/config"); !ok || err != nil {
			t.Errorf("%s: %t, %v", dir, ok, err)
		}
		if ok, err := top.ExistsBelow(dir + "/reset"); ok || err != nil {
			t.Errorf("%s: %t, %v", dir, ok, err)
		}
	}
	if n := c.of["real/device/config"]; n != 14 { // under its own name, whatever link was followed
		t.Errorf("recorded %d times: %v", n, c.of)
	}
	if err := unix.Mkfifo(root.Path("real/device/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, is := range map[string]error{"sys/none/config": unix.ENOENT, "sys/devices/outside/passwd": unix.ENOENT, "sys/devices/link/dangling": unix.ENOENT} {
		if data, err := top.ReadBelow(name, make([]byte, 64)); !errors.Is(err, is) {
			t.Errorf("%s: %q, %v, want %v", name, data, err, is)
		}
	}
	for _, name := range []string{"sys/folder", "real/device/pipe"} {
		if data, err := top.ReadBelow(name, make([]byte, 64)); err == nil || host.Cause(err).Error() != "not a regular file" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	if ok, err := top.Exists("real"); !ok || err != nil {
		t.Errorf("real: %t, %v", ok, err)
	}
	if ok, err := top.Exists("none"); ok || err != nil {
		t.Errorf("none: %t, %v", ok, err)
	}
	if ok, err := top.ExistsBelow("real/device/config/x"); ok || !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("below a file: %t, %v", ok, err)
	}
}
