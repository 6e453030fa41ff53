package pci_test

import (
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

func TestIsRepresentor(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]bool{
		"pf0vf0\n": true, "pf1vf127": true, "pf0sf88": true, "c1pf0vf3": true, "c2pf0": true, "pf0": true, "pf0hpf": true, "3": true,
		"p0": false, "p1\n": false, "p0s2": false, "": false, "pf": false, "c1": false, "port1": false, "pfx": false,
	} {
		hosttest.EqualIn(t, name, want, pci.IsRepresentor(name))
	}
}
