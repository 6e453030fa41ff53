package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"

	"gpustack/host/hosttest"
)

// TestCached: a thing is made once for each key, however many want it at once, and
// what is not whole is not found.
func TestCached(t *testing.T) {
	t.Setenv("GPUSTACK_VM_CACHE", t.TempDir())
	var made atomic.Int32
	build := func(_ context.Context, dir string) error {
		made.Add(1)
		return os.WriteFile(filepath.Join(dir, "thing"), nil, 0o644)
	}
	want := func(key string) {
		dir, err := cached(t.Context(), "thing", key, build)
		if err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(filepath.Join(dir, "thing")); err != nil {
			t.Error(err)
		}
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() { want("one") })
	}
	all.Wait()
	want("another")
	if n := made.Load(); n != 2 {
		t.Errorf("made %d times, want 2", n)
	}

	fails := errors.New("fails")
	if _, err := cached(t.Context(), "thing", "bad", func(context.Context, string) error { return fails }); !errors.Is(err, fails) {
		t.Errorf("a build that fails: %v", err)
	}
	// One that is killed leaves its half behind, until the next is made.
	cache, _ := Cache()
	hosttest.NoError(t, os.Mkdir(filepath.Join(cache, ".making-thing-killed"), 0o755))
	want("bad")
	left, err := filepath.Glob(filepath.Join(cache, ".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
