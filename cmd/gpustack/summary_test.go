package main

import (
	"testing"

	"gpustack/cleanup"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/pci"
	"gpustack/nova"
)

func TestRepairSummary(t *testing.T) {
	instance := "1f975a18"
	device := func(host string, owner *string) cleanup.Held {
		return cleanup.Held{Device: cleanup.Device{Instance: owner}, Host: host}
	}
	online := cleanup.Unit{Repair: cleanup.Online, Instance: instance, State: cleanup.Planned, Closings: []cleanup.Closing{{Migration: 7}},
		Devices: []cleanup.Held{device("gpu1", &instance), device("gpu1", &instance)}, Placement: &cleanup.AllocationChange{}}
	offline := cleanup.Unit{Repair: cleanup.Offline, State: cleanup.Planned, Devices: []cleanup.Held{device("gpu2", &instance)}}
	claim := cleanup.Unit{Repair: cleanup.Offline, Instance: instance, State: cleanup.Planned, Devices: []cleanup.Held{device("gpu3", nil)}}
	clear := cleanup.Unit{Repair: cleanup.ClearContext, Instance: instance, State: cleanup.Planned, Devices: []cleanup.Held{device("gpu1", &instance)}}
	skipped := cleanup.Unit{Repair: cleanup.Online, State: cleanup.Skipped, Devices: []cleanup.Held{device("gpu9", &instance)}}
	for _, test := range []struct {
		name  string
		units []cleanup.Unit
		want  string
	}{
		{"online", []cleanup.Unit{online}, "2 devices freed on gpu1; 1 migration closed; allocations of 1 instance changed"},
		{"all", []cleanup.Unit{online, offline, claim, clear, skipped, skipped},
			"3 devices freed on gpu1, gpu2; 1 device assigned; 1 migration closed; 1 migration context cleared; allocations of 1 instance changed; 2 repairs skipped"},
		{"many hosts", []cleanup.Unit{{Repair: cleanup.Offline, State: cleanup.Planned,
			Devices: []cleanup.Held{device("a", &instance), device("b", &instance), device("c", &instance), device("d", &instance)}}},
			"4 devices freed on a, b, c and 1 more"},
	} {
		if got := repairSummary(test.units); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
		}
	}
	online.State, online.Rows = cleanup.Repaired, make([]cleanup.Row, 3)
	const want = "1 repair reverted; 3 rows restored; allocations of 1 instance restored"
	if got := undoRowsSummary([]cleanup.Unit{online, skipped}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestNovaSummary: only files of nova-compute get device specs.
func TestNovaSummary(t *testing.T) {
	for role, want := range map[nova.Role]string{nova.Controller: "1 alias", nova.Compute: "1 alias, 2 device specs", nova.All: "1 alias, 2 device specs"} {
		if got := novaSummary(novaReport{Role: role, Aliases: make([]nova.Alias, 1), Specs: make([]nova.Spec, 2)}); got != want {
			t.Errorf("%s: got %s, want %s", role, got, want)
		}
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
	u := &term.UI{Unicode: true}
	const want = "8 functions → vfio-pci (3 GPUs, 1 NVSwitch, 2 audio functions, 1 NIC, 1 missing device)"
	if got := views.Becomes(u, all, "vfio-pci", devices); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestRecoveryOfDrivers: a release is completed, a bind is rolled back, each where it is half made.
func TestRecoveryOfDrivers(t *testing.T) {
	for release, done := range map[bool]string{false: "rolled back", true: "completed"} {
		record := driver.Record{Release: release, Functions: []driver.Change{{Address: pci.Address{Bus: 1}}}}
		e := change.Entry{ID: 3, Kind: change.KindDrivers, Command: "host release", Status: change.Applying}
		if err := e.SetDetail(record); err != nil {
			t.Fatal(err)
		}
		want := "entry 3 (host release) is " + done + " in each IOMMU group that is half changed: drivers of 1 function"
		if got := recoverySummary(e); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}
