package db

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/cleanup/repair"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
)

// TestPurged: an instance that is in no cell is gone if its mapping says that the API has deleted
// it, and only then.
func TestPurged(t *testing.T) {
	for deleted, want := range map[any]string{true: "A stale nova", false: "A unknown", nil: "A unknown"} {
		t.Run(fmt.Sprint(deleted), func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			cell.Card(t, cell.Compute(t, "gpu1"), first, "allocated", UUID(1))
			database.API.Insert(t, "instance_mappings", Row{"instance_uuid": UUID(1), "cell_id": cell.id, "project_id": "p", "user_id": "u", "queued_for_delete": deleted})
			found, _ := findings(t, machine(t))
			hosttest.Equal(t, []string{"gpu1 " + first + " " + want}, found)
			stdout, _, _ := repairMigration(t, machine(t))
			if says := strings.Contains(stdout, "in no cell; its mapping says that it was deleted (queued_for_delete)"); says != (deleted == true) {
				t.Errorf("%s", stdout)
			}
		})
	}
}

// TestEvacuatedBesideError: an older migration in error keeps the device of an evacuated instance
// even after its host has come back, as Nova's tracker confirms. Closing that migration leaves the
// record of the evacuation as it is.
func TestEvacuatedBesideError(t *testing.T) {
	reset(t)
	u, cell := UUID(1), database.Cell1
	gpu1, gpu2 := cell.Compute(t, "gpu1", LastSeen(time.Hour)), cell.Compute(t, "gpu2")
	cell.Instance(t, u, "gpu2", "active", "")
	cell.Card(t, gpu1, first, "allocated", u)
	cell.Card(t, gpu2, first, "allocated", u)
	cell.Migration(t, 3, u, "migration", "error", "gpu1", "gpu2", Row{"uuid": migrationUUID, "updated_at": Ago(50 * time.Hour)})
	cell.Migration(t, 4, u, "evacuation", "done", "gpu1", "gpu2")
	keeps := func() bool { return len(database.Track(t, cell, gpu1, cell.Reported(t, gpu1)).Changes) == 0 }
	update(t, "UPDATE nova_cell1.migrations SET status = 'completed' WHERE id = 4") // as after the start of nova-compute
	if !keeps() {
		t.Error("the test is wrong: Nova frees the device without a repair")
	}
	update(t, "UPDATE nova_cell1.migrations SET status = 'done' WHERE id = 4")
	stdout, _, _ := repairMigration(t, machine(t), "--host-is-off", "gpu1")
	for _, part := range []string{"STALE (case B)", "; the instance was evacuated from this host by migration 4\n",
		"          do not change migration 4 (evacuation): nova-compute on gpu1 reads its record when it starts, to remove the guest\n"} {
		hosttest.Contains(t, part, stdout)
	}
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Database: cell.URL()})
	hosttest.NoError(t, err)
	defer databases.Close()
	one := 1
	books := &placement{left: map[string]bool{}, refuse: map[string]bool{}, held: map[string]cloud.Allocations{
		u: {Providers: map[string]map[string]int{"provider of gpu1": oneCard, "provider of gpu2": oneCard}, Project: "p", User: "u", Generation: &one},
	}}
	proof, err := cleanup.NewProof(nil, []string{"gpu1"})
	hosttest.NoError(t, err)
	options := find.Options{Proof: proof}
	var all []cleanup.Finding
	if _, _, err := find.RowsAndPools(t.Context(), databases, options, func(f cleanup.Finding) { all = append(all, f) }); err != nil {
		t.Fatal(err)
	}
	units := cleanup.NewPlan(all)
	repairer := &repair.Repairer{Databases: databases, Options: options, Placement: books, Record: func([]cleanup.Unit) error { return nil }}
	if err := errors.Join(repairer.PlanAllocations(t.Context(), units), repairer.Apply(t.Context(), units)); err != nil || len(units) != 1 || units[0].State != cleanup.Written {
		t.Fatalf("%+v, %v", units, err)
	}
	hosttest.Equal(t, [][]string{{"3", "failed"}, {"4", "done"}}, cell.Dump(t, "migrations", "id", "status"))
	// nova-compute of gpu1 releases its allocation when it starts, for the evacuation's record.
	hosttest.EqualIn(t, "Placement", map[string]map[string]map[string]int{u: {"provider of gpu1": oneCard, "provider of gpu2": oneCard}}, books.content())
	if keeps() {
		t.Error("Nova does not free the device")
	}
}
