package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud/cloudtest"
)

// configured is nova configure in a remedy.
var configured = host.LazyRegexp(`gpustack (nova configure(?: --placement| --(?:role|alias|remove-alias|release) \S*[^\s,;])*)`)

const (
	aliasA100 = `alias = {"name": "A100", "vendor_id": "10de", "product_id": "20b5", "device_type": "type-PF"}` + "\n"
	specA100  = `device_spec = {"vendor_id": "10de", "product_id": "20b5"}` + "\n"
)

// twoA100 returns the devices of a tree with two A100 for guests, each on a NUMA node of its own.
func twoA100() string {
	var links, files strings.Builder
	for i, address := range []string{"0000:17:00.0", "0000:31:00.0"} {
		dir := "sys/bus/pci/devices/" + address
		fmt.Fprintf(&links, "symlink %[1]s/driver -> ../../drivers/vfio-pci\nsymlink %[1]s/iommu_group -> ../../../../kernel/iommu_groups/%[2]d\n", dir, i)
		for name, text := range map[string]string{"class": "0x030200", "vendor": "0x10de", "device": "0x20b5", "sriov_totalvfs": "16", "sriov_numvfs": "0", "numa_node": fmt.Sprint(i)} {
			fmt.Fprintf(&files, "-- %s/%s --\n%s\n", dir, name, text)
		}
	}
	return links.String() + files.String()
}

// TestPlayedNova: each nova configure that a failure of nova check prints mends the failure, on the
// machine that it was printed for.
func TestPlayedNova(t *testing.T) {
	tree := twoA100()
	const (
		alias, spec = aliasA100, specA100
		filters     = "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"
	)
	for name, test := range map[string]struct{ release, conf string }{
		"no type":                     {"zed", strings.Replace(alias, `, "device_type": "type-PF"`, "", 1) + spec + filters},
		"another type":                {"zed", strings.Replace(alias, "type-PF", "type-VF", 1) + spec + filters},
		"another type, with a policy": {"zed", strings.Replace(alias, `"type-PF"`, `"type-PCI", "numa_policy": "preferred"`, 1) + spec + filters},
		"a mistyped address":          {"zed", alias + `device_spec = {"vendor_id": "10de", "product_id": "20b5", "address": "0000:18:00.0"}` + "\n" + filters},
		"a wildcard of another bus":   {"zed", alias + `device_spec = {"address": "*:02:*.*"}` + "\n" + filters},
		"no device_spec":              {"zed", alias + filters},
		"one_time_use alone":          {"flamingo", alias + `device_spec = {"vendor_id": "10de", "product_id": "20b5", "one_time_use": "true"}` + "\n" + filters},
		"no filter":                   {"zed", alias + spec + "[filter_scheduler]\nenabled_filters = ComputeFilter\n"},
		"a policy without its filter": {"zed", strings.Replace(alias, `"type-PF"`, `"type-PF", "numa_policy": "required"`, 1) + spec + filters},
		"an ignored option":           {"zed", alias + spec + filters + "[DEFAULT]\nenabled_filters = ComputeFilter\n"},
		"a report without Placement":  {"2024.1", alias + spec + filters + "pci_in_placement = true\n"},
		"an alias of nova-api alone":  {"zed", spec + filters + "-- etc/nova/nova-api.conf --\n[pci]\n" + alias},
		"of nova-compute alone":       {"zed", spec + filters + "-- etc/nova/nova-compute.conf --\n[pci]\n" + alias},
		"another policy": {"zed", spec + filters + "-- etc/nova/nova-api.conf --\n[pci]\n" + alias + "-- etc/nova/nova-compute.conf --\n[pci]\n" +
			strings.Replace(alias, `"type-PF"`, `"type-PF", "numa_policy": "preferred"`, 1)},
		"another case": {"zed", spec + filters + "-- etc/nova/nova-api.conf --\n[pci]\n" + alias + "-- etc/nova/nova-compute.conf --\n[pci]\n" +
			strings.Replace(alias, "A100", "a100", 1)},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shape{name: name, root: hosttest.Lay(t, tree+"-- etc/nova/nova.conf --\n[pci]\n"+test.conf)}
			check := func() (seen, remedies []string) {
				var document struct {
					Findings []struct{ Status, Seen, Remedy string }
				}
				o := s.run(t, "nova check --role all -o json --release "+test.release)
				if err := json.Unmarshal([]byte(o.stdout), &document); err != nil {
					t.Fatal(err, o.stderr)
				}
				for _, f := range document.Findings {
					if f.Status == "fail" || f.Status == "warn" {
						seen, remedies = append(seen, f.Seen), append(remedies, f.Remedy)
					}
				}
				return seen, remedies
			}
			seen, remedies := check()
			played := 0
			for i, remedy := range remedies {
				found := configured().FindStringSubmatch(strings.ReplaceAll(remedy, " --root ROOT/", ""))
				if found == nil {
					continue
				}
				played++
				if o := s.run(t, found[1]+" --yes"); o.status != 0 {
					t.Errorf("%s: gpustack %s\n%s%s", seen[i], found[1], o.stdout, o.stderr)
				}
				if again, _ := check(); slices.Contains(again, seen[i]) {
					text, err := os.ReadFile(s.root.Path("/etc/nova/nova.conf"))
					t.Errorf("gpustack %s does not mend: %s\n%s%v", found[1], seen[i], text, err)
				}
			}
			if played == 0 {
				t.Errorf("no remedy of %q is a command: %q", seen, remedies)
			}
		})
	}
}

