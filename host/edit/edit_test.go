package edit_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

const tree = `
mkdir etc/empty
symlink etc/relative -> default/grub
symlink etc/absolute -> /etc/default/grub
symlink etc/outside -> ../../../../etc/default/grub
symlink etc/nowhere -> /etc/none
symlink etc/folder -> /etc/default
-- etc/default/grub --
A=1
B=2
`

// TestChanges shows what becomes of a file, and how the change is shown.
func TestChanges(t *testing.T) {
	for _, test := range []struct {
		name, file, text string // "" for no file
		mode             uint32
		action           edit.Action
		diff             string
	}{
		{"an update", "/etc/default/grub", "A=1\nB=3\n", 0o755, edit.Update, "--- /etc/default/grub\n+++ /etc/default/grub\n@@ -1,2 +1,2 @@\n A=1\n-B=2\n+B=3\n"},
		{"no final newline", "etc/default/grub", "A=1\nB=2", 0, edit.Update,
			"--- /etc/default/grub\n+++ /etc/default/grub\n@@ -1,2 +1,2 @@\n A=1\n-B=2\n+B=2\n\\ No newline at end of file\n"},
		{"the same", "/etc/default/grub", "A=1\nB=2\n", 0o755, edit.None, ""},
		{"a new file", "/etc/empty/new", "x\n", 0o644, edit.Create, "--- /dev/null\n+++ /etc/empty/new\n@@ -0,0 +1 @@\n+x\n"},
		{"a new script", "/etc/empty/new", "x\n", 0o755, edit.Create, "new file mode 755\n--- /dev/null\n+++ /etc/empty/new\n@@ -0,0 +1 @@\n+x\n"},
		{"new folders", "/var/lib/x/new", "x\n", 0o600, edit.Create, "--- /dev/null\n+++ /var/lib/x/new\n@@ -0,0 +1 @@\n+x\n"},
		{"a file removed", "/etc/default/grub", "", 0, edit.Delete, "--- /etc/default/grub\n+++ /dev/null\n@@ -1,2 +0,0 @@\n-A=1\n-B=2\n"},
		{"no file removed", "/etc/none", "", 0, edit.None, ""},
		{"through a link", "/etc/relative", "A=2\n", 0, edit.Update, "--- /etc/relative\n+++ /etc/relative\n@@ -1,2 +1 @@\n-A=1\n-B=2\n+A=2\n"},
		{"through an absolute link", "/etc/absolute", "A=1\n", 0, edit.Update, "--- /etc/absolute\n+++ /etc/absolute\n@@ -1,2 +1 @@\n A=1\n-B=2\n"},
		{"through a link that leads out", "/etc/outside", "A=1\n", 0, edit.Update, "--- /etc/outside\n+++ /etc/outside\n@@ -1,2 +1 @@\n A=1\n-B=2\n"},
		{"below a linked folder", "/etc/folder/new", "x\n", 0o644, edit.Create, "--- /dev/null\n+++ /etc/folder/new\n@@ -0,0 +1 @@\n+x\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, tree)
			before := all(t, root)
			var c edit.Change
			var err error
			if test.text == "" {
				c, err = edit.Observe(root, test.file).Remove(test.file)
			} else {
				c, err = edit.Put(root, test.file, []byte(test.text), test.mode, false)
			}
			hosttest.NoError(t, err)
			hosttest.Equal(t, test.action, c.Action())
			hosttest.EqualIn(t, "shown", test.diff, c.Diff())
			hosttest.NoError(t, c.Apply(root))
			now, err := edit.Read(root, test.file)
			if err != nil || !now.Equal(c.After) {
				t.Errorf("%v, %v, want %v", now, err, c.After)
			}
			hosttest.NoError(t, c.Inverse().Apply(root))
			hosttest.NoError(t, edit.RemoveDirs(root, c.Dirs))
			hosttest.EqualIn(t, "undone", before, all(t, root))
		})
	}
}

