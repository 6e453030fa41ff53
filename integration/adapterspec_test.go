package integration

import (
	"path/filepath"
	"slices"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
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
