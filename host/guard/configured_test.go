package guard_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
)

// TestConfigured: a port that a file gives an address is in use without carrier and address, too.
// eth2 (07:00.0) has no carrier and eth3 (07:00.1) is set down; neither has an address.
func TestConfigured(t *testing.T) {
	const eth2 = "sys/devices/pci0000:00/0000:07:00.0/net/eth2"
	const never = "-- " + eth2 + "/carrier_up_count --\n0\n-- sys/devices/pci0000:00/0000:07:00.1/net/eth3/carrier_up_count --\n0\n"
	const lost = "-- " + eth2 + "/carrier_up_count --\n3\n-- sys/devices/pci0000:00/0000:07:00.1/net/eth3/carrier_up_count --\n0\n"
	dhcp := func(place, text string) string {
		return "0000:07:00.0 is to carry the address by DHCP of eth2 (/" + place + ": " + text + "), which has none now\n"
	}
	for _, test := range []struct{ name, files, want string }{
		{"an interface that no file names", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth7\n[Network]\nDHCP=yes\n"), ""},
		{"a pattern, and never a carrier", joined(never, "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    all:\n      match: {name: \"e*\"}\n      dhcp4: true\n"), ""},
		{"a pattern, and a lost carrier", joined(lost, "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    all:\n      match: {name: \"e*\"}\n      dhcp4: true\n"),
			dhcp("etc/netplan/50.yaml:5", "dhcp4: true")},
		{"a pattern with a static address", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2*\n[Network]\nAddress=10.0.0.2/24\n"),
			"0000:07:00.0 is to carry the static address of eth2 (/etc/systemd/network/a.network:4: Address=10.0.0.2/24), which has none now\n"},
		{"networkd", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\n[Network]\nDHCP=ipv4\n"), dhcp("etc/systemd/network/a.network:4", "DHCP=ipv4")},
		{"networkd, unmanaged", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\n[Link]\nUnmanaged=yes\n[Network]\nDHCP=ipv4\n"), ""},
		{"networkd, hardware only", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nType=ether\nKind=!*\n[Network]\nAddress=10.0.0.2/24\n"),
			"0000:07:00.0 is to carry the static address of eth2 (/etc/systemd/network/a.network:5: Address=10.0.0.2/24), which has none now\n" +
				"0000:07:00.1 is to carry the static address of eth3 (/etc/systemd/network/a.network:5: Address=10.0.0.2/24), which has none now\n"},
		{"networkd, no bond", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\nKind=!bond bridge\n[Network]\nDHCP=yes\n"), dhcp("etc/systemd/network/a.network:5", "DHCP=yes")},
		{"networkd, bonds", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\nKind=bond\n[Network]\nDHCP=yes\n"), ""},
		{"networkd, any kind", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\nKind=*\n[Network]\nDHCP=yes\n"), ""},
		{"networkd, a kind that a part takes back", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\nKind=bond\n[Network]\nDHCP=yes\n-- etc/systemd/network/a.network.d/b.conf --\n[Match]\nKind=\n"),
			dhcp("etc/systemd/network/a.network:5", "DHCP=yes")},
		{"networkd, no wireless network", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\nSSID=!home\n[Network]\nDHCP=yes\n"), dhcp("etc/systemd/network/a.network:5", "DHCP=yes")},
		{"networkd, wireless networks", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\nSSID=home\n[Network]\nDHCP=yes\n"), ""},
		{"networkd, InfiniBand has a kind in new kernels", joined(never, "-- "+eth2+"/type --\n32\n-- etc/systemd/network/a.network --\n[Match]\nKind=ipoib\n[Network]\nAddress=10.0.0.2/24\n"),
			"0000:07:00.0 is to carry the static address of eth2 (/etc/systemd/network/a.network:4: Address=10.0.0.2/24), which has none now\n"},
		{"networkd, two lists of names", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=!eth0\nName=eth2\n[Network]\nDHCP=yes\n"), dhcp("etc/systemd/network/a.network:5", "DHCP=yes")},
		{"networkd, all but one name", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth*\nName=!eth2 eth3\n[Network]\nAddress=10.0.0.2/24\n"), ""},
		{"networkd, a set without a character", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth[!03]\n[Network]\nAddress=10.0.0.2/24\n"),
			"0000:07:00.0 is to carry the static address of eth2 (/etc/systemd/network/a.network:4: Address=10.0.0.2/24), which has none now\n"},
		{"networkd, a class of characters", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth[[:digit:]]\nName=!eth3\n[Network]\nAddress=10.0.0.2/24\n"),
			"0000:07:00.0 is to carry the static address of eth2 (/etc/systemd/network/a.network:5: Address=10.0.0.2/24), which has none now\n"},
		{"networkd, a set without this character", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth[!23]\n[Network]\nAddress=10.0.0.2/24\n"), ""},
		{"networkd, a part of the file", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\n-- etc/systemd/network/a.network.d/b.conf --\n[Network]\nDHCP=yes\n"),
			dhcp("etc/systemd/network/a.network.d/b.conf:2", "DHCP=yes")},
		{"networkd, by a further name", joined(never, "-- "+eth2+"/ifindex --\n4\n-- run/udev/data/n4 --\nE:ID_NET_NAME_PATH=enp7s0f0\n-- etc/systemd/network/a.network --\n[Match]\nName=enp7s0f0\n[Network]\nDHCP=yes\n"),
			dhcp("etc/systemd/network/a.network:4", "DHCP=yes")},
		{"networkd, by path", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nPath=pci-0000:07:00.0\n[Network]\nDHCP=yes\n"), dhcp("etc/systemd/network/a.network:4", "DHCP=yes")},
		{"netplan, by hardware address", joined(never, "-- "+eth2+"/address --\nb8:59:9f:00:12:34\n-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    a:\n      match: {macaddress: \"B8:59:9F:00:12:34\"}\n      dhcp6: true\n"),
			dhcp("etc/netplan/50.yaml:5", "dhcp6: true")},
		{"netplan, and what it generates", joined(never, "-- run/systemd/network/10-netplan-eth2.network --\n[Match]\nName=eth2\n[Network]\nDHCP=ipv4\n-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    eth2:\n      dhcp4: true\n"),
			dhcp("etc/netplan/50.yaml:4", "dhcp4: true")},
		{"ifupdown", joined(never, "-- etc/network/interfaces --\nsource interfaces.d/*\n-- etc/network/interfaces.d/fabric --\nallow-hotplug eth2\niface eth2 inet dhcp\n"),
			dhcp("etc/network/interfaces.d/fabric:2", "iface eth2 inet dhcp")},
		{"ifupdown, on demand", joined(never, "-- etc/network/interfaces --\nauto eth7\niface eth2 inet dhcp\n"), ""},
		{"NetworkManager", joined(never, "-- etc/NetworkManager/system-connections/a.nmconnection --\n[connection]\ntype=ethernet\ninterface-name=eth2\n[ipv4]\nmethod=auto\n"),
			dhcp("etc/NetworkManager/system-connections/a.nmconnection:5", "method=auto")},
		{"NetworkManager, on demand", joined(never, "-- etc/NetworkManager/system-connections/a.nmconnection --\n[connection]\ntype=ethernet\ninterface-name=eth2\nautoconnect=false\n[ipv4]\nmethod=auto\n"), ""},
		{"a connection that NetworkManager has made", joined(never, "-- run/NetworkManager/system-connections/Wired connection 1.nmconnection --\n[connection]\ntype=ethernet\nautoconnect-priority=-999\ninterface-name=eth2\n[ipv4]\nmethod=auto\n"), ""},
		{"ifcfg", joined(never, "-- etc/sysconfig/network-scripts/ifcfg-eth2 --\nDEVICE=eth2\nBOOTPROTO=dhcp\nONBOOT=yes\n"), dhcp("etc/sysconfig/network-scripts/ifcfg-eth2:2", "BOOTPROTO=dhcp")},
		{"ifcfg, on demand", joined(never, "-- etc/sysconfig/network-scripts/ifcfg-eth2 --\nDEVICE=eth2\nBOOTPROTO=dhcp\nONBOOT=no\n"), ""},
		{"ifcfg of SUSE", joined(never, "-- etc/sysconfig/network/ifcfg-eth2 --\nBOOTPROTO='dhcp4'\nSTARTMODE='auto'\n"), dhcp("etc/sysconfig/network/ifcfg-eth2:1", "BOOTPROTO=dhcp4")},
		{"a pattern, and a carrier without an address", joined("-- "+eth2+"/carrier_up_count --\n1\n", "-- etc/systemd/network/a.network --\n[Match]\nName=eth2*\n[Network]\nDHCP=yes\n"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := joined(storage, test.files)
			if strings.Contains(test.name, "a carrier without") {
				tree = strings.Replace(tree, "-- "+eth2+"/carrier --\n0\n", "-- "+eth2+"/carrier --\n1\n", 1)
			}
			var found strings.Builder
			for line := range strings.Lines(needs(t, hosttest.Lay(t, tree), guard.Running{Addresses: addressOf("eth1", "198.51.100.2").Addresses})) {
				if strings.Contains(line, "is to carry") {
					found.WriteString(line)
				}
			}
			if diff := cmp.Diff(test.want, found.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("a port with an address", func(t *testing.T) {
		files := joined(storage, never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\n[Network]\nDHCP=yes\n")
		if got := needs(t, hosttest.Lay(t, files), addressOf("eth2", "203.0.113.2")); strings.Contains(got, "is to carry") {
			t.Error(got)
		}
	})
	t.Run("malformed", func(t *testing.T) {
		root := hosttest.Lay(t, joined(storage, "-- etc/netplan/50.yaml --\nnetwork: [\n"))
		const unread = " may have to carry an address of eth2, which has none now: /etc/netplan/50.yaml:1: yaml: line 1: did not find expected node content\n"
		got := needs(t, root, addressOf("eth1", "198.51.100.2"))
		if !strings.Contains(got, "0000:07:00.0"+unread) || strings.Contains(got, "an address of eth1") {
			t.Error(got)
		}
	})
}
