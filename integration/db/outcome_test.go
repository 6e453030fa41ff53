package db

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
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
	"gpustack/integration/terminal"
	"gpustack/nova/cloud"
)

// placement is a Placement whose answers can be late or lost: each request is applied when
// it arrives, whether its client waits or not, and only where the generations match.
type placement struct {
	mu      sync.Mutex
	held    map[string]cloud.Allocations
	late    []time.Duration // until each of the next requests arrives
	first   func()          // what happens before the next request arrives
	answers []error         // to each of the next, in place of the one it has
	applied []string        // the answers, in order
	refuse  map[string]bool // providers that have less to give than is allocated
	left    map[string]bool // consumers that were made, and hold nothing
	pending sync.WaitGroup
}

func (p *placement) Allocations(_ context.Context, consumer string) (cloud.Allocations, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	a := p.held[consumer]
	if a.Providers == nil {
		a.Providers = map[string]map[string]int{}
	}
	return a, nil
}

func (p *placement) Tree(_ context.Context, name string) ([]string, error) {
	return []string{"provider of " + name}, nil
}

func (p *placement) SetAllocations(ctx context.Context, consumers map[string]cloud.Allocations) error {
	p.mu.Lock()
	var late time.Duration
	var lost error
	if len(p.late) > 0 {
		late, p.late = p.late[0], p.late[1:]
	}
	if len(p.answers) > 0 {
		lost, p.answers = p.answers[0], p.answers[1:]
	}
	first := p.first
	p.first = nil
	p.mu.Unlock()
	answer := make(chan error, 1)
	p.pending.Go(func() {
		time.Sleep(late)
		if first != nil {
			first()
		}
		answer <- p.apply(consumers)
	})
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case err := <-answer:
		if lost != nil {
			return lost
		}
		return err
	}
}

func (p *placement) apply(consumers map[string]cloud.Allocations) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	for consumer, a := range consumers {
		known := p.held[consumer].Generation
		over := slices.ContainsFunc(slices.Collect(maps.Keys(a.Providers)), func(provider string) bool { return p.refuse[provider] })
		if over || p.left[consumer] || (known == nil) != (a.Generation == nil) || known != nil && *known != *a.Generation {
			p.applied = append(p.applied, "409")
			return cloud.ErrConflict
		}
	}
	for consumer, a := range consumers {
		// As the real one does: a new consumer that is to hold nothing stays.
		if a.Generation == nil && len(a.Providers) == 0 {
			p.left[consumer] = true
		}
		next := 1
		if a.Generation != nil {
			next = *a.Generation + 1
		}
		a.Generation = &next
		if p.held[consumer] = a; len(a.Providers) == 0 {
			delete(p.held, consumer)
		}
	}
	p.applied = append(p.applied, "204")
	return nil
}

func (p *placement) content() map[string]map[string]map[string]int {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := map[string]map[string]map[string]int{}
	for consumer, a := range maps.All(p.held) {
		all[consumer] = a.Providers
	}
	return all
}

// dead is the state of a cold migration that died on its source gpu1, whose guest is on
// instanceHost, and a repair of it that is planned.
type dead struct {
	cell      *Cell
	uuid      string
	proxy     *Proxy
	placement *placement
	repairer  *repair.Repairer
	units     []cleanup.Unit
	before    map[string]map[string]map[string]int
}

const migrationUUID = "5f0c1c9e-0000-4000-8000-00000000000a"

var oneCard = map[string]int{"CUSTOM_PCI_10DE_11B4": 1}

func newDead(t *testing.T) *dead {
	t.Helper()
	reset(t)
	d := &dead{cell: database.Cell1, uuid: UUID(1), proxy: NewProxy(t)}
	gpu1, gpu2 := d.cell.Compute(t, "gpu1"), d.cell.Compute(t, "gpu2")
	d.cell.Instance(t, d.uuid, "gpu1", "active", "")
	old := Row{"updated_at": Ago(time.Hour)}
	from, to := d.cell.Card(t, gpu1, first, "allocated", d.uuid, old), d.cell.Card(t, gpu2, first, "allocated", d.uuid, old)
	id := d.cell.Migration(t, 3, d.uuid, "migration", "migrating", "gpu1", "gpu2", old, Row{"uuid": migrationUUID})
	d.cell.Context(t, d.uuid, id, []int64{from}, []int64{to})
	one := func() *int { n := 1; return &n }
	d.placement = &placement{left: map[string]bool{}, refuse: map[string]bool{}, held: map[string]cloud.Allocations{
		d.uuid:        {Providers: map[string]map[string]int{"provider of gpu2": oneCard}, Project: "p", User: "u", Generation: one()},
		migrationUUID: {Providers: map[string]map[string]int{"provider of gpu1": oneCard}, Project: "p", User: "u", Generation: one()},
	}}
	t.Cleanup(d.placement.pending.Wait)
	d.before = d.placement.content()

	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Database: at(d.proxy.Address, "nova_cell1")})
	hosttest.NoError(t, err)
	t.Cleanup(func() { databases.Close() })
	proof, err := cleanup.NewProof([]guest.Report{evidence.Report("gpu1"), evidence.Report("gpu2")}, nil)
	hosttest.NoError(t, err)
	options := find.Options{Proof: proof}
	var found []cleanup.Finding
	if _, _, err := find.RowsAndPools(t.Context(), databases, options, func(f cleanup.Finding) { found = append(found, f) }); err != nil {
		t.Fatal(err)
	}
	d.units = cleanup.NewPlan(found)
	d.repairer = &repair.Repairer{Databases: databases, Options: options, Placement: d.placement, Record: func([]cleanup.Unit) error { return nil }}
	if err := d.repairer.PlanAllocations(t.Context(), d.units); err != nil || len(d.units) != 1 || d.units[0].State != cleanup.Planned {
		t.Fatalf("%d units, %v", len(d.units), err)
	}
	return d
}

