package host_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestRootNamesTheFile: an error of each method is the path on the machine and the cause, without
// the root and the system call, and is still that of the kernel.
func TestRootNamesTheFile(t *testing.T) {
	dir := t.TempDir()
	hosttest.NoError(t, errors.Join(
		os.WriteFile(filepath.Join(dir, "file"), []byte("x"), 0o600),
		os.Mkdir(filepath.Join(dir, "folder"), 0o700),
		os.Symlink("loop", filepath.Join(dir, "loop")),
	))
	plain := hosttest.Root(t, dir)
	methods := map[string]func(host.Root, string) error{
		"ReadFile":  func(r host.Root, name string) error { _, err := r.ReadFile(name); return err },
		"ReadTable": func(r host.Root, name string) error { _, err := r.ReadTable(name); return err },
		"ReadReduced": func(r host.Root, name string) error {
			_, err := r.ReadReduced(name, func([]byte) []byte { return nil })
			return err
		},
		"ReadHead": func(r host.Root, name string) error { _, err := r.ReadHead(name, 1); return err },
		"ReadDir":  func(r host.Root, name string) error { _, err := r.ReadDir(name); return err },
		"Open":     func(r host.Root, name string) error { _, err := r.Open(name); return err },
		"OpenDir":  func(r host.Root, name string) error { _, err := r.OpenDir(name); return err },
		"Exists":   func(r host.Root, name string) error { _, err := r.Exists(name); return err },
		"Node":     func(r host.Root, name string) error { _, err := r.Node(name); return err },
		"Resolve":  func(r host.Root, name string) error { _, err := r.Resolve(name); return err },
		"Real":     func(r host.Root, name string) error { _, err := r.Real(name); return err },
	}
	failed := 0
	for _, test := range []struct {
		name, text string
		is         error
	}{
		{"no/file", "/no/file: no such file or directory", fs.ErrNotExist},
		{"/no/file", "/no/file: no such file or directory", unix.ENOENT},
		{"file/below", "/file/below: not a directory", unix.ENOTDIR},
		{"loop/below", "/loop/below: too many levels of symbolic links", unix.ELOOP},
		{"folder", "/folder: not a regular file", nil},
		{"file", "/file: not a directory", unix.ENOTDIR},
		{"file", "/file: not a device node", host.ErrNotNode},
	} {
		found := false
		for method, call := range methods {
			for kind, root := range map[string]host.Root{"plain": plain, "once": plain.Once()} {
				err := call(root, test.name)
				if err == nil {
					continue // not an error of this method
				}
				failed++
				text := err.Error()
				found = found || text == test.text
				if !strings.HasPrefix(text, "/"+strings.TrimPrefix(test.name, "/")+": ") || strings.Contains(text, dir) || strings.Count(text, ": ") != 1 {
					t.Errorf("%s of %s, %s: %s", method, test.name, kind, text)
				}
				if text == test.text && test.is != nil && !errors.Is(err, test.is) {
					t.Errorf("%s of %s, %s: is not %v", method, test.name, kind, test.is)
				}
				if cause := host.Cause(err); "/"+strings.TrimPrefix(test.name, "/")+": "+cause.Error() != text {
					t.Errorf("%s of %s, %s: cause %v of %s", method, test.name, kind, cause, text)
				}
			}
		}
		if !found {
			t.Errorf("no method says %s", test.text)
		}
	}
	if failed < 80 {
		t.Errorf("only %d calls have failed", failed)
	}
}

// TestOfFile: an error gets the name of one file, and what wraps it stays.
func TestOfFile(t *testing.T) {
	system := &fs.PathError{Op: "open", Path: "/root/etc/x", Err: unix.EACCES}
	for _, test := range []struct {
		err  error
		want string
	}{
		{system, "/etc/x: permission denied"},
		{host.OfFile("etc/x", system), "/etc/x: permission denied"},
		{host.OfFile("/etc/y", system), "/etc/x: permission denied"},
		{errors.Join(host.OfFile("/etc/y", system)), "/etc/x: /etc/y: permission denied"},
		{errors.New("not a number"), "/etc/x: not a number"},
	} {
		err := host.OfFile("/etc/x", test.err)
		if err.Error() != test.want {
			t.Errorf("%v: %v, want %s", test.err, err, test.want)
		}
		if errors.Is(test.err, unix.EACCES) && !errors.Is(err, fs.ErrPermission) {
			t.Errorf("%v: no error of permission", err)
		}
	}
	if err := host.OfFile("/etc/x", nil); err != nil {
		t.Errorf("no error: %v", err)
	}
	if read, err := host.IfPresent("x", host.OfFile("/etc/x", unix.ENOENT)); read != "" || err != nil {
		t.Errorf("an absent file: %q, %v", read, err)
	}
	if read, err := host.IfPresent("x", nil); read != "x" || err != nil {
		t.Errorf("a file: %q, %v", read, err)
	}
	if _, err := host.IfPresent("", host.OfFile("/etc/x", unix.EACCES)); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("an unreadable file: %v", err)
	}
}