// TestNamesAlike: files of a folder that change at once have a temporary file each, however alike
// their names are.
func TestNamesAlike(t *testing.T) {
	root := hosttest.Lay(t, tree)
	names := []string{"/etc/a.b_c.conf", "/etc/a_b_c.conf", "/etc/a.b.c.conf", "/etc/a__b.c_conf", "/etc/a.b.c.conf~"}
	var changes edit.Changes
	for _, name := range names {
		c, err := edit.Put(root, name, []byte("of "+name), 0o644, false)
		hosttest.NoError(t, err)
		changes = append(changes, c)
	}
	hosttest.NoError(t, changes.Apply(t.Context(), root))
	for _, name := range names {
		f, err := edit.Read(root, name)
		hosttest.NoError(t, err)
		hosttest.EqualIn(t, name, "of "+name, string(f.Content))
	}
}

// all returns every entry below a root: mode, and what a file holds or a link
// leads to.
func all(t *testing.T, root host.Root) map[string]string {
	t.Helper()
	entries := map[string]string{}
	err := filepath.WalkDir(root.Path("/"), func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		entry := info.Mode().String()
		switch {
		case info.Mode().IsRegular():
			text, err := os.ReadFile(name)
			if err != nil {
				return err
			}
			entry += " " + string(text)
		case info.Mode()&os.ModeSymlink != 0:
			target, err := os.Readlink(name)
			if err != nil {
				return err
			}
			entry += " -> " + target
		}
		entries[strings.TrimPrefix(name, root.Path("/"))] = entry
		return nil
	})
	hosttest.NoError(t, err)
	return entries
}

// TestKept: what a file has beside its content stays.
func TestKept(t *testing.T) {
	root := hosttest.Lay(t, tree)
	file := root.Path("/etc/default/grub")
	hosttest.NoError(t, os.Chmod(file, 0o640|os.ModeSetgid))
	if os.Geteuid() == 0 {
		hosttest.NoError(t, os.Chown(file, 12, 34))
		hosttest.NoError(t, os.Chmod(file, 0o640|os.ModeSetgid))
	}
	if err := unix.Setxattr(file, "user.note", []byte("by me"), 0); err != nil {
		t.Fatalf("the temporary folder takes no extended attributes: %v", err)
	}
	before, err := edit.Read(root, "/etc/default/grub")
	hosttest.NoError(t, err)
	c, err := edit.Put(root, "/etc/default/grub", []byte("C=3\n"), 0o755, false)
	hosttest.NoError(t, err)
	hosttest.NoError(t, c.Apply(root))
	after, err := edit.Read(root, "/etc/default/grub")
	hosttest.NoError(t, err)
	if diff := cmp.Diff(before.Meta, after.Meta); diff != "" || string(after.Content) != "C=3\n" {
		t.Errorf("%q (-before +after):\n%s", after.Content, diff)
	}
	// A script's mode counts.
	c, err = edit.Put(root, "/etc/default/grub", []byte("C=3\n"), 0o755, true)
	if err != nil || c.Diff() != "old mode 2640\nnew mode 755\n" {
		t.Errorf("%q, %v", c.Diff(), err)
	}
}

