package db

import (
	"testing"
	"time"

	"gpustack/host/hosttest"
)

const first, second = "0000:84:00.0", "0000:88:00.0"

// freed are the changes to the first row when the owner has its card no more.
func freed(owner string) []Change {
	return []Change{
		{first, "status", "allocated", "available"},
		{first, "instance_uuid", owner, "NULL"},
		{first, "request_id", RequestOf(owner), "NULL"},
	}
}

// content is an answer without changes, with so many K4200s free.
func content(free int) Tracked {
	tracked := Tracked{Changes: []Change{}, Pools: []Pool{}, Offers: map[string]int{}}
	if free > 0 {
		tracked.Pools = []Pool{{Product: "10de:11b4", Type: "type-PCI", Count: free}}
		tracked.Offers["K4200"] = free
	}
	return tracked
}

// counted returns an answer without the addresses of free devices, of which its pools have the
// number.
func counted(t *testing.T, tracked Tracked) Tracked {
	t.Helper()
	free := 0
	for _, p := range tracked.Pools {
		free += p.Count
	}
	if len(tracked.Free) != free {
		t.Errorf("%d devices are free by the pools, not %q", free, tracked.Free)
	}
	tracked.Free = nil
	return tracked
}

// TestTrack: the oracle knows what is known of Nova.
func TestTrack(t *testing.T) {
	guest := UUID(1)
	changed := func(tracked Tracked, changes ...Change) Tracked {
		tracked.Changes = changes
		return tracked
	}
	tests := []struct {
		name    string
		rows    func(t *testing.T, cell *Cell, node int64)
		devices []Device // K4200s at first and second if nil
		want    Tracked
	}{
		{
			name: "two free cards",
			rows: func(t *testing.T, cell *Cell, node int64) {
				cell.Card(t, node, first, "available", "")
				cell.Card(t, node, second, "available", "")
			},
			want: content(2),
		},
		{
			name: "no row yet",
			rows: func(t *testing.T, cell *Cell, node int64) {
				cell.Card(t, node, first, "available", "")
			},
			want: changed(content(2), Change{second, "status", "NULL", "available"}),
		},
		{
			name: "no card any more",
			rows: func(t *testing.T, cell *Cell, node int64) {
				cell.Card(t, node, first, "available", "")
				cell.Card(t, node, second, "available", "")
			},
			devices: K4200s(second),
			want:    changed(content(1), Change{first, "status", "available", "removed"}),
		},
		{
			name: "owner deleted",
			rows: func(t *testing.T, cell *Cell, node int64) {
				cell.Instance(t, guest, "gpu1", "deleted", "", InstanceDeleted(time.Hour))
				cell.Card(t, node, first, "allocated", guest)
				cell.Card(t, node, second, "available", "")
			},
			want: changed(content(2), freed(guest)...),
		},
		{
			name: "owner has no row",
			rows: func(t *testing.T, cell *Cell, node int64) {
				cell.Card(t, node, first, "allocated", guest)
				cell.Card(t, node, second, "available", "")
			},
			want: changed(content(2), freed(guest)...),
		},
		{
			name: "owner active on the node",
			rows: func(t *testing.T, cell *Cell, node int64) {
				cell.Instance(t, guest, "gpu1", "active", "")
				cell.Card(t, node, first, "allocated", guest)
				cell.Card(t, node, second, "available", "")
			},
			want: content(1),
		},
		{
			name: "claimed by an instance of the node",
			rows: func(t *testing.T, cell *Cell, node int64) {
				cell.Instance(t, guest, "gpu1", "active", "")
				cell.Card(t, node, first, "claimed", guest)
				cell.Card(t, node, second, "available", "")
			},
			want: changed(content(1), Change{first, "status", "claimed", "allocated"}),
		},
		{
			name: "owner elsewhere, migration here in error",
			rows: func(t *testing.T, cell *Cell, node int64) {
				cell.Instance(t, guest, "gpu2", "active", "")
				cell.Migration(t, 0, guest, "migration", "error", "gpu2", "gpu1")
				cell.Card(t, node, first, "allocated", guest)
				cell.Card(t, node, second, "available", "")
			},
			want: content(1),
		},
		{
			name: "owner elsewhere, migration here failed",
			rows: func(t *testing.T, cell *Cell, node int64) {
				cell.Instance(t, guest, "gpu2", "active", "")
				cell.Migration(t, 0, guest, "migration", "failed", "gpu2", "gpu1")
				cell.Card(t, node, first, "allocated", guest)
				cell.Card(t, node, second, "available", "")
			},
			want: changed(content(2), freed(guest)...),
		},
		{
			name: "owner on the node with a migration context",
			rows: func(t *testing.T, cell *Cell, node int64) {
				cell.Instance(t, guest, "gpu1", "resized", "")
				source := cell.Compute(t, "gpu2")
				from := cell.Card(t, source, first, "allocated", guest)
				to := cell.Card(t, node, first, "allocated", guest, Row{"request_id": UUID(7)})
				id := cell.Migration(t, 0, guest, "migration", "finished", "gpu2", "gpu1")
				cell.Context(t, guest, id, []int64{from}, []int64{to})
				cell.Card(t, node, second, "available", "")
			},
			want: content(1),
		},
		{
			name: "unknown status",
			rows: func(t *testing.T, cell *Cell, node int64) {
				cell.Card(t, node, first, "broken", "")
			},
			want: Tracked{Error: "ValueError", Message: "Field value broken is invalid"},
		},
		{
			name: "extra_info NULL",
			rows: func(t *testing.T, cell *Cell, node int64) {
				cell.Card(t, node, first, "available", "", Row{"extra_info": nil})
			},
			want: Tracked{Error: "TypeError", Message: "<class 'NoneType'> can't be decoded"},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			node := cell.Compute(t, "gpu1")
			test.rows(t, cell, node)
			before := cell.Dump(t, "pci_devices")
			if test.devices == nil {
				test.devices = K4200s(first, second)
			}
			hosttest.Equal(t, test.want, counted(t, database.Track(t, cell, node, test.devices)))
			hosttest.EqualIn(t, "asking has changed rows", before, cell.Dump(t, "pci_devices"))
		})
	}
}

