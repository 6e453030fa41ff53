package guard_test

import (
	"fmt"
	"io/fs"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
)

// TestCrowd: the needs of a disk with hundreds of mounts are folded, except absolute ones.
func TestCrowd(t *testing.T) {
	mounts := []string{"/dev/nvme0n1p1 /srv ext4 rw 0 0", "/dev/nvme0n1p1 / ext4 rw 0 0"}
	for i := range 300 {
		mounts = append(mounts,
			fmt.Sprintf("/dev/nvme0n1p1 /var/lib/kubelet/pods/%d ext4 rw 0 0", i),
			fmt.Sprintf("/dev/rbd0 /var/lib/kubelet/plugins/%d ext4 rw 0 0", i),
			fmt.Sprintf("overlay /var/lib/docker/overlay2/%d/merged overlay rw,lowerdir=l/A:l/B 0 0", i),
			fmt.Sprintf("/dev/loop%d /snap/core/%d squashfs ro 0 0", i, i))
	}
	var loops strings.Builder
	for i := range 300 {
		loops.WriteString(virtual(fmt.Sprintf("loop%d", i)))
	}
	for i := range 300 {
		fmt.Fprintf(&loops, "-- sys/devices/virtual/block/loop%d/loop/backing_file --\n/var/lib/snapd/snaps/core_%d.snap\n", i, i)
	}
	const rbd = "symlink sys/class/block/rbd0 -> ../../devices/rbd/0/block/rbd0\nmkdir sys/devices/rbd/0/block/rbd0\n"
	const why = ": the interface that reaches its server is not determined\n"
	want := "0000:01:00.0 carries /dev/nvme0n1p1, mounted at /srv, and 300 more\n0000:01:00.0! carries /dev/nvme0n1p1, mounted at /\n" +
		"0000:03:00.0 may carry /dev/rbd0, mounted at /var/lib/kubelet/plugins/0, and 299 more, through eth0" + why +
		"0000:03:00.0 carries the default route, through eth0\n" +
		"0000:04:00.0 may carry /dev/rbd0, mounted at /var/lib/kubelet/plugins/0, and 299 more, through eth1" + why +
		"0000:04:00.0 carries the address 198.51.100.2, through eth1\n"
	if diff := cmp.Diff(want, needs(t, hosttest.Lay(t, joined(storage, mainTable, rbd, loops.String(), mounted(mounts...))), guard.Running{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// counting counts how often each file is read, by several goroutines.
type counting struct {
	mu    *sync.Mutex
	times map[string]int
}

func newCounting() counting { return counting{&sync.Mutex{}, map[string]int{}} }

func (c counting) File(name string, _ []byte, _ error) { c.add(name) }
func (counting) Mode(string, fs.FileMode)              {}
func (counting) Link(string, string, error)            {}
func (counting) Dir(string, []string, error)           {}

func (c counting) add(name string) (times int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.times[name]++
	return c.times[name]
}

// TestManyNamespaces: the mount tables of hundreds of containers are read once for each namespace,
// and sysfs and udev's database once for each disk.
func TestManyNamespaces(t *testing.T) {
	links, files := "symlink proc/self -> 1\nsymlink proc/1/ns/mnt -> mnt:[1]\n", ""
	for i := 10; i < 310; i++ {
		links += fmt.Sprintf("symlink proc/%d/ns/mnt -> mnt:[%d]\n", i, i/2)
		files += fmt.Sprintf("-- proc/%d/mountinfo --\n", i)
		for place := range 20 {
			files += fmt.Sprintf("%d 0 259:%d / /data%d rw - ext4 /dev/x%d rw\n", place, place%4, place, place%4)
		}
	}
	read := newCounting()
	root := hosttest.Lay(t, joined(spare, links, files, udev("259:1", "ID_FS_TYPE=ext4"))).Recorded(read)
	const in = " in the mount namespace of process 10\n"
	want := rootDisk + "0000:01:00.0 carries /dev/nvme0n1, mounted at /data0" + in + "0000:01:00.0 carries /dev/nvme0n1p1, mounted at /data1" + in +
		"0000:01:00.0 carries /dev/nvme0n1p2, mounted at /data2" + in + "0000:01:00.0 may carry /dev/x3, mounted at /data3 in the mount namespace of process 10: its disk is not determined\n"
	got := needs(t, root, guard.Running{})
	if diff := cmp.Diff(want, strings.Replace(got, "0000:00:17.0 may carry /dev/x3, mounted at /data3 in the mount namespace of process 10: its disk is not determined\n", "", 1)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	tables := 0
	for name, n := range read.times {
		if strings.HasSuffix(name, "mountinfo") {
			tables += n
		}
		if n > 1 && (strings.HasSuffix(name, "/dev") || strings.HasPrefix(name, "run/udev")) {
			t.Errorf("%s: read %d times", name, n)
		}
	}
	if tables != 150 {
		t.Errorf("read %d mount tables, want 150", tables)
	}
}

// whole counts the files of which more than the beginning is read.
type whole struct{ counting }

func (w whole) File(name string, data []byte, _ error) {
	if len(data) > 100 {
		w.add(name)
	}
}

// TestManyProcesses: a user who may not read the namespaces of processes gets what root gets, and
// does not wait for the same mount table of each process.
func TestManyProcesses(t *testing.T) {
	const own = 1
	// table is that of a namespace: the kernel numbers the mounts of all namespaces.
	table := func(namespace int) (text string) {
		disk := map[bool]int{true: 2, false: 1}[namespace == own]
		for place := range 20 {
			text += fmt.Sprintf("%d %d 259:%d / /data%d rw - ext4 /dev/x rw\n", namespace*100+place, namespace*100, disk, place)
		}
		return text
	}
	links, files := "symlink proc/self -> 1\nsymlink proc/1/ns/mnt -> mnt:[1]\n", "-- proc/1/mountinfo --\n"+table(own)
	for i := 2; i < 310; i++ {
		files += fmt.Sprintf("-- proc/%d/mountinfo --\n%s", i, table(own+i/100))
	}
	read := whole{newCounting()}
	got := needs(t, hosttest.Lay(t, joined(spare, links, files)).Recorded(read), guard.Running{})
	if diff := cmp.Diff(rootDisk+"0000:01:00.0 carries /dev/nvme0n1p1, mounted at /data0 in the mount namespace of process 100\n", got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	tables := 0
	for name, n := range read.times {
		if strings.HasSuffix(name, "mountinfo") {
			tables += n
		}
	}
	if tables != 3 {
		t.Errorf("read %d mount tables, want 3", tables)
	}
}

// TestManyRoutes: a host with the routes of a whole fabric is read like any other.
func TestManyRoutes(t *testing.T) {
	const count = 40_000
	var routes, trie strings.Builder
	for i := range count {
		fmt.Fprintf(&routes, "%-127s\n", fmt.Sprintf("eth1\t%04X0A0A\t010200C0\t0007\t0\t0\t0\tFFFFFFFF\t0\t0\t0", i))
		fmt.Fprintf(&trie, "                    |-- 10.10.%d.%d\n                       /32 universe UNICAST\n", i&255, i>>8)
	}
	files := strings.Replace(storage, "eth1 006433C6", routes.String()+"eth1 006433C6", 1)
	tables := strings.Replace(mainTable, "Local:\n", trie.String()+"Local:\n", 1)
	want := "0000:03:00.0 carries the default route, through eth0\n0000:04:00.0 carries the address 198.51.100.2, through eth1\n"
	if diff := cmp.Diff(want, needs(t, hosttest.Lay(t, joined(files, tables)), guard.Running{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func addressOf(name, address string) guard.Running {
	return guard.Running{Addresses: map[string][]netip.Addr{name: {netip.MustParseAddr(address)}}}
}

// TestVirtualInterfaces: an interface without a device needs the functions of those below it.
func TestVirtualInterfaces(t *testing.T) {
	const route = "0000:03:00.0 carries the default route, through eth0\n"
	link := func(name string) string {
		return "symlink sys/class/net/" + name + " -> ../../devices/virtual/net/" + name + "\nmkdir sys/devices/virtual/net/" + name + "\n"
	}
	const port = "0000:04:00.0 carries Open vSwitch (ovs-system), through eth1\n"
	const ovs = "symlink sys/devices/pci0000:00/0000:04:00.0/net/eth1/master -> ../../../../virtual/net/ovs-system\n"
	through := func(name string) string {
		return strings.Replace(storage, "\neth0 00000000", "\n"+name+" 00000000", 1)
	}
	may := func(what, below string) string {
		return "0000:03:00.0 may carry " + what + ", through eth0: the interface below " + below + " is not determined\n" +
			"0000:04:00.0 may carry " + what + ", through eth1: the interface below " + below + " is not determined\n"
	}
	for _, test := range []struct {
		name, files string
		running     guard.Running
		want        string
	}{
		{"a bridge with a container, beside Open vSwitch", joined(storage, link("docker0"), link("veth1"), ovs, "mkdir sys/devices/virtual/net/docker0/lower_veth1\n",
			"-- sys/devices/virtual/net/docker0/uevent --\nDEVTYPE=bridge\n-- sys/devices/virtual/net/veth1/ifindex --\n9\n"+
				"-- sys/devices/virtual/net/veth1/iflink --\n2\n-- sys/devices/pci0000:00/0000:03:00.0/net/eth0/ifindex --\n2\n"),
			addressOf("docker0", "172.17.0.1"), route + port},
		{"a network of libvirt's with a guest, beside Open vSwitch",
			joined(storage, link("virbr0"), link("vnet0"), ovs, "mkdir sys/devices/virtual/net/virbr0/lower_vnet0\n",
				"-- sys/devices/virtual/net/virbr0/uevent --\nDEVTYPE=bridge\n-- sys/devices/virtual/net/vnet0/tun_flags --\n0x1002\n"),
			addressOf("virbr0", "192.168.122.1"), route + port},
		{"an internal port of Open vSwitch", joined(storage, link("br-ex"), ovs,
			"-- sys/devices/virtual/net/br-ex/ifindex --\n9\n-- sys/devices/virtual/net/br-ex/iflink --\n9\n"),
			addressOf("br-ex", "203.0.113.2"), route + "0000:04:00.0 carries the address 203.0.113.2, through br-ex\n" + port},
		{"a partition of IPoIB", joined(storage, link("ib0.8001"),
			"-- sys/devices/virtual/net/ib0.8001/type --\n32\n-- sys/devices/virtual/net/ib0.8001/ifindex --\n9\n"+
				"-- sys/devices/virtual/net/ib0.8001/iflink --\n4\n-- sys/devices/pci0000:00/0000:07:00.0/net/eth2/ifindex --\n4\n"),
			addressOf("ib0.8001", "203.0.113.2"), route + "0000:07:00.0 carries the address 203.0.113.2, through ib0.8001\n"},
		{"a default route through a port of DPDK's", joined(through("br-ex"), link("br-ex")), addressOf("br-ex", "203.0.113.2"),
			route + may("the default route", "br-ex")},
		{"a session through a tunnel", joined(through("wg0"), link("wg0")),
			guard.Running{Session: "203.0.113.7 4711 192.0.2.2 22", Addresses: addressOf("wg0", "203.0.113.2").Addresses},
			route + "0000:03:00.0 may carry the default route, through eth0: the interface below wg0 is not determined\n" +
				"0000:03:00.0 carries this ssh session, through eth0\n0000:03:00.0 may carry this ssh session, through eth0: the interface below wg0 is not determined\n" +
				"0000:04:00.0 may carry the default route, through eth1: the interface below wg0 is not determined\n" +
				"0000:04:00.0 may carry this ssh session, through eth1: the interface below wg0 is not determined\n"},
		{"a session from this host", joined(storage),
			guard.Running{Session: "127.0.0.1 4711 127.0.0.1 22", Addresses: addressOf("lo", "127.0.0.1").Addresses}, route},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, needs(t, hosttest.Lay(t, test.files), test.running)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestStorageNetworks covers disks and file systems of servers as real machines show them.
func TestStorageNetworks(t *testing.T) {
	const route = "0000:03:00.0 carries the default route, through eth0\n"
	const address = "0000:04:00.0 carries the address 198.51.100.2, through eth1\n"
	const root = "/dev/sda1 / ext4 rw 0 0"
	const why = ": the interface that reaches its server is not determined\n"
	through := "0000:04:00.0! carries /dev/sda1, mounted at /, through eth1\n"
	disk := strings.Split(iscsiDisk, "-- ")[0]
	portal := func(persistent, address string) string {
		return disk + "-- sys/class/iscsi_connection/connection1:0/persistent_address --\n" + persistent +
			"\n-- sys/class/iscsi_connection/connection1:0/address --\n" + address + "\n"
	}
	for _, test := range []struct{ name, files, want string }{
		{"iSCSI by a hostname with a known address", joined(portal("san.example.org", "198.51.100.9"), mounted(root)), route + through + address},
		{"iSCSI of an old daemon", joined(portal("(null)", "198.51.100.9"), mounted(root)), route + through + address},
		{"iSCSI bound to an interface", joined(portal("203.0.113.9", "203.0.113.9"), "-- sys/class/iscsi_host/host2/netdev --\neth1\n", mounted(root)),
			"0000:03:00.0! carries /dev/sda1, mounted at /, through eth0\n" + route + through + address},
		{"iSCSI bound to none", joined(portal("198.51.100.9", "198.51.100.9"),
			"-- sys/class/iscsi_host/host2/netdev --\ndefault\n", mounted(root)), route + through + address},
		{"iSCSI in a network without gateways", joined(portal("169.254.0.2", "169.254.0.2"), mounted(root),
			"-- proc/net/route --\nIface\neth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0\n"+
				"eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0\neth1 0000FEA9 00000000 0001 0 0 0 0000FFFF 0 0 0\n"),
			route + "0000:04:00.0! carries /dev/sda1, mounted at /, through eth1\n"},
		{"GPFS, by a name in /dev", mounted("/dev/gpfs0 /home gpfs rw 0 0"),
			"0000:03:00.0 may carry /dev/gpfs0, mounted at /home, through eth0" + why + route +
				"0000:04:00.0 may carry /dev/gpfs0, mounted at /home, through eth1" + why + address},
		{"GPFS elsewhere", mounted("/dev/gpfs0 /gpfs gpfs rw 0 0"), route + address},
		{"DRBD whose disk sysfs does not show", joined(virtual("drbd0"), mounted("/dev/drbd0 /usr ext4 rw 0 0")),
			"0000:01:00.0! may carry /dev/drbd0, mounted at /usr: its disk is not determined\n" +
				"0000:03:00.0! may carry /dev/drbd0, mounted at /usr, through eth0" + why + route +
				"0000:04:00.0! may carry /dev/drbd0, mounted at /usr, through eth1" + why + address},
		{"XFS with its log on another disk", joined("symlink sys/class/block/vda -> ../../devices/pci0000:00/0000:07:00.0/virtio0/block/vda\n"+
			"mkdir sys/devices/pci0000:00/0000:07:00.0/virtio0/block/vda\n", mounted("/dev/nvme0n1p1 / xfs rw,logdev=/dev/vda,rtdev=/dev/nvme0n1 0 0")),
			"0000:01:00.0! carries /dev/nvme0n1p1, mounted at /\n" + route + address + "0000:07:00.0! carries /dev/nvme0n1p1, mounted at /\n"},
		{"an unknown disk, which may be on Fibre Channel or an SD card, and not on a GPU's USB",
			joined(mounted("/dev/root / ext4 rw 0 0"),
				"-- sys/bus/pci/devices/0000:08:00.0/class --\n0x0c0400\n-- sys/bus/pci/devices/0000:09:00.0/class --\n0x0c0330\n"+
					"-- sys/bus/pci/devices/0000:0a:00.0/class --\n0x080501\n"),
			"0000:01:00.0! may carry /dev/root, mounted at /: its disk is not determined\n" + route + address +
				"0000:08:00.0! may carry /dev/root, mounted at /: its disk is not determined\n" +
				"0000:0a:00.0! may carry /dev/root, mounted at /: its disk is not determined\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := joined(storage, mainTable, test.files)
			if strings.Contains(test.files, "169.254") {
				files = joined(strings.Split(storage, "-- proc/net/route --")[0], strings.ReplaceAll(mainTable, "198.51.100.2", "192.0.2.3"), test.files)
			}
			if diff := cmp.Diff(test.want, needs(t, hosttest.Lay(t, files), guard.Running{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
