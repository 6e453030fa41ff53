package main

import (
	"os"
	"path/filepath"
	"testing"

	"gpustack/cmd/gpustack/term"
)

// testUI prints to files that nobody reads.
func testUI(t *testing.T) *term.UI {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return term.New(f, f, f, func(string) string { return "" })
}
