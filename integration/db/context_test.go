package db

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/cleanup/repair"
	"gpustack/host/hosttest"
)

// leftContext makes an instance on gpu1 whose migration to gpu2 has ended and has left its
// context.
func leftContext(t *testing.T, status string, columns ...Row) (cell *Cell, nodes [2]int64) {
	t.Helper()
	reset(t)
	cell = database.Cell1
	gpu1, gpu2 := cell.Compute(t, "gpu1"), cell.Compute(t, "gpu2")
	cell.Instance(t, UUID(1), "gpu1", "active", "")
	old := Row{"updated_at": Ago(time.Hour)}
	from, to := cell.Card(t, gpu1, first, "allocated", UUID(1), old), cell.Card(t, gpu2, first, "available", "", old)
	id := cell.Migration(t, 3, UUID(1), "migration", status, "gpu1", "gpu2", append([]Row{old}, columns...)...)
	cell.Context(t, UUID(1), id, []int64{from}, []int64{to})
	return cell, [2]int64{gpu1, gpu2}
}

// context is the instance's.
func (c *Cell) context(t testing.TB) string {
	t.Helper()
	return c.Dump(t, "instance_extra", "migration_context")[0][0]
}

// TestContextLeft: the binary clears the context of a migration that is over or purged, and no
// other; Nova's tracker then changes nothing, and undo restores every byte.
func TestContextLeft(t *testing.T) {
	set := func(statement string) func(*testing.T) {
		return func(t *testing.T) {
			if _, err := database.SQL.ExecContext(t.Context(), statement); err != nil {
				t.Fatal(err)
			}
		}
	}
	for name, test := range map[string]struct {
		status  string
		columns Row
		change  func(*testing.T)
		found   []string
		cleared bool
	}{
		"failed":              {status: "failed", found: []string{"gpu1 " + first + " J stale context"}, cleared: true},
		"reverted":            {status: "reverted", found: []string{"gpu1 " + first + " J stale context"}, cleared: true},
		"its record is gone":  {status: "failed", change: set("DELETE FROM nova_cell1.migrations"), found: []string{"gpu1 " + first + " J stale context"}, cleared: true},
		"its record, deleted": {status: "error", columns: Deleted(time.Hour), found: []string{"gpu1 " + first + " J stale context"}, cleared: true},
		"ended just now":      {status: "failed", columns: Row{"updated_at": Ago(0)}, found: []string{"gpu1 " + first + " J stale context"}},
		"error":               {status: "error", found: []string{}},
		"another one is open": {status: "failed", change: func(t *testing.T) {
			database.Cell1.Migration(t, 4, UUID(1), "migration", "error", "gpu1", "gpu2")
		}, found: []string{}},
		"resized":   {status: "failed", change: set("UPDATE nova_cell1.instances SET vm_state = 'resized'"), found: []string{}},
		"in a task": {status: "failed", change: set("UPDATE nova_cell1.instances SET task_state = 'resize_prep', updated_at = UTC_TIMESTAMP()"), found: []string{}},
		"of another": {status: "failed", change: func(t *testing.T) {
			database.Cell1.Instance(t, UUID(9), "gpu2", "active", "")
			set("UPDATE nova_cell1.migrations SET instance_uuid = '" + UUID(9) + "'")(t)
		}, found: []string{"gpu1 " + first + " J suspicious"}},
		"it cannot be read":  {status: "failed", change: set("UPDATE nova_cell1.instance_extra SET migration_context = '{}'"), found: []string{"gpu1 " + first + " X unknown"}},
		"nothing is left of": {status: "failed", change: set("UPDATE nova_cell1.instance_extra SET migration_context = NULL"), found: []string{}},
	} {
		t.Run(name, func(t *testing.T) {
			cell, nodes := leftContext(t, test.status, test.columns)
			if test.change != nil {
				test.change(t)
			}
			dump := func() [][][]string {
				return [][][]string{cell.Dump(t, "migrations"), cell.Dump(t, "instances"), cell.Dump(t, "instance_extra"), cell.Dump(t, "pci_devices")}
			}
			before, root := dump(), machine(t)
			if found, _ := findings(t, root); !cmp.Equal(found, test.found) {
				t.Fatalf("found %q", found)
			}
			stdout, stderr, status := repairMigration(t, root, "--apply", "--yes")
			want := 2
			if test.cleared || len(test.found) == 0 {
				want = 0
			}
			if status != want {
				t.Fatalf("exit status %d, %s%s", status, stdout, stderr)
			}
			if !test.cleared {
				hosttest.EqualIn(t, "before and after", before, dump())
				return
			}
			if cell.context(t) != "NULL" {
				t.Errorf("the context is left:\n%s", stdout)
			}
			if strings.Contains(stdout, "frees ") || !strings.Contains(stdout, "context repair of the migration context of instance "+UUID(1)) {
				t.Error(stdout)
			}
			for _, node := range nodes {
				if tracked := database.Track(t, cell, node, cell.Reported(t, node)); len(tracked.Changes) > 0 || tracked.Error != "" {
					t.Errorf("Nova changes %+v", tracked)
				}
			}
			if found, status := findings(t, root); len(found) > 0 || status != 0 {
				t.Errorf("again: %q, exit status %d", found, status)
			}
			if out, err := exec.Command(gpustack, "undo", "--root", root, "--yes").CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			hosttest.EqualIn(t, "before and undone", before, dump())
		})
	}
}

