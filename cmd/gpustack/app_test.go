package main

import (
	"os"
	"path/filepath"
	"testing"

	"gpustack/cmd/gpustack/term"
	"gpustack/host/hosttest"
)

// testUI prints to files that nobody reads.
func testUI(t *testing.T) *term.UI {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	hosttest.NoError(t, err)
	t.Cleanup(func() { f.Close() })
	return term.New(f, f, f, func(string) string { return "" })
}