// is asserts that rows and allocations agree, at one side.
func (d *dead) is(t *testing.T, side repair.Side) {
	t.Helper()
	d.placement.pending.Wait() // what is on its way has arrived
	status, context, books := "failed", "NULL", map[string]map[string]map[string]int{d.uuid: {"provider of gpu1": oneCard}}
	if side == repair.Before {
		status, books = "migrating", d.before
	}
	hosttest.EqualIn(t, "the migration", status, d.cell.Dump(t, "migrations", "status")[0][0])
	if got := d.cell.Dump(t, "instance_extra", "migration_context"); (got[0][0] == context) != (side == repair.After) {
		t.Errorf("migration_context: %s", got[0][0])
	}
	hosttest.EqualIn(t, "Placement", books, d.placement.content())
}

// touched is instances.updated_at.
func (d *dead) touched(t *testing.T) string {
	t.Helper()
	return d.cell.Dump(t, "instances", "updated_at")[0][0]
}

// TestCommitUnknown: a COMMIT whose answer is lost decides nothing. The unit stays open, and
// Placement where it is, until a transaction that has locked the same rows knows; then rows
// and allocations are brought to the same side.
func TestCommitUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		lose func(*Proxy)
		side repair.Side
	}{
		"it was never received": {(*Proxy).LoseCommit, repair.Before},
		"its answer was lost":   {(*Proxy).LoseAnswer, repair.After},
		// Other connections read what was before until then.
		"it is done 3 s later":   {func(p *Proxy) { p.DelayCommit(3 * time.Second) }, repair.After},
		"it is done 0.2 s later": {func(p *Proxy) { p.DelayCommit(200 * time.Millisecond) }, repair.After},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDead(t)
			test.lose(d.proxy)
			err := d.repairer.Apply(t.Context(), d.units)
			u := &d.units[0]
			if !errors.Is(err, repair.ErrUnknown) || u.State != cleanup.Begun || !u.Open() {
				t.Fatalf("%v, state %s", err, u.State)
			}
			if got, want := d.placement.applied, []string{"204"}; !cmp.Equal(got, want) {
				t.Errorf("Placement has answered %q: it must not be rolled back", got)
			}
			touched := d.touched(t)
			hosttest.NoError(t, d.repairer.Recover(t.Context(), d.units, false))
			d.is(t, test.side)
			want := cleanup.Written
			if test.side == repair.Before {
				want = cleanup.Skipped
				if d.touched(t) == touched {
					t.Error("instances.updated_at was not moved: another node's transaction could still be committed")
				}
			}
			if u.State != want || u.Open() {
				t.Errorf("state %s (%s)", u.State, u.Note)
			}
			if err := d.repairer.Undo(t.Context(), d.units); err != nil {
				t.Error(err)
			}
			d.is(t, repair.Before)
		})
	}
}

// TestPlacementAnswers: whatever Placement answers, rows and allocations end at the same
// side, or the unit stays open.
func TestPlacementAnswers(t *testing.T) {
	gateway := errors.New("504 Gateway Timeout")
	for name, test := range map[string]struct {
		late    []time.Duration
		answers []error
		state   cleanup.State
		side    repair.Side
		err     string // "" for none
		applied []string
	}{
		"applied, and answered 504": {answers: []error{gateway}, state: cleanup.Written, side: repair.After, applied: []string{"204", "204"}},
		"applied, 504 twice":        {answers: []error{gateway, gateway}, state: cleanup.Written, side: repair.After, applied: []string{"204", "204", "204"}},
		"applied after our limit":   {late: []time.Duration{6 * time.Second}, state: cleanup.Skipped, side: repair.Before, err: "no answer within 5s", applied: []string{"204", "409"}},
		"all requests late, the first first": {late: []time.Duration{6 * time.Second, 3 * time.Second}, state: cleanup.Skipped,
			side: repair.Before, err: "no answer within 5s", applied: []string{"204", "409", "204"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDead(t)
			d.placement.late, d.placement.answers = test.late, test.answers
			err := d.repairer.Apply(t.Context(), d.units)
			if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) || d.units[0].State != test.state {
				t.Errorf("%v, state %s (%s)", err, d.units[0].State, d.units[0].Note)
			}
			d.is(t, test.side)
			if !cmp.Equal(d.placement.applied, test.applied) {
				t.Errorf("Placement has answered %q", d.placement.applied)
			}
			if err := d.repairer.Undo(t.Context(), d.units); err != nil {
				t.Error(err)
			}
			d.is(t, repair.Before)
		})
	}
}

