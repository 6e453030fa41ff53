package db

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host/hosttest"
)

// poolsOf are the pools of all cells.
func poolsOf(t testing.TB, o find.Options) cleanup.PoolReport {
	t.Helper()
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
	hosttest.NoError(t, err)
	defer databases.Close()
	if o.Down == 0 {
		o.Down = 30 * time.Minute // on a slow machine too, the hosts of a test are up until it ends
	}
	_, report, err := find.RowsAndPools(t.Context(), databases, o, func(cleanup.Finding) {})
	hosttest.NoError(t, err)
	return report
}

// quiet makes all rows old enough to be judged.
func (c *Cell) quiet(t testing.TB) {
	t.Helper()
	statement := fmt.Sprintf("UPDATE %s.pci_devices SET created_at = ?, updated_at = IF(updated_at IS NULL, NULL, ?), deleted_at = IF(deleted_at IS NULL, NULL, ?)", c.Name)
	if _, err := database.SQL.ExecContext(t.Context(), statement, Ago(time.Hour), Ago(time.Hour), Ago(time.Hour)); err != nil {
		t.Fatal(err)
	}
}

// rowsOf makes random rows of a node: cards without SR-IOV on two NUMA nodes or none, and cards
// with it, whose functions are in states that follow from each other or do not.
func rowsOf(t *testing.T, cell *Cell, node int64, r *rand.Rand) {
	t.Helper()
	numa := func() any { return []any{nil, 0, 1}[r.IntN(3)] }
	for i := range r.IntN(5) {
		status, owner := "available", ""
		if r.IntN(3) == 0 {
			status, owner = "allocated", UUID(1)
		}
		cell.Card(t, node, fmt.Sprintf("0000:%02x:00.0", i), status, owner, Row{"numa_node": numa()})
	}
	any := []string{"available", "available", "unavailable", "unclaimable"}
	for i := range r.IntN(3) {
		pf, side := fmt.Sprintf("0000:%02x:00.0", 0x80+i), numa()
		cell.Card(t, node, pf, any[r.IntN(4)], "", PF(), Row{"numa_node": side})
		for k := range r.IntN(4) {
			cell.Card(t, node, fmt.Sprintf("0000:%02x:01.%d", 0x80+i, k), any[r.IntN(4)], "", VF(pf), Row{"numa_node": side})
		}
	}
}

