package guard_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/guard"
)

// netAt is an interface with its folder below /sys/devices.
func netAt(dir string) string {
	name := dir[strings.LastIndex(dir, "/")+1:]
	return fmt.Sprintf("symlink sys/class/net/%s -> ../../devices/%s\nmkdir sys/devices/%s\n", name, dir, dir)
}

// nics are eth0 (04:00.0), eth1 (05:00.0), eth2 of a VF of 05:00.0 (05:01.0), and a bond of the first two.
var nics = netAt("pci0000:00/0000:04:00.0/net/eth0") + netAt("pci0000:00/0000:05:00.0/net/eth1") + netAt("pci0000:00/0000:05:01.0/net/eth2") +
	netAt("virtual/net/bond0") + netAt("virtual/net/bond0.7") + netAt("virtual/net/lo") + `
mkdir sys/devices/virtual/net/bond0/lower_eth0
mkdir sys/devices/virtual/net/bond0/lower_eth1
mkdir sys/devices/virtual/net/bond0.7/lower_bond0
symlink sys/devices/pci0000:00/0000:04:00.0/net/eth0/master -> ../../bond0
symlink sys/devices/pci0000:00/0000:04:00.0/net/eth0/upper_bond0 -> ../../bond0
symlink sys/bus/pci/devices/0000:05:01.0/physfn -> ../0000:05:00.0
`

var nicsFiles = file("sys/class/net/bonding_masters", "bond0") + file("sys/class/net/eth0/flags", "0x1003") + file("sys/class/net/eth0/carrier", "1") +
	file("sys/class/net/eth1/flags", "0x1003") + file("sys/class/net/eth1/carrier", "0") + file("sys/class/net/eth2/flags", "0x1002") +
	function("0000:04:00.0", "020000") + function("0000:05:00.0", "020700") + function("0000:05:01.0", "020000")

