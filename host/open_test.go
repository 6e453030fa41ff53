package host_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestReadHead: files are read by links, and no link leads out of the root. It is the same where
// openat2 is missing, as in RHEL 8, and where a filter that does not know it denies it.
func TestReadHead(t *testing.T) {
	t.Run("with openat2", testReadHead)
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
		t.Run("without openat2: "+errno.Error(), func(t *testing.T) {
			deny(t, errno, unix.SYS_OPENAT2, unix.SYS_FACCESSAT2)
			if _, err := unix.Openat2(unix.AT_FDCWD, "/", &unix.OpenHow{}); !errors.Is(err, errno) {
				t.Fatalf("openat2: %v", err)
			}
			testReadHead(t)
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
	hosttest.NoError(t, unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
	_, _, err := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, 0, uintptr(unsafe.Pointer(&program)))
	if err != 0 {
		t.Fatal(err)
	}
}

func testReadHead(t *testing.T) {
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
	recorded := root.Recorded(&c)
	for name, want := range map[string]bool{"sys/devices/link/last": true, "sys/devices/link/dangling": false} {
		if ok, err := recorded.Exists(name); ok != want || err != nil {
			t.Errorf("%s: %t, %v", name, ok, err)
		}
	}
	if data, err := recorded.ReadHead("sys/devices/link/last", 4); string(data) != "0123" || err != nil {
		t.Errorf("by a link: %q, %v", data, err)
	}
	for _, dir := range []string{"sys/devices/link", "/sys/devices/absolute", "sys/devices/climbing", "real/device"} {
		for n, want := range map[int]string{4: "0123", 64: "0123456789\n"} {
			if data, err := recorded.ReadHead(dir+"/config", n); err != nil || string(data) != want {
				t.Errorf("%s: %q, %v, want %q", dir, data, err, want)
			}
		}
		if ok, err := recorded.Exists(dir + "/config"); !ok || err != nil {
			t.Errorf("%s: %t, %v", dir, ok, err)
		}
		if ok, err := recorded.Exists(dir + "/reset"); ok || err != nil {
			t.Errorf("%s: %t, %v", dir, ok, err)
		}
	}
	if n := c.of["real/device/config"]; n != 14 { // under its own name, whatever link was followed
		t.Errorf("recorded %d times: %v", n, c.of)
	}
	hosttest.NoError(t, unix.Mkfifo(root.Path("real/device/pipe"), 0o600))
	for name, is := range map[string]error{"sys/none/config": unix.ENOENT, "sys/devices/outside/passwd": unix.ENOENT, "sys/devices/link/dangling": unix.ENOENT} {
		if data, err := recorded.ReadHead(name, 64); !errors.Is(err, is) {
			t.Errorf("%s: %q, %v, want %v", name, data, err, is)
		}
	}
	for _, name := range []string{"sys/folder", "real/device/pipe"} {
		if data, err := recorded.ReadHead(name, 64); err == nil || host.Cause(err).Error() != "not a regular file" {
			t.Errorf("%s: %q, %v", name, data, err)
		}
	}
	top, err := root.OpenDir("/")
	hosttest.NoError(t, err)
	defer top.Close()
	if there, err := top.Which(make([]byte, 512), "real", "none"); len(there) != 1 || there[0] != "real" || err != nil {
		t.Errorf("there are %q, %v", there, err)
	}
	if ok, err := recorded.Exists("real/device/config/x"); ok || !errors.Is(err, unix.ENOTDIR) {
		t.Errorf("below a file: %t, %v", ok, err)
	}
}

// TestRootWithoutOpenat2: a root gives the same answers and the same errors whether or not the
// kernel resolves its paths.
func TestRootWithoutOpenat2(t *testing.T) {
	with := rootAnswers(t)
	hosttest.EqualIn(t, "etc/absolute leads to", "/usr/lib/file", with["place in tree by a link of etc/absolute"])
	for _, test := range []struct{ root, name, want string }{
		{"tree", "etc/absolute", `"text\n", is a file, exists`},
		{"tree", "etc/climbing", `"text\n", is a file, exists`},
		{"tree", "etc/dangling", "absent, absent, absent"},
		{"tree", "etc/loop", "/etc/loop: too many levels of symbolic links"},
		{"tree", "etc/pipe", "/etc/pipe: not a regular file, is a file, exists"},
		{"tree", "", `/: not a regular file, ["etc" "usr"], exists`},
		{"/", "dev/null", "/dev/null: not a regular file, is a file, exists"},
	} {
		hosttest.EqualIn(t, test.name+" of "+test.root, test.want, with[test.root+" "+test.name])
	}
	for _, errno := range []unix.Errno{unix.ENOSYS, unix.EPERM} {
		t.Run(errno.Error(), func(t *testing.T) {
			deny(t, errno, unix.SYS_OPENAT2)
			hosttest.EqualIn(t, "-with openat2 +without", with, rootAnswers(t))
		})
	}
}

// rootAnswers returns what a root says of files of each kind, by the root and the name.
func rootAnswers(t *testing.T) map[string]string {
	t.Helper()
	tree := hosttest.Lay(t, `
symlink etc/absolute -> /usr/lib/file
symlink etc/climbing -> ../../../../../../../../../../../../usr/lib/file
symlink etc/dangling -> none
symlink etc/folder -> /usr/lib
symlink etc/loop -> loop
-- usr/lib/file --
text
`)
	hosttest.NoError(t, unix.Mkfifo(tree.Path("etc/pipe"), 0o600))
	link := filepath.Join(t.TempDir(), "link")
	hosttest.NoError(t, os.Symlink(tree.Path("/"), link))
	byLink := hosttest.Root(t, link)
	machine := hosttest.Root(t, "/")
	one := func(text string, err error) string {
		switch {
		case host.IsAbsent(err):
			return "absent"
		case errors.Is(err, unix.ENOTDIR):
			return "is a file"
		case err != nil:
			return err.Error()
		}
		return text
	}
	answers := map[string]string{}
	ofTree := []string{"", "/", ".", "etc", "etc/folder", "etc/folder/", "etc/absolute", "/etc/climbing", "etc/climbing", "etc/dangling", "etc/loop",
		"etc/loop/below", "etc/pipe", "usr/lib/file", "usr/lib/../lib/file", "../usr/lib/file", "usr/lib/file/below", "usr/absent/below",
		"etc/" + strings.Repeat("x", 300), "etc/\x00"}
	for kind, of := range map[string]struct {
		root  host.Root
		names []string
	}{
		"tree":           {tree, ofTree},
		"tree by a link": {byLink, ofTree},
		// Links of /proc, of which openat2 follows none.
		"/": {machine, []string{"dev/null", "proc/self/exe", "proc/self/cwd", "proc/self/root/dev", "proc/self/ns/net", "proc/self/mountinfo", "proc/mounts"}},
	} {
		root := of.root
		for _, name := range of.names {
			data, err := root.ReadHead(name, 5)
			read := one(fmt.Sprintf("%q", data), err)
			listed, err := root.ReadDir(name)
			list := one(fmt.Sprintf("%q", listed), err)
			ok, err := root.Exists(name)
			exists := one(map[bool]string{true: "exists", false: "absent"}[ok], err)
			place, err := root.Resolve(name)
			answers["place in "+kind+" of "+name] = one(strings.TrimPrefix(place, root.Path("/")), err)
			if answers[kind+" "+name] = read + ", " + list + ", " + exists; read == list && read == exists && read != "absent" {
				answers[kind+" "+name] = read
			}
		}
	}
	return answers
}
