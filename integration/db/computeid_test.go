package db

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
)

// TestComputeIDOfDestination: a migration names its destination twice, by dest_compute and
// dest_node and by dest_compute_id. Where the two differ, the rows on either node are unknown.
func TestComputeIDOfDestination(t *testing.T) {
	addComputeIDs(t)
	reset(t)
	cell, u, old := database.Cell1, UUID(1), Row{"updated_at": Ago(time.Hour)}
	nodes := map[string]int64{}
	for _, host := range []string{"gpu1", "gpu2", "gpu3"} {
		nodes[host] = cell.Compute(t, host)
		cell.Card(t, nodes[host], first, "allocated", u, old)
	}
	cell.Instance(t, u, "gpu1", "active", "")
	cell.Migration(t, 3, u, "migration", "error", "gpu1", "gpu2", old)
	judged := func(host string) []string {
		args := []string{"--host", host}
		for name := range nodes {
			args = append(args, "--guests", evidence.Write(t, evidence.Report(name)))
		}
		found, _ := findings(t, machine(t), args...)
		return found
	}
	set := func(id any) {
		t.Helper()
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.migrations SET dest_compute_id = ?", id); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []any{nil, nodes["gpu2"]} {
		set(id)
		if found := judged("gpu3"); len(found) != 1 || strings.Contains(found[0], "unknown") {
			t.Errorf("dest_compute_id %v: %q", id, found)
		}
	}
	set(nodes["gpu3"])
	want := fmt.Sprintf(`migration 3 has dest_compute_id %d, which is node "gpu3" of host "gpu3", but its host is "gpu2" and its node "gpu2"`, nodes["gpu3"])
	for _, host := range []string{"gpu2", "gpu3"} {
		if found := judged(host); len(found) != 1 || !strings.Contains(found[0], "X unknown") {
			t.Errorf("%s: %q", host, found)
		}
	}
	if out, _, _ := repairMigration(t, machine(t), "-o", "json", "--host", "gpu3"); !strings.Contains(out, strings.ReplaceAll(want, `"`, `\"`)) {
		t.Errorf("no %q in\n%s", want, out)
	}
}

// TestComputeIDOfAllocations: allocations of an instance whose compute_id contradicts its host and
// node are unknown, as its rows are, and so are those that depend on where a migration goes.
func TestComputeIDOfAllocations(t *testing.T) {
	addComputeIDs(t)
	u, old := UUID(1), Row{"updated_at": Ago(time.Hour)}
	for name, test := range map[string]struct {
		instance, dest string // the node that the id is of; "": NULL
		holds          []string
		want           []string
	}{
		"not yet written":            {holds: []string{"gpu1", "gpu1/1"}},
		"as it should be":            {instance: "gpu1", holds: []string{"gpu1", "gpu1/1"}},
		"as it should be, elsewhere": {instance: "gpu1", holds: []string{"gpu1", "gpu3/1"}, want: []string{"gpu3_0000:84:00.0 suspicious: the instance is on gpu1, and no open migration of it is to or from gpu3"}},
		"of another node": {instance: "gpu3", holds: []string{"gpu1/1", "gpu3/1"}, want: []string{
			`gpu1_0000:84:00.0 unknown: instance ` + u + ` has compute_id 3, which is node "gpu3" of host "gpu3", but its host is "gpu1" and its node "gpu1"`,
			`gpu3_0000:84:00.0 unknown: instance ` + u + ` has compute_id 3, which is node "gpu3" of host "gpu3", but its host is "gpu1" and its node "gpu1"`,
		}},
		"of no node": {instance: "99", holds: []string{"gpu1", "gpu1/1"}, want: []string{
			`gpu1_0000:84:00.0 unknown: instance ` + u + ` has compute_id 99, which no compute node has; its host is "gpu1" and its node "gpu1"`,
		}},
		"the migration's": {instance: "gpu1", dest: "gpu2", holds: []string{"gpu1/1", "gpu2/1"}},
		"the migration's is another": {instance: "gpu1", dest: "gpu3", holds: []string{"gpu2/1", "gpu3/1"}, want: []string{
			`gpu2_0000:84:00.0 unknown: migration 3 has dest_compute_id 3, which is node "gpu3" of host "gpu3", but its host is "gpu2" and its node "gpu2"`,
			`gpu3_0000:84:00.0 unknown: migration 3 has dest_compute_id 3, which is node "gpu3" of host "gpu3", but its host is "gpu2" and its node "gpu2"`,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			ids := map[string]any{"99": 99}
			for _, host := range []string{"gpu1", "gpu2", "gpu3"} {
				ids[host] = cell.Compute(t, host)
			}
			s := newShelf(t, "gpu1", "gpu2", "gpu3")
			cell.Instance(t, u, "gpu1", "active", "", With(old))
			if test.dest != "" {
				cell.Migration(t, 3, u, "migration", "migrating", "gpu1", "gpu2", old)
			}
			for statement, id := range map[string]any{"instances SET compute_id": ids[test.instance], "migrations SET dest_compute_id": ids[test.dest]} {
				if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1."+statement+" = ?", id); err != nil {
					t.Fatal(err)
				}
			}
			s.hold(u, test.holds...)
			databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
			hosttest.NoError(t, err)
			defer databases.Close()
			report, unread, err := find.Allocations(t.Context(), databases, find.Options{Proof: proof(t, evidence.Report("gpu1"), evidence.Report("gpu2"), evidence.Report("gpu3"))}, s)
			if err != nil || unread != nil || !report.Judged {
				t.Fatalf("%v, %v, %+v", err, unread, report)
			}
			var got []string
			for _, f := range report.Findings {
				got = append(got, fmt.Sprintf("%s %s: %s", f.Name, f.Verdict, f.Reason))
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

// idIs is what a statement that changes instances.host and node sets as well, to an SQL expression
// for the id of the new node, as Nova does since 2023.2: "" where the schema has no compute_id.
func idIs(id string) string { return setIfThere("instances", "compute_id", id) }

// destIs is the same for migrations.dest_compute and dest_node.
func destIs(id string) string { return setIfThere("migrations", "dest_compute_id", id) }

func setIfThere(table, name, value string) string {
	if !database.Cell1.has(table, name) {
		return ""
	}
	return ", " + name + " = " + value
}
