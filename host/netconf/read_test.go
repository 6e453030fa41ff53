package netconf_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/netconf"
	"gpustack/host/snapshot"
)

// TestRead: what gives addresses, and to what. Matching is tested in host/guard and
// host/rdma/rdmaprepare.
func TestRead(t *testing.T) {
	for _, test := range []struct{ name, files, want string }{
		{"nothing", "-- etc/hostname --\nx\n", ""},
		{"ifupdown, in several forms", "-- etc/network/interfaces --\nauto lo eth0 /en*\nsource-directory more\niface lo inet loopback\niface eth0 inet \\\n  static\n  address 10.0.0.2/24\n" +
			"iface eth0:1 inet static\niface eth0 inet6 auto\niface eth0 inet manual\niface enp7s0\n  address 10.0.0.3/24\n  use dhcp\niface eth9 inet dhcp\n-- etc/network/more/a --\niface eth8 inet dhcp\n",
			"/etc/network/more/a:1 dhcp on demand [eth8]\n/etc/network/interfaces:4 static [eth0]\n/etc/network/interfaces:7 static on demand [eth0]\n/etc/network/interfaces:8 dhcp [eth0]\n" +
				"/etc/network/interfaces:11 static [enp7s0]\n/etc/network/interfaces:12 dhcp [enp7s0]\n/etc/network/interfaces:13 dhcp on demand [eth9]\n"},
		{"ifcfg, in several forms", "-- etc/sysconfig/network-scripts/ifcfg-a --\nDEVICE=\"eth0\"\nBOOTPROTO=none\nIPADDR0=10.0.0.2\nDHCPV6C=yes\n" +
			"-- etc/sysconfig/network-scripts/ifcfg-b --\nHWADDR=b8:59:9f:00:12:34\nBOOTPROTO=dhcp\n-- etc/sysconfig/network-scripts/ifcfg-b.bak --\nBOOTPROTO=dhcp\n" +
			"-- etc/sysconfig/network/ifcfg-eth2 --\nSTARTMODE='off'\nIPADDR_1='10.0.0.3/24'\n",
			"/etc/sysconfig/network-scripts/ifcfg-a:3 static [eth0]\n/etc/sysconfig/network-scripts/ifcfg-a:4 dhcp [eth0]\n/etc/sysconfig/network-scripts/ifcfg-b:2 dhcp b8:59:9f:00:12:34\n" +
				"/etc/sysconfig/network/ifcfg-eth2:2 static on demand [eth2]\n"},
		{"the same line for two interfaces", "-- etc/netplan/a.yaml --\nnetwork:\n  ethernets:\n    eth0:\n      dhcp4: true\n    eth1:\n      dhcp4: true\n",
			"/etc/netplan/a.yaml:4 dhcp [eth0]\n/etc/netplan/a.yaml:6 dhcp [eth1]\n"},
		{"the boot does not wait for it", "-- etc/netplan/a.yaml --\nnetwork:\n  ethernets:\n    eth0:\n      dhcp4: true\n      optional: true\n" +
			"    eth1:\n      dhcp4: true\n      optional: no\n" +
			"-- etc/systemd/network/a.network --\n[Match]\nName=eth2\n[Link]\nRequiredForOnline=no\n[Network]\nDHCP=yes\n" +
			"-- etc/systemd/network/b.network --\n[Match]\nName=eth3\n[Link]\nRequiredForOnline=no-carrier:routable\n[Network]\nDHCP=None\nAddress=10.0.0.3/24\n",
			"/etc/systemd/network/a.network:6 dhcp optional [eth2]\n/etc/systemd/network/b.network:7 static [eth3]\n" +
				"/etc/netplan/a.yaml:4 dhcp optional [eth0]\n/etc/netplan/a.yaml:7 dhcp [eth1]\n"},
		{"activated by hand or not at all, but not as a port",
			"-- etc/netplan/a.yaml --\nnetwork:\n  ethernets:\n    eth0:\n      dhcp4: true\n      activation-mode: manual\n    eth1:\n      dhcp4: true\n" +
				"      activation-mode: 'off'\n" +
				"  bonds:\n    bond0:\n      interfaces: [eth1]\n",
			"/etc/netplan/a.yaml:4 dhcp on demand [eth0]\n/etc/netplan/a.yaml:7 dhcp on demand [eth1]\n/etc/netplan/a.yaml:11 below bond0 [eth1]\n"},
		{"a file that netplan refuses", "-- etc/netplan/a.yaml --\nnetwork: [\n", "error: /etc/netplan/a.yaml:1: yaml: line 1: did not find expected node content\n"},
		{"a file that the operator has removed", "symlink etc/systemd/network/99-default.network -> /dev/null\n-- usr/lib/systemd/network/99-default.network --\n[Match]\nName=*\n[Network]\nDHCP=yes\n", ""},
		{"a folder in place of a file", "mkdir etc/network/interfaces\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			networks, err := netconf.Read(hosttest.Lay(t, test.files))
			got := ""
			for _, n := range networks {
				how := map[bool]string{true: "static", false: "dhcp"}[n.Static]
				if n.Upper != "" {
					how = "below " + n.Upper
				}
				if n.OnDemand {
					how += " on demand"
				}
				if n.Optional {
					how += " optional"
				}
				if n.Names != nil {
					how += fmt.Sprintf(" %s", n.Names)
				}
				got += strings.TrimSpace(fmt.Sprintf("%s:%d %s %s", n.File, n.Line, how, strings.Join(n.Addresses, " "))) + "\n"
			}
			if err != nil {
				got += "error: " + err.Error() + "\n"
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRecorded: a snapshot gets no secret of these files, and gives the same answer, except that a
// file whose lines about addresses and ports have a secret cannot be read there.
func TestRecorded(t *testing.T) {
	const files = "-- etc/netplan/a.yaml --\n# S3CRET\nnetwork:\n  version: 2\n  ethernets:\n    private:\n      auth:\n        password: S3CRET\n" +
		"      match: {macaddress: \"b8:59:9f:00:12:34\"}\n      addresses: [\n        10.0.0.2/24,\n      ]\n      optional: true\n" +
		"  wifis:\n    wlan0:\n      dhcp4: true\n      access-points: {x: {password: S3CRET}}\n" +
		"-- etc/NetworkManager/system-connections/a.nmconnection --\n[connection]\ntype=ethernet\ninterface-name=eth1\n[802-1x]\npassword=S3CRET\n[ipv4]\nmethod=auto\n" +
		"-- etc/systemd/network/a.network --\n[Match]\nName=eth2\n[Network]\nDescription=S3CRET\nDHCP=yes\n" +
		"-- etc/network/interfaces --\nsource interfaces.d/*\nauto eth3\niface eth3 inet dhcp\n  wpa-psk S3CRET\n" +
		"-- etc/sysconfig/network-scripts/ifcfg-eth4 --\nBOOTPROTO=dhcp\nPEAP_PASSWORD=S3CRET\n" +
		"-- etc/netplan/b.yaml --\nnetwork:\n  bonds:\n    bond0:\n      parameters: {ad-user: S3CRET}\n      interfaces:\n      - eth5\n  vlans:\n    v7: {link: eth5}\n" +
		"-- etc/NetworkManager/system-connections/b --\n[connection]\ntype=ethernet\nmaster=bond0\n[802-1x]\nprivate-key-password=S3CRET\n" +
		"-- etc/NetworkManager/system-connections/c --\n[connection]\ntype=vlan\n[vlan]\nparent=eth5\n" +
		"-- etc/systemd/network/b.network --\n[Match]\nName=eth5\n[Network]\nBond=bond0\n" +
		"-- etc/network/interfaces.d/b --\nauto br0\niface br0 inet \\\n  static\n  bridge_ports eth5 \\\n  eth6\n  wpa-psk \\\n    S3CRET\n" +
		"-- etc/sysconfig/network-scripts/ifcfg-eth5 --\nMASTER=bond0\n-- etc/sysconfig/network-scripts/ifcfg-v7 --\nPHYSDEV=eth5\n"
	root := hosttest.Lay(t, files)
	var tree snapshot.Tree
	want, err := netconf.Read(root.Recorded(&tree))
	if err != nil || len(want) != 14 {
		t.Fatal(want, err)
	}
	dir := t.TempDir()
	if err := tree.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	replay := at(t, dir)
	got, err := netconf.Read(replay)
	if diff := cmp.Diff(fmt.Sprint(plain(want)), fmt.Sprint(plain(got))); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	for _, name := range []string{"/etc/netplan/a.yaml", "/etc/NetworkManager/system-connections/a.nmconnection", "/etc/systemd/network/a.network", "/etc/network/interfaces", "/etc/sysconfig/network-scripts/ifcfg-eth4",
		"/etc/netplan/b.yaml", "/etc/NetworkManager/system-connections/b", "/etc/network/interfaces.d/b"} {
		if text, err := replay.ReadFile(name); err != nil || strings.Contains(string(text), "S3CRET") {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	var flow snapshot.Tree
	if _, err := netconf.Read(hosttest.Lay(t, "-- etc/netplan/a.yaml --\nnetwork: {ethernets: {eth0: {dhcp4: true, auth: {password: S3CRET}}}}\n").Recorded(&flow)); err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	if err := flow.Unpack(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := netconf.Read(at(t, dir)); err == nil {
		t.Error("a snapshot without the file's content looks as if it gave no address")
	}
}

func at(t *testing.T, dir string) host.Root {
	t.Helper()
	root, err := host.NewRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	return root
}

// plain returns networks without what cannot be compared.
func plain(networks []netconf.Network) []netconf.Network {
	for i := range networks {
		networks[i].Exclude = nil
	}
	return networks
}
