package views

import (
	"testing"

	"gpustack/cleanup"
	"gpustack/host/hosttest"
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
		{"online", []cleanup.Unit{online}, "free 2 devices on gpu1; close 1 migration; change allocations of 1 instance"},
		{"all", []cleanup.Unit{online, offline, claim, clear, skipped, skipped},
			"free 3 devices on gpu1, gpu2; assign 1 device; close 1 migration; clear 1 migration context; change allocations of 1 instance; 2 repairs skipped"},
		{"many hosts", []cleanup.Unit{{Repair: cleanup.Offline, State: cleanup.Planned,
			Devices: []cleanup.Held{device("a", &instance), device("b", &instance), device("c", &instance), device("d", &instance)}}},
			"free 4 devices on a, b, c and 1 more"},
	} {
		hosttest.EqualIn(t, test.name, test.want, RepairSummary(test.units))
	}
	done, unknown := online, online
	done.State, unknown.State = cleanup.Repaired, cleanup.Begun
	hosttest.Equal(t, "2 repairs made; 1 repair skipped; 1 repair with an unknown outcome", RepairedSummary([]cleanup.Unit{done, skipped, done, unknown}))
	online.State, online.Rows = cleanup.Repaired, make([]cleanup.Row, 3)
	const want = "revert 1 repair; restore 3 rows; restore allocations of 1 instance"
	hosttest.Equal(t, want, UndoRowsSummary([]cleanup.Unit{online, skipped}))
}
