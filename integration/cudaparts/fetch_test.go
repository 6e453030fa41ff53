package cudaparts_test

import (
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/integration/cudaparts"
)

// TestFetch fetches each part that tests use. The name of the file has the version of the package.
func TestFetch(t *testing.T) {
	t.Parallel()
	for _, release := range cudaparts.Releases() {
		for _, name := range []string{"libcuda1", "libnvidia-ml1", "libnvidia-ptxjitcompiler1"} {
			part, err := cudaparts.Fetch(t.Context(), release, name)
			hosttest.NoError(t, err)
			if file := filepath.Join(part.Dir, cudaparts.Folder, "lib*.so."+part.Upstream()); len(glob(t, file)) != 1 {
				t.Errorf("no %s", file)
			}
		}
		part, err := cudaparts.Cudart(t.Context(), release)
		hosttest.NoError(t, err)
		if file := filepath.Join(part.Dir, "usr/lib/x86_64-linux-gnu/libcudart.so."+part.Upstream()); len(glob(t, file)) != 1 {
			t.Errorf("no %s", file)
		}
	}
	if _, err := cudaparts.Fetch(t.Context(), cudaparts.Bookworm, "libcuda0"); err == nil || !strings.Contains(err.Error(), "libcuda0 of bookworm non-free") {
		t.Errorf("a package that does not exist: %v", err)
	}
}

func glob(t *testing.T, pattern string) []string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	hosttest.NoError(t, err)
	return found
}
