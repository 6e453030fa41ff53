package db

import (
	"context"
	"errors"
	"maps"
	"slices"
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

// books are a Placement that knows consumers and generations, as the real one does:
// what integration/nova has is real.
type books struct {
	held    map[string]cloud.Allocations
	changes int
	fail    error // of the next changes
	fails   int   // how many
}

func (b *books) Allocations(_ context.Context, consumer string) (cloud.Allocations, error) {
	return b.held[consumer], nil
}

func (b *books) Tree(_ context.Context, name string) ([]string, error) {
	return []string{"provider of " + name}, nil
}

func (b *books) SetAllocations(_ context.Context, consumers map[string]cloud.Allocations) error {
	if b.fails > 0 {
		b.fails--
		return b.fail
	}
	for consumer, a := range consumers {
		// A consumer that holds nothing has no generation.
		if is := b.held[consumer].Generation; (a.Generation == nil) != (is == nil) || is != nil && *a.Generation != *is {
			return cloud.ErrConflict
		}
		if a.Project == "" {
			return errors.New("400: a consumer without a project")
		}
	}
	for consumer, a := range consumers {
		next := 1
		if a.Generation != nil {
			next = *a.Generation + 1
		}
		a.Generation = &next
		b.held[consumer] = a
	}
	b.changes++
	return nil
}

// content is what consumers hold, without generations.
func (b *books) content() map[string]map[string]map[string]int {
	all := map[string]map[string]map[string]int{}
	for consumer, a := range maps.All(b.held) {
		all[consumer] = a.Providers
	}
	return all
}

// TestBooks: Placement's books and Nova's rows change together, or neither does.
func TestBooks(t *testing.T) {
	u := UUID(1)
	for name, test := range map[string]struct {
		host     string // of the instance
		trigger  string // that makes writing migrations fail; "" for none
		refuse   error  // Placement's
		refusals int
		state    cleanup.State
		err      bool
		changes  int // of Placement
		settled  bool
	}{
		"still on the source":       {host: "gpu1", state: cleanup.Written, changes: 1, settled: true},
		"on the destination":        {host: "gpu2", state: cleanup.Written, changes: 1, settled: true},
		"the row cannot be written": {host: "gpu1", trigger: "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'not today'", state: cleanup.Skipped, err: true},
		// The database refuses before Placement is asked.
		"a deadlock, each time":            {host: "gpu1", trigger: "SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = 1213, MESSAGE_TEXT = 'deadlock'", state: cleanup.Skipped, err: true},
		"Placement refuses once":           {host: "gpu1", refuse: cloud.ErrConflict, refusals: 1, state: cleanup.Written, changes: 1, settled: true},
		"Placement does not answer once":   {host: "gpu1", refuse: errors.New("503"), refusals: 1, state: cleanup.Written, changes: 1, settled: true},
		"Placement does not answer at all": {host: "gpu1", refuse: errors.New("503"), refusals: 100, state: cleanup.Begun, err: true},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			gpu1, gpu2 := cell.Compute(t, "gpu1"), cell.Compute(t, "gpu2")
			cell.Instance(t, u, test.host, "active", "")
			old := Row{"updated_at": Ago(time.Hour)}
			from, to := cell.Card(t, gpu1, first, "allocated", u, old), cell.Card(t, gpu2, first, "allocated", u, old)
			const uuid = "the migration"
			id := cell.Migration(t, 3, u, "migration", "migrating", "gpu1", "gpu2", old, Row{"uuid": uuid})
			cell.Context(t, u, id, []int64{from}, []int64{to})
			one := func() *int { n := 1; return &n }
			card := map[string]int{"CUSTOM_PCI_10DE_11B4": 1}
			b := &books{fail: test.refuse, fails: test.refusals, held: map[string]cloud.Allocations{
				u:    {Providers: map[string]map[string]int{"provider of gpu2": card}, Project: "p", User: "u", Generation: one()},
				uuid: {Providers: map[string]map[string]int{"provider of gpu1": card}, Project: "p", User: "u", Generation: one()},
			}}
			booked := b.content()
			if test.trigger != "" {
				if _, err := database.SQL.ExecContext(t.Context(), "CREATE TRIGGER nova_cell1.fails BEFORE UPDATE ON nova_cell1.migrations FOR EACH ROW "+test.trigger); err != nil {
					t.Fatal(err)
				}
				defer database.SQL.ExecContext(context.WithoutCancel(t.Context()), "DROP TRIGGER nova_cell1.fails")
			}
			dump := func() [][][]string {
				return [][][]string{cell.Dump(t, "migrations"), cell.Dump(t, "instances"), cell.Dump(t, "instance_extra"), cell.Dump(t, "pci_devices")}
			}
			before := dump()

			databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
			hosttest.NoError(t, err)
			defer databases.Close()
			proof, err := cleanup.NewProof([]guest.Report{evidence.Report("gpu1"), evidence.Report("gpu2")}, nil)
			hosttest.NoError(t, err)
			var found []cleanup.Finding
			options := find.Options{Proof: proof}
			if _, _, err := find.RowsAndPools(t.Context(), databases, options, func(f cleanup.Finding) { found = append(found, f) }); err != nil {
				t.Fatal(err)
			}
			units := cleanup.NewPlan(found)
			recorded := 0
			repairer := &repair.Repairer{Databases: databases, Options: options, Placement: b, Record: func([]cleanup.Unit) error { recorded++; return nil }}
			if err := repairer.PlanAllocations(t.Context(), units); err != nil || len(units) != 1 {
				t.Fatalf("%d units, %v", len(units), err)
			}
			err = repairer.Apply(t.Context(), units)
			if (err != nil) != test.err || units[0].State != test.state || b.changes != test.changes || recorded < 2 {
				t.Errorf("%v, %s (%s), %d changes of Placement, recorded %d times", err, units[0].State, units[0].Note, b.changes, recorded)
			}
			if !test.settled {
				hosttest.EqualIn(t, "Placement", booked, b.content())
				hosttest.EqualIn(t, "rows", before, dump())
				return
			}
			want := map[string]map[string]map[string]int{u: {"provider of " + test.host: card}, uuid: {}}
			hosttest.EqualIn(t, "Placement", want, b.content())
			if got := cell.Dump(t, "migrations", "status"); got[0][0] != "failed" {
				t.Errorf("the migration is %s", got)
			}
			if got := cell.Dump(t, "instance_extra", "migration_context"); got[0][0] != "NULL" {
				t.Errorf("the context is left: %s", got)
			}
			// A tracker that starts now frees the one that is not the instance's, and no
			// other.
			for node, host := range map[int64]string{gpu1: "gpu1", gpu2: "gpu2"} {
				tracked := database.Track(t, cell, node, cell.Reported(t, node))
				if frees := len(tracked.Changes) > 0; frees == (host == test.host) || tracked.Error != "" {
					t.Errorf("%s: %+v", host, tracked)
				}
			}
			// And all of it goes back.
			hosttest.NoError(t, repairer.Undo(t.Context(), units))
			hosttest.EqualIn(t, "Placement", booked, b.content())
			hosttest.EqualIn(t, "rows", before, dump())
		})
	}
}

