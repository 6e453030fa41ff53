package db

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
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

const card2, card3 = "0000:85:00.0", "0000:86:00.0"

// tries is the state of an instance on gpu1 after three failed tries to move it: two to gpu2 and
// one to gpu3, which each left a device, and a fourth that died there on its source.
type tries struct {
	*dead
	nodes  map[string]int64
	tables func() [][][]string
}

const fourthUUID = "5f0c1c9e-0000-4000-8000-00000000000d"

// newTries makes the rows and plans the repair with reports of some hosts, through a server.
func newTries(t *testing.T, address string, hosts ...string) *tries {
	t.Helper()
	reset(t)
	d := &tries{dead: &dead{cell: database.Cell1, uuid: UUID(1)}, nodes: map[string]int64{}}
	for _, host := range []string{"gpu1", "gpu2", "gpu3"} {
		d.nodes[host] = d.cell.Compute(t, host)
	}
	d.cell.Instance(t, d.uuid, "gpu1", "active", "")
	old := Row{"updated_at": Ago(time.Hour)}
	from := d.cell.Card(t, d.nodes["gpu1"], first, "allocated", d.uuid, old)
	d.cell.Card(t, d.nodes["gpu2"], first, "allocated", d.uuid, old)
	d.cell.Card(t, d.nodes["gpu2"], card2, "allocated", d.uuid, old)
	d.cell.Card(t, d.nodes["gpu3"], first, "allocated", d.uuid, old)
	to := d.cell.Card(t, d.nodes["gpu3"], card3, "allocated", d.uuid, old)
	for id, dest := range map[int64]string{3: "gpu2", 4: "gpu3", 5: "gpu2"} {
		d.cell.Migration(t, id, d.uuid, "resize", "error", "gpu1", dest, old, Row{"uuid": fmt.Sprintf("5f0c1c9e-0000-4000-8000-%012d", id)})
	}
	d.cell.Migration(t, 6, d.uuid, "migration", "migrating", "gpu1", "gpu3", old, Row{"uuid": fourthUUID})
	d.cell.Context(t, d.uuid, 6, []int64{from}, []int64{to})
	one := func() *int { n := 1; return &n }
	d.placement = &placement{left: map[string]bool{}, refuse: map[string]bool{}, held: map[string]cloud.Allocations{
		d.uuid:     {Providers: map[string]map[string]int{"provider of gpu3": oneCard}, Project: "p", User: "u", Generation: one()},
		fourthUUID: {Providers: map[string]map[string]int{"provider of gpu1": oneCard}, Project: "p", User: "u", Generation: one()},
		// Nova did not get to revert it.
		"5f0c1c9e-0000-4000-8000-000000000005": {Providers: map[string]map[string]int{"provider of gpu2": oneCard}, Project: "p", User: "u", Generation: one()},
	}}
	t.Cleanup(d.placement.pending.Wait)
	d.before = d.placement.content()
	d.tables = func() (all [][][]string) {
		for _, table := range []string{"migrations", "instances", "instance_extra", "pci_devices"} {
			all = append(all, d.cell.Dump(t, table))
		}
		return all
	}
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Database: at(address, "nova_cell1")})
	hosttest.NoError(t, err)
	t.Cleanup(func() { databases.Close() })
	var reports []guest.Report
	for _, host := range hosts {
		reports = append(reports, evidence.Report(host))
	}
	proof, err := cleanup.NewProof(reports, nil)
	hosttest.NoError(t, err)
	options := find.Options{Proof: proof}
	var found []cleanup.Finding
	if _, _, err := find.RowsAndPools(t.Context(), databases, options, func(f cleanup.Finding) { found = append(found, f) }); err != nil {
		t.Fatal(err)
	}
	d.units = cleanup.NewPlan(found)
	d.repairer = &repair.Repairer{Databases: databases, Options: options, Placement: d.placement, Record: func([]cleanup.Unit) error { return nil }}
	if err := d.repairer.PlanAllocations(t.Context(), d.units); err != nil || len(d.units) > 1 || len(d.units) == 1 && d.units[0].State != cleanup.Planned {
		t.Fatalf("%+v, %v", d.units, err)
	}
	return d
}