// TestPlacementNeither: allocations that something else has changed meanwhile are left, and
// the unit stays open until they are at one side again.
func TestPlacementNeither(t *testing.T) {
	d := newDead(t)
	other := map[string]map[string]int{"provider of gpu3": oneCard}
	d.placement.answers = []error{errors.New("504 Gateway Timeout")}
	rows := d.cell.Dump(t, "migrations")
	d.placement.first = func() {
		d.placement.mu.Lock()
		defer d.placement.mu.Unlock()
		a := d.placement.held[d.uuid]
		next := *a.Generation + 1
		a.Providers, a.Generation = other, &next
		d.placement.held[d.uuid] = a
	}
	err := d.repairer.Apply(t.Context(), d.units)
	u := &d.units[0]
	if !errors.Is(err, repair.ErrUnknown) || u.State != cleanup.Begun || !strings.Contains(err.Error(), "the instance holds [provider of gpu3], ") {
		t.Fatalf("%v, state %s", err, u.State)
	}
	if err := d.repairer.Recover(t.Context(), d.units, false); !errors.Is(err, repair.ErrUnknown) || u.State != cleanup.Begun {
		t.Errorf("%v, state %s", err, u.State)
	}
	hosttest.EqualIn(t, "rows", rows, d.cell.Dump(t, "migrations"))
	if got := d.placement.content()[d.uuid]; !cmp.Equal(got, other) {
		t.Errorf("it was written over: %v", got)
	}
	// An operator sets them.
	d.placement.mu.Lock()
	a := d.placement.held[d.uuid]
	a.Providers = d.before[d.uuid]
	d.placement.held[d.uuid] = a
	d.placement.mu.Unlock()
	if err := d.repairer.Recover(t.Context(), d.units, false); err != nil || u.State != cleanup.Skipped {
		t.Errorf("%v, state %s", err, u.State)
	}
	d.is(t, repair.Before)
}

// TestCutOff: an entry that a killed run has left is completed or reverted, and undone,
// wherever the run was: before Placement, between Placement and COMMIT, after it.
func TestCutOff(t *testing.T) {
	for name, test := range map[string]struct {
		posted, committed bool
		side              repair.Side
	}{
		"before Placement":                 {false, false, repair.Before},
		"between Placement and COMMIT":     {true, false, repair.Before},
		"after COMMIT":                     {true, true, repair.After},
		"after COMMIT, Placement reverted": {false, true, repair.After},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDead(t)
			u := &d.units[0]
			hosttest.NoError(t, d.repairer.Preview(t.Context(), d.units))
			u.State = cleanup.Begun
			if test.posted {
				seen := map[string]cloud.Allocations{d.uuid: u.Placement.After.Instance, migrationUUID: u.Placement.After.Migrations[migrationUUID]}
				for consumer, a := range seen {
					a.Generation = d.placement.held[consumer].Generation
					seen[consumer] = a
				}
				hosttest.NoError(t, d.placement.SetAllocations(t.Context(), seen))
			}
			if test.committed {
				for _, row := range u.Rows {
					statement, args := repair.Statement(row)
					if _, err := database.SQL.ExecContext(t.Context(), strings.Replace(statement, "UPDATE ", "UPDATE nova_cell1.", 1), args...); err != nil {
						t.Fatal(err)
					}
				}
			}
			standing, err := d.repairer.Stand(t.Context(), u)
			wantRows, wantBooks := repair.Before, repair.Before
			if test.committed {
				wantRows = repair.After
			}
			if test.posted {
				wantBooks = repair.After
			}
			if diff := cmp.Diff(repair.Standing{Rows: wantRows, Allocations: wantBooks}, standing); diff != "" || err != nil {
				t.Errorf("%v, (-want +got):\n%s", err, diff)
			}
			hosttest.NoError(t, d.repairer.Recover(t.Context(), d.units, false))
			d.is(t, test.side)
			hosttest.NoError(t, d.repairer.Undo(t.Context(), d.units))
			d.is(t, repair.Before)
		})
	}
}

// TestNovaSavesMeanwhile: while Placement takes 12 s, Nova saves the instance: it waits for
// no longer than the repair may hold its locks. In the end rows and allocations agree.
func TestNovaSavesMeanwhile(t *testing.T) {
	const most = 6 * time.Second
	for name, late := range map[string][]time.Duration{
		"the request arrives first": {12 * time.Second, 9 * time.Second},
		"the request arrives last":  {12 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDead(t)
			d.placement.late = late
			done := make(chan error, 1)
			go func() { done <- d.repairer.Apply(t.Context(), d.units) }()
			until(t, func() bool { // the repair has its locks, and Placement has its request
				d.placement.mu.Lock()
				defer d.placement.mu.Unlock()
				return len(d.placement.late) < len(late)
			})
			begin := time.Now()
			var saved struct{}
			database.compose(t, map[string]any{"ask": "save", "database": d.cell.connection, "instance": d.uuid, "description": name}, &saved)
			took := time.Since(begin)
			t.Logf("Nova's save took %.1f s", took.Seconds())
			if took > most+time.Second { // of this machine, busy as it may be
				t.Errorf("Nova's save had to wait for %s", took)
			}
			err := <-done
			side := repair.Before
			if d.units[0].State == cleanup.Written {
				side = repair.After
			} else if err == nil || d.units[0].State != cleanup.Skipped {
				t.Errorf("%v, state %s", err, d.units[0].State)
			}
			t.Logf("%s: %v", d.units[0].State, err)
			d.is(t, side)
		})
	}
}

