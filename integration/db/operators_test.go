package db

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
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

// interposed is a Placement that calls meanwhile once, before it is read for the first time after
// its allocations were to be written: no transaction of the repair is open then.
type interposed struct {
	*placement
	meanwhile func()

	mu      sync.Mutex
	written bool
	once    sync.Once
}

func (p *interposed) SetAllocations(ctx context.Context, consumers map[string]cloud.Allocations) error {
	p.mu.Lock()
	p.written = true
	p.mu.Unlock()
	return p.placement.SetAllocations(ctx, consumers)
}

func (p *interposed) Allocations(ctx context.Context, consumer string) (cloud.Allocations, error) {
	p.mu.Lock()
	written := p.written
	p.mu.Unlock()
	if written {
		p.once.Do(p.meanwhile)
	}
	return p.placement.Allocations(ctx, consumer)
}

// planned is another operator's plan of the same repair, made now.
func (d *dead) planned(t *testing.T) (*repair.Repairer, []cleanup.Unit) {
	t.Helper()
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Database: database.URL("nova_cell1")})
	hosttest.NoError(t, err)
	t.Cleanup(func() { databases.Close() })
	options := d.repairer.Options
	var found []cleanup.Finding
	if _, _, err := find.RowsAndPools(t.Context(), databases, options, func(f cleanup.Finding) { found = append(found, f) }); err != nil {
		t.Fatal(err)
	}
	units := cleanup.NewPlan(found)
	r := &repair.Repairer{Databases: databases, Options: options, Placement: d.placement, Record: func([]cleanup.Unit) error { return nil }}
	if err := r.PlanAllocations(t.Context(), units); err != nil || len(units) != 1 {
		t.Fatalf("%d units, %v", len(units), err)
	}
	return r, units
}

// TestAnotherOperator: Placement applies a request and answers late. Before the repair goes on,
// another operator repairs the same migration, or repairs and undoes it, or Nova goes on with it:
// rows and allocations agree in the end, or the repair says that its outcome is unknown.
func TestAnotherOperator(t *testing.T) {
	for name, test := range map[string]struct {
		meanwhile func(t *testing.T, d *dead)
		state     cleanup.State
		side      repair.Side // "" for neither
	}{
		"has repaired it": {func(t *testing.T, d *dead) {
			r, units := d.planned(t)
			if err := r.Apply(t.Context(), units); err != nil {
				t.Error(err)
			}
		}, cleanup.Skipped, repair.After},
		"has repaired it, and tries to undo it": {func(t *testing.T, d *dead) {
			r, units := d.planned(t)
			// It has not moved the allocations, so that it cannot move them back with the rows.
			if err := r.Apply(t.Context(), units); err != nil {
				t.Error(err)
			}
			if err := r.Undo(t.Context(), units); !errors.Is(err, repair.ErrTooLate) {
				t.Error(err)
			}
		}, cleanup.Skipped, repair.After},
		"nova-compute ends the migration": {func(t *testing.T, d *dead) {
			execInCell1(t, "UPDATE migrations SET status = 'post-migrating', updated_at = UTC_TIMESTAMP()",
				"UPDATE instances SET host = 'gpu2', node = 'gpu2'"+idIs("2")+", task_state = 'resize_finish'")
		}, cleanup.Begun, ""},
		"a guest report is too old now": {func(t *testing.T, d *dead) {
			execInCell1(t, "UPDATE migrations SET updated_at = UTC_TIMESTAMP()")
		}, cleanup.Skipped, repair.Before},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDead(t)
			d.placement.answers = []error{errors.New("504 Gateway Timeout")}
			p := &interposed{placement: d.placement, meanwhile: func() { test.meanwhile(t, d) }}
			d.repairer.Placement = p
			err := d.repairer.Apply(t.Context(), d.units)
			if u := d.units[0]; u.State != test.state {
				t.Errorf("state %s (%s), %v", u.State, u.Note, err)
			}
			switch {
			case test.side != "":
				d.is(t, test.side)
			case !errors.Is(err, repair.ErrUnknown):
				t.Errorf("%v", err)
			}
		})
	}
}

