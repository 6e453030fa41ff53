package db

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/cleanup/repair"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
	"gpustack/nova/cloud"
)

// newRequest is the request of the device on the destination: since Zed each claim makes new ones.
const newRequest = "5f0c1c9e-0000-4000-8000-0000000000ff"

// move is an instance that was moved from gpu1 to gpu2, where it is now, with a device on both.
type move struct {
	state   string         // vm_state of the instance
	status  string         // of the migration
	columns Row            // of the migration
	change  string         // a statement
	reports []guest.Report // of hosts
	off     []string       // hosts that are declared off
}

// arrival has an instance that was moved.
type arrival struct {
	*dead
	nodes map[string]int64
	found []cleanup.Finding
}

// newArrival makes the rows of a move, judges them, and plans their repair.
func newArrival(t *testing.T, m move) *arrival {
	t.Helper()
	reset(t)
	d := &arrival{dead: &dead{cell: database.Cell1, uuid: UUID(1)}, nodes: map[string]int64{}}
	for _, host := range []string{"gpu1", "gpu2"} {
		d.nodes[host] = d.cell.Compute(t, host)
	}
	old := Row{"updated_at": Ago(time.Hour)}
	d.cell.Instance(t, d.uuid, "gpu2", m.state, "", With(old))
	from := d.cell.Card(t, d.nodes["gpu1"], first, "allocated", d.uuid, old)
	to := d.cell.Card(t, d.nodes["gpu2"], card2, "allocated", d.uuid, old, Row{"request_id": newRequest})
	d.cell.Migration(t, 3, d.uuid, "migration", m.status, "gpu1", "gpu2", old, Row{"uuid": migrationUUID}, m.columns)
	d.cell.Context(t, d.uuid, 3, []int64{from}, []int64{to})
	for _, statement := range strings.Split(m.change, "; ") {
		if statement != "" {
			if _, err := database.SQL.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	one := func() *int { n := 1; return &n }
	d.placement = &placement{left: map[string]bool{}, refuse: map[string]bool{}, held: map[string]cloud.Allocations{
		d.uuid:        {Providers: map[string]map[string]int{"provider of gpu2": oneCard}, Project: "p", User: "u", Generation: one()},
		migrationUUID: {Providers: map[string]map[string]int{"provider of gpu1": oneCard}, Project: "p", User: "u", Generation: one()},
	}}
	t.Cleanup(d.placement.pending.Wait)
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Database: database.URL("nova_cell1")})
	hosttest.NoError(t, err)
	t.Cleanup(func() { databases.Close() })
	proof, err := cleanup.NewProof(m.reports, m.off)
	hosttest.NoError(t, err)
	options := find.Options{Proof: proof, All: true}
	if _, _, err := find.RowsAndPools(t.Context(), databases, options, func(f cleanup.Finding) { d.found = append(d.found, f) }); err != nil {
		t.Fatal(err)
	}
	d.repairer = &repair.Repairer{Databases: databases, Options: options, Placement: d.placement, Record: func([]cleanup.Unit) error { return nil }}
	d.units, _, err = d.repairer.Plan(t.Context(), d.found, 10)
	hosttest.NoError(t, err)
	return d
}

// verdicts are the findings, one line for each row.
func (d *arrival) verdicts() string {
	var lines []string
	for _, f := range d.found {
		lines = append(lines, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s", f.Host, f.Case, f.Verdict, f.Repair)), " "))
	}
	return strings.Join(lines, ", ")
}

// reboot returns the devices that a hard reboot of the instance finds when the source's device is
// free, or what Nova raises.
func (d *arrival) reboot(t *testing.T) string {
	t.Helper()
	owned := func(owner any) {
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.pci_devices SET instance_uuid = ? WHERE compute_node_id = ?", owner, d.nodes["gpu1"]); err != nil {
			t.Fatal(err)
		}
	}
	owned(nil)
	defer owned(d.uuid)
	answer, err := database.oracle.ask(t.Context(), map[string]any{"ask": "devices", "database": d.cell.connection, "instance": d.uuid})
	hosttest.NoError(t, err)
	var got struct {
		Devices []string
		Error   string
	}
	hosttest.NoError(t, json.Unmarshal(answer, &got))
	return got.Error + strings.Join(got.Devices, ", ")
}

