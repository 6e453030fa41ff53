package machine_test

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

const recorded = `{"schema": 1, "kind": "contract", "guests": {"driver": "vfio-pci", "selected": ["0000:84:00.0"], "allowed": [],
"allow_unsafe_interrupts": false, "nvswitch": "", "take_over": false,
"functions": [{"address": "0000:84:00.0", "vendor_id": "10de", "product_id": "11b4", "subsystem_vendor_id": null, "subsystem_id": null,
"bridges": [], "sysfs_path": null, "boot_vga": false, "iommu_group": null, "group_members": [], "driver": "vfio-pci", "by": "ids"}],
"arguments": [], "files": []}, "containers": null}`

// TestReadContract: a record with unknown fields can be read, one that lacks something cannot.
func TestReadContract(t *testing.T) {
	for _, c := range []struct{ name, old, new, want string }{
		{"as it is", "", "", ""},
		{"unknown fields", `"by": "ids"`, `"by": "ids", "later": {}`, ""},
		{"a field missing", `"driver": "vfio-pci", "selected"`, `"selected"`, "driver is missing"},
		{"a field of a function missing", `, "by": "ids"`, ``, "guests.functions[0].by is missing"},
		{"a null address", `["0000:84:00.0"]`, `[null]`, "selected[0] is null"},
		{"a selected function without its record", `["0000:84:00.0"]`, `["0000:84:00.0", "0000:85:00.0"]`,
			"malformed: selected 0000:85:00.0 is not among the functions"},
		{"cut off", `"containers": null}`, ``, "ends early"},
		{"no section", `"guests"`, `"others"`, "guests is missing"},
		{"the other section has another name", `"containers"`, `"container"`, "containers is missing"},
		{"in another letter case", `"guests"`, `"Guests"`, "guests is missing"},
		{"neither", `{"driver"`, `null, "others": {"driver"`, "malformed: records neither guests nor containers"},
		{"another schema", `"schema": 1`, `"schema": 3`, "contract.json: schema 3: this version of gpustack reads schema 1"},
	} {
		root := hosttest.Lay(t, "-- var/lib/gpustack/contract.json --\n"+strings.Replace(recorded, c.old, c.new, 1)+"\n")
		contract, err := machine.ReadContract(root)
		if c.want == "" && (err != nil || contract == nil || contract.Functions[0].Driver != "vfio-pci") ||
			c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %+v, %v, want %q", c.name, contract, err, c.want)
		}
	}
}

// TestThere: a function that was not selected for guests does not get the role of the recorded one
// because it is at its address.
func TestThere(t *testing.T) {
	at := pci.Address{Bus: 0x84}
	product, other := pci.ID(0x11b4), pci.ID(0x1eb1)
	device := func(product *pci.ID, parent *pci.Address) pci.Devices {
		vendor := pci.ID(0x10de)
		d := pci.Device{Address: at, VendorID: &vendor, ProductID: product, Parent: parent}
		if parent == nil {
			return pci.Devices{d}
		}
		return pci.Devices{{Address: *parent}, d}
	}
	for _, test := range []struct {
		name    string
		by      machine.By
		devices pci.Devices
		stays   bool
	}{
		{"unchanged", machine.ByAddress, device(&product, nil), true},
		{"gone", machine.ByAddress, nil, true},
		{"another product", machine.ByIDs, device(&other, nil), false},
		{"its product is unreadable", machine.ByIDs, device(nil, nil), false},
		{"the same product in another slot, bound by address", machine.ByAddress, device(&product, &pci.Address{Bus: 0x80, Slot: 1}), false},
		{"the same product in another slot, bound by ids", machine.ByIDs, device(&product, &pci.Address{Bus: 0x80, Slot: 1}), true},
	} {
		c := &machine.Contract{Selected: []pci.Address{at}, Functions: []machine.Function{{Address: at, VendorID: 0x10de, ProductID: product, By: test.by}}}
		there := c.There(test.devices)
		if stays := there.At(at) != nil; stays != test.stays || len(there.Selected) != len(there.Functions) || len(c.Functions) != 1 {
			t.Errorf("%s: stays: %t, selected: %v", test.name, stays, there.Selected)
		}
	}
}
