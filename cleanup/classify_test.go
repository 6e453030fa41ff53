package cleanup

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

var now = time.Date(2026, 11, 21, 3, 0, 0, 0, time.UTC)

func text(s string) *string { return &s }

// The two hosts of these tests, an instance U, and its device on either host.
const u = "1f975a18-0000-0000-0000-000000000000"

var (
	gpu1 = Node{ID: 1, Host: "gpu1", Name: "gpu1"}
	gpu2 = Node{ID: 2, Host: "gpu2", Name: "gpu2"}
	gpu3 = Node{ID: 3, Host: "gpu3", Name: "gpu3"}
)

func device(node Node, status, owner string) Device {
	changed := now.Add(-3 * time.Hour)
	d := Device{ID: node.ID, Node: node.ID, Address: "0000:84:00.0", Vendor: "10de", Product: "11b4", Type: TypePCI, Status: status, Updated: &changed}
	if owner != "" {
		d.Instance = &owner
	}
	return d
}

// instance is "vm_state[ task][ @host]".
func instance(spec string) *Instance {
	changed := now.Add(-3 * time.Hour)
	i := &Instance{UUID: u, Changed: &changed}
	for k, word := range strings.Fields(spec) {
		switch {
		case word[0] == '@':
			i.Host, i.Node = text(word[1:]), text(word[1:])
		case word == "deleted":
			i.Deleted = true
			i.VMState = &word
		case k == 0:
			i.VMState = &word
		default:
			i.Task = &word
		}
	}
	return i
}

// migration is "type status source dest".
func migration(spec string) Migration {
	w := strings.Fields(spec)
	return Migration{ID: 12, UUID: "m", Instance: u, Type: w[0], Status: w[1], SourceHost: w[2], SourceNode: w[2],
		DestHost: w[3], DestNode: w[3], Changed: now.Add(-3 * time.Hour)}
}

// numbered is a migration with another id.
func numbered(id int64, spec string) Migration {
	m := migration(spec)
	m.ID, m.UUID = id, fmt.Sprint("m", id)
	return m
}

// contextOf gives the instance the context of a migration, after changes to its record.
func contextOf(spec string, changes ...func(*ContextMigration)) func(*Facts) {
	m := ContextMigration{Found: true}
	if spec != "" {
		m.Migration = migration(spec)
	}
	for _, change := range changes {
		change(&m)
	}
	return func(f *Facts) { f.Instance.Context, f.ContextOf = &Context{Migration: 12}, &m }
}

func service(node Node, seen time.Duration) *Service {
	at := now.Add(-seen)
	return &Service{Host: node.Host, LastSeen: &at}
}

// reports are what hosts say, in the words of a test: which host has which guest,
// which have restarted, and which have not reported.
type reports struct {
	silent    string // the host of which there is no report
	guest     string // the host that has the guest U
	leftover  bool   // as a domain that is defined and does not run
	holder    string // the guest that holds the device, on every host
	group     bool   // that guest has its IOMMU group open only
	process   bool   // it is a process of the host
	off       string // the host that is declared off
	stayedOn  string // the host whose nova-compute has not been started since
	runs      string // the host whose nova-compute runs, by its report
	defective string // why no report proves absence
}

func (r reports) Absent(host, _ string, _ []Device, _ time.Time) (bool, string) {
	switch host {
	case r.off:
		return true, ""
	case r.silent:
		return false, "no guest report of " + host + " was given"
	case r.guest:
		return false, host + " has the guest"
	}
	return r.defective == "", r.defective
}

func (r reports) Restarted(host string, _ time.Time) (bool, string) {
	switch host {
	case r.silent:
		return false, "no guest report of " + host + " was given"
	case r.stayedOn:
		return false, "nova-compute of " + host + " has been running since before"
	}
	return true, ""
}

func (r reports) Reported(host string, _ time.Time) (bool, string) {
	return host != r.silent, "no guest report of " + host + " was given"
}

func (r reports) NotRunning(host, instance string, devices []Device, since time.Time) (bool, string) {
	if host == r.guest && r.leftover {
		return true, ""
	}
	return r.Absent(host, instance, devices, since)
}

func (r reports) Stopped(host string, _ time.Time) (bool, string) {
	return host != r.runs, "nova-compute is running"
}

func (r reports) Off(host string) bool { return r.off != "" && host == r.off }

func (r reports) Holder(string, string, time.Time) Use {
	return Use{Guest: r.holder, Named: !r.group, Process: r.process}
}

func (r reports) Has(string, string, string) bool { return false }

func (r reports) Hosts() []string { return nil }

func (r reports) Held() []HeldBy { return nil }

func (r reports) Spelled(map[string]string) (Proof, error) { return r, nil }

func (r reports) At(time.Time) Proof { return r }

// place fills in whether the instance is on the node.
func place(f *Facts) {
	i := f.Instance
	if i == nil {
		i = f.Holder
	}
	f.Here = i != nil && f.Node != nil && i.On(f.Node.Host, f.Node.Name)
}