// TestMovedContext: the migration_context of an instance on the migration's destination is applied
// when its migration is closed, as Nova does it: a hard reboot finds the devices. Where it does not
// fit, nothing is written; undo restores every byte.
func TestMovedContext(t *testing.T) {
	both := []guest.Report{evidence.Report("gpu1"), evidence.Report("gpu2")}
	resize := Row{"old_instance_type_id": 1, "new_instance_type_id": 2}
	for name, test := range map[string]struct {
		move
		found   string
		applied bool
		reason  string // of one that is not repaired
		before  string // what a hard reboot finds before
	}{
		"a cold migration": {move: move{state: "active", status: "error", reports: both}, found: "gpu1 B stale online, gpu2 legitimate", applied: true, before: "KeyError"},
		"a resize that has not changed the flavor": {move: move{state: "active", status: "error", columns: resize, reports: both}, found: "gpu1 B unknown, gpu2 legitimate",
			reason: "has not put the new flavor in place", before: "KeyError"},
		"another device": {move: move{state: "active", status: "error", reports: both, change: "UPDATE nova_cell1.pci_devices SET address = '0000:99:00.0' WHERE address = '" + card2 + "'"},
			found: "gpu1 B unknown, gpu2 legitimate", reason: "has other devices on the destination", before: "KeyError"},
		"closed without its context": {move: move{state: "active", status: "failed", reports: both, change: "UPDATE nova_cell1.instance_extra SET migration_context = NULL"},
			found: "gpu1 E stale nova, gpu2 R suspicious", reason: "among neither the instance's requests nor those of its migration_context", before: "KeyError"},
		"closed with its context left": {move: move{state: "active", status: "failed", reports: both}, found: "gpu1 E stale nova, gpu2 J stale context", applied: true, before: "KeyError"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newArrival(t, test.move)
			hosttest.Equal(t, test.found, d.verdicts())
			hosttest.EqualIn(t, "before", test.before, d.reboot(t))
			if !test.applied {
				if len(d.units) > 0 || !strings.Contains(fmt.Sprint(d.found[0].Reason, d.found[1].Reason), test.reason) {
					t.Errorf("%d units: %s; %s", len(d.units), d.found[0].Reason, d.found[1].Reason)
				}
				return
			}
			dump := func() [][][]string {
				return [][][]string{d.cell.Dump(t, "migrations"), d.cell.Dump(t, "instances"), d.cell.Dump(t, "instance_extra"), d.cell.Dump(t, "pci_devices")}
			}
			before := dump()
			if err := d.repairer.Apply(t.Context(), d.units); err != nil || len(d.units) != 1 || d.units[0].State != cleanup.Written {
				t.Fatalf("%v, %+v", err, d.units)
			}
			hosttest.ContainsIn(t, "after", fmt.Sprintf("%d %s", d.nodes["gpu2"], card2), d.reboot(t))
			hosttest.EqualIn(t, "the context is left", "NULL", d.cell.context(t))
			hosttest.NoError(t, d.repairer.Undo(t.Context(), d.units))
			hosttest.EqualIn(t, "before and undone", before, dump())
		})
	}
}

