package db

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
)

// update changes rows by hand, as an operator or an old release has left them.
func update(t *testing.T, statement string, args ...any) {
	t.Helper()
	result, err := database.SQL.ExecContext(t.Context(), statement, args...)
	hosttest.NoError(t, err)
	if n, err := result.RowsAffected(); err != nil || n == 0 {
		t.Fatalf("%s: %d rows, %v", statement, n, err)
	}
}

// TestOddRows: a row that Nova does not write makes unknown what it touches, and nothing
// else: a stale row beside it is repaired.
func TestOddRows(t *testing.T) {
	u, other, beside := UUID(1), UUID(2), UUID(3)
	// pinned is an instance on gpu2 with a card there and one on gpu1, which a migration
	// in error keeps.
	pinned := func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
		c.Instance(t, u, "gpu2", "active", "")
		c.Card(t, gpu1, second, "allocated", u)
		c.Card(t, gpu2, second, "allocated", u)
		c.Migration(t, 3, u, "migration", "error", "gpu2", "gpu1")
	}
	// changed is pinned after a statement.
	changed := func(statement string, values ...any) func(*testing.T, *Cell, int64, int64) {
		return func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
			t.Helper()
			pinned(t, c, gpu1, gpu2)
			update(t, statement, values...)
		}
	}
	for name, test := range map[string]struct {
		rows   func(t *testing.T, c *Cell, gpu1, gpu2 int64)
		found  []string
		reason string
	}{
		"a truncated migration_context": {
			rows:   changed("UPDATE nova_cell1.instance_extra SET migration_context = ? WHERE instance_uuid = ?", `{"nova_object.name": "Migra`, u),
			found:  []string{"gpu1 " + second + " X unknown", "gpu2 " + second + " X unknown"},
			reason: "migration_context is not in Nova's format",
		},
		"pci_requests that are no JSON": {
			rows:   changed("UPDATE nova_cell1.instance_extra SET pci_requests = ? WHERE instance_uuid = ?", `[{"count": "one"`, u),
			found:  []string{"gpu1 " + second + " X unknown", "gpu2 " + second + " X unknown"},
			reason: "pci_requests is not in Nova's format",
		},
		"a migration without dates": {
			rows:   changed("UPDATE nova_cell1.migrations SET created_at = NULL, updated_at = NULL"),
			found:  []string{"gpu1 " + second + " X unknown", "gpu2 " + second + " X unknown"},
			reason: "migration 3 has no time of its last change",
		},
		"a migration without a uuid": {
			rows:   changed("UPDATE nova_cell1.migrations SET uuid = NULL"),
			found:  []string{"gpu1 " + second + " X unknown", "gpu2 " + second + " X unknown"},
			reason: "migration 3 has no uuid",
		},
		"a migration without a status": {
			rows:   changed("UPDATE nova_cell1.migrations SET status = NULL"),
			found:  []string{"gpu1 " + second + " X unknown", "gpu2 " + second + " X unknown"},
			reason: "migration 3 has no status",
		},
		"a migration without hosts": {
			rows: changed("UPDATE nova_cell1.migrations SET source_compute = NULL, source_node = NULL, dest_compute = NULL, dest_node = NULL" + destIs("NULL")),
			// To Nova it goes to no host, and keeps nothing.
			found: []string{"gpu1 " + second + " E stale offline"},
		},
		"an instance whose deleted is NULL": {
			rows:   changed("UPDATE nova_cell1.instances SET deleted = NULL WHERE uuid = ?", u),
			found:  []string{"gpu1 " + second + " X unknown", "gpu2 " + second + " X unknown"},
			reason: "deleted is NULL",
		},
		"two rows of instance_extra": {
			rows: func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
				pinned(t, c, gpu1, gpu2)
				c.Insert(t, "instance_extra", Row{"instance_uuid": u})
			},
			found:  []string{"gpu1 " + second + " X unknown", "gpu2 " + second + " X unknown"},
			reason: "has several rows of instance_extra",
		},
		"shelved and offloaded, with an old migration": {
			rows: func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
				c.Instance(t, u, "", "shelved_offloaded", "")
				c.Card(t, gpu1, second, "allocated", u)
				c.Migration(t, 3, u, "migration", "error", "gpu2", "gpu1")
			},
			found: []string{"gpu1 " + second + " B stale online"},
		},
		"a compute node without a name": {
			rows: func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
				c.Instance(t, u, "gpu2", "active", "")
				c.Card(t, gpu2, second, "allocated", u)
				c.Card(t, c.Compute(t, "gpu4"), second, "allocated", u)
				update(t, "UPDATE nova_cell1.compute_nodes SET host = NULL, hypervisor_hostname = NULL WHERE host = 'gpu4'")
			},
			found: []string{second + " E unknown"},
		},
		"a uuid in capitals": {
			rows: func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
				const lower = "abcdefab-0000-4000-8000-000000000000"
				c.Instance(t, lower, "gpu1", "active", "")
				c.Card(t, gpu1, second, "allocated", strings.ToUpper(lower))
			},
			found:  []string{"gpu1 " + second + " X unknown"},
			reason: "ABCDEFAB-0000-4000-8000-000000000000",
		},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			gpu1, gpu2 := cell.Compute(t, "gpu1", LastSeen(time.Hour)), cell.Compute(t, "gpu2")
			cell.Instance(t, other, "gpu2", "active", "")
			stale := cell.Card(t, gpu1, first, "allocated", beside)
			test.rows(t, cell, gpu1, gpu2)
			root := machine(t)
			args := []string{"--host-is-off", "gpu1"}
			// The stale row beside it comes with each.
			want := append([]string{"gpu1 " + first + " A stale offline"}, test.found...)
			if !strings.HasPrefix(test.found[0], "gpu1") {
				want = append(test.found, want[0])
			}
			found, status := findings(t, root, args...)
			if diff := cmp.Diff(want, found); diff != "" || status != 2 {
				t.Errorf("exit status %d, found (-want +got):\n%s", status, diff)
			}
			stdout, _, _ := repairMigration(t, root, args...)
			hosttest.Contains(t, test.reason, stdout)
			before := cell.Dump(t, "pci_devices")
			_, stderr, _ := repairMigration(t, root, append(args, "--apply", "--yes", "--wait", "1s")...)
			for k, row := range cell.Dump(t, "pci_devices") {
				id := fmt.Sprint(stale)
				if has := cmp.Equal(before[k], row); has == (cell.Dump(t, "pci_devices", "id")[k][0] == id) && strings.Contains(strings.Join(found, " "), "X unknown") {
					t.Errorf("row %d is as it was: %v, %s", k, has, stderr)
				}
			}
		})
	}
}

// TestOddReports: the same of a run that repairs online: what cannot be judged does not
// keep others from being found.
func TestOddReports(t *testing.T) {
	reset(t)
	cell := database.Cell1
	gpu1, gpu2 := cell.Compute(t, "gpu1"), cell.Compute(t, "gpu2")
	for i, c := range []string{"0000:81:00.0", "0000:82:00.0"} {
		cell.Instance(t, UUID(i), "gpu2", "active", "")
		cell.Card(t, gpu1, c, "allocated", UUID(i))
		cell.Card(t, gpu2, c, "allocated", UUID(i))
		cell.Migration(t, 0, UUID(i), "migration", "error", "gpu2", "gpu1")
	}
	update(t, "UPDATE nova_cell1.migrations SET created_at = NULL, updated_at = NULL WHERE id = 1")
	found, _ := findings(t, machine(t), "--guests", evidence.Write(t, evidence.Report("gpu1")), "--guests", evidence.Write(t, evidence.Report("gpu2")))
	want := []string{"gpu1 0000:81:00.0 X unknown", "gpu1 0000:82:00.0 B stale online", "gpu2 0000:81:00.0 X unknown"}
	hosttest.Equal(t, want, found)
}