// TestIntegrity: security.ima and security.evm are computed over the content. They do not go over
// to another content, and are back with the old one; other attributes stay.
func TestIntegrity(t *testing.T) {
	root := hosttest.Lay(t, tree)
	file := root.Path("/etc/default/grub")
	for name, value := range map[string]string{"security.ima": "\x01digest", "security.evm": "\x02hmac", "user.note": "by me"} {
		if err := unix.Setxattr(file, name, []byte(value), 0); err != nil {
			t.Fatalf("%s: the temporary folder takes no extended attributes, or this is not root: %v", name, err)
		}
	}
	attributes := func(name string) map[string]string {
		t.Helper()
		f, err := edit.Read(root, name)
		hosttest.NoError(t, err)
		values := map[string]string{}
		for _, x := range f.Xattrs {
			values[x.Name] = string(x.Value)
		}
		return values
	}
	c, err := edit.Put(root, "/etc/default/grub", []byte("C=3\n"), 0o755, false)
	hosttest.NoError(t, err)
	hosttest.NoError(t, c.Apply(root))
	hosttest.EqualIn(t, "changed", map[string]string{"user.note": "by me"}, attributes("/etc/default/grub"))
	hosttest.NoError(t, c.Inverse().Apply(root))
	// The old HMAC holds for the old inode only: the kernel computes its own.
	hosttest.EqualIn(t, "changed back", map[string]string{"security.ima": "\x01digest", "user.note": "by me"}, attributes("/etc/default/grub"))
	hosttest.NoError(t, edit.Copy(root, "/etc/default/grub", "/etc/empty/copy"))
	hosttest.EqualIn(t, "copied", map[string]string{"security.ima": "\x01digest", "user.note": "by me"}, attributes("/etc/empty/copy"))
	// A signature of EVM that names no inode goes with the file.
	hosttest.NoError(t, unix.Setxattr(file, "security.evm", []byte("\x05signature"), 0))
	hosttest.NoError(t, edit.Copy(root, "/etc/default/grub", "/etc/empty/copy"))
	hosttest.EqualIn(t, "copied", "\x05signature", attributes("/etc/empty/copy")["security.evm"])
}

// TestProtected: a file or a directory that is immutable or append-only is named, with the command
// that changes it, before any file is touched. Who runs this makes no difference.
func TestProtected(t *testing.T) {
	for _, test := range []struct {
		name, protected string
		flag            int
		want, command   string
	}{
		{"an immutable file", "/etc/default/grub", unix.STATX_ATTR_IMMUTABLE, "/etc/default/grub: is immutable", "chattr -i ROOT/etc/default/grub"},
		{"an append-only file", "/etc/default/grub", unix.STATX_ATTR_APPEND, "/etc/default/grub: is append-only", "chattr -a ROOT/etc/default/grub"},
		{"an immutable directory", "/etc/default", unix.STATX_ATTR_IMMUTABLE, "/etc/default/grub: its directory is immutable", "chattr -i ROOT/etc/default"},
		{"an append-only directory", "/etc/default", unix.STATX_ATTR_APPEND, "/etc/default/grub: its directory is append-only", "chattr -a ROOT/etc/default"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, tree)
			setFlag(t, root.Path(test.protected), test.flag)
			before := all(t, root)
			first, err := edit.Put(root, "/etc/empty/new", []byte("x\n"), 0o644, false)
			hosttest.NoError(t, err)
			second, err := edit.Put(root, "/etc/default/grub", []byte("C=3\n"), 0o644, false)
			hosttest.NoError(t, err)
			err = edit.Changes{first, second}.Apply(context.Background(), root)
			var protected *edit.Protected
			if !errors.As(err, &protected) || err.Error() != test.want || protected.Command() != strings.Replace(test.command, "ROOT", root.Path("/"), 1) {
				t.Errorf("%v, %v", err, protected)
			}
			hosttest.EqualIn(t, "before and after", before, all(t, root))
			remove, err := edit.Observe(root, "/etc/default/grub").Remove("/etc/default/grub")
			hosttest.NoError(t, err)
			hosttest.EqualIn(t, "removed", test.want, fmt.Sprint(remove.Apply(root)))
		})
	}
}

// TestProtectedAbove: a directory that is missing cannot be made in an immutable one.
func TestProtectedAbove(t *testing.T) {
	root := hosttest.Lay(t, tree)
	setFlag(t, root.Path("/etc/empty"), unix.STATX_ATTR_IMMUTABLE)
	c, err := edit.Put(root, "/etc/empty/a/b/new", []byte("x\n"), 0o644, false)
	hosttest.NoError(t, err)
	var protected *edit.Protected
	if err := c.Apply(root); !errors.As(err, &protected) || protected.Command() != "chattr -i "+root.Path("/etc/empty") {
		t.Errorf("%v", err)
	}
}