// TestInterruptedEntry: with the binary: a COMMIT that comes late leaves an entry of which
// every command says that its outcome is not known; the next --apply knows it, and undo does.
func TestInterruptedEntry(t *testing.T) {
	begin := func(t *testing.T, lose func(*Proxy)) (root string, cell *Cell, args []string) {
		t.Helper()
		cell = stale(t, 1)
		proxy := NewProxy(t)
		root = machine(t)
		lose(proxy)
		args = []string{"--database", at(proxy.Address, "nova_cell1"), "--api-database", database.URL("nova_api"), "--host-is-off", "gpu1"}
		_, stderr, status := repairMigration(t, root, append(args, "--apply", "--yes", "--wait", "1s")...)
		if status != 1 || !strings.Contains(stderr, "0000:00:00.0 of gpu1: the outcome of this repair is unknown: the outcome of COMMIT is unknown: ") || !strings.Contains(stderr, "gpustack: hint: gpustack repair-migration --root "+root+" --apply --database URL --api-database URL determines it") {
			t.Fatalf("exit status %d, %s", status, stderr)
		}
		return root, cell, args
	}
	command := func(t *testing.T, args ...string) (out string, status int) {
		t.Helper()
		cmd := exec.Command(gpustack, args...)
		text, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return string(text), cmd.ProcessState.ExitCode()
	}
	const open = "entry 1 (repair-migration --apply) was interrupted, and its outcome is unknown"
	t.Run("recovered", func(t *testing.T) {
		root, cell, args := begin(t, func(p *Proxy) { p.DelayCommit(2 * time.Second) })
		for _, c := range [][]string{{"history"}, {"host", "scan"}, {"nova", "check", "--conf", "compute=/etc/nova/nova.conf"}, {"undo", "--dry-run", args[0], args[1]}} {
			out, _ := command(t, append(c, "--root", root)...)
			hosttest.ContainsIn(t, fmt.Sprintf("%q does not say so", c), "gpustack: warning: "+open, out)
		}
		stdout, stderr, _ := repairMigration(t, root, append(args, "-o", "json")...)
		if !strings.Contains(stdout, open) || !strings.Contains(stderr, open) {
			t.Errorf("%s%s", stdout, stderr)
		}
		_, stderr, status := repairMigration(t, root, append(args, "--apply", "--yes", "--wait", "1s")...)
		if status != 0 || !strings.Contains(stderr, "entry 1, 0000:00:00.0 of gpu1: repaired") {
			t.Errorf("exit status %d, %s", status, stderr)
		}
		if got := states(t, cell); !strings.HasSuffix(got[0], " available NULL NULL") {
			t.Errorf("rows: %q", got)
		}
		if out, status := command(t, "undo", "--root", root, "--yes", args[0], args[1]); status != 0 || strings.Contains(out, open) {
			t.Errorf("undo: exit status %d, %s", status, out)
		}
	})
	t.Run("others wait", func(t *testing.T) {
		root, cell, args := begin(t, (*Proxy).LoseCommit)
		before := states(t, cell)
		// Its cell is not among those of nova.conf by that name, so that nothing can be found out.
		_, stderr, status := repairMigration(t, root, "--host-is-off", "gpu1", "--apply", "--yes", "--wait", "1s")
		if status != 1 || !strings.Contains(stderr, "error: entry 1: 0000:00:00.0 of gpu1: the outcome of this repair is unknown: cell \"database\" (schema \"nova_cell1\") is not among the given databases: not the database of this repair") || !strings.Contains(stderr, "hint: give the --database") {
			t.Errorf("exit status %d, %s", status, stderr)
		}
		hosttest.EqualIn(t, "it was repaired all the same", before, states(t, cell))
		entry := hosttest.Read(t, filepath.Join(root, "var/lib/gpustack/journal/0001.json"))
		later := strings.NewReplacer(`"id": 1,`, `"id": 2,`, `"status": "applying"`, `"status": "done"`).Replace(entry)
		hosttest.NoError(t, os.WriteFile(filepath.Join(root, "var/lib/gpustack/journal/0002.json"), []byte(later), 0o600))
		for _, id := range [][]string{nil, {"2"}} {
			out, status := command(t, append(append([]string{"undo", "--root", root, "--yes"}, id...), args[0], args[1])...)
			if status != 1 || !strings.Contains(out, "error: entry 2: entry 1 (repair-migration --apply), before it, was interrupted") {
				t.Errorf("undo %q: exit status %d, %s", id, status, out)
			}
		}
	})
	t.Run("undone", func(t *testing.T) {
		for name, lose := range map[string]func(*Proxy){"written": (*Proxy).LoseAnswer, "not written": (*Proxy).LoseCommit} {
			root, cell, args := begin(t, lose)
			if out, status := command(t, "undo", "--root", root, "--yes", args[0], args[1]); status != 0 || !strings.Contains(out, "entry 1 is undone") {
				t.Fatalf("%s: exit status %d, %s", name, status, out)
			}
			if got, want := states(t, cell), fmt.Sprintf("0000:00:00.0 allocated %s %s", UUID(0), RequestOf(UUID(0))); got[0] != want {
				t.Errorf("%s: rows %q, not %q", name, got, want)
			}
		}
	})
}

