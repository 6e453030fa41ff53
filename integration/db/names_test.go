package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
)

// collate gives columns of cell1 another collation for the rest of the test.
func collate(t *testing.T, collation string, columns ...string) {
	t.Helper()
	for _, column := range columns {
		table, name, _ := strings.Cut(column, ".")
		var before string // it depends on the server's release
		hosttest.NoError(t, database.SQL.QueryRowContext(t.Context(), "SELECT collation_name FROM information_schema.columns "+
			"WHERE table_schema = 'nova_cell1' AND table_name = ? AND column_name = ?", table, name).Scan(&before))
		alter := func(ctx context.Context, collation string) error {
			statement := fmt.Sprintf("ALTER TABLE nova_cell1.%s MODIFY %s VARCHAR(255) CHARACTER SET %s COLLATE %s", table, name, strings.SplitN(collation, "_", 2)[0], collation)
			if _, err := database.SQL.ExecContext(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
			return nil
		}
		hosttest.NoError(t, alter(t.Context(), collation))
		t.Cleanup(func() {
			// Rows that are equal in the old collation must not be in its way.
			ctx := context.WithoutCancel(t.Context())
			if err := errors.Join(database.Reset(ctx), alter(ctx, before)); err != nil {
				t.Error(err)
			}
		})
	}
}

// hostColumns are the columns in which Nova looks for a host or a node.
var hostColumns = []string{
	"compute_nodes.host", "compute_nodes.hypervisor_hostname", "services.host", "instances.host", "instances.node",
	"migrations.source_compute", "migrations.source_node", "migrations.dest_compute", "migrations.dest_node",
}

// TestNames: hosts and nodes are the same if the database says so, for Nova asks the
// database. Nova's own tracker says whether it would free the first row of the node.
func TestNames(t *testing.T) {
	u := UUID(1)
	down, up := LastSeen(time.Hour), Service(Row{})
	report := func(t *testing.T, name string, stopped bool) string {
		r := evidence.Report(name)
		if stopped {
			evidence.Stopped(&r)
		}
		return evidence.Write(t, r)
	}
	off := func(host string) func(*testing.T) []string {
		return func(*testing.T) []string { return []string{"--host-is-off", host} }
	}
	gpu2 := func(t *testing.T, c *Cell) {
		c.Compute(t, "gpu2")
		c.Instance(t, UUID(9), "gpu2", "active", "")
	}
	// ownerless has a card of the node allocated to an instance that no host has.
	ownerless := func(t *testing.T, c *Cell, node int64) {
		t.Helper()
		gpu2(t, c)
		c.Card(t, node, first, "allocated", u)
	}
	// alive is an instance on a host, with a card of the node in a status.
	alive := func(host, status string, options ...InstanceOption) func(*testing.T, *Cell, int64) {
		return func(t *testing.T, c *Cell, node int64) {
			t.Helper()
			gpu2(t, c)
			c.Instance(t, u, host, "active", "", options...)
			c.Card(t, node, first, status, u)
		}
	}
	// elsewhere is an instance on gpu2 with a card there and one on the node.
	elsewhere := func(t *testing.T, c *Cell, node int64) {
		t.Helper()
		there := c.Compute(t, "gpu2")
		c.Instance(t, u, "gpu2", "active", "")
		c.Card(t, there, first, "allocated", u)
		c.Card(t, node, first, "allocated", u)
	}
	type test struct {
		host    string     // of the node; "dead" if nothing is said
		service HostOption // down if nothing is said
		bytes   []string   // columns that compare bytes
		rows    func(t *testing.T, c *Cell, node int64)
		args    func(t *testing.T) []string
		found   []string // before --apply
		reason  []string // parts of the first finding's reason
		frees   bool     // whether Nova would free the row of first
		writes  bool     // whether --apply writes it
	}
	tests := map[string]test{
		// Each of these instances lives on the node.
		"instances.host in other letters": {
			rows: alive("DEAD", "allocated"),
			args: off("dead"), found: []string{},
		},
		"compute_nodes.host in other letters": {
			host: "DEAD",
			rows: alive("dead", "allocated"),
			args: off("DEAD"), found: []string{},
		},
		"and the operator's word too": {
			rows: alive("Dead", "allocated"),
			args: off("DEAD"), found: []string{},
		},
		"instances.node in other letters": {
			rows: alive("dead", "allocated", With(Row{"node": "DEAD"})),
			args: off("dead"), found: []string{},
		},
		"instances.host with a trailing blank": {
			rows: alive("dead ", "allocated"),
			args: off("dead"), found: []string{},
		},
		"instances.host with an accent": {
			rows: alive("déad", "allocated"),
			args: off("dead"), found: []string{},
		},
		"a free row, and its owner is on the node in other letters": {
			rows: alive("DEAD", "available"),
			args: off("dead"), found: []string{"dead " + first + " H unknown"},
		},
		// These do not, for the columns were given a collation that tells letters apart.
		"instances compare bytes": {
			bytes: hostColumns,
			rows:  alive("DEAD", "allocated"),
			args:  off("dead"), found: []string{"dead " + first + " E stale offline"}, frees: true, writes: true,
		},
		"all columns compare bytes": {
			bytes: hostColumns,
			rows: func(t *testing.T, c *Cell, node int64) {
				c.Compute(t, "DEAD")
				c.Instance(t, u, "DEAD", "active", "")
				c.Card(t, node, first, "allocated", u)
			},
			args: off("dead"), found: []string{"dead " + first + " E stale offline"}, frees: true, writes: true,
		},
		// nova-compute of the node reports: nothing is written beside it.
		"services.host in other letters": {
			service: Service(Row{"host": "DEAD"}),
			rows:    ownerless,
			args:    func(t *testing.T) []string { return []string{"--guests", report(t, "dead", false)} },
			found:   []string{"dead " + first + " A stale nova"}, frees: true,
		},
		"compute_nodes.host in other letters than services.host": {
			host: "DEAD", service: Service(Row{"host": "dead"}),
			rows:  ownerless,
			args:  func(t *testing.T) []string { return []string{"--guests", report(t, "dead", false)} },
			found: []string{"DEAD " + first + " A stale nova"}, frees: true,
		},
		// Reports.
		"a report in other letters proves absence": {
			rows:  ownerless,
			args:  func(t *testing.T) []string { return []string{"--guests", report(t, "DEAD", true)} },
			found: []string{"dead " + first + " A stale offline"}, frees: true, writes: true,
		},
		"a report of another host, as the database has it": {
			bytes: hostColumns,
			rows: func(t *testing.T, c *Cell, node int64) {
				gpu2(t, c)
				c.Compute(t, "DEAD")
				c.Card(t, node, first, "allocated", u)
			},
			args:  func(t *testing.T) []string { return []string{"--guests", report(t, "DEAD", true)} },
			found: []string{"dead " + first + " A stale offline"}, frees: true,
		},
		"a report in other letters shows the guest": {
			rows: ownerless,
			args: func(t *testing.T) []string {
				return []string{"--guests", evidence.Write(t, evidence.Report("DEAD", evidence.Stopped, evidence.Holds(t, first, u)))}
			},
			found: []string{"dead " + first + " A suspicious"}, frees: true,
		},
		"a guest holds a free card, by a report in other letters": {
			rows: func(t *testing.T, c *Cell, node int64) {
				gpu2(t, c)
				c.Card(t, node, first, "available", "")
			},
			args: func(t *testing.T) []string {
				return []string{"--guests", evidence.Write(t, evidence.Report("DEAD", evidence.Holds(t, first, u)))}
			},
			found: []string{"dead " + first + " L suspicious"},
		},
		// Migrations: what Nova keeps a device for is what its query finds.
		"migrations.dest_compute in other letters": {
			rows: func(t *testing.T, c *Cell, node int64) {
				elsewhere(t, c, node)
				c.Migration(t, 3, u, "migration", "error", "gpu2", "DEAD")
			},
			args: off("dead"), found: []string{"dead " + first + " B stale online"}, reason: []string{"migration 3 (migration) 'error' gpu2->dead keeps the device"},
		},
		"migrations.source_compute in other letters": {
			rows: func(t *testing.T, c *Cell, node int64) {
				elsewhere(t, c, node)
				c.Migration(t, 3, u, "migration", "migrating", "DEAD", "gpu2")
			},
			args: off("dead"), found: []string{"dead " + first + " C unknown"},
		},
		"migrations.dest_node in other letters": {
			rows: func(t *testing.T, c *Cell, node int64) {
				elsewhere(t, c, node)
				c.Migration(t, 3, u, "migration", "error", "gpu2", "dead", Row{"dest_node": "DEAD"})
			},
			args: off("dead"), found: []string{"dead " + first + " B stale online"},
		},
		"an evacuation from a host in other letters": {
			rows: func(t *testing.T, c *Cell, node int64) {
				elsewhere(t, c, node)
				c.Migration(t, 3, u, "evacuation", "done", "DEAD", "gpu2")
			},
			args: off("dead"), found: []string{"dead " + first + " E stale nova"}, frees: true,
		},
		"a report proves for a migration's host in other letters": {
			service: up,
			rows: func(t *testing.T, c *Cell, node int64) {
				elsewhere(t, c, node)
				c.Migration(t, 3, u, "migration", "migrating", "GPU2", "DEAD")
			},
			args: func(t *testing.T) []string {
				return []string{"--guests", report(t, "dead", false), "--guests", report(t, "gpu2", false)}
			},
			found: []string{"dead " + first + " C stale online"},
		},
		// Two hosts of one name: whose rows these are is not known.
		"two hosts of one name": {
			rows: func(t *testing.T, c *Cell, node int64) {
				c.Compute(t, "DEAD", Service(Row{"host": "other"}), Node(Row{"hypervisor_hostname": "dead.example"}))
				c.Instance(t, UUID(9), "gpu2", "active", "")
				c.Card(t, node, first, "allocated", u)
			},
			args: off("dead"), found: []string{"DEAD " + first + " X unknown"}, reason: []string{"dead", "DEAD"}, frees: true,
		},
		"two hosts of one name, and an instance on one": {
			rows: func(t *testing.T, c *Cell, node int64) {
				c.Compute(t, "DEAD", Service(Row{"host": "other"}), Node(Row{"hypervisor_hostname": "dead.example"}))
				c.Instance(t, u, "dead", "active", "")
				c.Card(t, node, first, "allocated", u)
			},
			args: off("dead"), found: []string{"DEAD " + first + " X unknown"}, reason: []string{"dead", "DEAD"},
		},
		"two hosts of one name, and a migration to one": {
			rows: func(t *testing.T, c *Cell, node int64) {
				elsewhere(t, c, node)
				c.Compute(t, "GPU2", Service(Row{"host": "other"}), Node(Row{"hypervisor_hostname": "gpu2.example"}))
				c.Migration(t, 3, u, "migration", "error", "dead", "gpu2")
			},
			args: off("dead"), found: []string{"GPU2 " + first + " X unknown", "dead " + first + " X unknown"}, reason: []string{"gpu2", "GPU2"},
		},
		"one of them deleted is one host": {
			rows: func(t *testing.T, c *Cell, node int64) {
				gpu2(t, c)
				c.Compute(t, "was", ServiceDeleted(time.Hour))
				if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.compute_nodes SET host = 'DEAD', hypervisor_hostname = 'DEAD' WHERE host = 'was'"); err != nil {
					t.Fatal(err)
				}
				c.Instance(t, u, "DEAD", "active", "")
				c.Card(t, node, first, "allocated", u)
			},
			args: off("dead"), found: []string{},
		},
		// The instance is on the host, and Nova's record of its node is not the host's: the
		// guest starts there again.
		"instances.node is NULL": {
			rows: alive("dead", "allocated", With(Row{"node": nil})),
			args: off("dead"), found: []string{"dead " + first + " X unknown"}, reason: []string{u, `host "dead"`, "its node is NULL"}, frees: true,
		},
		"instances.node is the FQDN, of a node that does not exist": {
			rows: alive("DEAD", "allocated", With(Row{"node": "dead.example.org"})),
			args: off("dead"), found: []string{"dead " + first + " X unknown"}, reason: []string{u, `host "dead"`, `its node is "dead.example.org"`}, frees: true,
		},
		"instances.node is a deleted node": {
			rows: func(t *testing.T, c *Cell, node int64) {
				gpu2(t, c)
				c.Compute(t, "was", ServiceDeleted(time.Hour))
				update(t, "UPDATE nova_cell1.compute_nodes SET host = 'dead', hypervisor_hostname = 'dead.example.org' WHERE host = 'was'")
				c.Instance(t, u, "dead", "active", "", With(Row{"node": "dead.example.org"}))
				c.Card(t, node, first, "allocated", u)
			},
			args: off("dead"), found: []string{"dead " + first + " X unknown"}, reason: []string{`its node is "dead.example.org"`}, frees: true,
		},
		"instances.node is another node of the host": {
			rows: func(t *testing.T, c *Cell, node int64) {
				gpu2(t, c)
				c.Compute(t, "was")
				update(t, "UPDATE nova_cell1.compute_nodes SET host = 'dead', hypervisor_hostname = 'second' WHERE host = 'was'")
				c.Instance(t, u, "dead", "active", "", With(Row{"node": "SECOND"}))
				c.Card(t, node, first, "allocated", u)
			},
			args: off("dead"), found: []string{"dead " + first + " E stale offline"}, frees: true, writes: true,
		},
		"instances.node is NULL, on another host that a repair frees": {
			rows: func(t *testing.T, c *Cell, node int64) {
				there := c.Compute(t, "gpu2")
				c.Instance(t, u, "gpu2", "active", "", With(Row{"node": nil}))
				c.Card(t, there, first, "allocated", u)
				c.Card(t, node, first, "allocated", u)
				c.Migration(t, 3, u, "migration", "error", "gpu2", "dead")
			},
			args: func(t *testing.T) []string {
				return []string{"--host-is-off", "dead", "--guests", report(t, "gpu2", false)}
			},
			found: []string{"dead " + first + " X unknown", "gpu2 " + first + " X unknown"}, reason: []string{`host "gpu2"`, "its node is NULL"},
		},
		// Options.
		"--host in other letters": {
			rows:  ownerless,
			args:  func(*testing.T) []string { return []string{"--host", "DEAD", "--host-is-off", "dead"} },
			found: []string{"dead " + first + " A stale offline"}, frees: true, writes: true,
		},
		"--inventory in other letters": {
			rows:  alive("dead", "allocated"),
			args:  func(t *testing.T) []string { return []string{"--inventory", inventory(t, "DEAD", second)} },
			found: []string{"dead " + first + " G suspicious"},
		},
		"--inventory by the name in Nova": {
			rows: alive("dead", "allocated"),
			args: func(t *testing.T) []string {
				file := filepath.Join(t.TempDir(), "inventory.json")
				text := fmt.Sprintf(`{"schema": 1, "kind": "host scan", "host": "gpu2", "nova_host": "dead", "scope": "all", "complete": true, "devices": [{"address": %q}], `+
					`"warnings": []}`, second)
				hosttest.NoError(t, os.WriteFile(file, []byte(text), 0o600))
				return []string{"--inventory", file}
			},
			found: []string{"dead " + first + " G suspicious"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			reset(t)
			collate(t, "utf8mb3_bin", test.bytes...)
			cell := database.Cell1
			options := []HostOption{down}
			if test.service != nil {
				options = []HostOption{test.service}
			}
			if test.host == "" {
				test.host = "dead"
			}
			node := cell.Compute(t, test.host, options...)
			test.rows(t, cell, node)
			frees := slices.ContainsFunc(database.Track(t, cell, node, cell.Reported(t, node)).Changes, func(c Change) bool {
				return c == Change{first, "status", "allocated", "available"}
			})
			hosttest.EqualIn(t, "the test is wrong: Nova frees it", test.frees, frees)
			root, args := machine(t), test.args(t)
			stdout, stderr, _ := repairMigration(t, root, append([]string{"-o", "json"}, args...)...)
			var r repairOutput
			if err := json.Unmarshal([]byte(stdout), &r); err != nil {
				t.Fatalf("%s: %v", stderr, err)
			}
			found, _ := findings(t, root, args...)
			if diff := cmp.Diff(test.found, found); diff != "" {
				t.Errorf("found (-want +got):\n%s\n%+v", diff, r.Findings)
			}
			for _, part := range test.reason {
				if len(r.Findings) == 0 || !strings.Contains(r.Findings[0].Reason, part) {
					t.Errorf("no %q in %+v", part, r.Findings)
				}
			}
			before := cell.Dump(t, "pci_devices")
			_, stderr, _ = repairMigration(t, root, append(args, "--apply", "--yes", "--wait", "1s")...)
			if writes := !cmp.Equal(before, cell.Dump(t, "pci_devices")); writes != test.writes {
				t.Errorf("--apply has written: %v, %s", writes, stderr)
			}
			if !test.writes {
				return
			}
			if tracked := database.Track(t, cell, node, cell.Reported(t, node)); tracked.Error != "" || len(tracked.Changes) > 0 {
				t.Errorf("Nova then: %+v", tracked)
			}
		})
	}
}