// TestNoRightToWrite: an account that may not write a table that the repair writes leaves Placement
// as it is, however often it is tried.
func TestNoRightToWrite(t *testing.T) {
	for _, table := range []string{"migrations", "instances", "instance_extra"} {
		t.Run(table, func(t *testing.T) {
			d := newDead(t)
			ctx := context.WithoutCancel(t.Context())
			for _, s := range []string{"CREATE USER 'reader'@'127.0.0.1' IDENTIFIED BY 'reader'", "GRANT SELECT, LOCK TABLES ON `nova\\_%`.* TO 'reader'@'127.0.0.1'"} {
				if _, err := database.Server.Query(ctx, s); err != nil {
					t.Fatal(err)
				}
			}
			defer database.Server.Query(ctx, "DROP USER 'reader'@'127.0.0.1'")
			for _, other := range []string{"migrations", "instances", "instance_extra", "pci_devices", "services"} {
				right := "UPDATE"
				if other == table {
					right = "UPDATE (id)" // enough to lock its rows
				}
				if _, err := database.Server.Query(ctx, fmt.Sprintf("GRANT %s ON nova_cell1.%s TO 'reader'@'127.0.0.1'", right, other)); err != nil {
					t.Fatal(err)
				}
			}
			url := strings.Replace(at(d.proxy.Address, "nova_cell1"), "//nova:", "//reader:", 1)
			_, rest, _ := strings.Cut(url, "@")
			databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Database: "mysql+pymysql://reader:reader@" + rest})
			hosttest.NoError(t, err)
			defer databases.Close()
			d.repairer.Databases = databases
			err = d.repairer.Apply(t.Context(), d.units)
			if err == nil || !strings.Contains(err.Error(), "command denied") || d.units[0].State != cleanup.Skipped {
				t.Errorf("%v, state %s", err, d.units[0].State)
			}
			if len(d.placement.applied) > 0 {
				t.Errorf("Placement has answered %q", d.placement.applied)
			}
			d.is(t, repair.Before)
		})
	}
}

// TestDeclaredOff: a host whose nova-compute has reported within five minutes is not off, whatever
// the operator says, and in whichever cell and spelling: nothing is read or written then.
func TestDeclaredOff(t *testing.T) {
	const said = " is declared off, but its nova-compute has reported: at "
	for name, test := range map[string]struct {
		seen   time.Duration
		given  string
		why    string // "" if it is accepted
		seenUp string // of all services
	}{
		"nothing reports here":         {24 * time.Hour, "gpu1", "no service of Nova reports to this database", "last_seen_up - INTERVAL 1 DAY"},
		"nothing ever reported here":   {24 * time.Hour, "gpu1", "no service of Nova reports to this database", "NULL"},
		"it is up":                     {5 * time.Second, "gpu1", "host gpu1" + said, "last_seen_up"},
		"in other letters":             {5 * time.Second, "GPU1", "host gpu1" + said, "last_seen_up"},
		"silent for less than 5 min":   {4 * time.Minute, "gpu1", "host gpu1" + said, "last_seen_up"},
		"silent for more than 5 min":   {6 * time.Minute, "gpu1", "", "last_seen_up"},
		"forced down, and it lives on": {-1, "gpu1", "host gpu1" + said, "last_seen_up"},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			option := LastSeen(max(0, test.seen))
			cell := database.Cell1
			gpu1 := cell.Compute(t, "gpu1", option, func(service, node Row) {
				if test.seen < 0 {
					ForcedDown()(service, node)
				}
			})
			cell.Compute(t, "gpu2")
			cell.Instance(t, UUID(1), "gpu2", "active", "")
			cell.Card(t, gpu1, first, "allocated", UUID(1))
			update(t, "UPDATE nova_cell1.services SET version = version + 1, last_seen_up = "+test.seenUp)
			before := states(t, cell)
			stdout, stderr, status := repairMigration(t, machine(t), "--host-is-off", test.given, "--apply", "--yes", "--wait", "1s", "-o", "json")
			if test.why == "" {
				if status != 0 || cmp.Equal(before, states(t, cell)) {
					t.Errorf("exit status %d, %s%s", status, stdout, stderr)
				}
				return
			}
			if status != 1 || !strings.Contains(stderr, "error: cell cell1: "+test.why) || strings.Contains(stdout, `"case"`) {
				t.Errorf("exit status %d, %s%s", status, stdout, stderr)
			}
			hosttest.EqualIn(t, "rows", before, states(t, cell))
		})
	}
	t.Run("an online repair", func(t *testing.T) {
		reset(t)
		cell := database.Cell1
		gpu1, gpu2 := cell.Compute(t, "gpu1"), cell.Compute(t, "gpu2")
		cell.Instance(t, UUID(1), "gpu1", "active", "")
		cell.Card(t, gpu1, first, "allocated", UUID(1))
		cell.Card(t, gpu2, first, "allocated", UUID(1))
		cell.Migration(t, 3, UUID(1), "migration", "error", "gpu1", "gpu2")
		_, stderr, status := repairMigration(t, machine(t), "--host-is-off", "gpu2")
		if status != 1 || !strings.Contains(stderr, "host gpu2"+said) {
			t.Errorf("exit status %d, %s", status, stderr)
		}
	})
	t.Run("it reports again between the plan and the repair", func(t *testing.T) {
		cell := stale(t, 1)
		databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
		hosttest.NoError(t, err)
		defer databases.Close()
		proof, err := cleanup.NewProof(nil, []string{"gpu1"})
		hosttest.NoError(t, err)
		options := find.Options{Proof: proof}
		var found []cleanup.Finding
		if _, _, err := find.RowsAndPools(t.Context(), databases, options, func(f cleanup.Finding) { found = append(found, f) }); err != nil {
			t.Fatal(err)
		}
		units := cleanup.NewPlan(found)
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.services SET last_seen_up = UTC_TIMESTAMP()"); err != nil {
			t.Fatal(err)
		}
		before := states(t, cell)
		r := &repair.Repairer{Databases: databases, Options: options, Record: func([]cleanup.Unit) error { return nil }}
		if err := r.Apply(t.Context(), units); !errors.Is(err, find.ErrAlive) || len(units) != 1 {
			t.Errorf("%d units, %v", len(units), err)
		}
		hosttest.EqualIn(t, "rows", before, states(t, cell))
	})
}