// TestConfirmationDied: nova-compute of the source has died while it confirmed a resize. Nova can
// neither confirm nor revert it then. With the source alive again, it can be confirmed once more;
// with the source off, the repair confirms it, and the next run frees the source's device.
func TestConfirmationDied(t *testing.T) {
	confirming := move{state: "resized", status: "confirming"}
	alive, off := confirming, confirming
	alive.reports = []guest.Report{evidence.Report("gpu1")}
	off.off, off.change = []string{"gpu1"}, "UPDATE nova_cell1.services SET last_seen_up = UTC_TIMESTAMP() - INTERVAL 1 HOUR WHERE host = 'gpu1'; "+
		"UPDATE nova_cell1.compute_nodes SET updated_at = UTC_TIMESTAMP() - INTERVAL 1 HOUR WHERE host = 'gpu1'"
	for name, test := range map[string]struct {
		move
		found  string
		unit   cleanup.Repair
		status string // of the migration and the instance, and whether the context is left
	}{
		"at first":            {move: confirming, found: "gpu1 T busy, gpu2 legitimate"},
		"the source is alive": {move: alive, found: "gpu1 C stale reopen, gpu2 legitimate", unit: cleanup.Reopen, status: "finished resized true"},
		"the source is off":   {move: off, found: "gpu1 C stale online, gpu2 legitimate", unit: cleanup.Online, status: "confirmed active false"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newArrival(t, test.move)
			hosttest.Equal(t, test.found, d.verdicts())
			if test.unit == "" {
				if len(d.units) > 0 {
					t.Errorf("%+v", d.units)
				}
				return
			}
			dump := func() [][][]string {
				return [][][]string{d.cell.Dump(t, "migrations"), d.cell.Dump(t, "instances"), d.cell.Dump(t, "instance_extra"), d.cell.Dump(t, "pci_devices")}
			}
			before := dump()
			if err := d.repairer.Apply(t.Context(), d.units); err != nil || len(d.units) != 1 || !d.units[0].Written() || d.units[0].Repair != test.unit {
				t.Fatalf("%v, %+v", err, d.units)
			}
			status := fmt.Sprint(d.cell.Dump(t, "migrations", "status")[0][0], " ", d.cell.Dump(t, "instances", "vm_state")[0][0], " ", d.cell.context(t) != "NULL")
			hosttest.Equal(t, test.status, status)
			if test.unit == cleanup.Online {
				want := map[string]map[string]map[string]int{d.uuid: {"provider of gpu2": oneCard}}
				hosttest.EqualIn(t, "Placement", want, d.placement.content())
				var next []string
				if _, _, err := find.RowsAndPools(t.Context(), d.repairer.Databases, d.repairer.Options, func(f cleanup.Finding) {
					next = append(next, strings.TrimSpace(fmt.Sprint(f.Host, " ", f.Case, " ", f.Verdict, " ", f.Repair, f.Needs)))
				}); err != nil || !cmp.Equal(next, []string{"gpu1 E stale offline", "gpu2  legitimate"}) {
					t.Errorf("next: %q, %v", next, err)
				}
			}
			hosttest.NoError(t, d.repairer.Undo(t.Context(), d.units))
			hosttest.EqualIn(t, "before and undone", before, dump())
		})
	}
}

// TestNeverStarted: the guest has failed to start on the destination, and is defined and not running
// on the source, which is proof enough, as is a destination that is declared off.
func TestNeverStarted(t *testing.T) {
	for name, test := range map[string]struct {
		move
		found string
	}{
		"the source has reported": {move{state: "error", status: "error", reports: []guest.Report{evidence.Report("gpu1", evidence.Defines(t, first, UUID(1)))}},
			"gpu1 B stale online, gpu2 legitimate"},
		"the destination is off": {move{state: "active", status: "post-migrating", reports: []guest.Report{evidence.Report("gpu1")}, off: []string{"gpu2"},
			change: "UPDATE nova_cell1.services SET last_seen_up = UTC_TIMESTAMP() - INTERVAL 1 HOUR WHERE host = 'gpu2'"},
			"gpu1 C stale online, gpu2 legitimate"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newArrival(t, test.move)
			if got := d.verdicts(); got != test.found {
				t.Errorf("found %s: %s", got, d.found[0].Reason)
			}
		})
	}
}