// TestBooksOfEvacuation: an evacuation in error has no consumer of its own, so that the
// instance holds both hosts, and disks that all hosts share are not one host's.
func TestBooksOfEvacuation(t *testing.T) {
	u := UUID(1)
	const shared = "provider of disks"
	card := map[string]int{"CUSTOM_PCI_10DE_11B4": 1}
	disk := map[string]int{"DISK_GB": 80}
	for name, test := range map[string]struct {
		kind                string
		instance, migration map[string]map[string]int
		want                map[string]map[string]int // of the instance, afterwards; nil: the repair is skipped
	}{
		"evacuation":                     {kind: "evacuation", instance: map[string]map[string]int{"provider of gpu1": card, "provider of gpu2": card}, want: map[string]map[string]int{"provider of gpu1": card}},
		"evacuation, shared disks":       {kind: "evacuation", instance: map[string]map[string]int{"provider of gpu1": card, "provider of gpu2": card, shared: disk}, want: map[string]map[string]int{"provider of gpu1": card, shared: disk}},
		"resize, shared disks":           {kind: "resize", instance: map[string]map[string]int{"provider of gpu2": card, shared: disk}, migration: map[string]map[string]int{"provider of gpu1": card, shared: disk}, want: map[string]map[string]int{"provider of gpu1": card, shared: disk}},
		"a host that nothing speaks of":  {kind: "evacuation", instance: map[string]map[string]int{"provider of gpu1": card, "provider of gpu3": card}},
		"Placement agrees with the rows": {kind: "evacuation", instance: map[string]map[string]int{"provider of gpu1": card, shared: disk}, want: map[string]map[string]int{"provider of gpu1": card, shared: disk}},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			gpu1, gpu2 := cell.Compute(t, "gpu1", LastSeen(time.Hour)), cell.Compute(t, "gpu2")
			cell.Instance(t, u, "gpu1", "active", "")
			old := Row{"updated_at": Ago(time.Hour)}
			cell.Card(t, gpu1, first, "allocated", u, old)
			cell.Card(t, gpu2, first, "allocated", u, old)
			const uuid = "the migration"
			cell.Migration(t, 3, u, test.kind, "error", "gpu1", "gpu2", old, Row{"uuid": uuid})
			one := 1
			b := &books{held: map[string]cloud.Allocations{u: {Providers: test.instance, Project: "p", User: "u", Generation: &one}}}
			if test.migration != nil {
				b.held[uuid] = cloud.Allocations{Providers: test.migration, Project: "p", User: "u", Generation: &one}
			}
			databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
			hosttest.NoError(t, err)
			defer databases.Close()
			proof, err := cleanup.NewProof([]guest.Report{evidence.Report("gpu2")}, []string{"gpu1"})
			hosttest.NoError(t, err)
			var found []cleanup.Finding
			options := find.Options{Proof: proof}
			if _, _, err := find.RowsAndPools(t.Context(), databases, options, func(f cleanup.Finding) { found = append(found, f) }); err != nil {
				t.Fatal(err)
			}
			units := cleanup.NewPlan(found)
			repairer := &repair.Repairer{Databases: databases, Options: options, Placement: b, Record: func([]cleanup.Unit) error { return nil }}
			if err := repairer.PlanAllocations(t.Context(), units); err != nil || len(units) != 1 {
				t.Fatalf("%d units, %v", len(units), err)
			}
			hosttest.NoError(t, repairer.Apply(t.Context(), units))
			want, state := test.want, cleanup.Written
			if want == nil {
				want, state = test.instance, cleanup.Skipped
			}
			if diff := cmp.Diff(want, b.held[u].Providers); diff != "" || units[0].State != state || len(b.held[uuid].Providers) > 0 {
				t.Errorf("%s (%s), Placement (-want +got):\n%s", units[0].State, units[0].Note, diff)
			}
			tracked := database.Track(t, cell, gpu2, cell.Reported(t, gpu2))
			hosttest.EqualIn(t, "Nova frees the card of gpu2", test.want != nil, len(tracked.Changes) > 0)
		})
	}
}

