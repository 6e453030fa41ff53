package guard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
)

// subfunction is a subfunction of the function 07:00.0 as mlx5 shows it, with its interface.
const subfunction = "symlink sys/bus/auxiliary/devices/mlx5_core.sf.4 -> ../../../devices/pci0000:00/0000:07:00.0/mlx5_core.sf.4\n" +
	"symlink sys/class/net/enp7s0f0s88 -> ../../devices/pci0000:00/0000:07:00.0/mlx5_core.sf.4/net/enp7s0f0s88\n" +
	"-- sys/devices/pci0000:00/0000:07:00.0/mlx5_core.sf.4/sfnum --\n88\n" +
	"-- sys/devices/pci0000:00/0000:07:00.0/mlx5_core.sf.4/net/enp7s0f0s88/flags --\n0x1003\n" +
	"-- sys/devices/pci0000:00/0000:07:00.0/mlx5_core.sf.4/net/enp7s0f0s88/carrier --\n0\n"

// TestLinks: an interface is in use without an address of the host, by each way that files and
// netlink show. eth2 (07:00.0) has no carrier, eth3 (07:00.1) is set down.
func TestLinks(t *testing.T) {
	const eth2 = "sys/devices/pci0000:00/0000:07:00.0/net/eth2"
	link := func(name, kind string) string {
		tree := "symlink sys/class/net/" + name + " -> ../../devices/virtual/net/" + name + "\nmkdir sys/devices/virtual/net/" + name + "\n"
		if kind != "" {
			tree += "-- sys/devices/virtual/net/" + name + "/uevent --\nDEVTYPE=" + kind + "\nINTERFACE=" + name + "\n"
		}
		return tree
	}
	upper := func(name string) string {
		return fmt.Sprintf("symlink %s/upper_%s -> ../../../../virtual/net/%[2]s\n", eth2, name)
	}
	master := func(name string) string {
		return fmt.Sprintf("symlink %s/master -> ../../../../virtual/net/%s\n", eth2, name)
	}
	for _, test := range []struct {
		name, files string
		links       []guard.Link
		want        string
	}{
		{"idle interfaces", "", nil, ""},
		{"an idle interface beside others of the host and of other namespaces", link("br0", "bridge"),
			[]guard.Link{{Name: "eth0", Kind: "veth", Namespace: "x (pid 7)", File: "/proc/7/ns/net", Lower: "br0"}}, ""},
		{"a port of Open vSwitch", joined(link("ovs-system", ""), upper("ovs-system"), master("ovs-system")), nil, "0000:07:00.0 carries Open vSwitch (ovs-system), through eth2\n"},
		{"a port of a bridge", joined(link("br0", "bridge"), master("br0")), nil, "0000:07:00.0 carries the bridge br0, through eth2\n"},
		{"a port of a bond", joined(link("bond0", "bond"), upper("bond0"), master("bond0")), nil, "0000:07:00.0 carries the bond bond0, through eth2\n"},
		{"below VLANs, macvtap and ipvlan", joined(link("eth2.7", "vlan"), link("tap7", "macvtap"), link("ipvl0", ""), upper("eth2.7"), upper("tap7"), upper("ipvl0")), nil,
			"0000:07:00.0 carries the vlan eth2.7, through eth2\n0000:07:00.0 carries the interface ipvl0, through eth2\n0000:07:00.0 carries the macvtap tap7, through eth2\n"},
		{"in a VRF, which has no DEVTYPE", joined(link("red", ""), master("red")), nil, "0000:07:00.0 carries the interface red, through eth2\n"},
		{"below a macvlan of another namespace", "", []guard.Link{{Name: "mv0", Kind: "macvlan", Namespace: "nginx (pid 70)", File: "/proc/70/ns/net", Lower: "eth2"}},
			"0000:07:00.0 carries macvlan mv0 in the network namespace of nginx (pid 70), through eth2\n"},
		{"in another namespace", "", []guard.Link{{Name: "eth7", Kind: "device", Namespace: "/run/netns/blue", File: "/run/netns/blue", Device: "/sys/bus/pci/devices/0000:07:00.1"}},
			"0000:07:00.1 carries eth7 in the network namespace of /run/netns/blue\n"},
		{"a subfunction in another namespace", subfunction, []guard.Link{{Name: "enp7s0f0s88", Kind: "device", Namespace: "/run/netns/blue", File: "/run/netns/blue", Device: "/sys/bus/auxiliary/devices/mlx5_core.sf.4"}},
			"0000:07:00.0 carries enp7s0f0s88 in the network namespace of /run/netns/blue\n"},
		{"a device that is no PCI function in another namespace", "", []guard.Link{{Name: "eth7", Kind: "device", Namespace: "/run/netns/blue", File: "/run/netns/blue", Device: "/sys/bus/usb/devices/1-1:1.0"}}, ""},
		{"a subfunction below a bridge", joined(subfunction, link("br0", "bridge"), "symlink sys/devices/pci0000:00/0000:07:00.0/mlx5_core.sf.4/net/enp7s0f0s88/master -> ../../../../../virtual/net/br0\n"), nil,
			"0000:07:00.0 carries the bridge br0, through enp7s0f0s88\n"},
		{"an idle subfunction", subfunction, nil, ""},
		{"XDP", "", []guard.Link{{Name: "eth2", Kind: "device", File: "/sys/class/net/eth2", XDP: true}}, "0000:07:00.0 carries XDP, through eth2\n"},
		{"netconsole", "-- sys/kernel/config/netconsole/a/enabled --\n1\n-- sys/kernel/config/netconsole/a/dev_name --\neth2\n-- sys/kernel/config/netconsole/b/enabled --\n0\n" +
			"-- sys/kernel/config/netconsole/b/dev_name --\neth3\n", nil, "0000:07:00.0 carries netconsole, through eth2\n"},
		{"netconsole on the kernel command line", "-- proc/cmdline --\nquiet netconsole=+4444@10.0.0.1/eth2,9353@10.0.0.2/12:34:56:78:9a:bc\n", nil, "0000:07:00.0 carries netconsole, through eth2\n"},
		{"kdump of SUSE", "-- etc/sysconfig/kdump --\n# KDUMP_NETCONFIG=\"eth3:dhcp\"\nKDUMP_NETCONFIG=\"eth2:dhcp\"\n", nil, "0000:07:00.0 carries the network of the crash kernel, through eth2\n"},
		{"kdump with ip=", "-- etc/default/kdump-tools --\nKDUMP_CMDLINE_APPEND=\"irqpoll ip=10.0.0.1::10.0.0.254:255.255.255.0::eth2:none nr_cpus=1\"\n", nil,
			"0000:07:00.0 carries the network of the crash kernel, through eth2\n"},
		{"kdump with ip= first", "-- etc/sysconfig/kdump --\nKDUMP_COMMANDLINE_APPEND=\"ip=eth2:dhcp irqpoll\"\n", nil, "0000:07:00.0 carries the network of the crash kernel, through eth2\n"},
		{"kdump elsewhere", "-- etc/kdump.conf --\nssh user@192.0.2.9\npath /eth2\n", nil, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			got := needs(t, hosttest.Lay(t, joined(storage, test.files)), guard.Running{Links: test.links})
			got = strings.Replace(got, "0000:03:00.0 carries the default route, through eth0\n", "", 1)
			got = strings.ReplaceAll(strings.ReplaceAll(got, "0000:04:00.0 carries the address 2001:db8::1, through eth1\n", ""), "0000:04:00.0 may carry an address of the host, through eth1: the interface with that address is not determined\n", "")
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestLinksBlind: files about interfaces that cannot be read are an error.
func TestLinksBlind(t *testing.T) {
	for _, test := range []struct{ name, files, want string }{
		{"netconsole", "mkdir sys/kernel/config/netconsole/a/enabled\n", "/sys/kernel/config/netconsole/a/enabled: not a regular file"},
		{"kdump", "mkdir etc/kdump.conf\n", "/etc/kdump.conf: not a regular file"},
		{"master", "-- sys/devices/pci0000:00/0000:04:00.0/net/eth1/master --\n", "/sys/class/net/eth1/master: invalid argument"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := guard.Needs(hosttest.Lay(t, joined(storage, test.files)), nil, guard.Running{}); fmt.Sprint(err) != test.want {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}
