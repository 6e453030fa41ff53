package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"gpustack/host/hosttest"
)

// nodes is the folder of real machines as tables of PCI functions. Its README.md names the source
// of each.
const nodes = "testdata/nodes"

// layNodes lays out every table, once for all tests, and returns the roots by table.
var layNodes = sync.OnceValues(func() (map[string]string, error) {
	tables, err := filepath.Glob(nodes + "/*.tsv")
	if err == nil && len(tables) != 52 {
		err = fmt.Errorf("%s: %d tables, want 52", nodes, len(tables))
	}
	roots := map[string]string{}
	for _, table := range tables {
		root := filepath.Join(scratch, "nodes", filepath.Base(table))
		if layErr := layNode(table, root); layErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", table, layErr))
		}
		roots[table] = root
	}
	return roots, err
})

// TestNodeSources: README.md of the tables names the source of each of them, and no other.
func TestNodeSources(t *testing.T) {
	tables, err := filepath.Glob(nodes + "/*.tsv")
	hosttest.NoError(t, err)
	var want, named []string
	for _, table := range tables {
		want = append(want, filepath.Base(table))
	}
	for line := range strings.Lines(hosttest.Read(t, nodes+"/README.md")) {
		if table, source, ok := strings.Cut(strings.TrimPrefix(line, "| "), " | "); ok && strings.HasSuffix(table, ".tsv") {
			if named = append(named, table); strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(source), "|")) == "" {
				t.Errorf("%s: no source", table)
			}
		}
	}
	slices.Sort(named)
	hosttest.EqualIn(t, "(-tables +README.md)", want, named)
}

// TestNodes: each fact that a table states of a real machine is in the JSON.
func TestNodes(t *testing.T) {
	roots, err := layNodes()
	hosttest.NoError(t, err)
	facts := 0
	for table, root := range roots {
		t.Run(filepath.Base(table), func(t *testing.T) {
			var report struct{ Devices []map[string]any }
			hosttest.NoError(t, json.Unmarshal([]byte(run(t, gpustack, "host", "scan", "--all", "-o", "json", "--root", root)), &report))
			scanned := map[string]map[string]any{}
			for _, d := range report.Devices {
				scanned[d["address"].(string)] = d
			}
			rows := parseTable(hosttest.Read(t, table))
			hosttest.EqualIn(t, "functions", len(rows), len(scanned))
			for address, row := range rows {
				d := scanned[address]
				if d == nil {
					t.Errorf("%s is missing", address)
					continue
				}
				for fact, want := range stated(row, rows) {
					facts++
					if got := d[fact]; got != want {
						t.Errorf("%s: %s is %v, want %v", address, fact, got, want)
					}
				}
				sriov := d["sriov"].(map[string]any)
				if total := row["sriov_totalvfs"]; total != "-" && sriov["total_vfs"] != number(t, total) {
					t.Errorf("%s: total_vfs is %v, want %s", address, sriov["total_vfs"], total)
				}
				if pf := row["physfn"]; rows[pf] != nil && (sriov["pf"] != pf || sriov["role"] != "vf" || d["device_type"] != "type-VF") {
					t.Errorf("%s: %v, want a virtual function of %s", address, sriov, pf)
				}
			}
		})
	}
	t.Logf("%d facts", facts)
}

// stated returns the facts that a row states, as JSON has them.
func stated(row map[string]string, rows map[string]map[string]string) map[string]any {
	facts := map[string]any{}
	for column, fact := range map[string]string{
		"vendor": "vendor_id", "device": "product_id", "subvendor": "subsystem_vendor_id", "subdevice": "subsystem_id",
		"revision": "revision", "driver": "driver",
	} {
		if row[column] != "-" {
			facts[fact] = row[column]
		}
	}
	if class := row["class"]; class != "-" {
		facts["class"] = class[:4]
		facts["candidate"] = row["vendor"] == "10de" && (class[:2] == "03" || class[:2] == "12") && rows[row["physfn"]] == nil
	}
	if group := row["iommu_group"]; group != "-" {
		n, _ := strconv.ParseFloat(group, 64)
		facts["iommu_group"] = n
	}
	if node := row["numa_node"]; node == "-1" {
		facts["numa_node"] = nil
	} else if node != "-" {
		n, _ := strconv.ParseFloat(node, 64)
		facts["numa_node"] = n
	}
	if rows[row["parent"]] != nil {
		facts["parent"] = row["parent"]
	}
	return facts
}

func number(t testing.TB, s string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(s, 64)
	hosttest.NoError(t, err)
	return n
}
