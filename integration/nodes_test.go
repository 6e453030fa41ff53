package integration

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// nodes is a folder of real machines as tables of PCI functions, and mknode the
// program that lays one out. They are not part of the project, and stand beside
// it on some machines only.
const (
	nodes  = "../../shared/fixtures/nodes"
	mknode = "../../shared/fixtures/mknode"
)

// layNodes lays every table out, once for all tests, and returns the roots by
// table: none where the tables are not there.
var layNodes = sync.OnceValues(func() (map[string]string, error) {
	tables, err := filepath.Glob(nodes + "/*.tsv")
	roots := map[string]string{}
	for _, table := range tables {
		root := filepath.Join(scratch, "nodes", filepath.Base(table))
		if out, layErr := exec.Command("python3", mknode, table, root).CombinedOutput(); layErr != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w: %s", table, layErr, out))
		}
		roots[table] = root
	}
	return roots, err
})

// TestNodes: each fact that a table states of a real machine is in the JSON.
func TestNodes(t *testing.T) {
	if _, err := os.Stat(nodes); os.IsNotExist(err) {
		t.Skipf("%s is not there: real machines are not looked at", nodes)
	}
	roots, err := layNodes()
	if err != nil {
		t.Fatal(err)
	}
	facts := 0
	for table, root := range roots {
		t.Run(filepath.Base(table), func(t *testing.T) {
			var report struct{ Devices []map[string]any }
			if err := json.Unmarshal([]byte(run(t, gpustack, "host", "scan", "--all", "-o", "json", "--root", root)), &report); err != nil {
				t.Fatal(err)
			}
			scanned := map[string]map[string]any{}
			for _, d := range report.Devices {
				scanned[d["address"].(string)] = d
			}
			rows := readTable(t, table)
			if len(scanned) != len(rows) {
				t.Errorf("%d functions, want %d", len(scanned), len(rows))
			}
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

// readTable reads a table's rows by address, each by column.
func readTable(t testing.TB, table string) map[string]map[string]string {
	t.Helper()
	text, err := os.ReadFile(table)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	columns := strings.Split(strings.TrimPrefix(lines[0], "#"), "\t")
	rows := map[string]map[string]string{}
	for _, line := range lines[1:] {
		row := map[string]string{}
		for i, value := range strings.Split(line, "\t") {
			row[columns[i]] = value
		}
		rows[row["address"]] = row
	}
	return rows
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
	if err != nil {
		t.Fatal(err)
	}
	return n
}