// TestOneTransactionPerInstance: the four rows of one instance are repaired together: a
// server that goes at any moment leaves all of them or none.
func TestOneTransactionPerInstance(t *testing.T) {
	const rows = 4
	for range 5 {
		cell := stale(t, 0)
		gpu1 := 1
		for i := range rows {
			cell.Card(t, int64(gpu1), fmt.Sprintf("0000:%02x:00.0", i), "allocated", UUID(7))
		}
		proxy, root, args := proxied(t)
		proxy.LoseCommit()
		if _, stderr, status := repairMigration(t, root, args...); status != 1 || !strings.Contains(stderr, "is unknown") {
			t.Fatalf("exit status %d, %s", status, stderr)
		}
		repaired := 0
		for _, line := range states(t, cell) {
			if strings.HasSuffix(line, " available NULL NULL") {
				repaired++
			}
		}
		if repaired != 0 && repaired != rows {
			t.Fatalf("%d of %d rows of one instance are repaired", repaired, rows)
		}
		if _, stderr, status := repairMigration(t, root, args...); status != 0 {
			t.Fatalf("exit status %d, %s", status, stderr)
		}
	}
}

// proxied is a machine whose only cell is reached through a proxy, and the arguments that
// repair it offline.
func proxied(t *testing.T) (proxy *Proxy, root string, args []string) {
	t.Helper()
	proxy = NewProxy(t)
	return proxy, machine(t), []string{"--database", at(proxy.Address, "nova_cell1"), "--api-database", database.URL("nova_api"),
		"--host-is-off", "gpu1", "--apply", "--yes", "--wait", "1s"}
}

// TestRecoverWrites: before a unit is called not written, or not undone, a row is written that
// the lost transaction writes too: on a cluster one of the two is refused then.
func TestRecoverWrites(t *testing.T) {
	t.Run("an offline repair", func(t *testing.T) {
		cell := stale(t, 0)
		cell.Instance(t, UUID(7), "gpu2", "active", "")
		cell.Card(t, 1, first, "allocated", UUID(7))
		proxy, root, args := proxied(t)
		proxy.LoseCommit()
		repairMigration(t, root, args...)
		before := cell.Dump(t, "pci_devices", "updated_at")[0][0]
		entry := hosttest.Read(t, filepath.Join(root, "var/lib/gpustack/journal/0001.json"))
		var e struct{ Rows []cleanup.Unit }
		hosttest.NoError(t, json.Unmarshal([]byte(entry), &e))
		e.Rows[0].Cell = "cell1"
		databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
		hosttest.NoError(t, err)
		defer databases.Close()
		r := &repair.Repairer{Databases: databases, Record: func([]cleanup.Unit) error { return nil }}
		if err := r.Recover(t.Context(), e.Rows, false); err != nil || e.Rows[0].State != cleanup.Skipped {
			t.Fatalf("%v, state %s", err, e.Rows[0].State)
		}
		if cell.Dump(t, "pci_devices", "updated_at")[0][0] == before {
			t.Error("no row that the repair writes was written")
		}
	})
	t.Run("an undo", func(t *testing.T) {
		d := newDead(t)
		hosttest.NoError(t, d.repairer.Apply(t.Context(), d.units))
		d.proxy.LoseCommit()
		if err := d.repairer.Undo(t.Context(), d.units); !errors.Is(err, repair.ErrUnknown) {
			t.Fatal(err)
		}
		touched := d.touched(t)
		if err := d.repairer.Recover(t.Context(), d.units, true); err != nil || d.units[0].State != cleanup.Written {
			t.Fatalf("%v, state %s", err, d.units[0].State)
		}
		if d.touched(t) == touched {
			t.Error("no row that the undo writes was written")
		}
		d.is(t, repair.After)
		if err := d.repairer.Undo(t.Context(), d.units); err != nil {
			t.Error(err)
		}
		d.is(t, repair.Before)
	})
}

// TestSameSecond: Nova saves the instance in the very second of the repair.
func TestSameSecond(t *testing.T) {
	for range 3 {
		d := newDead(t)
		d.proxy.LoseAnswer()
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.instances SET updated_at = UTC_TIMESTAMP()"); err != nil {
			t.Fatal(err)
		}
		if err := d.repairer.Apply(t.Context(), d.units); !errors.Is(err, repair.ErrUnknown) {
			t.Fatal(err)
		}
		hosttest.NoError(t, d.repairer.Recover(t.Context(), d.units, false))
		d.is(t, repair.After)
	}
}