// TestCases: every case, and every state that is never stale. The row is gpu1's,
// unless gpu2 is the one that is said.
func TestCases(t *testing.T) {
	type state struct {
		device     Device
		instance   *Instance
		migrations []Migration
		held       []Held
		related    []Device
		node       *Node // gpu1
		down       bool  // nova-compute of the row's node
		proof      Proof
		change     func(*Facts)
		want       string // case verdict repair: reason
		steps      string // a part of them
	}
	on := func(n Node) Held { return Held{Device: device(n, StatusAllocated, u), Host: n.Host, NodeName: n.Name} }
	both := []Held{on(gpu1), on(gpu2)}
	mine := device(gpu1, StatusAllocated, u)
	deleted := Node{ID: 1, Host: "gpu1", Name: "gpu1", Deleted: true}
	renamed := Node{ID: 9, Host: "gpu1", Name: "gpu1.example.org"}
	// renamedWith gives the host a node of another name, with the device in a status.
	renamedWith := func(status, owner string) func(*Facts) {
		return func(f *Facts) { f.Renamed = &Held{Device: device(renamed, status, owner), NodeName: renamed.Name} }
	}
	vf := func(status string) Device {
		d := device(gpu1, status, "")
		d.Type, d.Parent = TypeVF, text("0000:84:00.0")
		d.Address = "0000:84:00.4"
		return d
	}
	pf := func(status string) Device {
		d := device(gpu1, status, "")
		d.Type = TypePF
		return d
	}
	asked := func(n int, spec string) *Instance {
		i := instance(spec)
		i.Asked, i.Requests = true, []Request{{Count: n}}
		return i
	}
	move := func(status string) []Migration { return []Migration{migration("migration " + status + " gpu1 gpu2")} }
	ok := reports{}
	const reset = "migration 12 (migration) 'finished' gpu1->gpu2 waits to be confirmed or reverted, but the instance is no longer in state resized: its state was reset"
	evacuated := migration("evacuation done gpu1 gpu2")
	evacuated.ID = 13
	const confirming = "migration 12 (migration) 'confirming' gpu1->gpu2 is being confirmed by nova-compute on gpu1"
	const elsewhere = "the instance is elsewhere, and no open migration goes to or from this node"
	const unproved = "; that its guest does not run on this host is not proved: "
	with := func(d Device, kind string) Device {
		d.Type = kind
		return d
	}
	const notFreed = "; nova-compute on gpu1 is up, but has not freed the device for 3 h"
	recently := now.Add(-2 * time.Minute)

	for name, s := range map[string]state{
		// Never stale.
		"at work":                {device: mine, instance: instance("active @gpu1"), want: "legitimate: the instance is on this node"},
		"stopped":                {device: mine, instance: instance("stopped @gpu1"), want: "legitimate: the instance is on this node"},
		"paused":                 {device: mine, instance: instance("paused @gpu1"), want: "legitimate: the instance is on this node"},
		"suspended":              {device: mine, instance: instance("suspended @gpu1"), want: "legitimate: the instance is on this node"},
		"rescued":                {device: mine, instance: instance("rescued @gpu1"), want: "legitimate: the instance is on this node"},
		"shelved, not offloaded": {device: mine, instance: instance("shelved @gpu1"), want: "legitimate: the instance is on this node"},
		"soft-deleted":           {device: mine, instance: instance("soft-delete @gpu1"), want: "legitimate: the instance is in state soft-delete"},
		"soft-deleted, elsewhere": {device: mine, instance: instance("soft-delete @gpu2"), proof: ok,
			want: "legitimate: the instance is in state soft-delete"},
		"in error, on this node": {device: mine, instance: instance("error @gpu1"), migrations: move("error"),
			want: "legitimate: the instance is on this node; its migration 12 (migration) 'error' gpu1->gpu2 is open"},
		"building":          {device: mine, instance: instance("building spawning"), want: "T busy: the instance is in task spawning, unchanged for 3 h"},
		"building, no task": {device: mine, instance: instance("building"), want: "T busy: the instance is in state building, unchanged for 3 h"},
		"claimed at boot": {device: device(gpu1, StatusClaimed, u),
			instance: instance("building spawning @gpu1"), want: "T busy: the instance is in task spawning, unchanged for 3 h"},
		"resize in flight, source": {device: mine, instance: instance("active resize_migrating @gpu1"),
			migrations: move("migrating"), held: both, proof: reports{stayedOn: "gpu2"}, want: "T busy: the instance is in task resize_migrating, unchanged for 3 h"},
		"resize in flight, source, flipped": {device: mine, instance: instance("active resize_finish @gpu2"),
			migrations: move("post-migrating"), held: both, proof: reports{stayedOn: "gpu2"}, want: "T busy: the instance is in task resize_finish, unchanged for 3 h"},
		"VERIFY_RESIZE, source": {device: mine, instance: instance("resized @gpu2"), migrations: move("finished"),
			held: both, proof: ok, want: "legitimate: the instance is in state resized"},
		"VERIFY_RESIZE, destination": {device: mine, instance: instance("resized @gpu1"),
			migrations: []Migration{migration("resize finished gpu2 gpu1")}, held: both, proof: ok, want: "legitimate: the instance is in state resized"},
		"T: its confirmation may go on": {device: mine, instance: instance("resized @gpu2"), migrations: move("confirming"), held: both, proof: reports{stayedOn: "gpu1"},
			want: "T busy: " + confirming + ", unchanged for 3 h; nova-compute of gpu1 has been running since before"},
		"T: its confirmation, without a report": {device: mine, instance: instance("resized @gpu2"), migrations: move("confirming"), held: both,
			want: "T busy: " + confirming + ", unchanged for 3 h; no guest report of gpu1 was given"},
		"C: its confirmation died, and the source is alive": {device: mine, instance: instance("resized @gpu2"), migrations: move("confirming"), held: both, proof: reports{silent: "gpu2"},
			want: "C stale reopen finished: " + confirming + ", which was started since; Nova can neither confirm nor revert it any more"},
		"C: its confirmation died, and the source is off": {device: mine, instance: instance("resized @gpu2"), migrations: move("confirming"), held: both, proof: reports{off: "gpu1", silent: "gpu2"},
			want: "C stale online confirmed: " + confirming + ", which is declared off; Nova can neither confirm nor revert it any more"},
		"its confirmation died, on the destination": {device: mine, instance: instance("resized @gpu1"), migrations: []Migration{migration("migration confirming gpu2 gpu1")},
			held: both, proof: ok, want: "legitimate: the instance is in state resized"},
		"C: the destination is off for good": {device: mine, instance: instance("active @gpu2"), migrations: []Migration{migration("migration migrating gpu2 gpu1")}, held: both, proof: reports{off: "gpu1", silent: "gpu1"},
			want: "C stale online failed: migration 12 (migration) 'migrating' gpu2->gpu1 is open, but the instance is in no task"},
		"resize on one host": {device: mine, instance: asked(1, "resized @gpu1"),
			migrations: []Migration{migration("resize finished gpu1 gpu1")}, held: []Held{on(gpu1), on(gpu1)}, want: "legitimate: the instance is in state resized"},
		"live migration runs": {device: mine, instance: instance("active migrating @gpu2"),
			migrations: []Migration{migration("live-migration running gpu2 gpu1")}, proof: reports{stayedOn: "gpu2"}, want: "T busy: the instance is in task migrating, unchanged for 3 h"},
		"evacuation rebuilds": {device: mine, instance: instance("active rebuilding @gpu2"),
			migrations: []Migration{migration("evacuation accepted gpu1 gpu2")}, proof: reports{stayedOn: "gpu2"}, want: "T busy: the instance is in task rebuilding, unchanged for 3 h"},
		"across cells": {device: mine, instance: instance("active @gpu2"), migrations: move("migrating"),
			held: both, proof: ok, change: func(f *Facts) { f.Migrations[0].CrossCell = true },
			want: "T busy: its migration 12 (migration) 'migrating' gpu1->gpu2 crosses cells, unchanged for 3 h"},
		"B: across cells, in error": {device: mine, instance: instance("active @gpu2"), migrations: move("error"),
			held: both, proof: ok, change: func(f *Facts) { f.Migrations[0].CrossCell = true },
			want: "B unknown: migration 12 (migration) 'error' gpu1->gpu2 keeps the device, but crosses cells: this cell does not have all records of the instance"},
		"ironic: the host is not the node": {device: mine, node: &Node{ID: 1, Host: "ironic", Name: "gpu1"},
			instance: &Instance{UUID: u, VMState: text("active"), Host: text("ironic"), Node: text("gpu1")}, want: "legitimate: the instance is on this node"},
		"PF blocked by a VF": {device: pf(StatusUnavailable), related: []Device{vf(StatusAllocated)},
			want: "legitimate: 0000:84:00.4 of the same card is taken"},
		"VF blocked by the PF": {device: vf(StatusUnclaimable), related: []Device{pf(StatusClaimed)},
			want: "legitimate: 0000:84:00.0 of the same card is taken"},
		"free, on a node that is deleted": {device: device(gpu1, StatusAvailable, ""), node: &deleted,
			want: "legitimate: the compute node is deleted, and the row has no owner"},
		// A
		"A: deleted, compute up":         {device: mine, instance: instance("deleted"), want: "A stale nova needs no guest report of gpu1 was given: the instance is gone" + notFreed},
		"A: deleted, compute up, proved": {device: mine, instance: instance("deleted"), proof: ok, want: "A stale nova: the instance is gone" + notFreed},
		"A: just deleted, compute up": {device: mine, instance: instance("deleted"), change: func(f *Facts) { f.Instance.DeletedAt = &recently },
			want: "A stale nova: the instance is gone"},
		"A: purged, and its mapping says that it was deleted": {device: mine, down: true, proof: ok, change: func(f *Facts) { f.Purged = true },
			want: "A stale offline: the instance is gone"},
		"A: deleted, compute down": {device: mine, instance: instance("deleted"), down: true,
			want: "A stale offline needs no guest report of gpu1 was given; or confirmation that the host is off (--host-is-off gpu1): the instance is gone"},
		"A: deleted, compute down, proved": {device: mine, instance: instance("deleted"), down: true, proof: ok, want: "A stale offline: the instance is gone"},
		"A: deleted, compute silent, but running": {device: mine, instance: instance("deleted"), down: true, proof: reports{runs: "gpu1"},
			want: "A stale nova: the instance is gone; nova-compute on gpu1 runs, but does not report to Nova"},
		"A: deleted, and the guest still runs": {device: mine, instance: instance("deleted"), down: true,
			proof: reports{holder: u}, want: "A suspicious: guest 1f975a18… uses the device although the instance is gone"},
		"A: deleted, with an open migration": {device: mine, instance: instance("deleted"), migrations: move("migrating"),
			want: "A suspicious: the instance is gone, but its migration 12 (migration) 'migrating' gpu1->gpu2 is open"},
		"A: purged": {device: mine, proof: ok, want: "A stale nova: the instance is gone" + notFreed},
		"A: purged, but mapped": {device: mine, change: func(f *Facts) { f.Mapped = true },
			want: "A unknown: the instance is mapped to a cell, but no cell has it"},
		"A: purged, and a cell cannot be read": {device: mine, change: func(f *Facts) { f.Incomplete = "cell2 does not answer" },
			want: "A unknown: the instance was not found, but cell2 does not answer"},
		"in another cell": {device: mine, change: func(f *Facts) { f.OtherCell = "cell2" }, want: "E unknown: the instance is in cell cell2"},
		// B
		"B: nobody has reported": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("migration error gpu2 gpu1")}, held: both,
			want: "B unknown: migration 12 (migration) 'error' gpu2->gpu1 keeps the device, but the instance is not on this node; " +
				"not proved: no guest report of gpu1 was given"},
		"B: proved": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("migration error gpu2 gpu1")}, held: both, proof: reports{silent: "gpu2"},
			want: "B stale online failed: migration 12 (migration) 'error' gpu2->gpu1 keeps the device, but the instance is not on this node"},
		"B: the guest is here": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("migration error gpu2 gpu1")}, held: both, proof: reports{guest: "gpu1"},
			want: "B unknown: migration 12 (migration) 'error' gpu2->gpu1 keeps the device, but the instance is not on this node; not proved: gpu1 has the guest"},
		"B: another guest holds it": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("migration error gpu2 gpu1")}, held: both, proof: reports{holder: "other"},
			want: "L suspicious: guest other uses the device, but Nova has not assigned the device to it"},
		"B: a third host's row would go too": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("migration error gpu3 gpu1")},
			held:       append([]Held{on(gpu3)}, both...), proof: reports{silent: "gpu3"},
			want: "B unknown: migration 12 (migration) 'error' gpu3->gpu1 keeps the device, but the instance is not on this node; " +
				"not proved: no guest report of gpu3 was given"},
		"B: a third host's row is kept by nothing": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("migration error gpu2 gpu1")},
			held:       append([]Held{on(gpu3)}, both...), proof: reports{silent: "gpu3"},
			want: "B stale online failed: migration 12 (migration) 'error' gpu2->gpu1 keeps the device, but the instance is not on this node"},
		"B: two migrations keep the device": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{numbered(12, "migration error gpu2 gpu1"), numbered(13, "resize error gpu2 gpu1")}, held: both, proof: reports{silent: "gpu2"},
			want: "B stale online failed failed: migration 13 (resize) 'error' gpu2->gpu1 keeps the device, but the instance is not on this node; migration 12 (migration) 'error' gpu2->gpu1 keeps the device too"},
		"B: another migration keeps a third host's row": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{numbered(12, "migration error gpu2 gpu1"), numbered(13, "migration error gpu2 gpu3")},
			held:       append([]Held{on(gpu3)}, both...), proof: reports{silent: "gpu3"},
			want: "B unknown: migration 12 (migration) 'error' gpu2->gpu1 keeps the device, but the instance is not on this node; not proved: no guest report of gpu3 was given"},
		"B: one of unknown type keeps a third host's row": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{numbered(12, "migration error gpu2 gpu1"), numbered(13, "teleport running gpu2 gpu3")},
			held:       append([]Held{on(gpu3)}, both...), proof: reports{silent: "gpu3"},
			want: "B unknown: migration 12 (migration) 'error' gpu2->gpu1 keeps the device, but the instance is not on this node; not proved: migration 13 (teleport) 'running' gpu2->gpu3 is open"},
		"B: another migration crosses cells": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{numbered(12, "migration error gpu2 gpu1"), numbered(13, "resize error gpu2 gpu3")}, held: both, proof: ok,
			change: func(f *Facts) { f.Migrations[1].CrossCell = true },
			want: "B unknown: migration 12 (migration) 'error' gpu2->gpu1 keeps the device, but the instance is not on this node; " +
				"not proved: migration 13 (resize) 'error' gpu2->gpu3 is open"},
		// Before Victoria, Nova frees a device that only a migration in error keeps.
		"C: and one in error is left, which may keep nothing": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{numbered(12, "migration migrating gpu3 gpu1"), numbered(13, "migration error gpu3 gpu2")},
			held:       append([]Held{on(gpu3)}, both...), proof: reports{guest: "gpu3"},
			want: "C unknown: migration 12 (migration) 'migrating' gpu3->gpu1 is open, but the instance is in no task; not proved: gpu3 has the guest"},
		"C: two, of hosts that have reported in part": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{numbered(12, "migration migrating gpu2 gpu1"), numbered(13, "migration migrating gpu2 gpu3")},
			held:       append([]Held{on(gpu3)}, both...), proof: reports{silent: "gpu3"},
			want: "C unknown: migration 12 (migration) 'migrating' gpu2->gpu1 is open, but the instance is in no task; not proved: no guest report of gpu3 was given"},
		"B: the guest was moved away, and its domain is left": {device: mine, instance: instance("active @gpu2"), migrations: move("error"),
			held: both, proof: reports{guest: "gpu1", leftover: true},
			want: "B stale online failed: migration 12 (migration) 'error' gpu1->gpu2 keeps the device, but the instance is not on this node"},
		"B: the guest never started on the destination": {device: mine, instance: instance("error @gpu2"), migrations: move("error"),
			held: both, proof: reports{guest: "gpu1", leftover: true, silent: "gpu2"},
			want: "B stale online failed: migration 12 (migration) 'error' gpu1->gpu2 keeps the device, but the instance is not on this node"},
		"B: live migration, one report": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("live-migration error gpu2 gpu1")}, held: both, proof: reports{silent: "gpu2"},
			want: "B unknown: migration 12 (live-migration) 'error' gpu2->gpu1 keeps the device, but the instance is not on this node; " +
				"not proved: no guest report of gpu2 was given"},
		"B: live migration, both reports": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("live-migration error gpu2 gpu1")}, held: both, proof: ok,
			want: "B stale online failed: migration 12 (live-migration) 'error' gpu2->gpu1 keeps the device, but the instance is not on this node"},
		"B: evacuation in error": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("evacuation error gpu1 gpu2")}, held: both, proof: ok,
			want: "B stale online failed: migration 12 (evacuation) 'error' gpu1->gpu2 keeps the device, but the instance is not on this node"},
		// C
		"C: nobody has reported": {device: mine, instance: instance("active @gpu2"), migrations: move("migrating"),
			held: both, want: "C unknown: migration 12 (migration) 'migrating' gpu1->gpu2 is open, but the instance is in no task; " +
				"not proved: no guest report of gpu1 was given"},
		"C: proved": {device: mine, instance: instance("active @gpu2"),
			migrations: move("post-migrating"), held: both, proof: ok,
			want: "C stale online failed: migration 12 (migration) 'post-migrating' gpu1->gpu2 is open, but the instance is in no task"},
		"C: its thread may be alive (10.2)": {device: mine, instance: instance("active @gpu2"), migrations: move("migrating"),
			held: both, proof: reports{stayedOn: "gpu1"},
			want: "C unknown: migration 12 (migration) 'migrating' gpu1->gpu2 is open, but the instance is in no task; " +
				"not proved: nova-compute of gpu1 has been running since before"},
		"C: or on the other host": {device: mine, instance: instance("active @gpu2"), migrations: move("migrating"),
			held: both, proof: reports{stayedOn: "gpu2"},
			want: "C unknown: migration 12 (migration) 'migrating' gpu1->gpu2 is open, but the instance is in no task; " +
				"not proved: nova-compute of gpu2 has been running since before"},
		"C: its domain is left on the source": {device: mine, instance: instance("active @gpu2"), migrations: move("post-migrating"),
			held: both, proof: reports{guest: "gpu1", leftover: true},
			want: "C stale online failed: migration 12 (migration) 'post-migrating' gpu1->gpu2 is open, but the instance is in no task"},
		"C: its confirmation died": {device: mine, instance: instance("active @gpu2"), migrations: move("confirming"),
			held: both, proof: reports{guest: "gpu1", leftover: true},
			want: "C stale online failed: migration 12 (migration) 'confirming' gpu1->gpu2 is open, but the instance is in no task"},
		"C: its confirmation may be alive": {device: mine, instance: instance("active @gpu2"), migrations: move("confirming"),
			held: both, proof: reports{guest: "gpu1", leftover: true, stayedOn: "gpu1"},
			want: "C unknown: migration 12 (migration) 'confirming' gpu1->gpu2 is open, but the instance is in no task; " +
				"not proved: nova-compute of gpu1 has been running since before"},
		"C: its revert died": {device: mine, instance: instance("active @gpu2"), migrations: move("reverting"),
			held: both, proof: reports{guest: "gpu1", leftover: true},
			want: "C unknown: migration 12 (migration) 'reverting' gpu1->gpu2 is open, but the instance is in no task; not proved: gpu1 has the guest " +
				"(if the guest runs on gpu2: virsh undefine " + u + " on gpu1)"},
		"C: before post-migrating, the domain is the guest": {device: mine, instance: instance("active @gpu2"), migrations: move("migrating"),
			held: both, proof: reports{guest: "gpu1", leftover: true},
			want: "C unknown: migration 12 (migration) 'migrating' gpu1->gpu2 is open, but the instance is in no task; not proved: gpu1 has the guest"},
		"C: the destination has its domain": {device: device(gpu2, StatusAllocated, u), node: &gpu2, instance: instance("active @gpu1"), migrations: move("post-migrating"),
			held: both, proof: reports{guest: "gpu2", leftover: true},
			want: "C unknown: migration 12 (migration) 'post-migrating' gpu1->gpu2 is open, but the instance is in no task; not proved: gpu2 has the guest"},
		"C: in error": {device: mine, instance: instance("error @gpu2"), migrations: move("migrating"), held: both, proof: ok,
			want: "C stale online failed: migration 12 (migration) 'migrating' gpu1->gpu2 is open, but the instance is in no task"},
		"C: in error, nobody has reported": {device: mine, instance: instance("error @gpu2"), migrations: move("migrating"), held: both,
			want: "C unknown: migration 12 (migration) 'migrating' gpu1->gpu2 is open, but the instance is in no task; not proved: no guest report of gpu1 was given"},
		"C: in error, its thread may be alive": {device: mine, instance: instance("error @gpu2"), migrations: move("migrating"), held: both,
			proof: reports{stayedOn: "gpu2"},
			want: "C unknown: migration 12 (migration) 'migrating' gpu1->gpu2 is open, but the instance is in no task; " +
				"not proved: nova-compute of gpu2 has been running since before"},
		"C: paused": {device: mine, instance: instance("paused @gpu2"), migrations: move("migrating"),
			held: both, proof: ok, want: "C unknown: migration 12 (migration) 'migrating' gpu1->gpu2 is open, but the instance is in no task, and in state paused"},
		"C: an open evacuation (10.3)": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("evacuation accepted gpu1 gpu2")}, held: both, proof: ok,
			want: "C unknown: migration 12 (evacuation) 'accepted' gpu1->gpu2 is open, and records of its type must not be changed"},
		"C: a live migration": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("live-migration running gpu2 gpu1")}, held: both, proof: ok,
			want: "C unknown: migration 12 (live-migration) 'running' gpu2->gpu1 is open, and records of its type must not be changed"},
		"C: an unknown kind": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("teleport error gpu2 gpu1")}, held: both, proof: ok,
			want: "C unknown: migration 12 (teleport) 'error' gpu2->gpu1 is open, and records of its type must not be changed"},
		"C: of two open ones the worse counts": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("migration error gpu1 gpu2"), migration("live-migration running gpu2 gpu1")},
			held:       both, proof: ok, want: "C unknown: migration 12 (live-migration) 'running' gpu2->gpu1 is open, and records of its type must not be changed"},
		// D
		"D: taken on a deleted node": {device: mine, node: &deleted, instance: instance("deleted"),
			want: "D stale offline needs confirmation that the host is off for good (--host-is-off gpu1): the compute node is deleted, so no nova-compute loads the row"},
		"D: the instance is on it": {device: mine, node: &deleted, instance: instance("active @gpu1"),
			want: "D suspicious: the compute node is deleted, but the instance is still on it"},
		"D: the hypervisor was renamed, and the device is assigned on the new node": {device: mine, node: &deleted, instance: instance("active @gpu1"),
			change: renamedWith(StatusAllocated, u),
			want:   "D suspicious: the hypervisor was renamed: the instance is still on the deleted node gpu1, and the device is assigned to the instance on node gpu1.example.org of the same host"},
		"L: the hypervisor was renamed": {device: mine, node: &deleted, instance: instance("active @gpu1"),
			change: renamedWith(StatusAvailable, ""),
			want:   "L suspicious: the hypervisor was renamed: the instance is still on the deleted node gpu1, and the device is free on node gpu1.example.org of the same host"},
		"L: the hypervisor was renamed, and a resize to it waits": {device: mine, node: &deleted, instance: instance("resized @gpu1"),
			change: renamedWith(StatusAvailable, ""),
			want:   "L suspicious: the hypervisor was renamed: the instance is still on the deleted node gpu1, and the device is free on node gpu1.example.org of the same host"},
		"L: the hypervisor was renamed under a task": {device: mine, node: &deleted, instance: instance("active rebooting @gpu1"),
			change: renamedWith(StatusAvailable, ""),
			want:   "T busy: the instance is in task rebooting, unchanged for 3 h"},
		"L: the hypervisor was renamed, and another instance has the device": {device: mine, node: &deleted, instance: instance("active @gpu1"),
			change: renamedWith(StatusAllocated, "other"),
			want:   "L suspicious: the hypervisor was renamed: the instance is still on the deleted node gpu1, and the device is allocated on node gpu1.example.org of the same host"},
		"D: a free row of the old node says nothing about the device": {device: device(gpu1, StatusAvailable, u), node: &deleted, instance: instance("active @gpu1"),
			change: renamedWith(StatusAvailable, ""),
			want:   "D suspicious: the compute node is deleted, but the instance is still on it"},
		"D: the instance is in a task": {device: mine, node: &deleted, instance: instance("active resize_finish @gpu2"),
			want: "T busy: the instance is in task resize_finish, unchanged for 3 h"},
		"D: the instance is mapped, in no cell": {device: mine, node: &deleted, change: func(f *Facts) { f.Mapped = true },
			want: "D unknown: the instance is mapped to a cell, but no cell has it"},
		"D: the instance may be in a cell unread": {device: mine, node: &deleted,
			change: func(f *Facts) { f.Incomplete = "cell2 does not answer" }, want: "D unknown: the instance was not found, but cell2 does not answer"},
		// E
		"E: elsewhere, compute up": {device: mine, instance: instance("active @gpu2"), held: both,
			want: "E unknown: " + elsewhere + notFreed + unproved + "no guest report of gpu1 was given"},
		"E: elsewhere, compute up, proved": {device: mine, instance: instance("active @gpu2"), held: both, proof: ok, want: "E stale nova: " + elsewhere + notFreed},
		"E: post_live_migration_at_destination has failed, and the guest is here": {device: mine, instance: instance("active @gpu2"), held: both,
			proof: reports{guest: "gpu1"}, want: "E unknown: " + elsewhere + notFreed + unproved + "gpu1 has the guest"},
		"E: and nova-compute is down": {device: mine, instance: instance("active @gpu2"), held: both, down: true,
			proof: reports{guest: "gpu1"}, want: "E unknown: " + elsewhere + unproved + "gpu1 has the guest"},
		"E: has just moved": {device: mine, instance: instance("active @gpu2"), held: both, change: func(f *Facts) { f.Instance.Changed = &recently },
			want: "E unknown: " + elsewhere + unproved + "no guest report of gpu1 was given"},
		"E: elsewhere, compute down": {device: mine, instance: instance("active @gpu2"), held: both, down: true,
			proof: ok, want: "E stale offline: the instance is elsewhere, and no open migration goes to or from this node"},
		"E: evacuated (10.3)": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("evacuation done gpu1 gpu2")}, held: both, down: true, proof: ok,
			want: "E stale nova: the instance was evacuated from this host: nova-compute frees the device when it starts, after it has removed the guest"},
		"E: evacuated, and the host is off": {device: mine, instance: instance("active @gpu2"), migrations: []Migration{evacuated}, held: both, down: true,
			proof: reports{off: "gpu1", silent: "gpu1"},
			want:  "E stale nova: the instance was evacuated from this host: nova-compute frees the device when it starts, after it has removed the guest",
			steps: "delete ID; then: gpustack repair-migration --host-is-off gpu1 --apply"},
		"B: evacuated, and an older migration is in error": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("migration error gpu1 gpu2"), evacuated}, held: both, down: true, proof: ok,
			want: "B stale online failed: migration 12 (migration) 'error' gpu1->gpu2 keeps the device, but the instance is not on this node; the instance was evacuated from this host by migration 13"},
		"B: the same, and nobody has reported": {device: mine, instance: instance("active @gpu2"),
			migrations: []Migration{migration("migration error gpu1 gpu2"), evacuated}, held: both, down: true,
			want: "B unknown: migration 12 (migration) 'error' gpu1->gpu2 keeps the device, but the instance is not on this node; " +
				"not proved: no guest report of gpu1 was given; the instance was evacuated from this host by migration 13"},
		"E: shelved and offloaded": {device: mine, instance: instance("shelved_offloaded"),
			proof: ok, want: "E stale nova: the instance is elsewhere, and no open migration goes to or from this node" + notFreed},
		"E: a migration of other hosts is open": {device: mine, instance: instance("active @gpu2"), proof: ok,
			migrations: []Migration{migration("migration error gpu3 gpu2")}, held: both,
			want: "E stale nova: the instance is elsewhere, and no open migration goes to or from this node" + notFreed},
		// F
		"F: VF, and the PF is free": {down: true, device: vf(StatusUnavailable), related: []Device{pf(StatusAvailable)},
			proof: ok, want: "F stale offline: no function of the card is taken that could block this one"},
		"F: PF, and no VF is taken": {down: true, device: pf(StatusUnclaimable), related: []Device{vf(StatusAvailable)},
			proof: ok, want: "F stale offline: no function of the card is taken that could block this one"},
		"F: blocked without any relation": {down: true, device: device(gpu1, StatusUnavailable, ""), proof: ok,
			want: "F stale offline: no function of the card is taken that could block this one"},
		"F: vdpa, and the PF is taken": {down: true, device: with(vf(StatusUnavailable), TypeVDPA), related: []Device{pf(StatusAllocated)},
			want: "legitimate: 0000:84:00.0 of the same card is taken"},
		"F: vdpa, and the PF is free": {down: true, device: with(vf(StatusUnavailable), TypeVDPA), related: []Device{pf(StatusAvailable)},
			proof: ok, want: "F stale offline: no function of the card is taken that could block this one"},
		"F: another kind":           {device: Device{Type: "type-X", Status: StatusUnavailable}, want: "F unknown: it is unknown what blocks a device of type type-X"},
		"F: blocked, with an owner": {device: device(gpu1, StatusUnavailable, u), want: "F suspicious: the function is blocked but has an owner"},
		// G, H, I, J, K, L, M, S
		"G: the card was pulled": {device: mine, instance: instance("active @gpu1"),
			change: func(f *Facts) { f.Vanished = true }, want: "G suspicious: the instance is on this node, but the host no longer has the device"},
		"G: pulled, and its owner is gone": {device: mine, instance: instance("deleted"),
			proof: ok, change: func(f *Facts) { f.Vanished = true }, want: "A stale nova: the instance is gone" + notFreed},
		"J: the migration is over": {device: mine, instance: instance("active @gpu1"), change: contextOf("migration failed gpu1 gpu2"),
			want: "J stale context: the instance is on this node and has no open migration, but still has the context of migration 12; its status is 'failed'"},
		"J: the guest runs where it should": {device: mine, instance: instance("active @gpu1"), proof: reports{holder: u},
			change: contextOf("migration failed gpu1 gpu2"),
			want:   "J stale context: the instance is on this node and has no open migration, but still has the context of migration 12; its status is 'failed'"},
		"J: the migration is purged": {device: mine, instance: instance("error @gpu1"), change: contextOf("", func(m *ContextMigration) { *m = ContextMigration{} }),
			want: "J stale context: the instance is on this node and has no open migration, but still has the context of migration 12; its record is purged"},
		"J: the migration is deleted": {device: mine, instance: instance("active @gpu1"),
			change: contextOf("migration error gpu1 gpu2", func(m *ContextMigration) { m.Deleted = true }),
			want:   "J stale context: the instance is on this node and has no open migration, but still has the context of migration 12; its record is deleted"},
		"J: error is not over": {device: mine, instance: instance("active @gpu1"), change: contextOf("migration error gpu1 gpu2"),
			want: "J suspicious: the instance is on this node and has no open migration, but has the context of migration 12; migration 12 (migration) 'error' gpu1->gpu2 is not over"},
		"J: it was not read": {device: mine, instance: instance("active @gpu1"), change: func(f *Facts) { f.Instance.Context = &Context{Migration: 12} },
			want: "J suspicious: the instance is on this node and has no open migration, but has the context of migration 12; its record was not read"},
		"J: of another instance": {device: mine, instance: instance("active @gpu1"), change: contextOf("migration failed gpu1 gpu2", func(m *ContextMigration) { m.Instance = "other" }),
			want: "J suspicious: the instance is on this node and has no open migration, but has the context of migration 12; migration 12 belongs to instance other"},
		"J: across cells": {device: mine, instance: instance("active @gpu1"), change: contextOf("migration confirmed gpu1 gpu2", func(m *ContextMigration) { m.CrossCell = true }),
			want: "J suspicious: the instance is on this node and has no open migration, but has the context of migration 12; migration 12 crosses cells"},
		"J: an evacuation that is done": {device: mine, instance: instance("active @gpu1"), change: contextOf("evacuation done gpu2 gpu1"),
			want: "J suspicious: the instance is on this node and has no open migration, but has the context of migration 12; nova-compute on gpu2 still has to read the record of migration 12 (evacuation) 'done' gpu2->gpu1"},
		"J: without a time": {device: mine, instance: instance("active @gpu1"), change: contextOf("migration failed gpu1 gpu2", func(m *ContextMigration) { m.Changed = time.Time{} }),
			want: "J suspicious: the instance is on this node and has no open migration, but has the context of migration 12; migration 12 (migration) 'failed' gpu1->gpu2 has no time of its last change"},
		"J: the migration has just ended": {device: mine, instance: instance("active @gpu1"), change: contextOf("migration reverted gpu1 gpu2", func(m *ContextMigration) { m.Changed = now.Add(-time.Minute) }),
			want: "J stale context needs migration 12 unchanged for 5m0s: nova-compute may clear the context itself: the instance is on this node and has no open migration, but still has the context of migration 12; its status is 'reverted'"},
		"a context, and the instance is resized": {device: mine, instance: instance("resized @gpu1"), change: contextOf("migration failed gpu1 gpu2"),
			want: "legitimate: the instance is in state resized"},
		"a context, and the instance is in a task": {device: mine, instance: instance("active resize_prep @gpu1"), change: contextOf("migration failed gpu1 gpu2"),
			want: "T busy: the instance is in task resize_prep, unchanged for 3 h"},
		"a context, and its migration": {device: mine, instance: instance("active @gpu1"), migrations: move("error"),
			change: func(f *Facts) { f.Instance.Context = &Context{Migration: 12} },
			want:   "legitimate: the instance is on this node; its migration 12 (migration) 'error' gpu1->gpu2 is open"},
		"H: free, with a gone owner": {down: true, device: device(gpu1, StatusAvailable, u),
			instance: instance("deleted"), proof: ok, want: "H stale offline: the device is free but has an owner or a request"},
		"H: its owner may be in a cell unread": {device: device(gpu1, StatusAvailable, u), down: true, proof: ok,
			change: func(f *Facts) { f.Incomplete = "cell2 does not answer" }, want: "H unknown: its owner is not in this cell and may exist elsewhere"},
		"D: and the host's new node has a guest": {device: mine, node: &deleted, instance: instance("deleted"),
			proof: reports{holder: "other"}, want: "D stale offline needs confirmation that the host is off for good (--host-is-off gpu1): the compute node is deleted, so no nova-compute loads the row"},
		"H: free, and its owner is here": {device: device(gpu1, StatusAvailable, u), instance: instance("active @gpu1"),
			proof: ok, want: "H unknown: the instance is on this node and may use the device"},
		"H: free, and its owner is on the way": {device: device(gpu1, StatusAvailable, u),
			instance: instance("active resize_prep @gpu2"), proof: reports{stayedOn: "gpu2"}, want: "T busy: the instance is in task resize_prep, unchanged for 3 h"},
		"I: taken by nobody": {device: device(gpu1, StatusAllocated, ""), proof: ok, want: "I stale nova: the device is taken but has no owner" + notFreed},
		"I: taken by nobody, compute down": {device: device(gpu1, StatusClaimed, ""), down: true, proof: ok,
			want: "I stale offline: the device is taken but has no owner"},
		"K: more than it asks for": {device: mine, instance: asked(1, "active @gpu1"),
			held: []Held{on(gpu1), on(gpu1)}, want: "K suspicious: the instance is on this node and has 2 devices of the node, but requests 1"},
		"K: as many as it asks for": {device: mine, instance: asked(2, "active @gpu1"),
			held: []Held{on(gpu1), on(gpu1)}, want: "legitimate: the instance is on this node"},
		"L: free, and a guest holds it": {device: device(gpu1, StatusAvailable, ""), proof: reports{holder: u},
			want: "L suspicious: guest 1f975a18… uses the device, but Nova has not assigned the device to it"},
		"L: free, and a guest has its group": {device: device(gpu1, StatusAvailable, ""), proof: reports{holder: u, group: true},
			want: "L suspicious: guest 1f975a18… has the device's IOMMU group open, but neither its arguments nor its domain name the device"},
		"L: gone, and a guest has its group": {device: mine, instance: instance("deleted"),
			proof: reports{holder: "other", group: true},
			want:  "L suspicious: guest other has the device's IOMMU group open, but neither its arguments nor its domain name the device"},
		"K: though a migration is in error": {device: mine, instance: asked(1, "active @gpu1"), migrations: move("error"),
			held: []Held{on(gpu1), on(gpu1)}, want: "K suspicious: the instance is on this node and has 2 devices of the node, but requests 1"},
		"X: what would be stale": {device: mine, instance: instance("active @gpu2"), down: true, proof: ok,
			change: func(f *Facts) { f.Odd = []string{"migration 12 has no uuid"} }, want: "X unknown: migration 12 has no uuid"},
		"X: what would be legitimate": {device: mine, instance: instance("active @gpu1"),
			change: func(f *Facts) { f.Odd = []string{"a", "b"} }, want: "X unknown: a, b"},
		"a port of type virtio-forwarder": {device: func() Device { d := vf(StatusAllocated); d.Instance = text(u); return d }(), instance: instance("active @gpu1"),
			proof: reports{holder: "of pid 7 (virtio-forwarder)", group: true, process: true}, want: "legitimate: the instance is on this node"},
		"L: a port of type virtio-forwarder, of an instance that is gone": {device: func() Device { d := vf(StatusAllocated); d.Instance = text(u); return d }(), instance: instance("deleted"),
			proof: reports{holder: "of pid 7 (virtio-forwarder)", group: true, process: true},
			want:  "L suspicious: the process of pid 7 (virtio-forwarder) has the device's IOMMU group open, but neither its arguments nor its domain name the device"},
		"X: what is suspicious is said too": {device: mine, proof: reports{holder: "other"},
			change: func(f *Facts) { f.Odd = []string{"a"} },
			want:   "X unknown: a; apart from that: guest other uses the device, but Nova has not assigned the device to it"},
		"L: one guest's, and another holds it": {device: mine, instance: instance("active @gpu1"), proof: reports{holder: "other"},
			want: "L suspicious: guest other uses the device, but Nova has not assigned the device to it"},
		"its guest holds it": {device: mine, instance: instance("active @gpu1"), proof: reports{holder: u},
			want: "legitimate: the instance is on this node"},
		"M: removed": {down: true, device: device(gpu1, "removed", ""), proof: ok,
			want: `M stale offline: Nova never writes status "removed" to a live row`},
		"M: unknown, with an owner": {device: device(gpu1, "taken", u), proof: ok, want: `M suspicious: Nova never writes status "taken" to a live row`},
		"S: reset on VERIFY_RESIZE": {device: mine, instance: instance("active @gpu2"), migrations: move("finished"),
			held: both, proof: ok, want: "S stale online confirmed: migration 12 (migration) 'finished' gpu1->gpu2 waits to be confirmed or reverted, but the instance is no longer in state resized: its state was reset"},
		"S: and the guest is on the source": {device: device(gpu2, StatusAllocated, u), node: &gpu2,
			instance: instance("active @gpu1"), migrations: move("finished"), held: both, proof: ok,
			want: "S stale online failed: migration 12 (migration) 'finished' gpu1->gpu2 waits to be confirmed or reverted, but the instance is no longer in state resized: its state was reset"},
		"S: nova-compute need not be restarted": {device: mine, instance: instance("active @gpu2"), migrations: move("finished"),
			held: both, proof: reports{stayedOn: "gpu1"}, want: "S stale online confirmed: " + reset},
		"S: its domain is left on the source, the guest runs": {device: mine, instance: instance("active @gpu2"), migrations: move("finished"),
			held: both, proof: reports{guest: "gpu1", leftover: true}, want: "S stale online confirmed: " + reset},
		"S: its domain is left on the source, the guest is stopped": {device: mine, instance: instance("stopped @gpu2"), migrations: move("finished"),
			held: both, proof: reports{guest: "gpu1", leftover: true}, want: "S stale online confirmed: " + reset},
		"S: its domain is left, but runs": {device: mine, instance: instance("active @gpu2"), migrations: move("finished"),
			held: both, proof: reports{guest: "gpu1"}, want: "S unknown: " + reset + "; not proved: gpu1 has the guest"},
		"S: its domain is left, vm_state does not tell": {device: mine, instance: instance("error @gpu2"), migrations: move("finished"),
			held: both, proof: reports{guest: "gpu1", leftover: true, silent: "gpu2"}, want: "S stale online confirmed: " + reset},
		"S: nobody has reported": {device: mine, instance: instance("error @gpu2"), migrations: move("finished"), held: both,
			want: "S unknown: migration 12 (migration) 'finished' gpu1->gpu2 waits to be confirmed or reverted, but the instance is no longer in " +
				"state resized: its state was reset; not proved: no guest report of gpu1 was given"},
	} {
		t.Run(name, func(t *testing.T) {
			f := Facts{Now: now, Down: time.Minute, Node: &gpu1, Instance: s.instance, Migrations: s.migrations, Held: s.held, Card: s.related, Proof: s.proof}
			if s.node != nil {
				f.Node = s.node
			}
			seen := 5 * time.Second
			if s.down {
				seen = time.Hour
			}
			f.Service = service(gpu1, seen)
			if s.change != nil {
				s.change(&f)
			}
			place(&f)
			found := Classify(s.device, f)
			hosttest.Equal(t, s.want, describe(found))
			hosttest.ContainsIn(t, "steps", s.steps, found.Steps.String())
		})
	}
}