// ofOpenStack is a command of the OpenStack client in a remedy, and what it changes in a cloud.
var ofOpenStack = host.LazyRegexp(`openstack (?:flavor set --property (\S+)=(\S+) gpu\b|compute service set --(enable|up) gpu1 nova-compute)`)

// TestPlayedExplain: each command that nova explain prints for the first failure of a host, or for
// filters that let it be chosen without a free device, mends it, on the machine and in the cloud that
// it was printed for.
func TestPlayedExplain(t *testing.T) {
	for name, test := range map[string]struct {
		conf   string
		specs  map[string]string // of the flavor, besides two A100
		change func(*cloudtest.Node)
	}{
		"another type":             {strings.Replace(aliasA100, "type-PF", "type-PCI", 1) + specA100, nil, nil},
		"no type":                  {strings.Replace(aliasA100, `, "device_type": "type-PF"`, "", 1) + specA100, nil, nil},
		"no device_spec":           {aliasA100, nil, nil},
		"a mistyped address":       {aliasA100 + strings.Replace(specA100, "}", `, "address": "0000:18:00.0"}`, 1), nil, nil},
		"one of two offered":       {aliasA100 + strings.Replace(specA100, "}", `, "address": "0000:17:00.0"}`, 1), nil, nil},
		"an alias in another case": {aliasA100 + specA100, map[string]string{"pci_passthrough:alias": "a100:2"}, nil},
		"no filter":                {aliasA100 + specA100 + "[filter_scheduler]\nenabled_filters = ComputeFilter\n", nil, nil},
		"an empty filter":          {aliasA100 + specA100 + "[filter_scheduler]\nenabled_filters = ComputeFilter,,PciPassthroughFilter\n", nil, nil},
		"far devices":              {aliasA100 + specA100, map[string]string{"hw:numa_nodes": "1"}, nil},
		"a disabled host":          {aliasA100 + specA100, nil, func(n *cloudtest.Node) { n.Disabled = "new disk" }},
		"a host forced down":       {aliasA100 + specA100, nil, func(n *cloudtest.Node) { n.Forced = true }},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			filters := "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"
			if strings.Contains(test.conf, "enabled_filters") {
				filters = ""
			}
			root := hosttest.Lay(t, twoA100()+"-- proc/sys/kernel/hostname --\ngpu1\n-- etc/nova/nova.conf --\n[DEFAULT]\nhost = gpu1\n[pci]\n"+test.conf+filters)
			c := cloudtest.Start(t, 95)
			flavor := c.Add("5", "gpu", 4, 8192, 20, true, map[string]string{"pci_passthrough:alias": "A100:2"})
			maps.Copy(flavor.Specs, test.specs)
			node := &cloudtest.Node{Name: "gpu1", Zone: "az1", VCPU: 32, Memory: 65536, Disk: 1000}
			if test.change != nil {
				test.change(node)
			}
			c.AddHosts(&cloudtest.Hosts{Nodes: []*cloudtest.Node{node}})
			run := func(line string) (stdout string, status int) {
				o := runProgram(t, "/", trialEnv(t, c, nil), append(strings.Fields(line), "--root", root.Path("/"), "--release", "zed")...)
				if o.status == 1 {
					t.Errorf("gpustack %s:\n%s%s", line, o.stdout, o.stderr)
				}
				return o.stdout, o.status
			}
			inventory := filepath.Join(t.TempDir(), "gpu1.json")
			write(t, inventory, runProgram(t, "/", nil, "host", "scan", "-o", "json", "--root", root.Path("/")).stdout)
			first := func() (seen, remedy string) {
				var report struct {
					Judgements []struct {
						Links []struct{ Link, Status, Seen, Remedy string }
					}
				}
				out, _ := run("nova explain --flavor gpu -o json --conf all=/etc/nova/nova.conf --inventory " + inventory)
				if err := json.Unmarshal([]byte(out), &report); err != nil || len(report.Judgements) != 1 {
					t.Fatalf("%v: %s", err, out)
				}
				for _, l := range report.Judgements[0].Links {
					if l.Status == "fail" || l.Status == "warn" && l.Link == "filters" {
						return l.Seen, l.Remedy
					}
				}
				return "", ""
			}
			seen, remedy := first()
			if of := ofOpenStack().FindStringSubmatch(remedy); of != nil {
				switch {
				case of[1] != "":
					flavor.Specs[of[1]] = of[2]
				case of[3] == "up":
					node.Forced = false
				default:
					node.Disabled = ""
				}
			} else if found := configured().FindStringSubmatch(remedy); found != nil {
				run(found[1] + " --yes")
			} else {
				t.Fatalf("%q: the remedy is no command: %q", seen, remedy)
			}
			if again, other := first(); again != "" {
				t.Errorf("%s does not mend %q: %q (%s)", remedy, seen, again, other)
			}
		})
	}
}
