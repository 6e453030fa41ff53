// Package hosttest lays out machines for tests.
package hosttest

import (
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/snapshot"
)

// Lay lays out a machine that is written as a txtar archive (host/snapshot tells
// its form), in a folder that goes with the test.
func Lay(t testing.TB, archive string) host.Root {
	t.Helper()
	tree, err := snapshot.Read(strings.NewReader(archive), snapshot.Txtar)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := tree.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	root, err := host.NewRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	return root
}
