package edit_test

import (
	"os"
	"path"
	"strings"
	"testing"

	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

// TestScratch: a program that every user can run, in a folder of its own, and nothing afterwards.
func TestScratch(t *testing.T) {
	root := hosttest.Lay(t, "-- var/lib/other --\n")
	file, remove, err := edit.Scratch(root, "program", []byte("#!/bin/sh\n"))
	if err != nil || !strings.HasPrefix(file, "/var/lib/gpustack-test-") || path.Base(file) != "program" {
		t.Fatal(file, err)
	}
	for _, name := range []string{file, path.Dir(file)} {
		if info, err := os.Stat(root.Path(name)); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	if text, err := root.ReadFile(file); err != nil || string(text) != "#!/bin/sh\n" {
		t.Errorf("%q, %v", text, err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(root.Path("/var/lib")); err != nil || len(left) != 1 {
		t.Errorf("%v, %v", left, err)
	}
	if _, _, err := edit.Scratch(hosttest.Lay(t, "-- var/file --\n"), "program", nil); err == nil || !strings.HasPrefix(err.Error(), "/var/lib: ") {
		t.Errorf("without a folder: %v", err)
	}
}