// statuses are the statuses of the migrations, by id.
func (d *tries) statuses(t *testing.T) string {
	t.Helper()
	var all []string
	for _, row := range d.cell.Dump(t, "migrations", "id", "status") {
		all = append(all, strings.Join(row, " "))
	}
	slices.Sort(all)
	return strings.Join(all, ", ")
}

// freed are the devices that Nova's tracker frees now, by host.
func (d *tries) freed(t *testing.T) map[string]int {
	t.Helper()
	all := map[string]int{}
	for host, node := range d.nodes {
		tracked := database.Track(t, d.cell, node, d.cell.Reported(t, node))
		for _, c := range tracked.Changes {
			if c.Column == "status" && c.After == "available" {
				all[host]++
			}
		}
	}
	return all
}

// TestCloseTogether: one repair closes all migrations that keep the devices on other hosts, those
// in error and the dead one, in one transaction and with one request to Placement. Nova's tracker
// then frees what was planned, and nothing else. Undo restores all of it.
func TestCloseTogether(t *testing.T) {
	for name, test := range map[string]struct {
		hosts    []string // that have reported
		unit     string   // "" if nothing is planned
		statuses string
		holds    map[string]map[string]map[string]int
		frees    map[string]int
	}{
		"all hosts have reported": {hosts: []string{"gpu1", "gpu2", "gpu3"}, unit: "migrations 3, 4, 5 and 6",
			statuses: "3 failed, 4 failed, 5 failed, 6 failed", frees: map[string]int{"gpu2": 2, "gpu3": 2},
			holds: map[string]map[string]map[string]int{UUID(1): {"provider of gpu1": oneCard}}},
		// The guest may still be on its way to gpu3.
		"gpu3 has not reported": {hosts: []string{"gpu1", "gpu2"}},
		"gpu2 has not reported": {hosts: []string{"gpu1", "gpu3"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newTries(t, database.Server.Address, test.hosts...)
			before, offered := d.tables(), d.freed(t)
			if len(offered) > 0 {
				t.Fatalf("Nova frees %v by itself", offered)
			}
			if len(d.units) == 0 && test.unit == "" {
				return
			}
			if got := d.units[0].Name(); got != test.unit {
				t.Fatalf("%s", got)
			}
			if err := d.repairer.Apply(t.Context(), d.units); err != nil || d.units[0].State != cleanup.Written {
				t.Fatalf("%v, %s (%s)", err, d.units[0].State, d.units[0].Note)
			}
			hosttest.Equal(t, test.statuses, d.statuses(t))
			if diff := cmp.Diff(test.holds, d.placement.content()); diff != "" || !slices.Equal(d.placement.applied, []string{"204"}) {
				t.Errorf("%q, Placement (-want +got):\n%s", d.placement.applied, diff)
			}
			hosttest.EqualIn(t, "migration_context is left", "NULL", d.cell.Dump(t, "instance_extra", "migration_context")[0][0])
			hosttest.EqualIn(t, "Nova frees", test.frees, d.freed(t))
			planned := map[string]int{}
			for _, device := range d.units[0].Devices {
				planned[device.Host]++
			}
			hosttest.EqualIn(t, "the plan frees", test.frees, planned)
			hosttest.NoError(t, d.repairer.Undo(t.Context(), d.units))
			hosttest.EqualIn(t, "rows", before, d.tables())
			hosttest.EqualIn(t, "Placement", d.before, d.placement.content())
		})
	}
}

