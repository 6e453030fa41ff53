// Package hosttest creates file trees of machines for tests: [Lay] of an archive, [Bare] with two
// graphics cards; [NoError], [Equal] and [Contains] judge. It is for tests only, and reads nothing
// of the machine that they run on.
package hosttest

import (
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/snapshot"
)

// Lay unpacks a machine from a txtar archive, whose format host/snapshot documents, into a
// temporary folder of the test.
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