func describe(f Finding) string {
	var words []string
	for _, w := range []string{string(f.Case), string(f.Verdict), string(f.Repair)} {
		if w != "" {
			words = append(words, w)
		}
	}
	for _, c := range f.Closings {
		if f.Repair != NoRepair {
			words = append(words, c.Status)
		}
	}
	if f.Needs != "" && f.Repair != NoRepair {
		words = append(words, "needs "+f.Needs)
	}
	return fmt.Sprintf("%s: %s", strings.Join(words, " "), f.Reason)
}

// TestBusy: rows of an instance in a task are never repaired. They are listed when the task is old,
// or when no nova-compute can be at work on it.
func TestBusy(t *testing.T) {
	hours := func(n float64) *time.Time {
		at := now.Add(-time.Duration(n * float64(time.Hour)))
		return &at
	}
	mine := device(gpu1, StatusAllocated, u)
	const reset = "; if no process works on the instance any more, reset its state: openstack server set --state active " + u +
		" (--state error if its guest does not run), then run gpustack repair-migration again"
	for name, s := range map[string]struct {
		instance   *Instance
		changed    *time.Time // of the instance
		migrations []Migration
		moved      float64 // hours since the migrations' last change
		after      time.Duration
		hidden     bool
		proof      Proof
		action     Action
		want       string
		listed     bool
		steps      string
	}{
		"young": {instance: instance("active resize_migrating @gpu1"), changed: hours(5.9),
			want: "T busy: the instance is in task resize_migrating, unchanged for 5 h"},
		"old": {instance: instance("active resize_migrating @gpu1"), changed: hours(7), action: Action{Name: "migrate", Request: "req-1",
			Open: []string{"compute_resize_instance on gpu1"}, Hosts: []string{"gpu1"}}, listed: true,
			want:  "T busy: the instance is in task resize_migrating, unchanged for 7 h",
			steps: "look in the logs of gpu1 for req-1" + reset + ". Guest reports of these hosts tell whether nova-compute was started since"},
		"without an action": {instance: instance("building spawning"), changed: hours(7), listed: true,
			want:  "T busy: the instance is in task spawning, unchanged for 7 h",
			steps: "look in the logs of gpu1 for " + u + reset + ". Guest reports of these hosts tell whether nova-compute was started since"},
		"without a state": {instance: &Instance{UUID: u}, changed: hours(70), listed: true, want: "T busy: the instance has no state, unchanged for 2 d"},
		"a lower limit": {instance: instance("active image_snapshot @gpu1"), changed: hours(2), after: time.Hour, listed: true,
			want: "T busy: the instance is in task image_snapshot, unchanged for 2 h"},
		"the migration goes on": {instance: instance("active migrating @gpu1"), changed: hours(7), moved: 0.1,
			migrations: []Migration{migration("live-migration running gpu1 gpu2")},
			want:       "T busy: the instance is in task migrating, unchanged for 6 min"},
		"a migration that is over does not count": {instance: instance("active rebooting @gpu1"), changed: hours(7), moved: 0.1, listed: true,
			migrations: []Migration{migration("evacuation done gpu1 gpu2")},
			want:       "T busy: the instance is in task rebooting, unchanged for 7 h"},
		"of unknown age": {instance: instance("active migrating @gpu1"), listed: true,
			want: "T busy: the instance is in task migrating, and the time of its last change is unknown"},
		"of unknown age, and nova-compute was restarted": {instance: instance("active migrating @gpu1"), listed: true, proof: reports{},
			want: "T busy: the instance is in task migrating, and the time of its last change is unknown"},
		"clocks differ": {instance: instance("active migrating @gpu1"), changed: hours(-0.1),
			want: "T busy: the instance is in task migrating, with a time of last change that is 6 min in the future"},
		"far in the future": {instance: instance("active migrating @gpu1"), changed: hours(-7), listed: true,
			want: "T busy: the instance is in task migrating, with a time of last change that is 7 h in the future"},
		"both computes were restarted": {instance: instance("active resize_finish @gpu2"), changed: hours(1), moved: 2, proof: reports{}, listed: true,
			migrations: []Migration{migration("migration post-migrating gpu1 gpu2")}, action: Action{Name: "migrate", Request: "req-1", Hosts: []string{"ctl1"}},
			want:  "T suspicious: the instance is in task resize_finish, unchanged for 1 h, but nova-compute on gpu1 and on gpu2 was started after that: no process works on it any more",
			steps: "look in the logs of ctl1, gpu1, gpu2 for req-1" + reset},
		"one compute was restarted": {instance: instance("active resize_finish @gpu2"), changed: hours(1), moved: 2, proof: reports{stayedOn: "gpu1"},
			migrations: []Migration{migration("migration post-migrating gpu1 gpu2")},
			want:       "T busy: the instance is in task resize_finish, unchanged for 1 h"},
		"one compute has not reported": {instance: instance("active resize_finish @gpu2"), changed: hours(1), moved: 2, proof: reports{silent: "gpu2"},
			migrations: []Migration{migration("migration post-migrating gpu1 gpu2")},
			want:       "T busy: the instance is in task resize_finish, unchanged for 1 h"},
		"no destination yet": {instance: instance("active rebuilding @gpu1"), changed: hours(1), moved: 2, proof: reports{},
			migrations: []Migration{{ID: 12, Type: "evacuation", Status: "accepted", SourceHost: "gpu1", SourceNode: "gpu1"}},
			want:       "T busy: the instance is in task rebuilding, unchanged for 1 h"},
		"without a migration, its host was restarted": {instance: instance("active image_snapshot @gpu1"), changed: hours(1), proof: reports{stayedOn: "gpu2"}, listed: true,
			want: "T suspicious: the instance is in task image_snapshot, unchanged for 1 h, but nova-compute on gpu1 was started after that: no process works on it any more"},
		"a migration in error carries nothing on": {instance: instance("active image_snapshot @gpu1"), changed: hours(1), moved: 100, proof: reports{stayedOn: "gpu2"}, listed: true,
			migrations: []Migration{migration("migration error gpu1 gpu2")},
			want:       "T suspicious: the instance is in task image_snapshot, unchanged for 1 h, but nova-compute on gpu1 was started after that: no process works on it any more"},
		"across cells, of nova-conductor's": {instance: instance("active resize_migrating @gpu1"), changed: hours(1), moved: 2, proof: reports{},
			migrations: []Migration{func() Migration { m := migration("migration migrating gpu1 gpu2"); m.CrossCell = true; return m }()},
			want:       "T busy: the instance is in task resize_migrating, unchanged for 1 h"},
		// What waits for an operator may wait for long.
		"an old VERIFY_RESIZE": {instance: instance("resized @gpu2"), changed: hours(1000), moved: 1000, proof: reports{},
			migrations: []Migration{migration("migration finished gpu1 gpu2")}, want: "legitimate: the instance is in state resized"},
		"a VERIFY_RESIZE whose migration is over": {instance: instance("resized @gpu2"), changed: hours(100), proof: reports{stayedOn: "gpu1"}, listed: true,
			want:  "T busy: the instance is in state resized, but no migration waits to be confirmed or reverted, unchanged for 4 d",
			steps: "look in the logs of gpu1, gpu2 for " + u + reset + ". Guest reports of these hosts tell whether nova-compute was started since"},
		"and has failed, and its hosts are off or started since": {instance: instance("resized @gpu2"), changed: hours(100), moved: 100, listed: true,
			migrations: []Migration{migration("resize error gpu1 gpu2")}, proof: reports{off: "gpu1", silent: "gpu1"},
			want:  "T suspicious: the instance is in state resized, but no migration waits to be confirmed or reverted, unchanged for 4 d, but nova-compute on gpu2 was started after that, and host gpu1 is declared off: no process works on it any more",
			steps: "look in the logs of gpu1, gpu2 for " + u + reset},
		"a VERIFY_RESIZE whose migration was confirmed just now": {instance: instance("resized @gpu2"), changed: hours(1),
			want: "T busy: the instance is in state resized, but no migration waits to be confirmed or reverted, unchanged for 1 h"},
		"a VERIFY_RESIZE without a migration, on its own host": {instance: instance("resized @gpu1"), changed: hours(100),
			want: "legitimate: the instance is in state resized"},
		"and one that is being confirmed": {instance: instance("resized resize_confirming @gpu2"), changed: hours(7), moved: 1000, listed: true,
			migrations: []Migration{migration("migration confirming gpu1 gpu2")}, want: "T busy: the instance is in task resize_confirming, unchanged for 7 h"},
		"an old VERIFY_RESIZE across cells, in the source's": {instance: instance("active resize_migrated @gpu1"), changed: hours(1000), hidden: true,
			want: "legitimate: the instance was resized into another cell and waits to be confirmed or reverted"},
		"soft-deleted long ago":            {instance: instance("soft-delete @gpu1"), changed: hours(1000), want: "legitimate: the instance is in state soft-delete"},
		"soft-deleted, and being restored": {instance: instance("soft-delete restoring @gpu1"), changed: hours(7), listed: true, want: "T busy: the instance is in task restoring, unchanged for 7 h"},
		"the guest uses the device, as ever": {instance: instance("active rebooting @gpu1"), changed: hours(1), proof: reports{holder: u, stayedOn: "gpu1"},
			want: "T busy: the instance is in task rebooting, unchanged for 1 h"},
		"another guest uses the device": {instance: instance("active rebooting @gpu1"), changed: hours(7), proof: reports{holder: "other", stayedOn: "gpu1"}, listed: true,
			want: "L suspicious: guest other uses the device, but Nova has not assigned the device to it"},
	} {
		t.Run(name, func(t *testing.T) {
			s.instance.Changed, s.instance.Hidden = s.changed, s.hidden
			for k := range s.migrations {
				s.migrations[k].Changed = *hours(s.moved)
			}
			f := Facts{Now: now, Down: time.Minute, Busy: s.after, Node: &gpu1, Service: service(gpu1, time.Second), Instance: s.instance, Migrations: s.migrations, Proof: s.proof}
			place(&f)
			got := Classify(mine, f)
			if got.Busy != nil && got.Listed() && s.action.Request != "" {
				got.Asks(s.action)
			}
			if describe(got) != s.want || got.Listed() != s.listed || got.Repair != NoRepair || (got.Case == CaseBusy) != (got.Busy != nil) {
				t.Errorf("listed %v: %s\nwant %s", got.Listed(), describe(got), s.want)
			}
			if s.steps != "" && got.Steps.String() != s.steps {
				t.Errorf("%s\nwant %s", got.Steps, s.steps)
			}
			var sum Summary
			if sum.Count(got); sum.Different() != s.listed {
				t.Errorf("%+v", sum)
			}
		})
	}
}

