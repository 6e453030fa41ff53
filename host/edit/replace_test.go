package edit_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

// TestReplace: a file is replaced whole, a link is not followed, what a killed run has left does
// not matter, and nothing is left beside the file.
func TestReplace(t *testing.T) {
	t.Parallel()
	for name, before := range map[string]func(t *testing.T, dir string){
		"new": func(*testing.T, string) {},
		"old": func(t *testing.T, dir string) { write(t, filepath.Join(dir, "a.prom"), "old", 0o600) },
		"link": func(t *testing.T, dir string) {
			write(t, filepath.Join(filepath.Dir(dir), "secret"), "secret", 0o600)
			hosttest.NoError(t, os.Symlink("../secret", filepath.Join(dir, "a.prom")))
		},
		"left by a killed run": func(t *testing.T, dir string) { write(t, filepath.Join(dir, ".gpustack-a.prom~"), "half", 0o600) },
		"a link in its place": func(t *testing.T, dir string) {
			hosttest.NoError(t, os.Symlink("../secret", filepath.Join(dir, ".gpustack-a.prom~")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := filepath.Join(t.TempDir(), "collector")
			hosttest.NoError(t, os.Mkdir(dir, 0o755))
			before(t, dir)
			file := filepath.Join(dir, "a.prom")
			hosttest.NoError(t, edit.Replace(file, []byte("new"), 0o644))
			info, err := os.Lstat(file)
			if err != nil || info.Mode() != 0o644 {
				t.Errorf("%v, %v", info.Mode(), err)
			}
			if content, err := os.ReadFile(file); err != nil || string(content) != "new" {
				t.Errorf("%q, %v", content, err)
			}
			if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
				t.Errorf("%v, %v", entries, err)
			}
			if content, err := os.ReadFile(filepath.Join(filepath.Dir(dir), "secret")); err == nil && string(content) != "secret" {
				t.Errorf("the link was followed: %q", content)
			}
		})
	}
}

// TestReplaceFails: the error names the file, and nothing is left.
func TestReplaceFails(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	missing := filepath.Join(dir, "missing", "a.prom")
	hosttest.Equal(t, missing+": no such file or directory", fmt.Sprint(edit.Replace(missing, nil, 0o644)))
	folder := filepath.Join(dir, "a.prom")
	hosttest.NoError(t, os.Mkdir(folder, 0o755))
	if err := edit.Replace(folder, nil, 0o644); err == nil || err.Error() != folder+": file exists" && err.Error() != folder+": is a directory" {
		t.Error(err)
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("%v, %v", entries, err)
	}
}

func write(t *testing.T, file, content string, mode os.FileMode) {
	t.Helper()
	hosttest.NoError(t, os.WriteFile(file, []byte(content), mode))
}