// TestBooksOfTwoEvacuations: after two evacuations in error the instance holds three hosts. One
// repair closes both, if the reports of both hosts prove that no guest uses the devices there. If
// one cannot be closed, the other is, and what the instance holds for the open one stays.
func TestBooksOfTwoEvacuations(t *testing.T) {
	u := UUID(1)
	card := map[string]int{"CUSTOM_PCI_10DE_11B4": 1}
	all := map[string]map[string]int{"provider of gpu1": card, "provider of gpu2": card, "provider of gpu3": card}
	without := func(hosts ...string) map[string]map[string]int {
		left := maps.Clone(all)
		for _, host := range hosts {
			delete(left, "provider of "+host)
		}
		return left
	}
	for name, test := range map[string]struct {
		noCard  bool          // the instance has no row of gpu3
		changed time.Duration // how long ago the second evacuation failed
		closed  string
		holds   map[string]map[string]int
		frees   []bool // the cards of gpu2 and gpu3
	}{
		"both reported":                      {changed: time.Hour, closed: "migrations 3 and 4", holds: without("gpu2", "gpu3"), frees: []bool{true, true}},
		"one failed after the reports":       {changed: -time.Hour},
		"no device on the host of the other": {noCard: true, changed: time.Hour, closed: "migration 3", holds: without("gpu2"), frees: []bool{true, false}},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			old := Row{"updated_at": Ago(2 * time.Hour)}
			nodes := []int64{cell.Compute(t, "gpu1", LastSeen(time.Hour)), cell.Compute(t, "gpu2"), cell.Compute(t, "gpu3")}
			cell.Instance(t, u, "gpu1", "active", "")
			for k, node := range nodes {
				if k < 2 || !test.noCard {
					cell.Card(t, node, first, "allocated", u, old)
				}
			}
			cell.Migration(t, 3, u, "evacuation", "error", "gpu1", "gpu2", old)
			cell.Migration(t, 4, u, "evacuation", "error", "gpu1", "gpu3", Row{"updated_at": Ago(test.changed)})
			one := 1
			b := &books{held: map[string]cloud.Allocations{u: {Providers: all, Project: "p", User: "u", Generation: &one}}}
			databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
			hosttest.NoError(t, err)
			defer databases.Close()
			proof, err := cleanup.NewProof([]guest.Report{evidence.Report("gpu2"), evidence.Report("gpu3")}, []string{"gpu1"})
			hosttest.NoError(t, err)
			options := find.Options{Proof: proof}
			plan := func() []cleanup.Unit {
				var found []cleanup.Finding
				if _, _, err := find.RowsAndPools(t.Context(), databases, options, func(f cleanup.Finding) { found = append(found, f) }); err != nil {
					t.Fatal(err)
				}
				return cleanup.NewPlan(found)
			}
			units := plan()
			if len(units) == 0 && test.closed == "" {
				return
			}
			if len(units) != 1 || units[0].Name() != test.closed {
				t.Fatalf("%+v", units)
			}
			repairer := &repair.Repairer{Databases: databases, Options: options, Placement: b, Record: func([]cleanup.Unit) error { return nil }}
			if err := errors.Join(repairer.PlanAllocations(t.Context(), units), repairer.Apply(t.Context(), units)); err != nil || units[0].State != cleanup.Written {
				t.Fatalf("%v, %s (%s)", err, units[0].State, units[0].Note)
			}
			if diff := cmp.Diff(test.holds, b.held[u].Providers); diff != "" || b.changes != 1 {
				t.Errorf("%d changes of Placement (-want +got):\n%s", b.changes, diff)
			}
			if again := plan(); len(again) > 0 {
				t.Errorf("a second run repairs %s", again[0].Name())
			}
			for k, node := range nodes[1:] {
				changes := database.Track(t, cell, node, cell.Reported(t, node)).Changes
				if frees := slices.Contains(changes, Change{first, "status", "allocated", "available"}); frees != test.frees[k] {
					t.Errorf("Nova frees the card of node %d: %v", node, frees)
				}
			}
		})
	}
}

