package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// configured is nova configure in a remedy.
var configured = host.LazyRegexp(`gpustack (nova configure(?: --placement| --(?:role|alias|remove-alias|release) \S*[^\s,;])*)`)

// TestPlayedNova: each nova configure that a failure of nova check prints mends the failure, on the
// machine that it was printed for.
func TestPlayedNova(t *testing.T) {
	var tree strings.Builder
	for i, address := range []string{"0000:17:00.0", "0000:31:00.0"} {
		dir := "sys/bus/pci/devices/" + address
		fmt.Fprintf(&tree, "symlink %[1]s/driver -> ../../drivers/vfio-pci\nsymlink %[1]s/iommu_group -> ../../../../kernel/iommu_groups/%[2]d\n", dir, i)
	}
	for _, address := range []string{"0000:17:00.0", "0000:31:00.0"} {
		fmt.Fprintf(&tree, "-- %[1]s/class --\n0x030200\n-- %[1]s/vendor --\n0x10de\n-- %[1]s/device --\n0x20b5\n-- %[1]s/sriov_totalvfs --\n16\n-- %[1]s/sriov_numvfs --\n0\n",
			"sys/bus/pci/devices/"+address)
	}
	const (
		alias   = `alias = {"name": "A100", "vendor_id": "10de", "product_id": "20b5", "device_type": "type-PF"}` + "\n"
		spec    = `device_spec = {"vendor_id": "10de", "product_id": "20b5"}` + "\n"
		filters = "[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n"
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
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := shape{name: name, root: hosttest.Lay(t, tree.String()+"-- etc/nova/nova.conf --\n[pci]\n"+test.conf)}
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
