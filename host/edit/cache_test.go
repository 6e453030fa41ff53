package edit_test

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

// newCache returns a cache with a file that contains "old", and the folder of the cache.
func newCache(t *testing.T) (edit.Cache, string) {
	t.Helper()
	root := hosttest.Lay(t, "mkdir etc\n")
	c := edit.Cache{Root: root, Dir: "/var/cache/gpustack"}
	if _, err := c.Read("file"); !errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("without a cache: %v", err)
	}
	hosttest.NoError(t, c.Write("file", []byte("old")))
	return c, root.Path(c.Dir)
}

func TestCache(t *testing.T) {
	c, dir := newCache(t)
	if _, err := c.Read("none"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	// A killed writer leaves a part of the next content.
	hosttest.NoError(t, os.WriteFile(filepath.Join(dir, ".gpustack-file~"), []byte("ne"), 0o600))
	if text, err := c.Read("file"); err != nil || string(text) != "old" {
		t.Errorf("%q, %v", text, err)
	}
	hosttest.NoError(t, c.Write("file", []byte("new")))
	if text, err := c.Read("file"); err != nil || string(text) != "new" {
		t.Errorf("%q, %v", text, err)
	}
	for name, want := range map[string]fs.FileMode{"": 0o700 | fs.ModeDir, "file": 0o600} {
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode() != want {
			t.Errorf("%q: %v, %v, want %v", name, info.Mode(), err, want)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("left: %v, %v", names, err)
	}
}

// TestUnsafeCache: nothing is read from a folder that another user can write to, nor written to it.
func TestUnsafeCache(t *testing.T) {
	for name, spoil := range map[string]func(dir string) error{
		"a folder that all may write to": func(dir string) error { return os.Chmod(dir, 0o1777) },
		"a linked folder": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".moved"), os.Symlink(dir+".moved", dir))
		},
		"a file in place of the folder": func(dir string) error {
			return errors.Join(os.Rename(dir, dir+".moved"), os.WriteFile(dir, nil, 0o600))
		},
	} {
		t.Run(name, func(t *testing.T) {
			c, dir := newCache(t)
			hosttest.NoError(t, spoil(dir))
			if text, err := c.Read("file"); !errors.Is(err, edit.ErrUnsafe) {
				t.Errorf("%q, %v", text, err)
			}
			if err := c.Write("file", []byte("new")); !errors.Is(err, edit.ErrUnsafe) {
				t.Errorf("write: %v", err)
			}
			for _, elsewhere := range []string{dir + "/file", dir + ".moved/file"} {
				if text, err := os.ReadFile(elsewhere); err == nil && string(text) != "old" {
					t.Errorf("%s was written to: %q", elsewhere, text)
				}
			}
		})
	}
}

// TestCacheInParallel: a reader gets the whole content of one writer while several write.
func TestCacheInParallel(t *testing.T) {
	c, dir := newCache(t)
	content := func(i int) string { return strings.Repeat(fmt.Sprint(i), 1<<16) }
	var runs sync.WaitGroup
	for i := range 8 {
		runs.Go(func() {
			for range 5 {
				if err := c.Write("file", []byte(content(i))); err != nil {
					t.Error(err)
				}
				text, err := c.Read("file")
				if err != nil || string(text) != "old" && (len(text) == 0 || string(text) != content(int(text[0]-'0'))) {
					t.Errorf("%d bytes, %v", len(text), err)
				}
			}
		})
	}
	runs.Wait()
	if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
		t.Errorf("left: %v, %v", names, err)
	}
}

// TestLockedCache: while another process writes, nothing is written.
func TestLockedCache(t *testing.T) {
	c, dir := newCache(t)
	other, err := os.Open(dir)
	hosttest.NoError(t, err)
	defer other.Close()
	hosttest.NoError(t, unix.Flock(int(other.Fd()), unix.LOCK_EX))
	if err := c.Write("file", []byte("new")); err != nil {
		t.Error(err)
	}
	if text, err := c.Read("file"); err != nil || string(text) != "old" {
		t.Errorf("%q, %v", text, err)
	}
}