// TestGoneOn: Nova has gone on from an entry that is open. Where the instance is gone there
// is nothing left to decide; otherwise the operator accepts what there is.
func TestGoneOn(t *testing.T) {
	for name, test := range map[string]struct{ deleted, archived bool }{
		"the instance is deleted":  {true, false},
		"and its rows archived":    {true, true},
		"the instance is on gpu3":  {false, false},
		"on gpu3, rows of another": {false, true},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDead(t)
			d.proxy.LoseAnswer()
			if err := d.repairer.Apply(t.Context(), d.units); !errors.Is(err, repair.ErrUnknown) {
				t.Fatal(err)
			}
			d.placement.mu.Lock()
			a := d.placement.held[d.uuid]
			next := *a.Generation + 4
			a.Generation, a.Providers = &next, map[string]map[string]int{"provider of gpu3": oneCard}
			if d.placement.held[d.uuid] = a; test.deleted {
				delete(d.placement.held, d.uuid)
				execInCell1(t, "UPDATE instances SET deleted = id")
			}
			d.placement.mu.Unlock()
			if test.archived {
				for _, table := range []string{"instance_extra", "migrations", "instances"} {
					if _, err := database.SQL.ExecContext(t.Context(), "DELETE FROM nova_cell1."+table); err != nil {
						t.Fatal(err)
					}
				}
			}
			held := d.placement.content()
			err := d.repairer.Recover(t.Context(), d.units, false)
			if (err == nil) != test.deleted {
				t.Fatal(err)
			}
			if err != nil {
				err = d.repairer.Accept(t.Context(), d.units, false)
			}
			if u := d.units[0]; err != nil || u.Open() {
				t.Errorf("%v, state %s (%s)", err, u.State, u.Note)
			}
			hosttest.EqualIn(t, "Placement", held, d.placement.content())
		})
	}
}

// TestOverCommitted: a provider that has less to give than is allocated refuses even what
// stays as it is; the other consumer's generation makes a late request fail as well.
func TestOverCommitted(t *testing.T) {
	d := newDead(t)
	d.placement.answers = []error{errors.New("504 Gateway Timeout")}
	d.placement.late = []time.Duration{6 * time.Second}
	d.placement.refuse["provider of gpu2"] = true // which the instance holds
	err := d.repairer.Apply(t.Context(), d.units)
	if u := d.units[0]; err == nil || u.State != cleanup.Skipped {
		t.Errorf("%v, state %s (%s)", err, u.State, u.Note)
	}
	d.is(t, repair.Before)
}

