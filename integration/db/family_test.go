package db

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/repair"
	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
)

// TestTwoVFsOnline: VF1 and VF2 of two instances are each kept by a dead migration, and a guest
// uses VF3, whose row says that it is free: closing both migrations would free the PF.
func TestTwoVFsOnline(t *testing.T) {
	const pf, vf1, vf2, vf3 = "0000:86:00.0", "0000:86:00.1", "0000:86:00.2", "0000:86:00.3"
	reset(t)
	cell := database.Cell1
	gpu1 := cell.Compute(t, "gpu1")
	cell.Compute(t, "gpu2")
	old := Row{"updated_at": Ago(time.Hour)}
	cell.Card(t, gpu1, pf, "unavailable", "", PF(), old)
	for k, vf := range []string{vf1, vf2} {
		cell.Instance(t, UUID(k+1), "gpu2", "active", "")
		cell.Migration(t, int64(k+3), UUID(k+1), "migration", "error", "gpu2", "gpu1", old, Row{"uuid": UUID(51 + k)})
		cell.Card(t, gpu1, vf, "allocated", UUID(k+1), VF(pf), old)
	}
	cell.Card(t, gpu1, vf3, "available", "", VF(pf), old)
	report := evidence.Write(t, evidence.Report("gpu1", evidence.VFs(t, pf, vf1, vf2, vf3), evidence.Holds(t, vf3, UUID(9))))
	if lines, _ := findings(t, machine(t), "--guests", report); slices.ContainsFunc(lines, func(l string) bool { return strings.Contains(l, "stale") }) {
		t.Error(lines)
		execInCell1(t, "UPDATE migrations SET status = 'failed'")
		t.Logf("Nova then: %+v", database.Track(t, cell, gpu1, cell.Reported(t, gpu1)))
	}
}

// TestNothingHeld: after the repair of an instance that is on no host nothing holds anything. That is
// not taken for an instance that is gone. Another writer of its rows waits until the repair has ended.
func TestNothingHeld(t *testing.T) {
	d := newDead(t)
	execInCell1(t, "UPDATE instances SET host = NULL, node = NULL"+idIs("NULL")+", vm_state = 'shelved_offloaded', task_state = NULL",
		"UPDATE migrations SET status = 'error'")
	r, units := d.planned(t)
	d.placement.answers = []error{errors.New("504 Gateway Timeout")}
	wrote := make(chan [][]string, 1)
	r.Placement = &interposed{placement: d.placement, meanwhile: func() {
		go func() {
			execInCell1(t, "UPDATE migrations SET updated_at = UTC_TIMESTAMP()")
			wrote <- d.cell.Dump(t, "migrations", "status")
		}()
		time.Sleep(time.Second) // as long as an answer of Placement may take
		if len(wrote) > 0 {
			t.Error("rows are written between a request and the COMMIT")
		}
	}}
	err := r.Apply(t.Context(), units)
	if !units[0].Written() {
		t.Errorf("state %s (%s), %v", units[0].State, units[0].Note, err)
	}
	if status := <-wrote; status[0][0] != "failed" {
		t.Errorf("the other writer finds the migration %s", status[0][0])
	}
	if left := d.placement.content()[d.uuid]; len(left) > 0 {
		t.Errorf("Placement: %v", left)
	}
}

// TestPlannedBetween: B plans between the request and the COMMIT of A, when the allocations are as
// after the repair already. A undoes its repair; then B must not write the rows alone.
func TestPlannedBetween(t *testing.T) {
	d := newDead(t)
	d.placement.answers = []error{errors.New("504 Gateway Timeout")}
	var rb *repair.Repairer
	var ub []cleanup.Unit
	d.repairer.Placement = &interposed{placement: d.placement, meanwhile: func() { rb, ub = d.planned(t) }}
	hosttest.NoError(t, errors.Join(d.repairer.Apply(t.Context(), d.units), d.repairer.Undo(t.Context(), d.units)))
	if err := rb.Apply(t.Context(), ub); ub[0].State != cleanup.Skipped {
		t.Errorf("state %s (%s), %v", ub[0].State, ub[0].Note, err)
	}
	d.is(t, repair.Before)
}

// TestUndoneAfter: B repairs between the request and the COMMIT of A. It waits for A, finds nothing to
// do, and its undo leaves the repair of A.
func TestUndoneAfter(t *testing.T) {
	d := newDead(t)
	d.placement.answers = []error{errors.New("504 Gateway Timeout")}
	rb, ub := d.planned(t)
	ended := make(chan error, 1)
	d.repairer.Placement = &interposed{placement: d.placement, meanwhile: func() {
		go func() { ended <- rb.Apply(t.Context(), ub) }()
		time.Sleep(time.Second)
	}}
	if err := d.repairer.Apply(t.Context(), d.units); err != nil || !d.units[0].Written() {
		t.Errorf("A: state %s (%s), %v", d.units[0].State, d.units[0].Note, err)
	}
	if err := <-ended; err != nil || ub[0].State != cleanup.Skipped {
		t.Errorf("B: state %s (%s), %v", ub[0].State, ub[0].Note, err)
	}
	if err := rb.Undo(t.Context(), ub); err != nil {
		t.Errorf("the undo of B: %v, state %s", err, ub[0].State)
	}
	d.is(t, repair.After)
}

