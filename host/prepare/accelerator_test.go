package prepare_test

import (
	"slices"
	"strings"
	"testing"

	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// TestAccelerator: a processing accelerator counts as a GPU wherever displays do.
func TestAccelerator(t *testing.T) {
	root := hosttest.Lay(t, hosttest.Instinct())
	amd := pci.ID(0x1002)
	p, err := plan(t, root, selection.Options{Vendors: []pci.ID{amd}})
	hosttest.NoError(t, err)
	if len(p.Functions) != 1 || p.Functions[0].Address.Bus != 5 {
		t.Errorf("--vendor 1002 selects %v", p.Functions)
	}
	blacklisted := slices.ContainsFunc(p.Files, func(c edit.Change) bool {
		return c.After != nil && strings.Contains(string(c.After.Content), "echo 'blacklist amdgpu'\n")
	})
	if !blacklisted {
		t.Error("amdgpu is not blacklisted")
	}
}