// newContext has a planned repair of a left context, through a proxy.
func newContext(t *testing.T) (cell *Cell, proxy *Proxy, repairer *repair.Repairer, units []cleanup.Unit) {
	t.Helper()
	cell, _ = leftContext(t, "failed")
	proxy = NewProxy(t)
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Database: at(proxy.Address, "nova_cell1")})
	hosttest.NoError(t, err)
	t.Cleanup(func() { databases.Close() })
	var found []cleanup.Finding
	if _, _, err := find.RowsAndPools(t.Context(), databases, find.Options{}, func(f cleanup.Finding) { found = append(found, f) }); err != nil {
		t.Fatal(err)
	}
	repairer = &repair.Repairer{Databases: databases, Record: func([]cleanup.Unit) error { return nil }}
	units, placement, err := repairer.Plan(t.Context(), found, 10)
	if err != nil || placement != nil || len(units) != 1 || units[0].State != cleanup.Planned || len(units[0].Rows) != 2 {
		t.Fatalf("%+v, %v, %v", units, placement, err)
	}
	return cell, proxy, repairer, units
}

// TestContextCommitUnknown: as TestCommitUnknown, for a context.
func TestContextCommitUnknown(t *testing.T) {
	for name, test := range map[string]struct {
		lose func(*Proxy)
		side repair.Side
	}{
		"it was never received": {(*Proxy).LoseCommit, repair.Before},
		"its answer was lost":   {(*Proxy).LoseAnswer, repair.After},
		"it is done 2 s later":  {func(p *Proxy) { p.DelayCommit(2 * time.Second) }, repair.After},
	} {
		t.Run(name, func(t *testing.T) {
			cell, proxy, repairer, units := newContext(t)
			before := cell.context(t)
			test.lose(proxy)
			if err := repairer.Apply(t.Context(), units); !errors.Is(err, repair.ErrUnknown) || units[0].State != cleanup.Begun {
				t.Fatalf("%v, state %s", err, units[0].State)
			}
			hosttest.NoError(t, repairer.Recover(t.Context(), units, false))
			state, context := cleanup.Written, "NULL"
			if test.side == repair.Before {
				state, context = cleanup.Skipped, before
			}
			if cell.context(t) != context || units[0].State != state {
				t.Errorf("state %s, context %.20s", units[0].State, cell.context(t))
			}
			if err := repairer.Undo(t.Context(), units); err != nil {
				t.Error(err)
			}
			hosttest.EqualIn(t, "not restored", before, cell.context(t))
		})
	}
}

