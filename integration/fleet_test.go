package integration

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/fleet/fleettest"
	"gpustack/host/hosttest"
)

// TestFleetInventory: Python's parser of YAML, which Ansible uses, reads from fleet plan what a
// static inventory has (ansible, lib/ansible/plugins/inventory/yaml.py): groups with the keys
// hosts and children, whose members are texts with a mapping of variables. Hosts whose names would
// be numbers or truth values are texts too, and all of the plan are in the groups of their waves.
func TestFleetInventory(t *testing.T) {
	dir := t.TempDir()
	names := []string{"gpu-01", "gpu02.example.net", "1e3", "010", "0x1f", "1_000", "no", "null", "2026-11-20", "n"}
	var services []map[string]string
	for _, name := range names {
		host := "host-" + name
		write(t, filepath.Join(dir, "nodes", name+".scan.json"), string(fleettest.New(host, 2).Scan(t)))
		write(t, filepath.Join(dir, "nodes", name+".guests.json"), string(fleettest.New(host, 2).GuestReport(t)))
		services = append(services, map[string]string{"Host": host, "Zone": "az1", "Status": "enabled", "State": "up", "Updated At": "2026-11-20T12:00:00"})
	}
	text, err := json.Marshal(services)
	hosttest.NoError(t, err)
	zones := filepath.Join(dir, "services.json")
	write(t, zones, string(text))
	plan := []string{"fleet", "plan", filepath.Join(dir, "nodes"), "--keep", "16", "--map", zones,
		"--all", "--max-nodes", "2", "--max-age", "1000000h", "-o"}
	cmd := exec.Command("/usr/bin/python3", "-c", "import json, sys, yaml; json.dump(yaml.safe_load(sys.stdin), sys.stdout)")
	cmd.Stdin = strings.NewReader(run(t, gpustack, append(plan, "ansible-inventory")...))
	out, err := cmd.Output()
	hosttest.NoError(t, err)
	var inventory map[string]map[string]map[string]map[string]map[string]struct{} // all, children, group, hosts, host
	if err := json.Unmarshal(out, &inventory); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var report struct {
		Waves []struct {
			Number int
			Nodes  []string `json:"node_names"`
		}
	}
	hosttest.NoError(t, json.Unmarshal([]byte(run(t, gpustack, append(plan, "json")...)), &report))
	want := map[string]map[string]map[string]struct{}{}
	placed := 0
	for _, w := range report.Waves {
		hosts := map[string]struct{}{}
		for _, n := range w.Nodes {
			hosts[strings.TrimPrefix(n, "host-")] = struct{}{}
			placed++
		}
		want[fmt.Sprintf("wave_%02d", w.Number)] = map[string]map[string]struct{}{"hosts": hosts}
	}
	hosttest.EqualIn(t, "plan and inventory", want, inventory["all"]["children"])
	if placed != len(names) || len(report.Waves) < 5 {
		t.Errorf("%d nodes in %d waves", placed, len(report.Waves))
	}
}