// TestFreedWithIsNova: the rows that a repair writes, and whose functions must be proved unused,
// are those that Nova's tracker writes when it frees the same devices: of random cards, whatever is
// in their rows. It frees the devices of an instance that is gone.
func TestFreedWithIsNova(t *testing.T) {
	reset(t)
	cell := database.Cell1
	gone, seed := UUID(7), rand.NewPCG(1, 2)
	random := rand.New(seed)
	statuses := []string{"available", "allocated", "allocated", "claimed", "unavailable", "unclaimable", "removed"}
	moved, failed := 0, 0
	for n := range 100 {
		node := cell.Compute(t, fmt.Sprintf("gpu%d", n+1))
		resident := UUID(100 + n)
		cell.Instance(t, resident, fmt.Sprintf("gpu%d", n+1), "active", "")
		var rows []cleanup.Device
		add := func(function int, columns Row, kind string) {
			status, owner := statuses[random.IntN(len(statuses))], ""
			if status == "allocated" || status == "claimed" {
				owner = []string{gone, gone, resident}[random.IntN(3)]
			}
			address := fmt.Sprintf("0000:af:00.%d", function)
			id := cell.Card(t, node, address, status, owner, columns.with(Row{"dev_type": kind}))
			d := cleanup.Device{ID: id, Node: node, Address: address, Type: kind, Status: status}
			if owner != "" {
				d.Instance = &owner
			}
			if parent, ok := columns["parent_addr"].(string); ok {
				d.Parent = &parent
			}
			rows = append(rows, d)
		}
		add(0, PF(), []string{"type-PF", "type-PF", "type-PF", "type-PCI"}[random.IntN(4)])
		for vf := range random.IntN(4) {
			add(vf+1, VF([]string{"0000:af:00.0", "0000:af:00.0", "0000:af:00.0", "0000:AF:00.0"}[random.IntN(4)]), []string{"type-VF", "type-VF", "vdpa"}[random.IntN(3)])
		}
		var freed []cleanup.Device
		want := map[string]bool{}
		for _, d := range rows {
			if d.Instance != nil && *d.Instance == gone {
				freed = append(freed, d)
				want[d.Address] = true
			}
		}
		for _, d := range cleanup.FreedWith(freed, rows) {
			if d.Status != "available" {
				want[d.Address] = true
				moved++
			}
		}
		tracked := database.Track(t, cell, node, cell.Reported(t, node))
		if tracked.Error != "" { // rows that contradict each other so much that nova-compute fails
			failed++
			continue
		}
		got := map[string]bool{}
		for _, c := range tracked.Changes {
			// Of the resident's own devices, what it has claimed becomes allocated.
			if c.Column == "status" && c.After == "available" {
				got[c.Address] = true
			}
		}
		hosttest.EqualIn(t, fmt.Sprintf("node %d: %v frees", n, describeRows(rows)), want, got)
	}
	if moved < 10 || failed > 20 {
		t.Errorf("only %d rows were freed with others; of %d of 100 nodes, nova-compute cannot load the rows", moved, failed)
	}
}