// TestPoolsOfTracker: a node is found exactly if Nova's tracker, when it loads the rows, counts
// other free devices than pci_stats has; never after the tracker has written both, whatever it
// has claimed, allocated and freed.
func TestPoolsOfTracker(t *testing.T) {
	const count = 24
	reset(t)
	cell := database.Cell1
	cell.Instance(t, UUID(1), "gpu0", "active", "", Asks("K4200:5"))
	r := rand.New(rand.NewPCG(1, uint64(time.Now().Unix())))
	var nodes []int64
	names := map[int64]string{}
	guests, refused := 0, 0
	for i := range count {
		name := fmt.Sprintf("gpu%d", i)
		node := cell.Compute(t, name)
		nodes, names[node] = append(nodes, node), name
		rowsOf(t, cell, node, r)
		if tracked := database.TrackAndSave(t, cell, node, cell.Reported(t, node)); tracked.Error != "" {
			t.Fatalf("%s: %s", tracked.Error, tracked.Message)
		}
		var churned struct{ Guests, Refused int }
		database.compose(t, map[string]any{"ask": "churn", "database": cell.connection, "compute_node_id": node, "seed": r.IntN(1 << 30), "steps": 12,
			"aliases": []string{"K4200:1", "K4200:2", "flex:1", "flex-vf:1", "flex-vf:2"}}, &churned)
		guests, refused = guests+churned.Guests, refused+churned.Refused
	}
	if guests < count/4 || refused == 0 {
		t.Errorf("%d guests, %d refused", guests, refused)
	}
	cell.quiet(t)
	if report := poolsOf(t, find.Options{}); len(report.Findings) > 0 || report.Nodes != count || !report.Judged {
		t.Fatalf("of what Nova has written: %+v", report)
	}
	// Something else changes rows, or nova-compute dies between the one and the other.
	for _, node := range nodes {
		if r.IntN(4) == 0 {
			continue
		}
		change := []string{
			"status = 'available', instance_uuid = NULL, request_id = NULL", "status = 'unavailable'", "deleted = id", "numa_node = 1 - COALESCE(numa_node, 0)",
			"product_id = '11b5', deleted = id", "dev_type = 'type-PF'", "status = 'available', instance_uuid = NULL, numa_node = NULL",
		}[r.IntN(7)]
		statement := fmt.Sprintf("UPDATE %s.pci_devices SET %s WHERE compute_node_id = ? AND deleted = 0 ORDER BY RAND(?) LIMIT 2", cell.Name, change)
		if _, err := database.SQL.ExecContext(t.Context(), statement, node, r.IntN(1000)); err != nil {
			t.Fatal(err)
		}
	}
	type pools struct{ Loaded, Recorded []Pool }
	var oracle struct{ Nodes []pools }
	database.compose(t, map[string]any{"ask": "recorded", "database": cell.connection, "nodes": nodes}, &oracle)
	want := map[string]string{}
	for i, n := range oracle.Nodes {
		if text := differences(n.Loaded, n.Recorded); text != "" {
			want[names[nodes[i]]] = text
		}
	}
	got := map[string]string{}
	for _, f := range poolsOf(t, find.Options{}).Findings {
		var loaded, recorded []Pool
		for _, p := range f.Pools {
			pool := Pool{Product: p.Vendor + ":" + p.Product, Type: p.Type, NUMA: p.NUMA}
			pool.Count = p.Free
			loaded = append(loaded, pool)
			pool.Count = p.Recorded
			recorded = append(recorded, pool)
		}
		got[f.Host] = differences(loaded, recorded)
	}
	hosttest.EqualIn(t, "Nova and gpustack", want, got)
	t.Logf("%d guests, %d refused; %d of %d nodes differ", guests, refused, len(want), count)
	if len(want) < 3 || len(want) > count-2 {
		t.Errorf("%d of %d nodes differ", len(want), count)
	}
	// A restart of nova-compute, as the steps say, corrects them all; a second one what the first
	// itself counts twice: the audit that frees the last VF of a PF adds the PF to its pool even if
	// the rows, contradictory as they are here, have it there already (nova/pci/stats.py).
	restart := func(node int64) {
		if tracked := database.TrackAndSave(t, cell, node, cell.Reported(t, node)); tracked.Error != "" {
			t.Fatalf("%s: %s", tracked.Error, tracked.Message)
		}
	}
	for _, node := range nodes {
		restart(node)
	}
	cell.quiet(t)
	for _, f := range poolsOf(t, find.Options{}).Findings {
		for node, name := range names {
			if name == f.Node {
				restart(node)
			}
		}
	}
	cell.quiet(t)
	if report := poolsOf(t, find.Options{}); len(report.Findings) > 0 {
		t.Errorf("after a restart: %+v", report)
	}
}

// differences are the counts of pools that two lists do not agree in, as text.
func differences(loaded, recorded []Pool) string {
	count := func(pools []Pool) map[string]int {
		counts := map[string]int{}
		for _, p := range pools {
			key, _ := json.Marshal(Pool{Product: p.Product, Type: p.Type, NUMA: p.NUMA})
			counts[string(key)] += p.Count
		}
		return counts
	}
	a, b := count(loaded), count(recorded)
	var all []string
	for _, key := range slices.Sorted(maps.Keys(a)) {
		if a[key] != b[key] {
			all = append(all, fmt.Sprintf("%s %d %d", key, a[key], b[key]))
		}
		delete(b, key)
	}
	for _, key := range slices.Sorted(maps.Keys(b)) {
		if b[key] != 0 {
			all = append(all, fmt.Sprintf("%s 0 %d", key, b[key]))
		}
	}
	slices.Sort(all)
	return strings.Join(all, "\n")
}

