package pci_test

import (
	"slices"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// TestIdentity: the scan and the reader of one function see the same, and a record compares with
// both alike.
func TestIdentity(t *testing.T) {
	t.Parallel()
	const at = "sys/devices/pci0000:00/0000:00:01.0/0000:0c:00.0"
	root := hosttest.Lay(t, "symlink sys/bus/pci/devices/0000:0c:00.0 -> ../../../devices/pci0000:00/0000:00:01.0/0000:0c:00.0\n"+
		"symlink sys/bus/pci/devices/0000:00:01.0 -> ../../../devices/pci0000:00/0000:00:01.0\n"+
		"symlink sys/bus/pci/devices/10000:01:00.0 -> ../../../devices/pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0/10000:01:00.0\n"+
		"-- "+at+"/vendor --\n0x15b3\n-- "+at+"/device --\n0x101b\n-- "+at+"/class --\n0x020000\n"+
		"-- "+at+"/subsystem_vendor --\n0x15b3\n-- "+at+"/subsystem_device --\n0x0001\n"+
		"-- sys/devices/pci0000:00/0000:00:01.0/class --\n0x060400\n"+
		"-- sys/devices/pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0/10000:01:00.0/class --\n0x010802\n")
	devices := hosttest.Devices(t, root)
	a, bridge := devices[1].Address, devices[0].Address
	id := func(n uint16) *pci.ID { v := pci.ID(n); return &v }
	recorded := pci.Identity{Address: a, VendorID: id(0x15b3), ProductID: id(0x101b), SubsystemVendorID: id(0x15b3), SubsystemID: id(1), Path: []pci.Address{bridge}}
	for name, test := range map[string]struct {
		change func(*pci.Identity)
		want   pci.Difference
	}{
		"the same":                      {func(*pci.Identity) {}, pci.NoDifference},
		"gone":                          {func(r *pci.Identity) { r.Address.Slot++ }, pci.Missing},
		"another function":              {func(r *pci.Identity) { r.Address, r.VendorID = bridge, id(0x8086) }, pci.IDsUnread},
		"another vendor":                {func(r *pci.Identity) { r.VendorID = id(0x10de) }, pci.OtherProduct},
		"another product":               {func(r *pci.Identity) { r.ProductID = id(0x101c) }, pci.OtherProduct},
		"another vendor of the board":   {func(r *pci.Identity) { r.SubsystemVendorID = id(0x103c) }, pci.OtherBoard},
		"another board":                 {func(r *pci.Identity) { r.SubsystemID = id(2) }, pci.OtherBoard},
		"a record without board":        {func(r *pci.Identity) { r.SubsystemVendorID, r.SubsystemID = nil, nil }, pci.NoDifference},
		"other bridges":                 {func(r *pci.Identity) { r.Path = []pci.Address{a} }, pci.OtherSlot},
		"no bridge":                     {func(r *pci.Identity) { r.Path = nil }, pci.OtherSlot},
		"another board in another slot": {func(r *pci.Identity) { r.SubsystemID, r.Path = id(2), nil }, pci.OtherBoard},
	} {
		r := recorded
		test.change(&r)
		now, err := pci.ReadIdentity(root, r.Address)
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if scanned, read := r.Compare(devices.Identity(r.Address)), r.Compare(now); scanned != test.want || read != test.want {
			t.Errorf("%s: %q and %q, want %q", name, scanned, read, test.want)
		}
	}
	for i := range devices {
		read, err := pci.ReadIdentity(root, devices[i].Address)
		if err != nil || !slices.Equal(read.Path, devices.Identity(devices[i].Address).Path) {
			t.Errorf("%s: %v, %v", devices[i].Address, read, err)
		}
	}
}
