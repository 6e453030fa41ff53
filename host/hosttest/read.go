package hosttest

import (
	"os"
	"testing"

	"gpustack/host"
	"gpustack/host/pci"
)

// Read returns the text of a file.
func Read(t testing.TB, name string) string {
	t.Helper()
	text, err := os.ReadFile(name)
	NoError(t, err)
	return string(text)
}

// Root returns the root at a folder.
func Root(t testing.TB, dir string) host.Root {
	t.Helper()
	root, err := host.NewRoot(dir)
	NoError(t, err)
	return root
}

// Address parses an address.
func Address(t testing.TB, text string) pci.Address {
	t.Helper()
	a, err := pci.ParseAddress(text)
	NoError(t, err)
	return a
}

// Selectors parses selectors.
func Selectors(t testing.TB, words ...string) (list []pci.Selector) {
	t.Helper()
	for _, w := range words {
		s, err := pci.ParseSelector(w)
		NoError(t, err)
		list = append(list, s)
	}
	return list
}

// Devices returns all functions of a machine.
func Devices(t testing.TB, root host.Root) pci.Devices {
	t.Helper()
	devices, _, err := pci.Scan(root, pci.Options{})
	NoError(t, err)
	return devices
}
