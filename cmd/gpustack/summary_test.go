package main

import (
	"fmt"
	"testing"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
)

// TestNovaSummary: only files of nova-compute get device specs.
func TestNovaSummary(t *testing.T) {
	for role, want := range map[nova.Role]string{nova.Controller: "1 alias", nova.Compute: "1 alias, 2 device specs", nova.All: "1 alias, 2 device specs"} {
		hosttest.EqualIn(t, fmt.Sprint(role), want, (views.NovaConfigure{Role: role, Aliases: make([]nova.Alias, 1), Specs: make([]nova.Spec, 2)}).Summary())
	}
}

// TestFunctionKinds: functions are counted as operators call them, GPUs and NVSwitches first.
func TestFunctionKinds(t *testing.T) {
	nvidia := pci.NVIDIA
	var devices pci.Devices
	var all []pci.Address
	for i, class := range []pci.Class{0x0200, 0x0403, 0x0680, 0x0302, 0x1200, 0x0300, 0x0403} {
		a := pci.Address{Bus: 1, Slot: uint8(i)}
		devices = append(devices, pci.Device{Address: a, Class: &class, VendorID: &nvidia, Parent: &pci.Address{}})
		all = append(all, a)
	}
	all = append(all, pci.Address{Bus: 9})
	u := &term.UI{Page: term.Page{Unicode: true}}
	const want = "8 functions → vfio-pci (3 GPUs, 1 NVSwitch, 2 audio functions, 1 NIC, 1 missing device)"
	hosttest.Equal(t, want, views.Becomes(u, all, "vfio-pci", devices))
}

// TestRecoveryOfDrivers: a release is completed, a bind is rolled back, each where it is half made.
func TestRecoveryOfDrivers(t *testing.T) {
	for release, done := range map[bool]string{false: "rolled back", true: "completed"} {
		record := driver.Record{Release: release, Functions: []driver.Change{{Address: pci.Address{Bus: 1}}}}
		e := change.Entry{ID: 3, Changes: change.KindDrivers, Command: "host release", Status: change.Applying}
		hosttest.NoError(t, e.SetDetail(record))
		want := "entry 3 (host release) is " + done + " in each IOMMU group that is half changed: drivers of 1 function"
		hosttest.Equal(t, want, views.RecoverySummary(e))
	}
}