// TestOtherDatabase: rows of an entry are looked for in no other database than their own.
func TestOtherDatabase(t *testing.T) {
	cell := stale(t, 1)
	proxy, root, args := proxied(t)
	proxy.DelayCommit(4 * time.Second)
	repairMigration(t, root, args...)
	cell2 := database.AddCell(t, "cell2", Row{"database_connection": Template("nova_cell2")})
	cell2.Compute(t, "gpu9")
	cell2.Instance(t, UUID(55), "gpu9", "active", "")
	_, stderr, status := repairMigration(t, root, "--database", database.URL("nova_cell2"), "--api-database", database.URL("nova_api"), "--apply",
		"--yes", "--wait", "1s")
	if status != 1 || !strings.Contains(stderr, "nova_cell2: not the database of this repair, which was made in nova_cell1") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	// Another cloud's database of this name has a row of this number, node and address, of another
	// host.
	update(t, "UPDATE nova_cell1.compute_nodes SET host = 'b-gpu1' WHERE host = 'gpu1'")
	_, stderr, status = repairMigration(t, root, args[0], args[1], "--apply", "--yes", "--wait", "1s")
	if status != 1 || !strings.Contains(stderr, "nova_cell1: not the database of this repair: row 1 of pci_devices is 0000:00:00.0 of b-gpu1") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	update(t, "UPDATE nova_cell1.compute_nodes SET host = 'gpu1' WHERE host = 'b-gpu1'")
	if _, stderr, status := repairMigration(t, root, args...); status != 0 {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	if got := states(t, cell); !strings.HasSuffix(got[0], " available NULL NULL") {
		t.Errorf("rows: %q", got)
	}
}

// TestAccept: with the binary: an entry that cannot be determined is closed as it is by the
// operator alone.
func TestAccept(t *testing.T) {
	cell := stale(t, 2)
	proxy, root, args := proxied(t)
	proxy.LoseCommit()
	repairMigration(t, root, args...)
	for _, wrong := range [][]string{{"--accept", "2"}, {"--accept", "0"}} {
		if _, stderr, status := repairMigration(t, root, append(args, wrong...)...); status != 1 || !strings.Contains(stderr, "--accept: ") {
			t.Errorf("%q: exit status %d, %s", wrong, status, stderr)
		}
	}
	stdout, stderr, status := repairMigration(t, root, append(args, "--accept", "1", "-o", "json")...)
	if status != 0 || !strings.Contains(stderr, "skipped: accepted as it was, with its rows as before it") || !strings.Contains(stdout, `"recovered":[`) {
		t.Errorf("exit status %d, %s%s", status, stdout, stderr)
	}
	history, err := exec.Command(gpustack, "history", "--root", root).Output()
	if err != nil || !regexp.MustCompile(`(?m)^1 .* undone `).Match(history) || !regexp.MustCompile(`(?m)^2 .* done `).Match(history) {
		t.Errorf("%v: %s", err, history)
	}
	for _, line := range states(t, cell) { // which the same run has repaired then
		if !strings.HasSuffix(line, " available NULL NULL") {
			t.Errorf("rows: %q", line)
		}
	}
}

// TestTwoVFs: VFs of one instance are freed together, and with the last of them their PF.
func TestTwoVFs(t *testing.T) {
	cell := stale(t, 0)
	cell.Card(t, 1, "0000:40:00.0", "unavailable", "", PF())
	cell.Card(t, 1, "0000:40:00.1", "allocated", UUID(7), VF("0000:40:00.0"))
	cell.Card(t, 1, "0000:40:00.2", "allocated", UUID(7), VF("0000:40:00.0"))
	if _, stderr, status := repairMigration(t, machine(t), "--host-is-off", "gpu1", "--apply", "--yes", "--wait", "1s"); status != 0 {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	for _, line := range states(t, cell) {
		if !strings.HasSuffix(line, " available NULL NULL") {
			t.Errorf("rows: %q", line)
		}
	}
}

// TestLockedByOthers: a row that another session holds costs Nova no more than the limit, and
// the other repairs are made.
func TestLockedByOthers(t *testing.T) {
	cell := stale(t, 3)
	pf := cell.Card(t, 1, "0000:40:00.0", "allocated", "", PF())
	vf := cell.Card(t, 1, "0000:40:00.1", "unavailable", "", VF("0000:40:00.0"))
	other, err := database.SQL.BeginTx(t.Context(), nil)
	hosttest.NoError(t, err)
	defer other.Rollback()
	if _, err := other.ExecContext(t.Context(), "SELECT id FROM nova_cell1.pci_devices WHERE id = ? FOR UPDATE", vf); err != nil {
		t.Fatal(err)
	}
	type outcome struct {
		stderr string
		status int
	}
	done := make(chan outcome, 1)
	root := machine(t)
	go func() {
		_, stderr, status := repairMigration(t, root, "--host-is-off", "gpu1", "--apply", "--yes", "--wait", "1s")
		done <- outcome{stderr, status}
	}()
	var longest time.Duration
	for ended := false; !ended; {
		at := time.Now()
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.pci_devices SET label = label WHERE id = ?", pf); err != nil {
			t.Fatal(err)
		}
		longest = max(longest, time.Since(at))
		select {
		case o := <-done:
			ended = true
			if o.status != 1 || !strings.Contains(o.stderr, "0000:40:00.0 of gpu1") || !strings.Contains(o.stderr, "Error 1205") {
				t.Errorf("exit status %d, %s", o.status, o.stderr)
			}
		case <-time.After(50 * time.Millisecond):
		}
	}
	t.Logf("a save of the locked device's PF waited for %s at most", longest)
	if longest > 6*time.Second {
		t.Errorf("a save waited for %s", longest)
	}
	for _, line := range states(t, cell)[:3] {
		if !strings.HasSuffix(line, " available NULL NULL") {
			t.Errorf("rows: %q", line)
		}
	}
}

// TestInterruptedRepair: Ctrl-C after the first write ends the repair that has begun and
// begins no other; what was repaired stays, is listed, and can be undone; waiting ends.
func TestInterruptedRepair(t *testing.T) {
	start := func(t *testing.T, root string, args ...string) (cmd *exec.Cmd, talk *bytes.Buffer) {
		t.Helper()
		cmd = exec.Command(gpustack, append([]string{"repair-migration", "--root", root, "--host-is-off", "gpu1", "--apply", "--yes"}, args...)...)
		talk = &bytes.Buffer{}
		cmd.Stderr = talk
		hosttest.NoError(t, cmd.Start())
		return cmd, talk
	}
	interrupt := func(t *testing.T, cell *Cell, cmd *exec.Cmd) {
		t.Helper()
		until(t, func() bool { return strings.HasSuffix(states(t, cell)[0], " available NULL NULL") })
		time.Sleep(500 * time.Millisecond) // it has come to the next step
		hosttest.NoError(t, cmd.Process.Signal(syscall.SIGINT))
		cmd.Wait()
	}
	t.Run("between two repairs", func(t *testing.T) {
		cell := stale(t, 3)
		before := states(t, cell)
		other, err := database.SQL.BeginTx(t.Context(), nil)
		hosttest.NoError(t, err)
		defer other.Rollback()
		if _, err := other.ExecContext(t.Context(), "SELECT id FROM nova_cell1.pci_devices WHERE id = 2 FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		root := machine(t)
		cmd, talk := start(t, root, "--wait", "1s")
		interrupt(t, cell, cmd)
		for _, want := range []string{"0000:00:00.0 of gpu1: repaired", "0000:02:00.0 of gpu1: skipped: not begun: the run was interrupted", "'gpustack undo --root " + root + " 1' undoes it", "error: interrupted"} {
			hosttest.Contains(t, want, talk.String())
		}
		if got := states(t, cell); cmd.ProcessState.ExitCode() != 130 || !cmp.Equal(before[1:], got[1:]) {
			t.Errorf("exit status %d, rows %q", cmd.ProcessState.ExitCode(), got)
		}
		other.Rollback()
		if out, err := exec.Command(gpustack, "undo", "--root", root, "--yes").CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		hosttest.EqualIn(t, "before and undone", before, states(t, cell))
	})
	t.Run("while it waits", func(t *testing.T) {
		cell := stale(t, 1)
		cmd, talk := start(t, machine(t), "--wait", "10m")
		begin := time.Now()
		interrupt(t, cell, cmd)
		if took := time.Since(begin); cmd.ProcessState.ExitCode() != 130 || took > time.Minute || !strings.Contains(talk.String(), "0000:00:00.0 of gpu1: repaired") {
			t.Errorf("exit status %d after %s, %s", cmd.ProcessState.ExitCode(), took, talk)
		}
	})
}

// TestNothingBegun: a run that has written nothing leaves no entry, whether it was interrupted
// before the first repair or all evidence has changed since the plan.
func TestNothingBegun(t *testing.T) {
	args := func(root string) []string {
		return []string{"repair-migration", "--root", root, "--host-is-off", "gpu1", "--apply", "--wait", "1s"}
	}
	check := func(t *testing.T, root string) {
		t.Helper()
		if _, err := os.Stat(filepath.Join(root, "var")); !os.IsNotExist(err) {
			t.Errorf("a journal was left: %v", err)
		}
	}
	t.Run("interrupted", func(t *testing.T) {
		cell := stale(t, 2)
		before := states(t, cell)
		unlock := lockRow(t, 1)
		root := machine(t)
		s := terminal.Start(t, exec.Command(gpustack, append(args(root), "--yes")...), "")
		until(t, func() bool {
			_, err := os.Stat(filepath.Join(root, "var/lib/gpustack/journal/0001.json"))
			return err == nil
		})
		s.Type(terminal.CtrlC)
		s.Expect("ending the running step")
		status := s.Wait()
		unlock()
		if want := "gpustack: error: interrupted, nothing was changed\n"; status != 130 || !strings.Contains(s.Output(), want) {
			t.Errorf("exit status %d, want %q:\n%s", status, want, s.Output())
		}
		check(t, root)
		hosttest.EqualIn(t, "before and after", before, states(t, cell))
	})
	t.Run("evidence changed", func(t *testing.T) {
		cell := stale(t, 1)
		root := machine(t)
		s := terminal.Start(t, exec.Command(gpustack, args(root)...), "")
		s.Expect("/?] ")
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.pci_devices SET status = 'available', instance_uuid = NULL, request_id = NULL WHERE id = 1"); err != nil {
			t.Fatal(err)
		}
		before := states(t, cell)
		s.Type("y\n")
		if status := s.Wait(); status != 2 || !strings.Contains(s.Output(), "0000:00:00.0 of gpu1: skipped: ") || !strings.Contains(s.Output(), "has changed since it was planned") || strings.Contains(s.Output(), "undo") {
			t.Errorf("exit status %d:\n%s", status, s.Output())
		}
		check(t, root)
		hosttest.EqualIn(t, "before and after", before, states(t, cell))
	})
	t.Run("report", func(t *testing.T) {
		stale(t, 1)
		unlock := lockRow(t, 1)
		root := machine(t)
		stdout, stderr, status := repairMigration(t, root, append(args(root)[3:], "--yes", "-o", "json")...)
		unlock()
		var report struct {
			Applied bool
			Entry   *int
		}
		if err := json.Unmarshal([]byte(stdout), &report); err != nil || status != 1 || report.Applied || report.Entry != nil {
			t.Errorf("exit status %d, %v, %+v, %s", status, err, report, stderr)
		}
		check(t, root)
	})
}

// lockRow locks a device's row until unlock is called.
func lockRow(t *testing.T, id int64) (unlock func()) {
	t.Helper()
	other, err := database.SQL.BeginTx(t.Context(), nil)
	if err == nil {
		_, err = other.ExecContext(t.Context(), "SELECT id FROM nova_cell1.pci_devices WHERE id = ? FOR UPDATE", id)
	}
	hosttest.NoError(t, err)
	t.Cleanup(func() { other.Rollback() })
	return func() { other.Rollback() }
}

// TestInterruptedRepairTwice: a second interrupt in the middle of a repair ends the run at once. It
// says which commands determine what was written, and they do.
func TestInterruptedRepairTwice(t *testing.T) {
	cell := stale(t, 1)
	var stuck sync.Once
	address := proxy(t, func(statement string) (string, time.Duration) {
		wait := time.Duration(0)
		if strings.HasPrefix(statement, "UPDATE pci_devices") {
			stuck.Do(func() { wait = never })
		}
		return statement, wait
	})
	root := machine(t)
	args := []string{"--database", at(address, "nova_cell1"), "--api-database", database.URL("nova_api"), "--host-is-off", "gpu1", "--apply", "--yes",
		"--wait", "1s"}
	s := terminal.Start(t, exec.Command(gpustack, append([]string{"repair-migration", "--root", root}, args...)...), "")
	until(t, func() bool {
		_, err := os.Stat(filepath.Join(root, "var/lib/gpustack/journal/0001.json"))
		return err == nil
	})
	s.Type(terminal.CtrlC)
	s.Expect("ending the running step")
	s.Type(terminal.CtrlC)
	status := s.Wait()
	want := "gpustack: error: interrupted again, stopped at once\n" +
		fmt.Sprintf("gpustack: hint: if 'gpustack history --root %[1]s' shows an interrupted entry, 'gpustack repair-migration --root %[1]s --apply --database URL --api-database URL' determines what it has done, "+
			"'gpustack undo --root %[1]s --database URL' undoes it\n", root)
	if status != 130 || !strings.HasSuffix(s.Output(), want) {
		t.Errorf("exit status %d, want %q:\n%s", status, want, s.Output())
	}
	if _, stderr, status := repairMigration(t, root, args...); status != 0 {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	if got := states(t, cell)[0]; !strings.HasSuffix(got, " available NULL NULL") {
		t.Errorf("rows: %q", got)
	}
}
