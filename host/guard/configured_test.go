package guard_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
)

// TestConfigured: a port that a file gives an address is in use without carrier and address, too,
// and so is one that a file makes a port of a bond or bridge, or puts a VLAN on.
// eth2 (07:00.0) has no carrier and eth3 (07:00.1) is set down; neither has an address.
func TestConfigured(t *testing.T) {
	const eth2 = "sys/devices/pci0000:00/0000:07:00.0/net/eth2"
	const never = "-- " + eth2 + "/carrier_up_count --\n0\n-- sys/devices/pci0000:00/0000:07:00.1/net/eth3/carrier_up_count --\n0\n"
	const lost = "-- " + eth2 + "/carrier_up_count --\n3\n-- sys/devices/pci0000:00/0000:07:00.1/net/eth3/carrier_up_count --\n0\n"
	dhcp := func(place, text string) string {
		return "0000:07:00.0 is to carry the address by DHCP of eth2 (/" + place + ": " + text + "), which has none now\n"
	}
	port := func(upper, place, text string) string {
		return "0000:07:00.0 is to carry the interface " + upper + " on eth2 (/" + place + ": " + text + ")\n"
	}
	const all, regex = " is to carry the interface br0 on ", " (/etc/network/interfaces:3: bridge-ports regex eth[0-2] noregex eth1)\n"
	const profile, ifcfg = "etc/NetworkManager/system-connections/", "etc/sysconfig/network-scripts/"
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
		{"networkd, a kind that a drop-in resets", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\nKind=bond\n[Network]\nDHCP=yes\n-- etc/systemd/network/a.network.d/b.conf --\n[Match]\nKind=\n"),
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
		{"networkd, a port of a bond", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\n[Network]\nBond=bond0\n"), port("bond0", "etc/systemd/network/a.network:4", "Bond=bond0")},
		{"networkd, a port of a bond that others bring up", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\n[Link]\nActivationPolicy=manual\n[Network]\nBond=bond0\n"),
			port("bond0", "etc/systemd/network/a.network:6", "Bond=bond0")},
		{"networkd, what lies on a port", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\n[Network]\nVLAN=v7\nVLAN=v8\nMACVLAN=m0\n"),
			port("v7", "etc/systemd/network/a.network:4", "VLAN=v7") + port("v8", "etc/systemd/network/a.network:5", "VLAN=v8") + port("m0", "etc/systemd/network/a.network:6", "MACVLAN=m0")},
		{"networkd, a pattern of ports", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=*2\n[Network]\nBridge=br0\n"), port("br0", "etc/systemd/network/a.network:4", "Bridge=br0")},
		{"networkd, a port that is no more", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\n[Network]\nVRF=\n"), ""},
		{"networkd, another port", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth7\n[Network]\nBond=bond0\n"), ""},
		{"NetworkManager, a port", joined(never, "-- "+profile+"a.nmconnection --\n[connection]\ntype=ethernet\ninterface-name=eth2\ncontroller=bond0\nport-type=bond\n"), port("bond0", profile+"a.nmconnection:4", "controller=bond0")},
		{"NetworkManager, a port of a profile", joined(never, "-- "+profile+"a.nmconnection --\n[connection]\nuuid=6ba7b810-9dad-11d1-80b4-00c04fd430c8\ntype=bridge\ninterface-name=br0\n"+
			"-- "+profile+"b --\n[connection]\ntype=802-3-ethernet\nmaster=6ba7b810-9dad-11d1-80b4-00c04fd430c8\nslave-type=bridge\n[802-3-ethernet]\nmac-address=B8:59:9F:00:12:34\n-- "+eth2+"/address --\nb8:59:9f:00:12:34\n"),
			port("br0", profile+"b:3", "master=6ba7b810-9dad-11d1-80b4-00c04fd430c8")},
		{"NetworkManager, a port on demand", joined(never, "-- "+profile+"a.nmconnection --\n[connection]\ntype=ethernet\ninterface-name=eth2\nmaster=bond0\nautoconnect=false\n-- "+profile+"b.nmconnection --\n[connection]\ntype=bond\ninterface-name=bond0\n"), ""},
		{"NetworkManager, a port that its bond brings up", joined(never, "-- "+profile+"a.nmconnection --\n[connection]\ntype=ethernet\ninterface-name=eth2\nmaster=bond0\nautoconnect=false\n"+
			"-- "+profile+"b.nmconnection --\n[connection]\ntype=bond\ninterface-name=bond0\nautoconnect-slaves=1\n"), port("bond0", profile+"a.nmconnection:4", "master=bond0")},
		{"NetworkManager, a VLAN", joined(never, "-- "+profile+"v.nmconnection --\n[connection]\ntype=vlan\ninterface-name=v7\n[vlan]\nid=7\nparent=eth2\n[ipv4]\nmethod=auto\n"), port("v7", profile+"v.nmconnection:6", "parent=eth2")},
		{"NetworkManager, a VLAN on demand", joined(never, "-- "+profile+"v.nmconnection --\n[connection]\ntype=vlan\nautoconnect=false\ninterface-name=v7\n[vlan]\nparent=eth2\n"), ""},
		{"NetworkManager, a VLAN of a profile", joined(never, "-- "+profile+"v.nmconnection --\n[connection]\ntype=vlan\n[vlan]\nparent=6ba7b810-9dad-11d1-80b4-00c04fd430c8\n"+
			"-- "+profile+"z.nmconnection --\n[connection]\nuuid=6ba7b810-9dad-11d1-80b4-00c04fd430c8\ntype=ethernet\ninterface-name=eth2\nautoconnect=false\n"),
			port("v", profile+"v.nmconnection:4", "parent=6ba7b810-9dad-11d1-80b4-00c04fd430c8")},
		{"NetworkManager, a VLAN by hardware address", joined(never, "-- "+eth2+"/address --\nb8:59:9f:00:12:34\n-- "+profile+"v.nmconnection --\n[connection]\ntype=vlan\ninterface-name=v7\n[ethernet]\nmac-address=B8:59:9F:00:12:34\n"),
			port("v7", profile+"v.nmconnection:5", "mac-address=B8:59:9F:00:12:34")},
		{"NetworkManager, a partition of InfiniBand", joined(never, "-- "+eth2+"/type --\n32\n-- "+profile+"i.nmconnection --\n[connection]\ntype=infiniband\n[infiniband]\np-key=32769\nparent=eth2\n[ipv4]\naddress1=10.0.0.2/24\n"),
			port("i", profile+"i.nmconnection:5", "parent=eth2")},
		{"netplan, a port of a bond", joined(never, "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    eth2: {}\n  bonds:\n    bond0:\n      interfaces: [eth2, eth7]\n      addresses: [10.0.0.2/24]\n"),
			port("bond0", "etc/netplan/50.yaml:6", "interfaces: [eth2, eth7]")},
		{"netplan, a port in a list, by driver, in two files", joined(never, "-- etc/netplan/50.yaml --\nnetwork:\n  bridges:\n    br0:\n      interfaces:\n      - eth7\n      - fabric\n-- etc/netplan/60.yaml --\nnetwork:\n  ethernets:\n    fabric:\n      match: {name: \"*2\"}\n"),
			port("br0", "etc/netplan/50.yaml:6", "- fabric")},
		{"netplan, a VLAN and a VRF", joined(never, "-- etc/netplan/50.yaml --\nnetwork:\n  vlans:\n    v7:\n      id: 7\n      link: eth2\n  vrfs:\n    red:\n      interfaces: [eth2]\n"),
			port("red", "etc/netplan/50.yaml:8", "interfaces: [eth2]") + port("v7", "etc/netplan/50.yaml:5", "link: eth2")},
		{"netplan, another port", joined(never, "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    eth2: {}\n    eth7: {}\n  bonds:\n    bond0:\n      interfaces: [eth7]\n"), ""},
		{"netplan, a VF of a port", joined(never, "-- etc/netplan/50.yaml --\nnetwork:\n  ethernets:\n    eth2: {}\n    eth2v0: {link: eth2}\n"), ""},
		{"ifupdown, a port of a bridge", joined(never, "-- etc/network/interfaces --\nauto br0\niface br0 inet static\n  address 10.0.0.2/24\n  bridge_ports eth7 \\\n    eth2\n  bridge_stp off\n"),
			port("br0", "etc/network/interfaces:4", "bridge_ports eth7 eth2")},
		{"ifupdown, all ports", joined(never, "-- etc/network/interfaces --\nauto br0\niface br0 inet manual\n  bridge-ports regex eth[0-2] noregex eth1\n"),
			"0000:03:00.0" + all + "eth0" + regex + "0000:04:00.0" + all + "eth1" + regex + "0000:07:00.0" + all + "eth2" + regex + "0000:07:00.1" + all + "eth3" + regex},
		{"ifupdown, no ports", joined(never, "-- etc/network/interfaces --\nauto br0 bond0\niface br0 inet manual\n  bridge-ports none\niface bond0\n  bond-slaves none\n"), ""},
		{"ifupdown, a port of a bond", joined(never, "-- etc/network/interfaces --\nauto eth2\niface eth2 inet manual\n  bond-master bond0\n"), port("bond0", "etc/network/interfaces:3", "bond-master bond0")},
		{"ifupdown, ports of a bond", joined(never, "-- etc/network/interfaces --\nallow-hotplug bond0\niface bond0 inet dhcp\n  slaves eth2\n"), port("bond0", "etc/network/interfaces:3", "slaves eth2")},
		{"ifupdown, a port with a dot in its name", joined(never, "-- etc/network/interfaces --\nauto br0\niface br0 inet manual\n  bridge_ports eth2.a\n"), ""},
		{"ifupdown, a bond on demand", joined(never, "-- etc/network/interfaces --\nauto eth7\niface bond0 inet dhcp\n  bond-slaves eth2\n"), ""},
		{"ifupdown, another interface's option", joined(never, "-- etc/network/interfaces --\nauto bond0 eth2\niface eth2 inet manual\nallow-hotplug eth7\n  bond-master bond0\n"), ""},
		{"ifupdown, a port of Open vSwitch", joined(never, "-- etc/network/interfaces --\nallow-vmbr0 eth2\niface eth2 inet manual\n  ovs_bridge vmbr0\n  ovs_type OVSPort\n"), port("vmbr0", "etc/network/interfaces:3", "ovs_bridge vmbr0")},
		{"ifupdown, a VLAN", joined(never, "-- etc/network/interfaces --\nauto vlan7\niface vlan7 inet dhcp\n  vlan-raw-device eth2\n"), port("vlan7", "etc/network/interfaces:3", "vlan-raw-device eth2")},
		{"ifupdown, a VLAN by its name", joined(never, "-- etc/network/interfaces --\nauto eth2.7\niface eth2.7 inet static\n  address 10.0.0.2/24\n"), port("eth2.7", "etc/network/interfaces:2", "iface eth2.7 inet static")},
		{"ifupdown, a bridge on a VLAN", joined(never, "-- etc/network/interfaces --\nauto br7\niface br7 inet manual\n  bridge_ports eth2.7\n"), port("br7", "etc/network/interfaces:3", "bridge_ports eth2.7")},
		{"ifcfg, a port of a bond", joined(never, "-- "+ifcfg+"ifcfg-eth2 --\nDEVICE=eth2\nMASTER=bond0\nSLAVE=yes\nONBOOT=no\n"), port("bond0", ifcfg+"ifcfg-eth2:2", "MASTER=bond0")},
		{"ifcfg, a port of a bridge", joined(never, "-- "+ifcfg+"ifcfg-eth2 --\nBRIDGE=\"br0\"\n"), port("br0", ifcfg+"ifcfg-eth2:1", "BRIDGE=br0")},
		{"ifcfg, a port of a bridge on demand", joined(never, "-- "+ifcfg+"ifcfg-eth2 --\nBRIDGE=br0\nONBOOT=no\n"), ""},
		{"ifcfg, a VLAN", joined(never, "-- "+ifcfg+"ifcfg-v7 --\nVLAN=yes\nDEVICE=v7\nPHYSDEV=eth2\nBOOTPROTO=dhcp\n"), port("v7", ifcfg+"ifcfg-v7:3", "PHYSDEV=eth2")},
		{"ifcfg, a VLAN of a profile", joined(never, "-- "+ifcfg+"ifcfg-a --\nDEVICE=v7\nPHYSDEV=6ba7b810-9dad-11d1-80b4-00c04fd430c8\n-- "+ifcfg+"ifcfg-b --\nUUID=6ba7b810-9dad-11d1-80b4-00c04fd430c8\nDEVICE=eth2\nONBOOT=no\n"),
			port("v7", ifcfg+"ifcfg-a:2", "PHYSDEV=6ba7b810-9dad-11d1-80b4-00c04fd430c8")},
		{"ifcfg, a VLAN by its name", joined(never, "-- "+ifcfg+"ifcfg-eth2.7 --\nVLAN=yes\nDEVICE=eth2.7\nBOOTPROTO=dhcp\n"), port("eth2.7", ifcfg+"ifcfg-eth2.7:2", "DEVICE=eth2.7")},
		{"ifcfg of SUSE, ports", joined(never, "-- etc/sysconfig/network/ifcfg-bond0 --\nSTARTMODE='auto'\nBONDING_SLAVE_0='eth7'\nBONDING_SLAVE_1='eth2'\n-- etc/sysconfig/network/ifcfg-br0 --\nBRIDGE_PORTS='eth7 eth2'\n-- etc/sysconfig/network/ifcfg-v7 --\nETHERDEVICE='eth2'\n"),
			port("bond0", "etc/sysconfig/network/ifcfg-bond0:3", "BONDING_SLAVE_1=eth2") + port("br0", "etc/sysconfig/network/ifcfg-br0:1", "BRIDGE_PORTS=eth7 eth2") + port("v7", "etc/sysconfig/network/ifcfg-v7:1", "ETHERDEVICE=eth2")},
		{"ifcfg of SUSE, ports on demand", joined(never, "-- etc/sysconfig/network/ifcfg-bond0 --\nSTARTMODE='manual'\nBONDING_SLAVE_1='eth2'\n"), ""},
		{"a port with an address of its own", joined(never, "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\n[Network]\nBond=bond0\nDHCP=yes\n-- run/systemd/network/b.network --\n[Match]\nName=eth2\n[Network]\nBond=bond0\n"),
			port("bond0", "etc/systemd/network/a.network:4", "Bond=bond0") + dhcp("etc/systemd/network/a.network:5", "DHCP=yes")},
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
	t.Run("a port that is attached", func(t *testing.T) {
		files := joined(storage, never, "symlink "+eth2+"/master -> ../../../../virtual/net/bond0\nmkdir sys/devices/virtual/net/bond0\n", "-- etc/systemd/network/a.network --\n[Match]\nName=eth2\n[Network]\nBond=bond0\n")
		if got := needs(t, hosttest.Lay(t, files), addressOf("eth2", "203.0.113.2")); !strings.Contains(got, "carries the interface bond0, through eth2") ||
			!strings.Contains(got, port("bond0", "etc/systemd/network/a.network:4", "Bond=bond0")) {
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
