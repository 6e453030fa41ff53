package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
)

// TestInventorySpecs: of what nova configure writes from inventories alone, Nova matches on each of
// their hosts the functions for guests and no identical one that remains with the host.
func TestInventorySpecs(t *testing.T) {
	peer := startAnswerer(t, "ask_nova.py")
	// inventory writes what host scan prints on a host with K4200s of these roles, and returns its
	// functions.
	inventory := func(t *testing.T, dir, host string, roles map[string]string) []pciDevice {
		var devices []pciDevice
		for address := range roles {
			devices = append(devices, pciDevice{Address: address, Vendor: "10de", Product: "11b4", Type: "type-PCI", class: "0x030000"})
		}
		root := layMachine(t, devices, map[string]string{"etc/hostname": host + "\n"})
		var document map[string]any
		hosttest.NoError(t, json.Unmarshal([]byte(run(t, gpustack, "host", "scan", "--root", root, "-o", "json")), &document))
		for _, d := range document["devices"].([]any) {
			device := d.(map[string]any)
			device["role"] = roles[device["address"].(string)]
		}
		text, err := json.Marshal(document)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, host+".json"), text, 0o600)
		}
		hosttest.NoError(t, err)
		return devices
	}
	const a, b, c = "0000:84:00.0", "0000:88:00.0", "0000:8c:00.0"
	for name, hosts := range map[string]map[string]map[string]string{
		"all for guests":           {"gpu1": {a: "guest", b: "guest"}},
		"a console":                {"gpu1": {a: "host", b: "guest"}},
		"containers":               {"gpu1": {a: "container", b: "guest", c: "host"}},
		"two equal hosts":          {"gpu1": {a: "guest", b: "guest"}, "gpu2": {a: "guest", b: "guest"}},
		"two equal consoles":       {"gpu1": {a: "host", b: "guest"}, "gpu2": {a: "host", b: "guest"}},
		"a console of one":         {"gpu1": {a: "host", b: "guest"}, "gpu2": {b: "guest", c: "guest"}},
		"another size and console": {"gpu1": {a: "host", b: "guest", c: "guest"}, "gpu2": {b: "guest"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			devices := map[string][]pciDevice{}
			for host, roles := range hosts {
				devices[host] = inventory(t, dir, host, roles)
			}
			root := layMachine(t, nil, map[string]string{"etc/nova/nova.conf": "[pci]\n", "etc/hostname": "laptop\n"})
			run(t, gpustack, "nova", "configure", "--root", root, "--role", "compute", "--release", "zed", "--inventory", dir, "--yes")
			file := filepath.Join(root, "etc/nova/nova.conf")
			for host, functions := range devices {
				first, problem := firstMatches(t, peer, file, functions)
				if problem != "" {
					t.Fatalf("Nova: %s\n%s", problem, hosttest.Read(t, file))
				}
				var got, want []string
				for address, role := range hosts[host] {
					if role == "guest" {
						want = append(want, address)
					}
					if first[address] != nil {
						got = append(got, address)
					}
				}
				slices.Sort(got)
				slices.Sort(want)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("%s (-want +got):\n%s\n%s", host, diff, hosttest.Read(t, file))
				}
				if out := run(t, gpustack, "nova", "check", "--root", root, "--conf", "compute=/etc/nova/nova.conf", "--release", "zed", "--inventory",
					filepath.Join(dir, host+".json")); !strings.Contains(out, "no problems found") {
					t.Errorf("nova check: %s", out)
				}
			}
		})
	}
}