// TestTrackFunctions: while a card with SR-IOV is in use as a whole, its functions are
// not to be had, and come free with it.
func TestTrackFunctions(t *testing.T) {
	const whole, one, two = first, "0000:84:00.1", "0000:84:00.2"
	for _, test := range []struct {
		state string
		want  Tracked
	}{
		{"active", content(0)},
		{"deleted", Tracked{
			Changes: append(freed(UUID(1)),
				Change{one, "status", "unavailable", "available"},
				Change{two, "status", "unavailable", "available"}),
			Pools: []Pool{
				{Product: "8086:56c0", Type: "type-PF", Count: 1},
				{Product: "8086:56c0", Type: "type-VF", Count: 2},
			},
			Offers: map[string]int{"flex": 1, "flex-vf": 2},
		}},
	} {
		t.Run(test.state, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			node := cell.Compute(t, "gpu1")
			options := []InstanceOption{Asks("flex:1", RequestOf(UUID(1)))}
			if test.state == "deleted" {
				options = append(options, InstanceDeleted(time.Hour))
			}
			cell.Instance(t, UUID(1), "gpu1", test.state, "", options...)
			cell.Card(t, node, whole, "allocated", UUID(1), PF())
			cell.Card(t, node, one, "unavailable", "", VF(whole))
			cell.Card(t, node, two, "unavailable", "", VF(whole))
			hosttest.Equal(t, test.want, counted(t, database.Track(t, cell, node, cell.Reported(t, node))))
		})
	}
}

// TestTrackAndSave: what was a change is a row after, and asked again there is none.
func TestTrackAndSave(t *testing.T) {
	reset(t)
	cell := database.Cell1
	node := cell.Compute(t, "gpu1")
	cell.Card(t, node, first, "allocated", UUID(1))
	want := content(1)
	want.Changes = freed(UUID(1))
	hosttest.Equal(t, want, counted(t, database.TrackAndSave(t, cell, node, K4200s(first))))
	hosttest.Equal(t, [][]string{{first, "available", "NULL", "NULL"}}, cell.Dump(t, "pci_devices", "address", "status", "instance_uuid", "request_id"))
	if stats := cell.Dump(t, "compute_nodes", "pci_stats LIKE '%\"count\": 1%'"); stats[0][0] != "1" {
		t.Errorf("pci_stats: %q", cell.Dump(t, "compute_nodes", "pci_stats"))
	}
	hosttest.Equal(t, content(1), counted(t, database.Track(t, cell, node, K4200s(first))))
}

// TestTrackDeletedNode: a node that is not there any more has nobody to load it.
func TestTrackDeletedNode(t *testing.T) {
	reset(t)
	node := database.Cell1.Compute(t, "gpu1", ServiceDeleted(time.Hour))
	if got := database.Track(t, database.Cell1, node, nil); got.Error != "ComputeHostNotFound" {
		t.Errorf("%+v", got)
	}
}
