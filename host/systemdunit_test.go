package host_test

import (
	"os"
	"path/filepath"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestFindUnit: a unit is found in each folder from which systemd reads units, in the one that
// takes precedence first.
func TestFindUnit(t *testing.T) {
	dir := t.TempDir()
	root := hosttest.Root(t, dir)
	find := func(want string) {
		t.Helper()
		if file, err := root.FindUnit("docker.service"); file != want || err != nil {
			t.Errorf("found %q, %v; want %q", file, err, want)
		}
	}
	find("")
	dirs := host.UnitDirs()
	for i := range dirs {
		folder := dirs[len(dirs)-1-i]
		hosttest.NoError(t, os.MkdirAll(filepath.Join(dir, folder), 0o755))
		hosttest.NoError(t, os.WriteFile(filepath.Join(dir, folder, "docker.service"), nil, 0o644))
		find(folder + "/docker.service")
	}
	hosttest.NoError(t, os.RemoveAll(filepath.Join(dir, dirs[0])))
	if err := os.WriteFile(filepath.Join(dir, dirs[0]), nil, 0o644); err != nil { // a file, not a folder
		t.Fatal(err)
	}
	if file, err := root.FindUnit("docker.service"); file != dirs[0]+"/docker.service" || err == nil {
		t.Errorf("found %q, %v; want an error about the first folder", file, err)
	}
}
