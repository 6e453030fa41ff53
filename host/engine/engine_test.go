package engine_test

import (
	"errors"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/engine"
	"gpustack/host/hosttest"
)

func runner(t *testing.T) host.Runner {
	t.Helper()
	root := hosttest.Root(t, "/")
	return host.Runner{Root: root, Dirs: []string{t.TempDir()}}
}

// TestFind: the first engine that has the image starts the containers. An image that is
// missing, an engine that is missing and one that fails are three errors.
func TestFind(t *testing.T) {
	t.Parallel()
	r := runner(t)
	if _, err := engine.Find(t.Context(), r, "localhost/rdma:1"); !errors.Is(err, engine.ErrNoEngine) {
		t.Errorf("no engine: %v", err)
	}
	hosttest.Engine(t, r.Dirs[0], "docker", "")
	if c, err := engine.Find(t.Context(), r, "localhost/rdma:1"); err != nil || c.Engine != "docker" {
		t.Errorf("%+v, %v", c, err)
	}
	hosttest.Engine(t, r.Dirs[0], "podman", "")
	if c, err := engine.Find(t.Context(), r, "localhost/rdma:1"); err != nil || c.Engine != "podman" || c.Image != "localhost/rdma:1" {
		t.Errorf("%+v, %v", c, err)
	}
	if _, err := engine.Find(t.Context(), r, "other"); !errors.Is(err, engine.ErrNoImage) || !strings.Contains(err.Error(), "podman: other: no such image") {
		t.Errorf("no image: %v", err)
	}
	if _, err := engine.Find(t.Context(), r, "broken"); err == nil || errors.Is(err, engine.ErrNoImage) ||
		!strings.Contains(err.Error(), "database is locked") {
		t.Errorf("an engine that fails: %v", err)
	}
}

// TestCheckImage: names that podman and docker list, and words that are options or for a shell.
func TestCheckImage(t *testing.T) {
	for name, want := range map[string]bool{
		"localhost/rdma:latest": true, "debian": true, "registry.example.com:5000/a/b@sha256:0123abcd": true, "0123456789ab": true,
		"": false, "-v": false, "a b": false, "a;b": false, "a\nb": false, "$(a)": false,
	} {
		if err := engine.CheckImage(name); (err == nil) != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}