// TestDeclaredOffDeleted: the service of a host was deleted while its nova-compute runs.
func TestDeclaredOffDeleted(t *testing.T) {
	reset(t)
	cell := database.Cell1
	gpu1 := cell.Compute(t, "gpu1", LastSeen(10*time.Second), Service(Deleted(5*time.Second)))
	cell.Compute(t, "gpu2")
	cell.Instance(t, UUID(3), "gpu2", "active", "")
	cell.Card(t, gpu1, first, "allocated", UUID(2))
	_, stderr, _ := repairMigration(t, machine(t), "--host-is-off", "gpu1", "--apply", "--yes", "--wait", "1s")
	if got := cell.Dump(t, "pci_devices", "status"); got[0][0] != "allocated" {
		t.Errorf("%v\n%s", got, stderr)
	}
}

// TestNotRelatedByNova: Nova's tracker has neither rows with status removed nor rows with another
// spelling of the PF among the PF's children, and frees the PF although a guest uses one of them.
func TestNotRelatedByNova(t *testing.T) {
	const pf, vf1, vf2 = "0000:af:00.0", "0000:af:00.1", "0000:af:00.2"
	for name, row := range map[string]struct{ status, parent string }{"removed": {"removed", pf}, "capitals": {"unavailable", "0000:AF:00.0"}, "control": {"available", pf}} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell, u, old := database.Cell1, UUID(1), Row{"updated_at": Ago(time.Hour)}
			gpu1 := cell.Compute(t, "gpu1")
			cell.Compute(t, "gpu2")
			cell.Instance(t, u, "gpu2", "active", "")
			cell.Migration(t, 3, u, "migration", "error", "gpu2", "gpu1", old, Row{"uuid": migrationUUID})
			cell.Card(t, gpu1, pf, "unavailable", "", PF(), old)
			cell.Card(t, gpu1, vf1, "allocated", u, VF(pf), old)
			cell.Card(t, gpu1, vf2, row.status, "", VF(row.parent), old)
			report := evidence.Write(t, evidence.Report("gpu1", evidence.VFs(t, pf, vf1, vf2), evidence.Holds(t, vf2, UUID(9))))
			if lines, _ := findings(t, machine(t), "--guests", report); slices.Contains(lines, "gpu1 "+vf1+" B stale online") {
				t.Error(lines)
			}
		})
	}
}

// TestClaimVFs: two VFs of one PF are claimed for one request of two.
func TestClaimVFs(t *testing.T) {
	reset(t)
	const pf, vf1, vf2 = "0000:86:00.0", "0000:86:00.1", "0000:86:00.2"
	u, cell, old := UUID(1), database.Cell1, Row{"updated_at": Ago(time.Hour)}
	gpu1 := cell.Compute(t, "gpu1", LastSeen(time.Hour))
	cell.Instance(t, u, "gpu1", "active", "", Extra(Row{"pci_requests": `[{"count": 2, "spec": [{"vendor_id": "8086", "product_id": "56c0", "dev_type": "type-VF"}], "alias_name": "a", "is_new": false, "numa_policy": "legacy", "request_id": "` + UUID(100) + `", "requester_id": null}]`}))
	cell.Card(t, gpu1, pf, "available", "", PF(), old)
	cell.Card(t, gpu1, vf1, "available", "", VF(pf), old)
	cell.Card(t, gpu1, vf2, "available", "", VF(pf), old)
	report := evidence.Write(t, evidence.Report("gpu1", evidence.Stopped, evidence.VFs(t, pf, vf1, vf2), groupOf(t, u, []string{vf1, vf2}, []string{vf1, vf2}, nil)))
	if _, stderr, code := repairMigration(t, machine(t), "--claim", "--guests", report, "--apply", "--yes", "--wait", "1s"); code != 0 {
		t.Errorf("%d: %s", code, stderr)
	}
}

// TestTwoVFsOffline: two VFs of two instances that are gone are repaired offline by one run, and
// with the second their PF.
func TestTwoVFsOffline(t *testing.T) {
	reset(t)
	const pf, vf1, vf2 = "0000:86:00.0", "0000:86:00.1", "0000:86:00.2"
	cell, old := database.Cell1, Row{"updated_at": Ago(time.Hour)}
	gpu1 := cell.Compute(t, "gpu1", LastSeen(time.Hour))
	cell.Compute(t, "gpu2")
	cell.Instance(t, UUID(3), "gpu2", "active", "")
	cell.Card(t, gpu1, pf, "unavailable", "", PF(), old)
	cell.Card(t, gpu1, vf1, "allocated", UUID(1), VF(pf), old)
	cell.Card(t, gpu1, vf2, "allocated", UUID(2), VF(pf), old)
	report := evidence.Write(t, evidence.Report("gpu1", evidence.Stopped, evidence.VFs(t, pf, vf1, vf2)))
	if _, stderr, code := repairMigration(t, machine(t), "--guests", report, "--apply", "--yes", "--wait", "1s"); code != 0 {
		t.Errorf("%d: %s", code, stderr)
	}
}
