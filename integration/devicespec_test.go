package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/nova"
)

// TestAdapterSpecs: of what nova configure --hca writes, Nova matches the VFs of the adapter and no
// other device: neither the physical function, by whose address it would match its VFs too, nor
// those of another adapter of the same product.
func TestAdapterSpecs(t *testing.T) {
	peer := startAnswerer(t, "ask_nova.py")
	devices := append(machine(),
		pciDevice{Address: "0000:b1:00.2", Vendor: "15b3", Product: "101e", Type: "type-VF", Parent: "0000:b1:00.0", class: "0x020000"},
		pciDevice{Address: "0000:c1:00.0", Vendor: "15b3", Product: "a2d6", Type: "type-PF", VFs: 1, class: "0x020000"},
		pciDevice{Address: "0000:c1:00.1", Vendor: "15b3", Product: "101e", Type: "type-VF", Parent: "0000:c1:00.0", class: "0x020000"})
	i := slices.IndexFunc(devices, func(d pciDevice) bool { return d.Address == "0000:b1:00.0" })
	devices[i].VFs = 2
	both := func(tags map[string]any) map[string]map[string]any {
		return map[string]map[string]any{"0000:b1:00.1": tags, "0000:b1:00.2": tags}
	}
	for _, test := range []struct {
		name, release string
		args          []string
		want          map[string]map[string]any
	}{
		{"an alias", "2023.1", []string{"--hca", "0000:b1:00.0=alias:CX6VF"}, both(map[string]any{})},
		{"an alias, by the name of an old release", "ocata", []string{"--hca", "0000:b1:00.0=alias:CX6VF"}, both(map[string]any{})},
		{"ports of a network", "2023.1", []string{"--hca", "0000:b1:00.0=port:net1"}, both(map[string]any{"physical_network": "net1"})},
		{"ports for tunnels", "2023.1", []string{"--hca", "0000:b1:00.0=port"}, both(map[string]any{"physical_network": nil})},
		{"one VF", "2023.1", []string{"--hca", "0000:b1:00.2=alias:CX6VF"}, map[string]map[string]any{"0000:b1:00.2": {}}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := layMachine(t, devices, map[string]string{"etc/nova/nova.conf": "[pci]\n"})
			run(t, gpustack, append([]string{"nova", "configure", "--root", root, "--role", "compute", "--release", test.release, "--yes"}, test.args...)...)
			got, problem := firstMatches(t, peer, filepath.Join(root, "etc/nova/nova.conf"), devices)
			if problem != "" {
				t.Fatalf("Nova: %s\n%s", problem, hosttest.Read(t, filepath.Join(root, "etc/nova/nova.conf")))
			}
			for address, tags := range got {
				if tags == nil {
					delete(got, address)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s\n%s", diff, hosttest.Read(t, filepath.Join(root, "etc/nova/nova.conf")))
			}
		})
	}
}

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

// TestAliasMeaning: two definitions of an alias that have the same meaning are supported by the
// same devices in Nova, whatever their type and NUMA node. Definitions without keys of Placement
// that are supported by the same devices have the same meaning.
func TestAliasMeaning(t *testing.T) {
	peer := startAnswerer(t, "ask_alias.py")
	var plain, all []map[string]any
	for _, kind := range []string{"", "type-PCI", "type-PF", "type-VF"} {
		for _, policy := range []string{"", "legacy", "required", "preferred"} {
			alias := map[string]any{"name": "K", "vendor_id": "10de", "product_id": "20b0"}
			if kind != "" {
				alias["device_type"] = kind
			}
			if policy != "" {
				alias["numa_policy"] = policy
			}
			plain = append(plain, alias)
		}
	}
	all = slices.Clone(plain)
	for key, value := range map[string]any{
		"name": " K ", "vendor_id": "10DE", "product_id": "20B0", "capability_type": "pci", "resource_class": "CUSTOM_PCI_10DE_20B0", "traits": "a,b",
		"live_migratable": "no",
	} {
		alias := maps.Clone(plain[0])
		alias[key] = value
		all = append(all, alias)
	}
	answers := make([]map[string]any, len(all))
	for i, alias := range all {
		text, err := json.Marshal(alias)
		hosttest.NoError(t, err)
		peer.ask(t, string(text), &answers[i])
	}
	compared, same := 0, 0
	for _, types := range [][]string{{"type-PCI"}, {"type-PF"}, {"type-VF"}, {"type-PCI", "type-VF"}, {"type-PCI", "type-PF", "type-VF"}} {
		supported := func(i int) string {
			var by []string
			for key, is := range answers[i] {
				if kind, _, _ := strings.Cut(key, "+"); is == true && slices.Contains(types, kind) {
					by = append(by, key)
				}
			}
			slices.Sort(by)
			return fmt.Sprint(by)
		}
		for i := range all {
			for k := range all {
				if answers[i]["error"] != nil || answers[k]["error"] != nil { // of a later release
					continue
				}
				compared++
				isSame := nova.SameMeaning(all[i], all[k], types)
				if isSame {
					same++
				}
				isPlain := i < len(plain) && k < len(plain) && supported(i) != "[]"
				if one, other := supported(i), supported(k); isSame && one != other || isPlain && !isSame && one == other {
					t.Errorf("%v and %v on %v: the same %t, but Nova: %s and %s", all[i], all[k], types, isSame, one, other)
				}
			}
		}
	}
	t.Logf("%d pairs, %d with the same meaning", compared, same)
}