// TestNamesOutsideCharset: a name that the character set of the columns does not have equals no
// name in them, and does not keep the cell from being judged.
func TestNamesOutsideCharset(t *testing.T) {
	u := UUID(1)
	const foreign = "\u0142" // in no latin1
	for name, test := range map[string]struct {
		args  []string
		found []string
	}{
		"--host-is-off": {args: []string{"--host-is-off", "dead", "--host-is-off", foreign}, found: []string{}},
		"no UTF-8":      {args: []string{"--host-is-off", "dead", "--host-is-off", "de\xffad"}, found: []string{}},
		"--host":        {args: []string{"--host", foreign}, found: []string{}},
		"in letters":    {args: []string{"--host", "DEAD", "--host-is-off", "dead"}},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			collate(t, "latin1_swedish_ci", hostColumns...)
			cell := database.Cell1
			cell.Card(t, cell.Compute(t, "dead", LastSeen(time.Hour)), first, "allocated", u)
			cell.Compute(t, "gpu2")
			cell.Instance(t, UUID(9), "gpu2", "active", "")
			if test.found == nil {
				test.found = []string{"dead " + first + " A stale offline"}
			}
			root := machine(t)
			found, _ := findings(t, root, test.args...)
			hosttest.EqualIn(t, "found", test.found, found)
			if len(test.found) == 0 {
				return
			}
			_, stderr, status := repairMigration(t, root, append(test.args, "--apply", "--yes", "--wait", "1s")...)
			if rows := cell.Dump(t, "pci_devices", "status"); status != 0 || rows[0][0] != "available" {
				t.Errorf("exit status %d, %v\n%s", status, rows, stderr)
			}
			out, err := exec.Command(gpustack, "undo", "--root", root, "--yes").CombinedOutput()
			if rows := cell.Dump(t, "pci_devices", "status"); err != nil || rows[0][0] != "allocated" {
				t.Errorf("undo: %v, %v\n%s", err, rows, out)
			}
		})
	}
}