// TestCloseTogetherCut: a connection that ends between any two statements of the repair leaves all
// rows and allocations as they were, or all as after it; so does a COMMIT whose answer is lost.
func TestCloseTogetherCut(t *testing.T) {
	hosts := []string{"gpu1", "gpu2", "gpu3"}
	agree := func(t *testing.T, d *tries, before [][][]string) {
		t.Helper()
		d.placement.pending.Wait()
		switch got := d.statuses(t); got {
		case "3 error, 4 error, 5 error, 6 migrating":
			hosttest.EqualIn(t, "Placement", d.before, d.placement.content())
			hosttest.EqualIn(t, "state", cleanup.Skipped, d.units[0].State)
		case "3 failed, 4 failed, 5 failed, 6 failed":
			want := map[string]map[string]map[string]int{d.uuid: {"provider of gpu1": oneCard}}
			hosttest.EqualIn(t, "Placement", want, d.placement.content())
			hosttest.EqualIn(t, "state", cleanup.Written, d.units[0].State)
			hosttest.NoError(t, d.repairer.Undo(t.Context(), d.units))
			hosttest.EqualIn(t, "rows", before[3], d.tables()[3])
		default:
			t.Errorf("some are closed: %s", got)
		}
	}
	for n := range 6 { // four migrations, the context, the instance
		for _, always := range []bool{false, true} {
			t.Run(fmt.Sprintf("statement %d, always %v", n+1, always), func(t *testing.T) {
				var updates atomic.Int32
				address := proxy(t, func(statement string) (string, time.Duration) {
					if !strings.HasPrefix(statement, "UPDATE ") {
						return statement, 0
					}
					if k := int(updates.Add(1)) - 1; k == n || always && k > n {
						return statement, cut
					}
					return statement, 0
				})
				d := newTries(t, address, hosts...)
				before := d.tables()
				err := d.repairer.Apply(t.Context(), d.units)
				if always && err == nil || errors.Is(err, repair.ErrUnknown) {
					t.Errorf("%v", err)
				}
				if diff := cmp.Diff(before, d.tables()); always && diff != "" {
					t.Errorf("rows (-before +after):\n%s", diff)
				}
				agree(t, d, before)
			})
		}
	}
	for name, lose := range map[string]func(*Proxy){"COMMIT is lost": (*Proxy).LoseCommit, "its answer is lost": (*Proxy).LoseAnswer} {
		t.Run(name, func(t *testing.T) {
			p := NewProxy(t)
			d := newTries(t, p.Address, hosts...)
			before := d.tables()
			lose(p)
			if err := d.repairer.Apply(t.Context(), d.units); !errors.Is(err, repair.ErrUnknown) {
				t.Fatalf("%v, state %s", err, d.units[0].State)
			}
			hosttest.NoError(t, d.repairer.Recover(t.Context(), d.units, false))
			agree(t, d, before)
		})
	}
}

// TestCloseTogetherChanged: a migration that begins meanwhile, or goes on, on a node that the
// repair frees makes it skip all of them.
func TestCloseTogetherChanged(t *testing.T) {
	for name, statement := range map[string]string{
		"another migration to a freed node": "INSERT INTO nova_cell1.migrations (uuid, deleted, instance_uuid, migration_type, status, source_compute, source_node, dest_compute, dest_node, hidden, cross_cell_move, created_at) " +
			"SELECT 'another', 0, instance_uuid, 'resize', 'error', 'gpu1', 'gpu1', 'gpu3', 'gpu3', 0, 0, UTC_TIMESTAMP() FROM nova_cell1.migrations WHERE id = 3",
		"the dead one goes on": "UPDATE nova_cell1.migrations SET status = 'post-migrating', updated_at = UTC_TIMESTAMP() + INTERVAL 1 MINUTE WHERE id = 6",
		"Nova ended one":       "UPDATE nova_cell1.migrations SET status = 'failed' WHERE id = 4",
	} {
		t.Run(name, func(t *testing.T) {
			d := newTries(t, database.Server.Address, "gpu1", "gpu2", "gpu3")
			if _, err := database.SQL.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
			before := d.tables()
			if err := d.repairer.Apply(t.Context(), d.units); err != nil || d.units[0].State != cleanup.Skipped {
				t.Errorf("%v, %s (%s)", err, d.units[0].State, d.units[0].Note)
			}
			t.Log(d.units[0].Note)
			hosttest.EqualIn(t, "rows", before, d.tables())
			hosttest.EqualIn(t, "Placement", d.before, d.placement.content())
		})
	}
}