// TestBooksElsewhere: an evacuation that is done needs only the allocations on its source, which
// nova-compute releases when it starts there: what a dead migration left on the evacuation's
// destination is released. An instance on no host holds nothing on any.
func TestBooksElsewhere(t *testing.T) {
	u := UUID(1)
	const uuid = "the migration"
	type held = map[string]map[string]map[string]int
	card := map[string]int{"CUSTOM_PCI_10DE_11B4": 1}
	for name, test := range map[string]struct {
		host, vmState, status string
		before, after         held
	}{
		"beside an evacuation": {host: "gpu3", vmState: "active", status: "migrating",
			before: held{u: {"provider of gpu1": card, "provider of gpu2": card}, uuid: {"provider of gpu3": card}},
			after:  held{u: {"provider of gpu1": card, "provider of gpu3": card}, uuid: {}}},
		"shelved and offloaded": {vmState: "shelved_offloaded", status: "error",
			before: held{u: {"provider of gpu1": card}, uuid: {"provider of gpu2": card}},
			after:  held{u: {"provider of gpu1": card}, uuid: {}}},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			cell.Compute(t, "gpu1", LastSeen(time.Hour))
			gpu2, gpu3 := cell.Compute(t, "gpu2"), cell.Compute(t, "gpu3")
			cell.Instance(t, u, test.host, test.vmState, "")
			old := Row{"updated_at": Ago(time.Hour)}
			cell.Card(t, gpu2, first, "allocated", u, old)
			if test.host != "" {
				cell.Card(t, gpu3, first, "allocated", u, old)
			}
			cell.Migration(t, 3, u, "evacuation", "done", "gpu1", "gpu2", old)
			cell.Migration(t, 4, u, "migration", test.status, "gpu3", "gpu2", old, Row{"uuid": uuid})
			b := &books{held: map[string]cloud.Allocations{}}
			for consumer, providers := range test.before {
				generation := 1
				b.held[consumer] = cloud.Allocations{Providers: providers, Project: "p", User: "u", Generation: &generation}
			}
			databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
			hosttest.NoError(t, err)
			defer databases.Close()
			proof, err := cleanup.NewProof([]guest.Report{evidence.Report("gpu2"), evidence.Report("gpu3")}, nil)
			hosttest.NoError(t, err)
			var found []cleanup.Finding
			options := find.Options{Proof: proof}
			if _, _, err := find.RowsAndPools(t.Context(), databases, options, func(f cleanup.Finding) { found = append(found, f) }); err != nil {
				t.Fatal(err)
			}
			units := cleanup.NewPlan(found)
			repairer := &repair.Repairer{Databases: databases, Options: options, Placement: b, Record: func([]cleanup.Unit) error { return nil }}
			if err := errors.Join(repairer.PlanAllocations(t.Context(), units), repairer.Apply(t.Context(), units)); err != nil || len(units) != 1 {
				t.Fatalf("%+v, %v", units, err)
			}
			if diff := cmp.Diff(test.after, b.content()); diff != "" || units[0].State != cleanup.Written {
				t.Errorf("%s (%s), Placement (-want +got):\n%s", units[0].State, units[0].Note, diff)
			}
			tracked := database.Track(t, cell, gpu2, cell.Reported(t, gpu2))
			if !slices.Contains(tracked.Changes, Change{first, "status", "allocated", "available"}) {
				t.Errorf("Nova does not free the card: %+v", tracked.Changes)
			}
		})
	}
}