// TestNamesOfTwoCollations: where columns compare names differently, no row of the cell is judged.
func TestNamesOfTwoCollations(t *testing.T) {
	reset(t)
	collate(t, "utf8mb3_bin", "instances.host", "services.host")
	database.Cell1.Card(t, database.Cell1.Compute(t, "dead", LastSeen(time.Hour)), first, "allocated", UUID(1))
	_, stderr, status := repairMigration(t, machine(t), "--host-is-off", "dead")
	if status != 1 || !strings.Contains(stderr, "utf8mb3_bin of services.host, instances.host") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
}

// inventory is what host scan prints on a machine with one card.
func inventory(t *testing.T, host, address string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "inventory.json")
	text := fmt.Sprintf(`{"schema": 1, "kind": "host scan", "host": %q, "scope": "all", "complete": true, "devices": [{"address": %q}], `+
		`"warnings": []}`, host, address)
	hosttest.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

// TestNamesContradict: a host that is said to be off has not reported, in other letters
// either.
func TestNamesContradict(t *testing.T) {
	reset(t)
	database.Cell1.Compute(t, "dead", LastSeen(time.Hour))
	_, stderr, status := repairMigration(t, machine(t), "--host-is-off", "dead", "--guests", evidence.Write(t, evidence.Report("DEAD")))
	if status != 1 || !strings.Contains(stderr, "host dead is declared off, but a guest report of it was given") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
}