func describeRows(rows []cleanup.Device) (all []string) {
	for _, d := range rows {
		owner := ""
		if d.Instance != nil {
			owner = " of " + (*d.Instance)[:8]
		}
		all = append(all, fmt.Sprintf("%s %s %s%s", d.Address, d.Type, d.Status, owner))
	}
	return all
}

// TestClocks: a report of a host whose clock is eight minutes ahead is dated after the migration's
// last change, although it was made before it. A token of the dry run shows the order.
func TestClocks(t *testing.T) {
	reset(t)
	cell, u := database.Cell1, UUID(1)
	gpu1, gpu2 := cell.Compute(t, "gpu1"), cell.Compute(t, "gpu2")
	cell.Instance(t, u, "gpu1", "active", "")
	cell.Card(t, gpu1, first, "allocated", u)
	cell.Card(t, gpu2, first, "allocated", u)
	cell.Migration(t, 3, u, "migration", "error", "gpu1", "gpu2", Row{"updated_at": Ago(2 * time.Minute)})
	root := machine(t)
	judged := func(t *testing.T, changes ...func(*guest.Report)) string {
		t.Helper()
		found, _ := findings(t, root, "--host", "gpu2", "--guests", evidence.Write(t, evidence.Report("gpu2", changes...)))
		return strings.Join(found, ", ")
	}
	stdout, _, _ := repairMigration(t, root, "-o", "json")
	_, token, _ := strings.Cut(stdout, `"token":"`)
	token, _, _ = strings.Cut(token, `"`)
	before := evidence.ClockAhead(-5 * time.Minute) // it was made five minutes ago
	unsynchronized := func(r *guest.Report) { r.Clock.Synchronized = false }
	const unknown, stale = "gpu2 " + first + " B unknown", "gpu2 " + first + " B stale online"
	for name, test := range map[string]struct {
		changes []func(*guest.Report)
		want    string
	}{
		"made now, clocks agree":                        {nil, stale},
		"made before the change, clocks agree":          {[]func(*guest.Report){before}, unknown},
		"made now, not synchronized":                    {[]func(*guest.Report){unsynchronized}, unknown},
		"made now, not synchronized, with a token":      {[]func(*guest.Report){unsynchronized, evidence.Token(token)}, stale},
		"made now, eight minutes ahead, with a token":   {[]func(*guest.Report){evidence.ClockAhead(8 * time.Minute), evidence.Token(token)}, stale},
		"made now, eight minutes behind, with a token":  {[]func(*guest.Report){evidence.ClockAhead(-8 * time.Minute), evidence.Token(token)}, stale},
		"made now, eight minutes ahead":                 {[]func(*guest.Report){evidence.ClockAhead(8 * time.Minute)}, unknown},
		"made before, three minutes later by its clock": {[]func(*guest.Report){before, evidence.ClockAhead(8 * time.Minute), unsynchronized}, unknown},
		"with a token of before the change":             {[]func(*guest.Report){evidence.Token(guest.NewToken(Ago(5 * time.Minute)))}, unknown},
		"with a token of the future":                    {[]func(*guest.Report){evidence.Token(guest.NewToken(Ago(-5 * time.Minute)))}, unknown},
	} {
		t.Run(name, func(t *testing.T) {
			hosttest.Equal(t, test.want, judged(t, test.changes...))
		})
	}
}