// TestPools: which nodes are judged, of real rows, and what the binary says.
func TestPools(t *testing.T) {
	reset(t)
	cell := database.Cell1
	old := Row{"updated_at": Ago(time.Hour)}
	stats := func(node int64, text any) {
		t.Helper()
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.compute_nodes SET pci_stats = ? WHERE id = ?", text, node); err != nil {
			t.Fatal(err)
		}
	}
	for host, set := range map[string]struct {
		options []HostOption
		row     Row
		stats   any
	}{
		"differs":  {nil, old, "[]"},
		"down":     {[]HostOption{LastSeen(time.Hour)}, old, "[]"},
		"deleted":  {[]HostOption{ServiceDeleted(time.Hour)}, old, "[]"},
		"changing": {nil, Row{"updated_at": Ago(4 * time.Minute)}, "[]"},
		"removed":  {nil, Row{"updated_at": Ago(time.Hour), "deleted": itsID{}, "deleted_at": Ago(time.Minute)}, `[{"vendor_id": "10de", "product_id": "11b4", "numa_node": null, "dev_type": "type-PCI", "count": 1}]`},
		"null":     {nil, old, nil},
		"broken":   {nil, old, "{"},
		"agrees":   {nil, old, `[{"vendor_id": "10de", "product_id": "11b4", "numa_node": null, "dev_type": "type-PCI", "count": 1}]`},
	} {
		node := cell.Compute(t, host, set.options...)
		cell.Card(t, node, first, "available", "", set.row)
		stats(node, set.stats)
	}
	report := poolsOf(t, find.Options{})
	var got []string
	for _, f := range report.Findings {
		text := f.Host + " " + string(f.Verdict) + ": " + f.Reason
		if f.Verdict == cleanup.Unknown && len(f.Steps) > 0 {
			text += ": " + f.Steps.String()
		}
		got = append(got, text)
	}
	differ := "pci_stats has 0 free 10de:11b4 type-PCI, the rows have 1"
	want := []string{
		"differs suspicious: " + differ,
		"broken unknown: pci_stats: unexpected end of JSON input",
		"changing unknown: " + differ + ", but a row of the node changed 4 min ago: run gpustack repair-migration again in 5m0s",
		"down unknown: " + differ + ", but nova-compute on down last seen 60 min ago: nova-scheduler does not use the node, and nova-compute corrects them when it starts",
		"null unknown: pci_stats is NULL, although the node has free devices",
		"removed unknown: pci_stats has 1 free 10de:11b4 type-PCI, the rows have 0, but a row of the node changed 1 min ago: run gpustack repair-migration again in 5m0s",
	}
	for i := range got {
		got[i] = strings.Replace(got[i], "last seen 1 h ago", "last seen 60 min ago", 1)
	}
	if diff := cmp.Diff(want, got); diff != "" || report.Nodes != 7 {
		t.Errorf("%d nodes (-want +got):\n%s", report.Nodes, diff)
	}
	if report := poolsOf(t, find.Options{Host: "AGREES"}); report.Nodes != 1 || len(report.Findings) > 0 {
		t.Errorf("--host: %+v", report)
	}
	root := machine(t)
	for _, test := range []struct {
		args   []string
		status int
		say    string
	}{
		{nil, 2, "differs pci_stats  SUSPICIOUS (case O)\n  why     " + differ},
		{[]string{"--host", "agrees"}, 0, "pools of 1 compute nodes: 0 suspicious, 0 not judged\n"},
		{[]string{"--device", first, "--host", "agrees"}, 0, "pools not judged: only the rows of one instance or device were selected\n"},
		{[]string{"--host", "broken", "-o", "json"}, 0, `"reason":"pci_stats: unexpected end of JSON input","consequence":"","steps":""}],"suspicious":0,"unknown":1`},
	} {
		stdout, stderr, status := repairMigration(t, root, test.args...)
		if status != test.status || !strings.Contains(stdout, test.say) {
			t.Errorf("%q: exit status %d, %s%s", test.args, status, stdout, stderr)
		}
	}
}

// TestPoolsOfManyNodes: where the pools of all nodes differ, the report lists some and counts all,
// and the number of statements does not grow with that of nodes.
func TestPoolsOfManyNodes(t *testing.T) {
	w := world{nodes: 5000, instances: 10_000, migrations: 15_000, stale: 20}
	w.make(t)
	execInCell1(t, "UPDATE compute_nodes SET pci_stats = '[]'", "UPDATE services SET last_seen_up = UTC_TIMESTAMP() + INTERVAL IF(id <= 4000, 1, -1) DAY",
		"UPDATE pci_devices SET numa_node = 2 WHERE compute_node_id = 3000")
	root := machine(t)
	var out, stderr string
	var status int
	statements := logged(t, func() { out, stderr, status = repairMigration(t, root, "-o", "json") })
	var report struct{ Pools cleanup.PoolReport }
	if err := json.Unmarshal([]byte(out), &report); err != nil || status != 2 {
		t.Fatalf("exit status %d, %v\n%s", status, err, stderr)
	}
	p := report.Pools
	got := fmt.Sprint(p.Nodes, len(p.Findings), p.Suspicious, p.Unknown)
	hosttest.Equal(t, "5000 200 4000 1000", got)
	if len(statements) > 60 {
		t.Errorf("%d statements", len(statements))
	}
	for _, statement := range statements {
		for _, row := range database.find(t, "EXPLAIN "+statement) {
			if strings.Contains(row[9], "filesort") || strings.Contains(row[9], "temporary") {
				t.Errorf("%.200s\n%s", statement, row)
			}
		}
	}
	table, _, status := repairMigration(t, root)
	for _, line := range []string{
		"\npools of 5000 compute nodes: 4000 suspicious, 1000 not judged\n",
		"\n  4800 of them are not listed\n",
	} {
		if !strings.Contains(table, line) || status != 2 {
			t.Errorf("exit status %d, no %q in\n%.3000s", status, line, table)
		}
	}
}