// TestEvidence: one line that an operator can check.
func TestEvidence(t *testing.T) {
	f := Facts{Now: now, Down: time.Minute, Node: &gpu1, Service: service(gpu1, 5*time.Second),
		Instance: instance("active @gpu2"), Migrations: []Migration{migration("migration migrating gpu1 gpu2")}}
	want := "instance 1f975a18… active on gpu2; migration 12 (migration) 'migrating' gpu1->gpu2, unchanged for 3 h; nova-compute on gpu1 up"
	place(&f)
	hosttest.Equal(t, want, Classify(device(gpu1, StatusAllocated, u), f).Evidence)
}

// TestPlan: the migrations of one instance are closed together, as far as that is proved; a finding
// says which reports its own repair needs, and what remains.
func TestPlan(t *testing.T) {
	gpu4 := Node{ID: 4, Host: "gpu4", Name: "gpu4"}
	nodes := []Node{gpu1, gpu2, gpu3, gpu4}
	for name, test := range map[string]struct {
		instance   string
		migrations []string // the first has id 1
		rows       []Node
		proof      Proof
		only       []Node // whose findings are planned
		want       []string
		steps      string // of the first finding
		leaves     string
	}{
		"three tries, three hosts": {instance: "active @gpu1", migrations: []string{"resize error gpu1 gpu2", "resize error gpu1 gpu3", "resize error gpu1 gpu4"}, rows: nodes, proof: reports{silent: "gpu1"},
			want: []string{"planned online migrations 1, 2 and 3: [{1 failed} {2 failed} {3 failed}] frees gpu2 gpu3 gpu4, empty [gpu2 gpu3 gpu4]"}},
		"three tries, one host": {instance: "active @gpu1", migrations: []string{"resize error gpu1 gpu2", "resize error gpu1 gpu2", "resize error gpu1 gpu2"}, rows: []Node{gpu1, gpu2, gpu2, gpu2}, proof: reports{silent: "gpu1"},
			want: []string{"planned online migrations 1, 2 and 3: [{1 failed} {2 failed} {3 failed}] frees gpu2 gpu2 gpu2, empty [gpu2]"}},
		"three tries, one host has not reported": {instance: "active @gpu1", migrations: []string{"resize error gpu1 gpu2", "resize error gpu1 gpu3", "resize error gpu1 gpu4"}, rows: nodes, proof: reports{silent: "gpu3"},
			want: nil, steps: "ssh gpu2 gpustack host guests -o json > gpu2.json; ssh gpu3 gpustack host guests -o json > gpu3.json; ssh gpu4 gpustack host guests -o json > gpu4.json; gpustack repair-migration --guests gpu2.json --guests gpu3.json --guests gpu4.json; " +
				"then: correct Placement's allocations, then set migrations 1, 2 and 3 to failed; the audit of nova-compute then frees the instance's devices on other nodes: 0000:84:00.0 of gpu2, 0000:84:00.0 of gpu3, 0000:84:00.0 of gpu4"},
		"one host alone is asked for": {instance: "active @gpu1", migrations: []string{"resize error gpu1 gpu2", "resize error gpu1 gpu3"}, rows: nodes[:3], proof: reports{}, only: []Node{gpu3},
			want: []string{"planned online migrations 1 and 2: [{1 failed} {2 failed}] frees gpu2 gpu3, empty [gpu2 gpu3]"}},
		"of different kinds": {instance: "active @gpu2", migrations: []string{"resize finished gpu1 gpu2", "migration migrating gpu2 gpu3"}, rows: nodes[:3], proof: reports{guest: "gpu1", leftover: true},
			want:   []string{"planned online migrations 1 and 2: [{1 confirmed} {2 failed}] frees gpu1 gpu3, empty [gpu1 gpu3]"},
			steps:  "correct Placement's allocations, then set migration 1 to confirmed, migration 2 to failed; the audit of nova-compute then frees the instance's devices on other nodes: 0000:84:00.0 of gpu1, 0000:84:00.0 of gpu3",
			leaves: "on gpu1 what confirming the resize would have removed: the guest's domain (virsh undefine " + u + " --managed-save --nvram) and the folder " + u + "_resize with the guest's old disk; keep both until the guest runs on gpu2; disks of the guest on the other host; if the migration reached 'migrating', volume attachments and ports may point at that host too; a guest with volumes is stopped, and each volume refreshed on gpu2 (nova-manage volume_attachment get_connector > connector.json, nova-manage volume_attachment refresh " + u + " VOLUME connector.json); a hard reboot then corrects the ports"},
		"back on the source, where the folder may have the guest's only disk": {instance: "active @gpu1", migrations: []string{"resize finished gpu1 gpu2"}, rows: nodes[:2], proof: reports{},
			want: []string{"planned online migration 1: [{1 failed}] frees gpu2, empty [gpu2]"},
			leaves: "on gpu1 perhaps the folder " + u + "_resize: the instance is not on gpu2, so a disk in that folder may be the guest's only one; " +
				"disks of the guest on the other host; if the migration reached 'migrating', volume attachments and ports may point at that host too; a guest with volumes is stopped, and each volume refreshed on gpu1 (nova-manage volume_attachment get_connector > connector.json, nova-manage volume_attachment refresh " + u + " VOLUME connector.json); a hard reboot then corrects the ports"},
		"one crosses cells": {instance: "active @gpu1", migrations: []string{"resize error gpu1 gpu2", "crossing error gpu1 gpu3"}, rows: nodes[:2], proof: reports{},
			steps: "see what became of migration 2, which must not be closed: openstack server migration list --server " + u + "; then run gpustack repair-migration again"},
		"no report at all": {instance: "active @gpu2", migrations: []string{"resize finished gpu1 gpu2", "migration migrating gpu2 gpu3"}, rows: nodes[:3], want: nil,
			steps: "ssh gpu1 gpustack host guests -o json > gpu1.json; ssh gpu2 gpustack host guests -o json > gpu2.json; ssh gpu3 gpustack host guests -o json > gpu3.json; gpustack repair-migration --guests gpu1.json --guests gpu2.json --guests gpu3.json; then: correct Placement's allocations, then set migration 1 to confirmed, migration 2 to failed; the audit of nova-compute then frees the instance's devices on other nodes: 0000:84:00.0 of gpu1, 0000:84:00.0 of gpu3"},
		"a row that nothing keeps, with a report": {instance: "active @gpu1", migrations: []string{"resize error gpu1 gpu2"}, rows: nodes[:3], proof: reports{},
			want: []string{"planned online migration 1: [{1 failed}] frees gpu2, empty [gpu2 gpu3]"}},
		"a row that nothing keeps, without": {instance: "active @gpu1", migrations: []string{"resize error gpu1 gpu2"}, rows: nodes[:3], proof: reports{silent: "gpu3"},
			want: []string{"planned online migration 1: [{1 failed}] frees gpu2, empty [gpu2]"}},
		"both keep a host that has not reported": {instance: "active @gpu1", migrations: []string{"resize error gpu4 gpu2",
			"resize error gpu4 gpu3"}, rows: nodes, proof: reports{silent: "gpu4"}},
	} {
		t.Run(name, func(t *testing.T) {
			var held []Held
			var migrations []Migration
			for k, n := range test.rows {
				d := device(n, StatusAllocated, u)
				d.ID = int64(k + 1)
				held = append(held, Held{Device: d, Host: n.Host, NodeName: n.Name})
			}
			for k, spec := range test.migrations {
				m := numbered(int64(k+1), spec)
				if m.Type == "crossing" {
					m.Type, m.CrossCell = "resize", true
				}
				migrations = append(migrations, m)
			}
			var findings []Finding
			for k, n := range test.rows {
				f := Facts{Now: now, Down: time.Minute, Node: &n, Service: service(n, time.Second), Instance: instance(test.instance), Migrations: migrations, Held: held, Proof: test.proof}
				place(&f)
				if !f.Here && (test.only == nil || slices.Contains(test.only, n)) {
					findings = append(findings, Classify(held[k].Device, f))
				}
			}
			var got []string
			for _, unit := range NewPlan(findings) {
				var hosts []string
				for _, d := range unit.Devices {
					hosts = append(hosts, d.Host)
				}
				line := fmt.Sprintf("%s %s %s: %v frees %s, empty %v", unit.State, unit.Repair, unit.Name(), unit.Closings,
					strings.Join(hosts, " "), unit.Places.Empty)
				if unit.Note != "" {
					line += ": " + unit.Note
				}
				got = append(got, line)
			}
			if !slices.Equal(got, test.want) {
				t.Errorf("%s\nwant %s", strings.Join(got, "\n"), strings.Join(test.want, "\n"))
			}
			if test.steps != "" && findings[0].Steps.String() != test.steps {
				t.Errorf("%s\nwant %s", findings[0].Steps, test.steps)
			}
			if test.leaves != "" && findings[0].Leaves != test.leaves {
				t.Errorf("%s\nwant %s", findings[0].Leaves, test.leaves)
			}
		})
	}
}

