package pci_test

import (
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

func TestKind(t *testing.T) {
	const nvidia, amd = pci.NVIDIA, pci.ID(0x1002)
	bridge := pci.Address{}
	for _, c := range []struct {
		class  pci.Class
		vendor pci.ID
		behind bool // a bridge
		kind   string
		gpu    bool
	}{
		{0x0300, nvidia, true, "GPU", true},
		{0x0302, nvidia, true, "GPU", true},
		{0x0380, amd, false, "GPU", true},
		{0x0300, 0x1a03, true, "console", true},
		{0x1200, amd, true, "accelerator", true}, // an MI300X
		{0x0403, nvidia, true, "audio", false},
		{0x0680, nvidia, true, "NVSwitch", false},
		{0x0680, nvidia, false, "bridge", false}, // of a chipset
		{0x0604, nvidia, true, "bridge", false},
		{0x0200, nvidia, true, "NIC", false},
		{0x0207, nvidia, true, "NIC", false}, // InfiniBand
		{0x0107, nvidia, true, "disk controller", false},
		{0x0108, nvidia, true, "disk controller", false},
		{0x0c03, nvidia, true, "USB controller", false},
		{0x0c80, nvidia, true, "USB-C controller", false},
		{0xff00, nvidia, true, "device", false},
	} {
		d := pci.Device{Class: &c.class, VendorID: &c.vendor}
		if c.behind {
			d.Parent = &bridge
		}
		if d.Kind() != c.kind || d.IsGPU() != c.gpu {
			t.Errorf("class %s of vendor %s: %q, GPU %v, want %q, %v", c.class, c.vendor, d.Kind(), d.IsGPU(), c.kind, c.gpu)
		}
	}
	unknown := pci.Device{Address: pci.Address{Bus: 0xc3}}
	if unknown.Kind() != "device" || unknown.IsGPU() {
		t.Errorf("unknown class: %q, GPU %v", unknown.Kind(), unknown.IsGPU())
	}
	hosttest.EqualIn(t, "label without a driver", "device 0000:c3:00.0", unknown.Label())
	nic, driver := pci.Class(0x0200), "mlx5_core"
	unknown.Class, unknown.Driver = &nic, &driver
	hosttest.EqualIn(t, "label", "NIC 0000:c3:00.0 (mlx5_core)", unknown.Label())
}
