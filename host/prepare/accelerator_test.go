package prepare_test

import (
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/prepare"
)

// instinct is the machine of these tests with an MI300X, which is a processing accelerator
// (class 1200) and has no display.
func instinct() string {
	const at = "sys/bus/pci/devices/0000:05:00.0"
	return "symlink " + at + "/driver -> ../../drivers/amdgpu\nsymlink " + at + "/iommu_group -> ../../../../kernel/iommu_groups/20\nmkdir sys/bus/pci/drivers/amdgpu\n" +
		running("", "-- "+at+"/class --\n0x120000\n-- "+at+"/vendor --\n0x1002\n-- "+at+"/device --\n0x74a1\n-- "+at+"/driver_override --\n(null)\n"+
			"-- "+at+"/modalias --\npci:v00001002d000074A1sv0sd0bc12sc00i00\n"+
			"-- lib/modules/6.1.0-28-amd64/modules.dep --\nkernel/amdgpu.ko:\nkernel/vfio-pci.ko:\nkernel/pci-stub.ko:\n")
}

// TestAccelerator: a processing accelerator counts as a GPU wherever displays do.
func TestAccelerator(t *testing.T) {
	root := hosttest.Lay(t, instinct())
	amd := pci.ID(0x1002)
	p, err := plan(t, root, prepare.Options{Vendors: []pci.ID{amd}})
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Functions) != 1 || p.Functions[0].Address.Bus != 5 {
		t.Errorf("--vendor 1002 selects %v", p.Functions)
	}
	blacklisted := slices.ContainsFunc(p.Files, func(c edit.Change) bool {
		return c.After != nil && strings.Contains(string(c.After.Content), "echo 'blacklist amdgpu'\n")
	})
	if !blacklisted {
		t.Error("amdgpu is not blacklisted")
	}
	if _, err := observe(t, root).Bind(root, prepare.Options{Vendors: []pci.ID{amd}}, idle, false); err == nil || !strings.Contains(err.Error(), prepare.ErrLive.Error()) {
		t.Errorf("bind without --live: %v", err)
	}
}

// TestAcceleratorReset: check looks at how a processing accelerator can be reset.
func TestAcceleratorReset(t *testing.T) {
	root := ready(t, prepare.Options{})
	for _, f := range []string{"01:00.0", "02:00.0"} {
		write(function(f+"/class"), "0x120000\n")(t, root)
	}
	findings, _ := check(t, root)
	for _, f := range findings {
		if f.Check == "reset" && (f.Status != host.Pass || f.Seen != "each of 2 GPUs can be reset: flr, bus") {
			t.Errorf("%s: %s", f.Status, f.Seen)
		}
	}
}