func TestReadUses(t *testing.T) {
	addresses := func(names ...string) map[string][]netip.Addr {
		all := map[string][]netip.Addr{"lo": {netip.MustParseAddr("127.0.0.1")}}
		for _, n := range names {
			name, address, _ := strings.Cut(n, " ")
			all[name] = append(all[name], netip.MustParseAddr(address))
		}
		return all
	}
	const route4 = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT"
	// What the interfaces always show.
	const eth0 = "0000:04:00.0 has the port eth0 of bond0\n0000:04:00.0 has carrier on eth0\n"
	for _, test := range []struct {
		name    string
		parts   []string
		running guard.Running
		want    string
	}{
		{"interfaces", nil, guard.Running{}, eth0},
		{"an idle member of an array", []string{recorded("259:1", "ID_FS_TYPE=linux_raid_member")}, guard.Running{}, "0000:01:00.0 has a member of a RAID array (linux_raid_member) on /dev/nvme0n1p1\n" + eth0},
		{"an idle pool", []string{recorded("259:1", "ID_FS_TYPE=zfs_member", "ID_FS_USAGE=filesystem")}, guard.Running{}, "0000:01:00.0 has a member of a volume group or a pool (zfs_member) on /dev/nvme0n1p1\n" + eth0},
		{"a mount on a stack, once", []string{stackedOn("md0", "nvme0n1p1", "sda2"), numbered("md0 9:0"), mountinfo("9:0 /srv xfs /dev/md0 rw", "9:0 /a xfs /dev/md0 rw"), recorded("259:1", "ID_FS_TYPE=linux_raid_member", "ID_FS_USAGE=raid"), recorded("259:0", "ID_PART_TABLE_TYPE=gpt")}, guard.Running{},
			"0000:00:17.0 is mounted at /srv (/dev/md0)\n0000:01:00.0 is mounted at /srv (/dev/md0)\n" + eth0},
		{"an array that is not mounted", []string{stackedOn("md0", "nvme0n1p1"), recorded("259:1", "ID_FS_TYPE=linux_raid_member", "ID_FS_USAGE=raid")}, guard.Running{}, "0000:01:00.0 carries a disk in use: /dev/nvme0n1p1 is part of /dev/md0, an active RAID array\n" + eth0},
		{"swap", []string{file("proc/swaps", "/dev/nvme0n1p1 partition 1 0 -2")}, guard.Running{}, "0000:01:00.0 is a swap area (/dev/nvme0n1p1)\n" + eth0},
		{"content", []string{recorded("259:1", "ID_FS_TYPE=ext4", "ID_FS_USAGE=filesystem"), recorded("259:0", "ID_PART_TABLE_TYPE=gpt"), recorded("8:0", "ID_PART_TABLE_TYPE=gpt")}, guard.Running{},
			"0000:00:17.0 has a partition table (gpt) on /dev/sda\n0000:01:00.0 has a file system (ext4) on /dev/nvme0n1p1\n" + eth0},
		{"a loop device", []string{stackedOn("loop0"), file("sys/class/block/loop0/loop/backing_file", "/dev/nvme0n1")}, guard.Running{}, "0000:01:00.0 is below /dev/loop0 (/dev/nvme0n1)\n" + eth0},
		{"a compressed disk in memory", []string{stackedOn("zram0"), file("sys/class/block/zram0/backing_dev", "/dev/nvme0n1")}, guard.Running{}, "0000:01:00.0 is below /dev/zram0 (/dev/nvme0n1)\n" + eth0},
		{"a target of LIO", []string{file("sys/kernel/config/target/core/iblock_0/disk1/udev_path", "/dev/nvme0n1"), file("sys/kernel/config/target/core/iblock_0/hba_info", "HBA"),
			"mkdir sys/kernel/config/target/core/alua/lu_gps\n"}, guard.Running{}, "0000:01:00.0 is offered over a network as iblock_0/disk1 (/dev/nvme0n1)\n" + eth0},
		{"the target of NVMe", []string{file("sys/kernel/config/nvmet/subsystems/nqn.x/namespaces/1/device_path", "/dev/nvme0n1")}, guard.Running{}, "0000:01:00.0 is offered over a network as nqn.x/1 (/dev/nvme0n1)\n" + eth0},
		{"the default route in files", []string{file("proc/net/route", route4, "bond0.7 00000000 010200C0 0003 0 0 0 00000000 0 0 0", "eth1 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0")}, guard.Running{},
			"0000:04:00.0 has the default route through bond0.7\n" + eth0 + "0000:05:00.0 has the default route through bond0.7\n0000:05:00.0 has a route through eth1\n"},
		{"the default route of IPv6", []string{file("proc/net/ipv6_route",
			strings.Repeat("0", 32)+" 00 0 00 fe80 400 1 0 3 eth1", "fe80"+strings.Repeat("0", 28)+" 40 0 00 0 400 1 0 1 eth0", strings.Repeat("0", 32)+" 00 0 00 0 ffffffff 1 0 200200 lo")}, guard.Running{},
			eth0 + "0000:05:00.0 has the default route through eth1\n"},
		{"each next hop of the machine, of which a file shows one", []string{file("proc/net/route", route4, "eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0", "eth1 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0")}, guard.Running{DefaultRoutes: []string{"eth0", "eth1"}, Addresses: addresses()}, "0000:04:00.0 has the default route through eth0\n" + eth0 + "0000:05:00.0 has the default route through eth1\n"},
		{"an address of a VF", nil, guard.Running{Addresses: addresses("eth2 192.0.2.1", "eth1 fe80::1")}, eth0 + "0000:05:00.0 has an address on eth2\n0000:05:01.0 has an address on eth2\n"},
		{"the ssh session", nil, guard.Running{Session: "192.0.2.9 1 ::ffff:192.0.2.1 22", Addresses: addresses("eth1 192.0.2.1")}, eth0 + "0000:05:00.0 carries the ssh session from 192.0.2.9\n0000:05:00.0 has an address on eth1\n"},
		{"the ssh session of a link", nil, guard.Running{Session: "fe80::9%eth1 1 fe80::1%eth1 22", Addresses: addresses("eth1 fe80::1")}, eth0 + "0000:05:00.0 carries the ssh session from fe80::9%eth1\n"},
		{"an ssh session without addresses", nil, guard.Running{Session: "UNKNOWN 65535 UNKNOWN 65535"}, eth0 + ""},
		{"an interface that is not seen", []string{function("0000:06:00.0", "020000"), "symlink sys/bus/pci/devices/0000:06:00.0/driver -> ../../drivers/mlx5_core\n"}, guard.Running{}, eth0 + "0000:06:00.0 has the network driver mlx5_core and no interface in this network namespace\n"},
		{"a serial console", []string{"symlink sys/class/tty/ttyS4 -> ../../devices/pci0000:00/0000:06:00.0/tty/ttyS4\n", function("0000:06:00.0", "070002"), file("proc/consoles", "tty0 -WU (E p ) 4:1", "ttyS4 -W- (EC p a) 4:68")}, guard.Running{}, eth0 + "0000:06:00.0 is the console (ttyS4)\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, devices := layParts(t, append([]string{disks, disksFiles, nics, nicsFiles}, test.parts...)...)
			uses, warnings := guard.ReadUses(root, devices, test.running)
			got := strings.Join(warnings, "\n")
			for _, u := range uses {
				got += fmt.Sprintf("%s %s\n", u.Address, u.What)
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestReadUsesUnread: a file that cannot be read costs its words alone.
func TestReadUsesUnread(t *testing.T) {
	root, devices := layParts(t, nics, nicsFiles, "mkdir proc/swaps\nmkdir proc/net/route\n")
	uses, warnings := guard.ReadUses(root, devices, guard.Running{})
	if len(uses) != 2 || len(warnings) != 2 {
		t.Errorf("got %v and %q", uses, warnings)
	}
}

func TestInterfaces(t *testing.T) {
	for _, test := range []struct {
		name, address, class string
		parts                []string
		want                 string
		hidden               bool
	}{
		{"a port", "0000:04:00.0", "", nil, "{eth0 true true true bond0}", false},
		{"without carrier", "0000:05:00.0", "", nil, "{eth1 true false false }", false},
		{"down", "0000:05:01.0", "", nil, "{eth2 false false false }", false},
		{"its state is not shown", "0000:06:00.0", "020000", []string{netAt("pci0000:00/0000:06:00.0/mlx5_core.sf.2/net/en6")}, "{en6 true false false }", false},
		{"in another namespace", "0000:06:00.0", "020000", []string{"symlink sys/bus/pci/devices/0000:06:00.0/driver -> ../../drivers/mlx5_core\n"}, "", true},
		{"without a driver", "0000:06:00.0", "020000", nil, "", false},
		{"bound to vfio-pci", "0000:06:00.0", "020000", []string{"symlink sys/bus/pci/devices/0000:06:00.0/driver -> ../../drivers/vfio-pci\n"}, "", false},
		{"no network function", "0000:06:00.0", "010802", []string{"symlink sys/bus/pci/devices/0000:06:00.0/driver -> ../../drivers/nvme\n"}, "", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			parts := append([]string{nics, nicsFiles}, test.parts...)
			if test.class != "" {
				parts = append(parts, function(test.address, test.class))
			}
			root, devices := layParts(t, parts...)
			needs, err := guard.Observe(root, devices, guard.Running{})
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			links := needs.Links[at(test.address)[0]]
			for _, i := range links.Interfaces {
				got += fmt.Sprintf("{%s %t %t %t %s}", i.Name, i.Up, i.Carrier, i.Master, i.MasterName)
			}
			if got != test.want || links.Hidden != test.hidden {
				t.Errorf("got %s, %t", got, links.Hidden)
			}
		})
	}
}

func TestBelow(t *testing.T) {
	const dir = "pci0000:00/0000:01:00.2/"
	link := func(class, name, target string) string {
		return fmt.Sprintf("symlink sys/%s/%s -> ../../devices/%s/%s\nmkdir sys/devices/%s/%s\n", class, name, target, name, target, name)
	}
	hub := link("bus/usb/devices", "usb3", dir[:len(dir)-1])
	for _, test := range []struct {
		name  string
		parts []string
		want  string
	}{
		{"a root hub", []string{hub, "symlink sys/bus/usb/devices/3-0:1.0 -> ../../../devices/" + dir + "usb3/3-0:1.0\n"}, ""},
		{"a USB device with an input and a disk of its own", []string{hub,
			"symlink sys/bus/usb/devices/3-1.2 -> ../../../devices/" + dir + "usb3/3-1.2\nsymlink sys/bus/usb/devices/3-1.2:1.0 -> ../../../devices/" + dir + "usb3/3-1.2/3-1.2:1.0\n",
			diskAt(dir + "usb3/3-1.2/3-1.2:1.0/host7/block/sdb"), "symlink sys/class/input/input9 -> ../../devices/" + dir + "usb3/3-1.2/3-1.2:1.0/input/input9\n",
			file("sys/devices/"+dir+"usb3/3-1.2/product", "YubiKey")}, "USB device 3-1.2 (YubiKey)"},
		{"a USB disk, where no file shows USB devices", []string{diskAt(dir + "usb3/3-1.2/3-1.2:1.0/host7/block/sdb")}, "disk sdb"},
		{"a disk with a partition", []string{diskAt(dir+"nvme/nvme0/nvme0n1", "nvme0n1p1")}, "disk nvme0n1"},
		{"a path of a disk with several", []string{diskAt(dir + "nvme/nvme0/nvme0c0n1")}, "disk nvme0c0n1"},
		{"an interface", []string{netAt(dir + "net/eth5")}, "interface eth5"},
		{"a serial port", []string{link("class/tty", "ttyS4", dir+"tty")}, "serial port ttyS4"},
		{"an input device", []string{link("class/input", "input4", dir+"input"), link("class/input", "event4", dir+"input/input4"), file("sys/devices/"+dir+"input/input4/name", "Buttons")}, "input device input4 (Buttons)"},
		{"the inputs of a sound card", []string{link("class/input", "input5", dir+"sound/card1"), link("class/input", "event5", dir+"sound/card1/input5")}, ""},
		{"of another function", []string{netAt("pci0000:00/0000:01:00.3/net/eth5")}, ""},
		{"several", []string{netAt(dir + "net/eth5"), diskAt(dir + "host7/block/sdb")}, "disk sdb, interface eth5"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, _ := layParts(t, append([]string{function("0000:01:00.2", "0c0330")}, test.parts...)...)
			got, err := guard.Below(root, at("0000:01:00.2")[0])
			if err != nil || got != test.want {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}