// TestNeverFrees goes through a hundred thousand states, most of which no Nova has ever
// been in, and holds what must never be repaired against verdicts, by rules of its own:
// whatever the cases say.
func TestNeverFrees(t *testing.T) {
	states := 0
	for _, status := range []string{StatusAvailable, StatusClaimed, StatusAllocated, StatusUnavailable, "odd"} {
		for _, vm := range []string{"", "active", "stopped", "building", "resized", "soft-delete", "error", "paused", "shelved_offloaded"} {
			for _, task := range []string{"", "migrating"} {
				for _, where := range []string{"", "gpu1", "gpu2"} {
					for _, deleted := range []bool{false, true} {
						for _, kind := range []string{"", "migration", "resize", "live-migration", "evacuation", "other"} {
							for _, move := range []string{"error", "accepted", "migrating", "finished", "done"} {
								for _, down := range []time.Duration{0, time.Hour} {
									for _, r := range []reports{{}, {silent: "gpu1"}, {silent: "gpu2"}, {guest: "gpu1"}, {holder: u}, {holder: "other"},
										{stayedOn: "gpu1"}, {defective: "old"}} {
										i := &Instance{UUID: u, Deleted: deleted, VMState: text(vm)}
										if task != "" {
											i.Task = &task
										}
										if where != "" {
											i.Host, i.Node = &where, &where
										}
										var migrations []Migration
										if kind != "" {
											migrations = []Migration{migration(kind + " " + move + " gpu1 gpu2")}
										}
										d := device(gpu1, status, u)
										f := Facts{
											Now: now, Down: time.Minute, Node: &gpu1, Service: service(gpu1, down), Instance: i, Migrations: migrations, Proof: r,
											Held: []Held{{Device: d, Host: "gpu1", NodeName: "gpu1"}, {Device: device(gpu2, StatusAllocated, u), Host: "gpu2", NodeName: "gpu2"}},
										}
										place(&f)
										states++
										got := Classify(d, f)
										writes := got.Verdict == Stale && got.Needs == "" && (got.Repair == Online || got.Repair == Offline)
										open := kind != "" && move != "done"
										var never []string
										rule := func(broken bool, name string) {
											if broken {
												never = append(never, name)
											}
										}
										rule(!deleted && task != "", "in a task")
										rule(!deleted && (vm == "building" || vm == "resized" || vm == "soft-delete"), "on its way")
										rule(!deleted && where == "gpu1", "the instance is here")
										rule(r.holder != "", "somebody holds it")
										rule(r.guest == "gpu1" || r.silent == "gpu1" || r.defective != "", "the host has not said that nobody uses it")
										rule(!deleted && open && move != "error" && move != "finished" && (r.silent != "" || r.stayedOn != ""), "what carries it on may live")
										rule(open && move != "error" && (kind == "live-migration" || kind == "evacuation" || kind == "other"), "a record that must not be written")
										rule(kind == "other" && open, "a kind that is not known")
										rule(!deleted && status != StatusAvailable && kind == "evacuation" && move == "done", "an evacuation that its source has yet to see")
										rule(got.Repair == Offline && down == 0, "nova-compute is up")
										if writes && len(never) > 0 {
											t.Fatalf("%s %s %s @%q deleted %v, %s %s, down %v, %+v: %s, but %v", status, vm, task, where, deleted, kind, move, down, r, describe(got), never)
										}
									}
								}
							}
						}
					}
				}
			}
		}
	}
	if states < 100_000 {
		t.Errorf("%d states only", states)
	}
}