// TestUnknownNames: a name that no cell has is an error, with what is near, instead of a run that
// finds nothing. Reports of a folder may be of other clouds.
func TestUnknownNames(t *testing.T) {
	reset(t)
	cell := database.Cell1
	cell.Card(t, cell.Compute(t, "gpu2", LastSeen(time.Hour)), first, "allocated", UUID(1))
	cell.Instance(t, UUID(1), "gpu2", "active", "")
	report, root := evidence.Write(t, evidence.Report("gpu9")), machine(t)
	for name, test := range map[string]struct {
		args   []string
		status int
		want   string
	}{
		"--host":               {[]string{"--host", "gpu-2"}, 1, "--host: host gpu-2: no cell has it\ngpustack: hint: did you mean gpu2?"},
		"--host, an FQDN":      {[]string{"--host", "gpu2.example.org"}, 1, "did you mean gpu2?"},
		"--host, that is":      {[]string{"--host", "GPU2"}, 0, ""},
		"--host-is-off":        {[]string{"--host-is-off", "gpu-2"}, 1, "--host-is-off: host gpu-2: no cell has it\ngpustack: hint: did you mean gpu2?"},
		"--instance":           {[]string{"--instance", UUID(1)[:35] + "f"}, 1, "did you mean " + UUID(1) + "?"},
		"--instance, that is":  {[]string{"--instance", UUID(1)}, 0, ""},
		"--device":             {[]string{"--device", "0000:84:00.7"}, 1, "--device: 0000:84:00.7: no cell has it\ngpustack: hint: did you mean " + first + "?"},
		"a report":             {[]string{"--guests", report}, 1, "host gpu9: no cell has it"},
		"a report of a folder": {[]string{"--guests", filepath.Dir(report)}, 0, "1 document of hosts that no cell has: gpu9"},
		"an inventory":         {[]string{"--inventory", inventory(t, "gpu9", first)}, 0, "1 document of hosts that no cell has: gpu9"},
	} {
		if _, stderr, status := repairMigration(t, root, test.args...); status != test.status || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: exit status %d: %s", name, status, stderr)
		}
	}
}
