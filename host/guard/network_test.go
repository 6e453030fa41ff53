package guard_test

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/host/snapshot"
)

// TestWholePath: a device depends on each function of its path that is not a bridge, and on the
// physical function of a virtual one.
func TestWholePath(t *testing.T) {
	const vmd = `symlink sys/class/block/nvme0n1 -> ../../devices/pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0/10000:01:00.0/nvme/nvme0/nvme0n1
mkdir sys/devices/pci0000:64/0000:64:00.5/pci10000:00/10000:00:02.0/10000:01:00.0/nvme/nvme0/nvme0n1
-- sys/bus/pci/devices/0000:64:00.5/class --
0x010400
-- sys/bus/pci/devices/10000:00:02.0/class --
0x060400
-- sys/bus/pci/devices/10000:01:00.0/class --
0x010802
`
	const vf = `symlink sys/class/net/eth0v0 -> ../../devices/pci0000:00/0000:00:01.0/0000:03:02.0/net/eth0v0
symlink sys/bus/pci/devices/0000:03:02.0/physfn -> ../0000:03:00.0
mkdir sys/devices/pci0000:00/0000:00:01.0/0000:03:02.0/net/eth0v0
-- sys/bus/pci/devices/0000:00:01.0/class --
0x060400
-- sys/bus/pci/devices/0000:03:00.0/class --
0x020000
-- sys/bus/pci/devices/0000:03:02.0/class --
0x020000
-- proc/net/route --
eth0v0 00000000 010200C0 0003 0 0 0 00000000 0 0 0
`
	for _, test := range []struct{ name, files, want string }{
		{"a disk below VMD", joined(vmd, mounted("/dev/nvme0n1 / ext4 rw 0 0")),
			"0000:64:00.5! carries /dev/nvme0n1, mounted at /\n10000:01:00.0! carries /dev/nvme0n1, mounted at /\n"},
		{"a function of an unknown class", joined(strings.Replace(vmd, "0x010400", "x", 1), mounted("/dev/nvme0n1 / ext4 rw 0 0")),
			"0000:64:00.5! carries /dev/nvme0n1, mounted at /\n10000:01:00.0! carries /dev/nvme0n1, mounted at /\n"},
		{"a virtual function", vf, "0000:03:00.0 carries the default route, through eth0v0\n0000:03:02.0 carries the default route, through eth0v0\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, test.files)
			if diff := cmp.Diff(test.want, needs(t, root, guard.Running{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
	t.Run("an open disk below VMD", func(t *testing.T) {
		root := hosttest.Lay(t, joined(vmd, "symlink proc/10/fd/3 -> /dev/nvme0n1\n"))
		devices, _, err := pci.Scan(root, pci.Options{})
		if err != nil {
			t.Fatal(err)
		}
		holders, err := guard.Holders(root, devices)
		if err != nil || len(holders) != 2 || holders[0].Address.String() != "0000:64:00.5" || holders[1].Address.String() != "10000:01:00.0" {
			t.Errorf("%+v, %v", holders, err)
		}
	})
	t.Run("no link", func(t *testing.T) {
		for tree, want := range map[string]string{
			strings.Replace(vf, "-> ../0000:03:00.0", "-> ../x", 1): `/sys/bus/pci/devices/0000:03:02.0/physfn: not a PCI address: "x"`,
			strings.Replace(vf, "symlink sys/bus/pci/devices/0000:03:02.0/physfn -> ../0000:03:00.0",
				"mkdir sys/bus/pci/devices/0000:03:02.0/physfn", 1): "/sys/bus/pci/devices/0000:03:02.0/physfn: invalid argument",
		} {
			if _, err := guard.Needs(hosttest.Lay(t, tree), nil, guard.Running{}); fmt.Sprint(err) != want {
				t.Errorf("%v, want %s", err, want)
			}
		}
	})
}

// TestAddresses: the host needs an interface that is up and has a global address, also if no file
// shows all its routes.
func TestAddresses(t *testing.T) {
	const route = "0000:03:00.0 carries the default route, through eth0\n"
	const address = "0000:04:00.0 carries the address 198.51.100.2, through eth1\n"
	live := func(pairs ...string) guard.Running {
		running := guard.Running{Addresses: map[string][]netip.Addr{}}
		for pair := range slices.Chunk(pairs, 2) {
			running.Addresses[pair[0]] = append(running.Addresses[pair[0]], netip.MustParseAddr(pair[1]))
		}
		return running
	}
	mayHave := func(card, name, what string) string {
		return card + " may carry " + what + ", through " + name + ": the interface with that address is not determined\n"
	}
	// without is storage without routes of eth1 in the main table.
	without := strings.Replace(storage, "eth1 006433C6 00000000 0001 0 0 0 00FFFFFF 0 0 0\n", "", 1)
	for _, test := range []struct {
		name, files string
		running     guard.Running
		want        string
	}{
		{"by direct routes", joined(storage, mainTable), guard.Running{}, route + address},
		{"of a VRF", joined(without, strings.ReplaceAll(ruledTables, "198.51.100.2", "192.0.2.3")), guard.Running{},
			route + mayHave("0000:04:00.0", "eth1", "the address 203.0.113.2")},
		{"with no direct route", joined(without, mainTable), guard.Running{}, route + mayHave("0000:04:00.0", "eth1", "the address 198.51.100.2")},
		{"of a table of the same network as the main one's",
			joined(storage, strings.ReplaceAll(ruledTables, "203.0.113.2", "192.0.2.7")), guard.Running{}, route + address},
		{"on a machine whose tables are not shown", storage, guard.Running{}, route + mayHave("0000:04:00.0", "eth1", "an address of the host")},
		{"by rtnetlink", joined(without, ruledTables),
			live("eth0", "192.0.2.2", "eth1", "203.0.113.2", "eth1", "2001:db8::1", "lo", "127.0.0.1", "lo", "198.51.100.2"),
			route + "0000:04:00.0 carries the address 203.0.113.2 and 1 more, through eth1\n"},
		{"by rtnetlink, without carrier, and set down", joined(without, ruledTables),
			live("eth1", "169.254.1.1", "eth1", "fe80::1", "eth2", "203.0.113.2", "eth3", "203.0.113.3"),
			route + "0000:07:00.0 carries the address 203.0.113.2, through eth2\n"},
		{"IPv6", joined(storage, strings.ReplaceAll(mainTable, "198.51.100.2", "192.0.2.3"),
			"-- proc/net/if_inet6 --\nfe800000000000000000000000000001 02 40 20 80 eth2\n"+
				"20010db8000000000000000000000001 03 40 00 80 eth1\n00000000000000000000000000000001 01 80 10 80 lo\n"), guard.Running{},
			route + "0000:04:00.0 carries the address 2001:db8::1, through eth1\n"},
		{"of a bridge, and none of its ports", joined(storage,
			"symlink sys/class/net/br0 -> ../../devices/virtual/net/br0\nmkdir sys/devices/virtual/net/br0/lower_eth2\n"), live("br0", "203.0.113.2"),
			route + "0000:07:00.0 carries the address 203.0.113.2, through br0\n"},
		{"of a bridge for containers, beside Open vSwitch",
			joined(storage, "symlink sys/class/net/docker0 -> ../../devices/virtual/net/docker0\n"+
				"mkdir sys/devices/virtual/net/docker0\nsymlink sys/devices/pci0000:00/0000:04:00.0/net/eth1/master -> ../../../../virtual/net/ovs-system\n"+
				"-- sys/devices/virtual/net/docker0/uevent --\nDEVTYPE=bridge\nINTERFACE=docker0\n"),
			live("docker0", "172.17.0.1"), route + "0000:04:00.0 carries Open vSwitch (ovs-system), through eth1\n"},
		{"the session's, in a VRF", joined(without, ruledTables),
			guard.Running{Session: "203.0.113.7 4711 203.0.113.2 22", Addresses: live("eth1", "203.0.113.2").Addresses},
			route + "0000:03:00.0 carries this ssh session, through eth0\n0000:04:00.0 carries the address 203.0.113.2, through eth1\n" +
				"0000:04:00.0 carries this ssh session, through eth1\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, needs(t, hosttest.Lay(t, test.files), test.running)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestRules: the interface of a server is not determined if another table may route to it.
func TestRules(t *testing.T) {
	root := hosttest.Lay(t, joined(storage, ruledTables, mounted("198.51.100.9:/r / nfs rw,addr=198.51.100.9 0 0")))
	const why = ": the interface that reaches its server is not determined\n"
	want := "0000:03:00.0! may carry 198.51.100.9:/r, mounted at /, through eth0" + why + "0000:03:00.0 carries the default route, through eth0\n" +
		"0000:04:00.0! may carry 198.51.100.9:/r, mounted at /, through eth1" + why + "0000:04:00.0 carries the address 198.51.100.2, through eth1\n"
	if diff := cmp.Diff(want, needs(t, root, guard.Running{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestNetworkUnclear: malformed files are errors.
func TestNetworkUnclear(t *testing.T) {
	for tree, want := range map[string]string{
		"-- proc/net/fib_trie --\nMain\n":                                                    `/proc/net/fib_trie: not a table: "Main"`,
		"-- proc/net/fib_trie --\n |-- 192.0.2.2\n":                                          `/proc/net/fib_trie: line before the first table: "|-- 192.0.2.2"`,
		"-- proc/net/fib_trie --\nMain:\n  |-- x\n":                                          `/proc/net/fib_trie: ParseAddr("x"): unable to parse IP`,
		"-- proc/net/if_inet6 --\n20 03 40 00 80 eth1\n":                                     `/proc/net/if_inet6: not an address: "20"`,
		"-- proc/net/if_inet6 --\neth1\n":                                                    "/proc/net/if_inet6: 1 fields",
		"-- sys/class/net/eth0/flags --\nup\n":                                               `/sys/class/net/eth0/flags: not a number: "up"`,
		"-- proc/mounts --\n/dev/sda1 /\n":                                                   `/proc/mounts: not a mount: "/dev/sda1 /"`,
		"-- proc/net/ipv6_route --\n" + strings.Repeat("0", 32) + " 00 0 0 0 0 0 0 x eth0\n": `/proc/net/ipv6_route: flags: not a hexadecimal number: "x"`,
	} {
		if _, err := guard.Needs(hosttest.Lay(t, tree), nil, guard.Running{}); fmt.Sprint(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
	}
}

// TestNamespace: a process that does not see the host's interfaces gets an error.
func TestNamespace(t *testing.T) {
	for first, want := range map[string]string{
		"symlink proc/1/ns/net -> net:[1]\n": "<nil>",
		"symlink proc/1/ns/net -> net:[2]\n": "/proc/self/ns/net: " + guard.ErrNamespace.Error(),
		"":                                   "<nil>",
	} {
		root := hosttest.Lay(t, first+"symlink proc/self/ns/net -> net:[1]\nmkdir sys\n")
		if _, err := guard.Needs(root, nil, addressOf("lo", "127.0.0.1")); fmt.Sprint(err) != want {
			t.Errorf("%v, want %s", err, want)
		}
		if _, err := guard.Needs(root, nil, guard.Running{}); err != nil {
			t.Error(err)
		}
	}
}

// TestReadAddresses: rtnetlink shows the address of the loopback interface if it is up.
func TestReadAddresses(t *testing.T) {
	addresses, err := guard.ReadAddresses()
	if err != nil || !slices.Contains(addresses["lo"], netip.MustParseAddr("127.0.0.1")) {
		t.Errorf("%v, %v", addresses, err)
	}
}

// TestReplay: a snapshot has the same needs as its machine.
func TestReplay(t *testing.T) {
	for name, archive := range map[string]string{
		"iSCSI": joined(storage, mainTable, iscsiDisk, mounted("/dev/sda1 / ext4 rw 0 0")),
		"several paths": joined(machine,
			"-- proc/mounts --\n/dev/disk/by-uuid/4711 / ext4 rw 0 0\n/dev/mapper/vg-root /srv btrfs rw 0 0\n/dev/sda1 /home btrfs rw 0 0\n"),
		"Open vSwitch":                joined(machine, "-- proc/net/route --\nbr-ex 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n"),
		"a VLAN on bonds":             joined(machine, "-- proc/net/route --\nbr0 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n"),
		"iSCSI bound to an interface": joined(storage, mainTable, iscsiDisk, "-- sys/class/iscsi_host/host2/netdev --\neth0\n", mounted("/dev/sda1 / ext4 rw 0 0")),
		"a partition of IPoIB": joined(strings.Replace(storage, "\neth1 0064", "\nib0.8001 0064", 1), mainTable,
			"symlink sys/class/net/ib0.8001 -> ../../devices/virtual/net/ib0.8001\n-- sys/devices/virtual/net/ib0.8001/type --\n32\n"+
				"-- sys/devices/virtual/net/ib0.8001/ifindex --\n9\n-- sys/devices/virtual/net/ib0.8001/iflink --\n4\n"+
				"-- sys/devices/pci0000:00/0000:07:00.0/net/eth2/ifindex --\n4\n"),
		"a guest's TAP interface": joined(strings.Replace(storage, "\neth1 0064", "\nvirbr0 0064", 1), mainTable,
			"symlink sys/class/net/virbr0 -> ../../devices/virtual/net/virbr0\n"+
				"symlink sys/class/net/vnet0 -> ../../devices/virtual/net/vnet0\nmkdir sys/devices/virtual/net/virbr0/lower_vnet0\n"+
				"symlink sys/devices/pci0000:00/0000:04:00.0/net/eth1/master -> ../../../../virtual/net/ovs-system\n"+
				"-- sys/devices/virtual/net/virbr0/uevent --\nDEVTYPE=bridge\n-- sys/devices/virtual/net/vnet0/tun_flags --\n0x1002\n"),
		"a VRF": joined(storage, ruledTables, fabricsAt("tcp", "traddr=198.51.100.9"), mounted("/dev/nvme9n1 /usr ext4 rw 0 0")),
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, archive)
			want := needs(t, root, guard.Running{})
			var tree snapshot.Tree
			if got := needs(t, root.Recorded(&tree), guard.Running{}); got != want {
				t.Errorf("while it is recorded: %s, want %s", got, want)
			}
			dir := t.TempDir()
			if err := tree.Unpack(dir); err != nil {
				t.Fatal(err)
			}
			replay, err := host.NewRoot(dir)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(want, needs(t, replay, guard.Running{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
