package edit_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

// TestFiles: changes are planned from what was observed, not from what is there now, and a file
// that was not observed, or that cannot be read, prevents only its own changes.
func TestFiles(t *testing.T) {
	t.Parallel()
	root := hosttest.Lay(t, "symlink etc/dangling -> nowhere\nmkdir etc/folder\n-- etc/a --\nbefore\n")
	files := edit.Observe(root, "/etc/a", "/etc/a/b", "/etc/new/b", "/etc/folder", "/etc/dangling")
	hosttest.NoError(t, os.WriteFile(filepath.Join(root.Path("/etc"), "a"), []byte("after\n"), 0o600))
	c, err := files.Put("/etc/a", []byte("planned\n"), 0o644, false)
	if err != nil || string(c.Before.Content) != "before\n" {
		t.Errorf("%+v, %v", c, err)
	}
	if c, err := files.Put("/etc/new/b", nil, 0o644, false); err != nil || !slices.Equal(c.Dirs, []string{"/etc/new"}) {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := files.Remove("/etc/dangling"); err != nil {
		t.Errorf("a link to nothing, that no file is there: %v", err)
	}
	if _, err := files.Put("/etc/dangling", nil, 0o644, false); err == nil {
		t.Error("a link to nothing, that a file is there: no error")
	}
	for _, name := range []string{"/etc/folder", "/etc/other"} {
		if _, err := files.Remove(name); err == nil {
			t.Errorf("%s: no error", name)
		}
		if _, err := files.Put(name, nil, 0o644, false); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