// TestComputeID: from 2023.2 on, instances have the id of their compute node beside its host and
// name. What contradicts itself is unknown; repair and undo keep it.
func TestComputeID(t *testing.T) {
	addComputeIDs(t)
	null := sql.NullInt64{}
	id := func(n int64) sql.NullInt64 { return sql.NullInt64{Int64: n, Valid: true} }
	for name, test := range map[string]struct {
		instance, dest func(gpu1, gpu2 int64) sql.NullInt64
		want           string
	}{
		"not yet written":                {func(int64, int64) sql.NullInt64 { return null }, func(int64, int64) sql.NullInt64 { return null }, "B stale"},
		"as it should be":                {func(gpu1, _ int64) sql.NullInt64 { return id(gpu1) }, func(_, gpu2 int64) sql.NullInt64 { return id(gpu2) }, "B stale"},
		"the instance's is another node": {func(_, gpu2 int64) sql.NullInt64 { return id(gpu2) }, func(_, gpu2 int64) sql.NullInt64 { return id(gpu2) }, "X unknown"},
		"the instance's is no node":      {func(int64, int64) sql.NullInt64 { return id(99) }, func(_, gpu2 int64) sql.NullInt64 { return id(gpu2) }, "X unknown"},
		"the migration's is another":     {func(gpu1, _ int64) sql.NullInt64 { return id(gpu1) }, func(gpu1, _ int64) sql.NullInt64 { return id(gpu1) }, "X unknown"},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDead(t)
			rows := d.cell.Dump(t, "compute_nodes", "id", "host")
			nodes := map[string]int64{}
			for _, r := range rows {
				var n int64
				fmt.Sscan(r[0], &n)
				nodes[r[1]] = n
			}
			for s, v := range map[string]sql.NullInt64{"instances SET compute_id": test.instance(nodes["gpu1"], nodes["gpu2"]), "migrations SET dest_compute_id": test.dest(nodes["gpu1"], nodes["gpu2"])} {
				if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1."+s+" = ?", v); err != nil {
					t.Fatal(err)
				}
			}
			execInCell1(t, "UPDATE migrations SET status = 'error'")
			// Without a report of gpu1, its row is an ordinary one as long as nothing contradicts.
			summary, _, _ := repairMigration(t, machine(t), "-o", "json")
			if odd := strings.HasPrefix(test.want, "X"); strings.Contains(summary, `"host":"gpu1"`) != odd {
				t.Errorf("the row of gpu1 is judged: %v, want %v", !odd, odd)
			}
			before := d.cell.Dump(t, "instances", "host", "node", "compute_id")
			root := machine(t)
			found, _ := findings(t, root, "--host", "gpu2", "--guests", evidence.Write(t, evidence.Report("gpu2")), "--guests", evidence.Write(t, evidence.Report("gpu1")))
			if len(found) != 1 || !strings.Contains(found[0], test.want) {
				t.Fatalf("found %q, want %q", found, test.want)
			}
			if !strings.HasPrefix(test.want, "B") {
				return
			}
			r, units := d.planned(t)
			hosttest.NoError(t, r.Apply(t.Context(), units))
			if i := slices.IndexFunc(units[0].Rows, func(row cleanup.Row) bool { return row.Table == "instances" }); i < 0 || len(units[0].Rows[i].Before) != 6 {
				t.Errorf("rows %+v", units[0].Rows)
			}
			hosttest.NoError(t, r.Undo(t.Context(), units))
			hosttest.EqualIn(t, "before and undone", before, d.cell.Dump(t, "instances", "host", "node", "compute_id"))
		})
	}
}

// addComputeIDs adds the columns compute_id and dest_compute_id where the schema is of an earlier
// Nova, until the test ends.
func addComputeIDs(t *testing.T) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	for table, column := range map[string]string{"instances": "compute_id", "migrations": "dest_compute_id"} {
		if len(database.find(t, "SELECT 1 FROM information_schema.columns WHERE table_schema = 'nova_cell1' AND table_name = ? AND column_name = ?", table, column)) > 0 {
			continue // the schema of a later Nova
		}
		if _, err := database.SQL.ExecContext(ctx, "ALTER TABLE nova_cell1."+table+" ADD COLUMN "+column+" BIGINT"); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_, err := database.SQL.ExecContext(ctx, "ALTER TABLE nova_cell1."+table+" DROP COLUMN "+column)
			if err := errors.Join(err, database.readColumns(ctx)); err != nil {
				t.Error(err)
			}
		})
	}
	hosttest.NoError(t, database.readColumns(ctx))
}
