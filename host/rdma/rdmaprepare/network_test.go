package rdmaprepare_test

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/host/rdma/rdmaprepare"
)

// TestNetworks: network configuration that matches VFs for containers by a pattern is refused if it
// has a static address, and a warning if it asks DHCP.
func TestNetworks(t *testing.T) {
	const networkd, netplan, manager = "etc/systemd/network/10-a.network", "etc/netplan/50.yaml", "etc/NetworkManager/system-connections/a.nmconnection"
	const exclude = ": add 'Path=!pci-0000:0d:00.2 pci-0000:0d:00.3' to [Match]"
	for _, test := range []struct{ name, file, text, refused, warning string }{
		{"networkd, by driver", networkd, "[Match]\nDriver=mlx5_core\n[Network]\nAddress=10.0.0.2/24\n", ":4", ""},
		{"networkd, by a name", networkd, "[Match]\nName=eth1\n[Network]\nAddress=10.0.0.2/24\n", "", ""},
		{"networkd, by a name and a driver", networkd, "[Match]\nName=eth1\nDriver=mlx5_core\n[Network]\nAddress=10.0.0.2/24\n", "", ""},
		{"networkd, by a pattern", networkd, "[Match]\nName=en* eth*\n[Address]\nAddress=10.0.0.2/24\n", ":4", ""},
		{"networkd, by a pattern, with DHCP", networkd, "[Match]\nName=e*\n[Network]\nDHCP=yes\n", "", ":4: gives VFs of 0000:0d:00.0 addresses by DHCP" + exclude},
		{"networkd, with DHCP switched off", networkd, "[Match]\nName=e*\n[Network]\nDHCP=no\n", "", ""},
		{"networkd, by a pattern of others", networkd, "[Match]\nName=br*\n[Network]\nAddress=10.0.0.2/24\n", "", ""},
		{"networkd, by a type", networkd, "[Match]\nType=ether\n[Network]\nDHCP=ipv4\n", "", ":4: gives VFs of 0000:0d:00.0 addresses by DHCP" + exclude},
		{"networkd, of another driver", networkd, "[Match]\nDriver=igb\n[Network]\nAddress=10.0.0.2/24\n", "", ""},
		{"networkd, by hardware address", networkd, "[Match]\nMACAddress=b8:59:9f:00:12:34\nDriver=mlx5_core\n[Network]\nAddress=10.0.0.2/24\n", "", ""},
		{"networkd, by path", networkd, "[Match]\nPath=pci-0000:0d:00.0\n[Network]\nAddress=10.0.0.2/24\n", "", ""},
		{"networkd, by a pattern of paths", networkd, "[Match]\nPath=pci-0000:0d:*\n[Network]\nAddress=10.0.0.2/24\n", ":4", ""},
		{"networkd, without VFs", networkd, "[Match]\nDriver=mlx5_core\nPath=!pci-0000:0d:00.2 pci-0000:0d:00.3\n[Network]\nAddress=10.0.0.2/24\n", "", ""},
		{"networkd, without VFs, in a line of its own", networkd, "[Match]\nPath=pci-0000:0d:*\nPath=!pci-0000:0d:00.2 pci-0000:0d:00.3\n[Network]\nAddress=10.0.0.2/24\n", "", ""},
		{"networkd, hardware only", networkd, "[Match]\nType=ether\nKind=!*\n[Network]\nAddress=10.0.0.2/24\n", ":5", ""},
		{"networkd, a file that another shadows", "usr/lib/systemd/network/10-a.network", "[Match]\nDriver=mlx5_core\n[Network]\nAddress=10.0.0.2/24\n-- " + networkd + " --\n", "", ""},
		{"netplan, by driver", netplan, "network:\n  ethernets:\n    fabric:\n      match: {driver: mlx5_core}\n      addresses: [10.0.0.2/24]\n", ":5", ""},
		{"netplan, by several drivers", netplan, "network:\n  ethernets:\n    fabric:\n      match:\n        driver: [igb, mlx5_core]\n      dhcp4: true\n", "",
			":6: gives VFs of 0000:0d:00.0 addresses by DHCP: match the adapter by its name: 'name: eth1'"},
		{"netplan, by a pattern", netplan, "network:\n  ethernets:\n    all:\n      match: {name: \"e*\"}\n      addresses: [10.0.0.2/24]\n", ":5", ""},
		{"netplan, by a name", netplan, "network:\n  ethernets:\n    eth1:\n      addresses: [10.0.0.2/24]\n", "", ""},
		{"netplan, by hardware address and driver", netplan, "network:\n  ethernets:\n    a:\n      match: {macaddress: \"b8:59:9f:00:12:34\", driver: mlx5_core}\n      addresses: [10.0.0.2/24]\n", "", ""},
		{"netplan, in two files", netplan, "network:\n  ethernets:\n    a:\n      match: {driver: mlx5_core}\n-- etc/netplan/60.yaml --\nnetwork:\n  ethernets:\n    a:\n      addresses: [10.0.0.2/24]\n", "60.yaml:4", ""},
		{"NetworkManager, by driver", manager, "[connection]\ntype=ethernet\nmulti-connect=3\n[match]\ndriver=mlx5_core;\n[ipv4]\nmethod=manual\naddress1=10.0.0.2/24\n", ":8", ""},
		{"NetworkManager, by a pattern, with DHCP", manager, "[connection]\ntype=ethernet\n[match]\ninterface-name=e*;\n[ipv4]\nmethod=auto\n", "",
			":6: gives VFs of 0000:0d:00.0 addresses by DHCP: add 'path=!pci-0000:0d:00.2;!pci-0000:0d:00.3;' to [match]"},
		{"NetworkManager, optional elements", manager, "[connection]\ntype=ethernet\n[match]\ndriver=|igb;|mlx5_core;\n[ipv4]\naddress1=10.0.0.2/24\n", ":6", ""},
		{"NetworkManager, without VFs", manager, "[connection]\ntype=ethernet\n[match]\ndriver=mlx5_core;\npath=&!pci-0000:0d:00.2;!pci-0000:0d:00.3;\n[ipv4]\naddress1=10.0.0.2/24\n", "", ""},
		{"NetworkManager, without a suffix", "etc/NetworkManager/system-connections/a", "[connection]\ntype=ethernet\n[match]\ndriver=mlx5_core;\n[ipv4]\naddress1=10.0.0.2/24\n", ":6", ""},
		{"NetworkManager, by a name", manager, "[connection]\ntype=ethernet\ninterface-name=eth1\n[ipv4]\nmethod=manual\naddress1=10.0.0.2/24\n", "", ""},
		{"NetworkManager, of another type", manager, "[connection]\ntype=wifi\n[ipv4]\nmethod=manual\naddress1=10.0.0.2/24\n", "", ""},
		{"networkd, ports by a pattern", networkd, "[Match]\nName=e*\n[Network]\nBond=bond0\n", ":4", ""},
		{"networkd, a port by its name", networkd, "[Match]\nName=eth1\n[Network]\nBond=bond0\n", "", ""},
		{"netplan, ports by driver", netplan, "network:\n  ethernets:\n    a:\n      match: {driver: mlx5_core}\n  bonds:\n    bond0:\n      interfaces: [a]\n", ":7", ""},
		{"netplan, a port by its name", netplan, "network:\n  ethernets:\n    eth1: {}\n  bonds:\n    bond0:\n      interfaces: [eth1]\n", "", ""},
		{"ifupdown, all ports", "etc/network/interfaces", "iface br0 inet manual\n  bridge_ports all\n", ":2", ""},
		{"NetworkManager, of any interface", manager, "[connection]\ntype=ethernet\n[ipv4]\nmethod=manual\naddress1=10.0.0.2/24\n", ":5", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, machineOf([]hca{ethernet()}, "", "-- "+test.file+" --\n"+test.text))
			options := rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, VFs: 2, Use: rdma.ForContainers}
			p, got := plan(t, root, options)
			const static, port = ": would give VFs a static address of the host: ", ": would put an interface of the host on VFs: "
			refused := "0000:0d:00.0: /" + test.file + test.refused + static
			if strings.HasPrefix(test.refused, "60") {
				refused = "0000:0d:00.0: /etc/netplan/" + test.refused + static
			}
			if strings.Contains(test.name, "ports") {
				refused = strings.Replace(refused, static, port, 1)
			}
			if test.refused != "" && !strings.HasPrefix(got, refused) || test.refused == "" && got != "" {
				t.Errorf("%q, want %q", got, refused)
			}
			warnings := strings.Join(p.Warnings, "\n")
			if want := "/" + test.file + test.warning; test.warning != "" && !strings.Contains(warnings, want) || test.warning == "" && strings.Contains(warnings, "DHCP") {
				t.Errorf("%q, want %q", warnings, want)
			}
			options.Use = rdma.ForGuests // their VFs have no interface of the host
			if p, got := plan(t, root, options); strings.Contains(got+strings.Join(p.Warnings, ""), test.file) {
				t.Errorf("for guests: %q %q", got, p.Warnings)
			}
		})
	}
	t.Run("a file that cannot be read", func(t *testing.T) {
		root := hosttest.Lay(t, machineOf([]hca{ethernet()}, "", "-- "+netplan+" --\nnetwork: [\n"))
		_, got := plan(t, root, rdmaprepare.Options{Add: []pci.Address{address("0d:00.0")}, VFs: 2, Use: rdma.ForContainers})
		if !strings.HasPrefix(got, "/"+netplan+":1: ") {
			t.Errorf("%q, want an error about %s", got, netplan)
		}
	})
}
