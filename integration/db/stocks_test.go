package db

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host/hosttest"
)

// TestStocks: what nova-compute has reported, the rows, and which of them are
// stale, of live nodes of all cells or of one host.
func TestStocks(t *testing.T) {
	reset(t)
	cell := database.Cell1
	const pools = `[{"vendor_id": "10de", "product_id": "11b4", "numa_node": 1, "dev_type": "type-PCI", "count": 2}]`
	const topology = `{"nova_object.name": "NUMATopology"}`
	for host, stats := range map[string]any{"agrees": pools, "broken": "{", "null": nil, "stale": "[]", "none": "[]"} {
		node := cell.Compute(t, host)
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.compute_nodes SET pci_stats = ? WHERE id = ?", stats, node); err != nil {
			t.Fatal(err)
		}
		if host == "agrees" {
			update(t, "UPDATE nova_cell1.compute_nodes SET numa_topology = ?, cpu_allocation_ratio = 4 WHERE id = ?", topology, node)
		}
		switch host {
		case "none":
		case "stale": // its instance was purged
			cell.Card(t, node, first, "allocated", UUID(1), Row{"updated_at": Ago(time.Hour)})
			database.API.Insert(t, "instance_mappings", Row{"instance_uuid": UUID(1), "cell_id": cell.id, "project_id": "p", "user_id": "u", "queued_for_delete": true})
		default:
			cell.Card(t, node, first, "available", "", Row{"updated_at": Ago(time.Hour), "numa_node": 1})
			cell.Card(t, node, "0000:ff:00.0", "available", "", Row{"deleted": itsID{}, "deleted_at": Ago(time.Hour)})
		}
	}
	update(t, "UPDATE nova_cell1.compute_nodes SET deleted = id WHERE id = ?", cell.Compute(t, "gone"))
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
	hosttest.NoError(t, err)
	defer databases.Close()
	read := func(host string) (lines []string) {
		all, _, err := find.Stocks(t.Context(), databases, find.Options{Host: host, Down: 30 * time.Minute})
		hosttest.NoError(t, err)
		for _, s := range all {
			line := fmt.Sprintf("%s %s", s.Cell, s.Node)
			if s.Host != s.Node || s.UUID == "" {
				t.Errorf("%+v", s)
			}
			for _, r := range s.Rows {
				line += fmt.Sprintf(", %s %s:%s %s", r.Address, r.Vendor, r.Product, r.Status)
				if r.NUMA != nil {
					line += fmt.Sprintf(" on node %d", *r.NUMA)
				}
				if r.Finding != nil {
					line += " " + string(r.Finding.Verdict)
				}
			}
			lines = append(lines, line)
		}
		slices.Sort(lines)
		return lines
	}
	all, _, err := find.Stocks(t.Context(), databases, find.Options{Host: "agrees", Down: 30 * time.Minute})
	if err != nil || len(all) != 1 {
		t.Fatal(err, all)
	}
	if c := all[0].Columns; string(c.PCIStats) != pools || string(c.Topology) != topology || c.CPURatio != 4 || c.Hypervisor == "" {
		t.Errorf("columns: %s, %+v", c.Topology, c)
	}
	row := ", " + first + " 10de:11b4 "
	want := []string{
		"cell1 agrees" + row + "available on node 1",
		"cell1 broken" + row + "available on node 1",
		"cell1 none",
		"cell1 null" + row + "available on node 1",
		"cell1 stale" + row + "allocated stale",
	}
	hosttest.Equal(t, want, read(""))
	// Nova compares the names of hosts in SQL, whatever their letters.
	hosttest.EqualIn(t, "one host", want[4:], read(strings.ToUpper("stale")))
}