// TestContextMeanwhile: what Nova does between the plan and the COMMIT, and after it.
func TestContextMeanwhile(t *testing.T) {
	save := func(t *testing.T, cell *Cell) {
		t.Helper()
		var saved struct{}
		database.compose(t, map[string]any{"ask": "save", "database": cell.connection, "instance": UUID(1), "description": "meanwhile"}, &saved)
	}
	t.Run("it saves the instance before", func(t *testing.T) {
		cell, _, repairer, units := newContext(t)
		save(t, cell)
		if err := repairer.Apply(t.Context(), units); err != nil || units[0].State != cleanup.Written || cell.context(t) != "NULL" {
			t.Errorf("%v, state %s (%s)", err, units[0].State, units[0].Note)
		}
	})
	t.Run("it begins a resize before", func(t *testing.T) {
		cell, _, repairer, units := newContext(t)
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.instances SET task_state = 'resize_prep'"); err != nil {
			t.Fatal(err)
		}
		if err := repairer.Apply(t.Context(), units); err != nil || units[0].State != cleanup.Skipped || cell.context(t) == "NULL" {
			t.Errorf("%v, state %s (%s)", err, units[0].State, units[0].Note)
		}
	})
	t.Run("it saves the instance under the locks", func(t *testing.T) {
		cell, _, repairer, units := newContext(t)
		saved := make(chan struct{})
		begun := false
		repairer.Record = func(units []cleanup.Unit) error {
			if !begun && units[0].State == cleanup.Begun {
				begun = true
				go func() { defer close(saved); save(t, cell) }()
				select {
				case <-saved:
					t.Error("Nova's save did not wait")
				case <-time.After(time.Second):
				}
			}
			return nil
		}
		if err := repairer.Apply(t.Context(), units); err != nil || units[0].State != cleanup.Written {
			t.Errorf("%v, state %s (%s)", err, units[0].State, units[0].Note)
		}
		<-saved
		hosttest.EqualIn(t, "Nova has written the context back", "NULL", cell.context(t))
		// What saves the instance later may rely on the context being gone.
		time.Sleep(time.Second)
		save(t, cell)
		if err := repairer.Undo(t.Context(), units); err == nil || !strings.Contains(err.Error(), "of instances has been changed since") || cell.context(t) != "NULL" {
			t.Errorf("undo: %v", err)
		}
	})
	t.Run("it has a context again after", func(t *testing.T) {
		cell, _, repairer, units := newContext(t)
		before := cell.context(t)
		hosttest.NoError(t, repairer.Apply(t.Context(), units))
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.instance_extra SET migration_context = ?", before); err != nil {
			t.Fatal(err)
		}
		hosttest.Contains(t, "has a migration context again", fmt.Sprint(repairer.Wait(t.Context(), units, 0, func(int) {})))
		if err := repairer.Undo(t.Context(), units); err == nil || cell.context(t) != before {
			t.Errorf("undo: %v", err)
		}
	})
}

// TestContextKilled: the binary is killed before each statement that locks or writes, from the
// first lock to COMMIT, and before each of some after it, of a repair and of its undo. The next run
// ends what the killed one began, and the journal records that. Between the statements that only
// read, nothing changes.
func TestContextKilled(t *testing.T) {
	run := func(t *testing.T, nth int, proxy *Proxy, args ...string) (killed bool, status int, out string) {
		t.Helper()
		cmd := exec.Command(gpustack, args...)
		const query, prepare, end = 0x03, 0x16, 0x19
		locked, reads, n, after := false, false, 0, 0
		proxy.Watch(func(packet []byte) bool {
			locks := bytes.Contains(packet, []byte(" FOR UPDATE"))
			locked = locked || locks
			if packet[0] == query || packet[0] == prepare { // what follows executes it
				reads = !locks && bytes.HasPrefix(packet[1:], []byte("SELECT"))
			}
			if after > 0 || bytes.Equal(packet, []byte("\x03COMMIT")) {
				after++
			}
			// What the report reads afterwards is of no interest.
			if !locked || nth == 0 || after > 5 || after == 0 && (reads || packet[0] == end) {
				return false
			}
			if n++; n == nth {
				killed = cmd.Process.Kill() == nil
			}
			return killed
		})
		defer proxy.Watch(nil)
		text, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState == nil {
			t.Fatalf("%v: %s", err, text)
		}
		return killed, cmd.ProcessState.ExitCode(), string(text)
	}
	proxy := NewProxy(t)
	for nth, done := 1, false; !done; nth++ {
		cell, _ := leftContext(t, "failed")
		before, root := cell.context(t), machine(t)
		undo := []string{"undo", "--root", root, "--yes", "--database", at(proxy.Address, "nova_cell1")}
		apply := append([]string{"repair-migration", "--apply", "--api-database", database.URL("nova_api")}, undo[1:]...)
		killed, _, _ := run(t, nth, proxy, apply...)
		if _, status, out := run(t, 0, proxy, apply...); status != 0 || cell.context(t) != "NULL" {
			t.Fatalf("killed at statement %d: the next run: exit status %d, %.20s\n%s", nth, status, cell.context(t), out)
		}
		undoKilled, _, _ := run(t, nth, proxy, undo...)
		_, status, out := run(t, 0, proxy, undo...)
		// The last statement is sent when the entry is closed.
		if undoKilled && status != 0 && !strings.Contains(out, "nothing to undo") || cell.context(t) != before {
			t.Fatalf("undo killed at statement %d: the next undo: exit status %d, %.20s\n%s", nth, status, cell.context(t), out)
		}
		history, err := exec.Command(gpustack, "history", "--root", root, "-o", "json").Output()
		if err != nil || !json.Valid(history) || bytes.Contains(history, []byte(`"status":"applying"`)) || bytes.Contains(history, []byte(`"status":"undoing"`)) {
			t.Fatalf("%d: %v\n%s", nth, err, history)
		}
		if done = !killed && !undoKilled; done {
			t.Logf("killed at each of %d statements", nth-1)
			if nth < 10 {
				t.Error(fmt.Errorf("only %d statements", nth-1))
			}
		}
	}
}