// setFlag sets an attribute of a file (chattr(1)) until the test ends.
func setFlag(t *testing.T, place string, attribute int) {
	t.Helper()
	flag := 0x10 // FS_IMMUTABLE_FL (linux/fs.h)
	if attribute == unix.STATX_ATTR_APPEND {
		flag = 0x20 // FS_APPEND_FL
	}
	change := func(set, clear int) {
		f, err := os.Open(place)
		hosttest.NoError(t, err)
		defer f.Close()
		flags, err := unix.IoctlGetInt(int(f.Fd()), unix.FS_IOC_GETFLAGS)
		if err == nil {
			err = unix.IoctlSetPointerInt(int(f.Fd()), unix.FS_IOC_SETFLAGS, flags&^clear|set)
		}
		if err != nil {
			t.Fatalf("the temporary folder takes no such flag, or this is not root: %v", err)
		}
	}
	change(flag, 0)
	t.Cleanup(func() { change(0, flag) })
}

// TestRefused: what cannot be changed safely is refused when it is planned.
func TestRefused(t *testing.T) {
	root := hosttest.Lay(t, tree)
	hosttest.NoError(t, os.Link(root.Path("/etc/default/grub"), root.Path("/etc/second")))
	for _, test := range []struct {
		name, file string
		want       string
	}{
		{"several hard links", "/etc/second", "/etc/second: has several hard links, of which one alone would change"},
		{"a folder", "/etc/empty", "/etc/empty: not a regular file"},
		{"a file for a folder", "/etc/default/grub/x", "/etc/default/grub/x: not a directory"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := edit.Put(root, test.file, []byte("x"), 0o644, false); err == nil || err.Error() != test.want {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// TestStale: a file that has changed since the plan is not touched.
func TestStale(t *testing.T) {
	root := hosttest.Lay(t, tree)
	first, err := edit.Put(root, "/etc/empty/new", []byte("x\n"), 0o644, false)
	hosttest.NoError(t, err)
	second, err := edit.Put(root, "/etc/default/grub", []byte("A=2\n"), 0o644, false)
	hosttest.NoError(t, err)
	hosttest.NoError(t, os.WriteFile(root.Path("/etc/default/grub"), []byte("mine\n"), 0o644))
	err = edit.Changes{first, second}.Apply(context.Background(), root)
	if !errors.Is(err, edit.ErrChanged) || err.Error() != "/etc/default/grub: changed since the plan was made" {
		t.Errorf("%v", err)
	}
	if names, err := root.ReadDir("/etc/empty"); len(names) > 0 || err != nil {
		t.Errorf("left: %v, %v", names, err)
	}
}

// countdown is a context that ends when it has been asked often enough whether it has.
type countdown struct {
	context.Context
	left *int
}

func (c countdown) Err() error {
	if *c.left--; *c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestInterrupted: wherever between two files the context ends, no file is changed and none is
// left behind.
func TestInterrupted(t *testing.T) {
	for asked := 0; ; asked++ {
		root := hosttest.Lay(t, tree)
		var plan edit.Changes
		for _, name := range []string{"/etc/default/grub", "/etc/empty/new", "/etc/new/deep/file"} {
			c, err := edit.Put(root, name, []byte("x\n"), 0o644, false)
			hosttest.NoError(t, err)
			plan = append(plan, c)
		}
		left := asked
		err := plan.Apply(countdown{context.Background(), &left}, root)
		if err == nil {
			if asked < 2*len(plan) {
				t.Errorf("asked %d times only", asked)
			}
			return
		}
		if !errors.Is(err, context.Canceled) || err.Error() != "context canceled" {
			t.Errorf("%v", err)
		}
		for _, c := range plan {
			now, err := edit.Read(root, c.Name)
			if err != nil || !now.Equal(c.Before) {
				t.Errorf("asked %d times: %s: %v, %v", asked, c.Name, now, err)
			}
		}
		for _, dir := range []string{"/etc/empty", "/etc/new"} {
			if names, err := root.ReadDir(dir); len(names) > 0 || err != nil && !host.IsAbsent(err) {
				t.Errorf("asked %d times: left in %s: %v, %v", asked, dir, names, err)
			}
		}
	}
}
