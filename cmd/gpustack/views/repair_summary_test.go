package views

import (
	"testing"

	"gpustack/cleanup"
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
		if got := RepairSummary(test.units); got != test.want {
			t.Errorf("%s:\ngot  %s\nwant %s", test.name, got, test.want)
		}
	}
	online.State, online.Rows = cleanup.Repaired, make([]cleanup.Row, 3)
	const want = "1 repair reverted; 3 rows restored; allocations of 1 instance restored"
	if got := UndoRowsSummary([]cleanup.Unit{online, skipped}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
