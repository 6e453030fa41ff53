package db

import (
	"cmp"
	"flag"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
)

var kills = flag.Int("kills", 40, "how often the server is killed in TestServerKilled")

// stale makes stale rows on a host that is down, and returns their owner's cards.
func stale(t *testing.T, n int) *Cell {
	t.Helper()
	reset(t)
	cell := database.Cell1
	gpu1 := cell.Compute(t, "gpu1", LastSeen(time.Hour))
	cell.Compute(t, "gpu2")
	cell.Instance(t, UUID(100), "gpu1", "active", "")
	for i := range n {
		cell.Card(t, gpu1, fmt.Sprintf("0000:%02x:00.0", i), "allocated", UUID(i))
	}
	return cell
}

// states are the rows' states, as one line each.
func states(t *testing.T, cell *Cell) (lines []string) {
	t.Helper()
	for _, row := range cell.Dump(t, "pci_devices", "address", "status", "instance_uuid", "request_id") {
		lines = append(lines, strings.Join(row, " "))
	}
	return lines
}

// TestServerKilled: whenever the server goes in the midst of repairs, every row is as
// it was or repaired, whole, and a second run ends what the first began.
func TestServerKilled(t *testing.T) {
	const rows = 6
	var interrupted, half int
	for i := range *kills {
		cell := stale(t, rows)
		before := states(t, cell)
		root := machine(t)
		args := []string{"repair-migration", "--root", root, "--host-is-off", "gpu1", "--apply", "--yes", "--wait", "1s"}
		cmd := exec.Command(gpustack, args...)
		hosttest.NoError(t, cmd.Start())
		time.Sleep(time.Duration(rand.IntN(150)) * time.Millisecond)
		hosttest.NoError(t, database.Server.Kill())
		if cmd.Wait() != nil {
			interrupted++
		}
		hosttest.NoError(t, database.Server.Start(t.Context()))
		var after []string
		until(t, func() bool {
			_, err := database.SQL.ExecContext(t.Context(), "SELECT 1")
			return err == nil
		})
		after = states(t, cell)
		some := 0
		for k, line := range after {
			repaired := strings.Fields(before[k])[0] + " available NULL NULL"
			if line != before[k] && line != repaired {
				t.Fatalf("kill %d: a row is neither as it was nor repaired: %s", i, line)
			}
			if line == repaired {
				some++
			}
		}
		if some > 0 && some < rows {
			half++
		}
		if _, stderr, status := repairMigration(t, root, "--host-is-off", "gpu1", "--apply", "--yes", "--wait", "1s"); status != 0 {
			t.Fatalf("kill %d: the second run: exit status %d, %s", i, status, stderr)
		}
		for _, line := range states(t, cell) {
			if !strings.HasSuffix(line, " available NULL NULL") {
				t.Fatalf("kill %d: after the second run: %s", i, line)
			}
		}
		// What the journal says of each run was written, once.
		history, err := exec.Command(gpustack, "history", "--root", root, "-o", "json").Output()
		hosttest.NoError(t, err)
		if n := strings.Count(string(history), `"state":"repaired"`); n != rows || strings.Contains(string(history), `"status":"applying"`) {
			t.Fatalf("kill %d: the journal has %d repairs:\n%s", i, n, history)
		}
	}
	t.Logf("%d of %d runs were interrupted, %d of them half-way", interrupted, *kills, half)
	if interrupted == 0 {
		t.Error("no run was interrupted")
	}
}

func until(t *testing.T, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); !condition(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("it does not come about")
		}
	}
}

// TestRowLocked: what another session holds is waited for, then given up: nothing is
// written, and the run says so.
func TestRowLocked(t *testing.T) {
	cell := stale(t, 1)
	before := states(t, cell)
	if _, err := database.SQL.ExecContext(t.Context(), "SET GLOBAL innodb_lock_wait_timeout = 1"); err != nil {
		t.Fatal(err)
	}
	defer database.SQL.ExecContext(t.Context(), "SET GLOBAL innodb_lock_wait_timeout = 50")
	tx, err := database.SQL.BeginTx(t.Context(), nil)
	hosttest.NoError(t, err)
	defer tx.Rollback()
	if _, err := tx.ExecContext(t.Context(), "UPDATE nova_cell1.pci_devices SET label = 'x'"); err != nil {
		t.Fatal(err)
	}
	_, stderr, status := repairMigration(t, machine(t), "--host-is-off", "gpu1", "--apply", "--yes", "--wait", "1s")
	if status != 1 || !strings.Contains(stderr, "Error 1205") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	hosttest.NoError(t, tx.Rollback())
	hosttest.EqualIn(t, "before and after", before, states(t, cell))
}

// TestRowsChange: other sessions change what repairs were planned from, all the time:
// a row that somebody has taken meanwhile stays theirs.
func TestRowsChange(t *testing.T) {
	const rows = 20
	cell := stale(t, rows)
	root := machine(t)
	done := make(chan error)
	go func() {
		var err error
		for i := range rows {
			if i%2 == 0 && err == nil {
				_, err = database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.pci_devices SET status = 'allocated', instance_uuid = ?, request_id = NULL, updated_at = UTC_TIMESTAMP() WHERE address = ?", UUID(100), fmt.Sprintf("0000:%02x:00.0", rows-1-i))
			}
			time.Sleep(3 * time.Millisecond)
		}
		done <- err
	}()
	_, stderr, status := repairMigration(t, root, "--host-is-off", "gpu1", "--apply", "--yes", "--wait", "1s")
	hosttest.NoError(t, <-done)
	if status == 1 {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	for i, line := range states(t, cell) {
		theirs := (rows-1-i)%2 == 0
		switch {
		case theirs && !strings.Contains(line, "allocated "+UUID(100)):
			t.Errorf("somebody's row was freed: %s", line)
		case !theirs && !strings.HasSuffix(line, " available NULL NULL"):
			t.Errorf("not repaired: %s", line)
		}
	}
}

// TestRefused: too much at once, and a database that cannot be a cloud's.
func TestRefused(t *testing.T) {
	cell := stale(t, 3)
	before := states(t, cell)
	for name, test := range map[string]struct {
		spoil string
		args  []string
		want  string
	}{
		"more than --max":  {"", []string{"--max", "2"}, "3 repairs: more repairs than allowed at once"},
		"off, and reports": {"", []string{"--guests", evidence.Write(t, evidence.Report("gpu1"))}, "host gpu1 is declared off, but a guest report of it was given"},
		"no instances":     {"UPDATE nova_cell1.instances SET deleted = id", nil, "cell cell1: this does not look like the database of a running deployment: it has no instances"},
		"no services":      {"UPDATE nova_cell1.services SET deleted = id", nil, "no service of Nova reports to this database"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := database.SQL.ExecContext(t.Context(), cmp.Or(test.spoil, "DO 0"))
			hosttest.NoError(t, err)
			_, stderr, status := repairMigration(t, machine(t), append(test.args, "--host-is-off", "gpu1", "--apply", "--yes", "--wait", "1s")...)
			if status != 1 || !strings.Contains(stderr, test.want) {
				t.Errorf("exit status %d, %s", status, stderr)
			}
			hosttest.EqualIn(t, "before and after", before, states(t, cell))
			_, err = database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.services SET deleted = 0")
			hosttest.NoError(t, err)
		})
	}
}
