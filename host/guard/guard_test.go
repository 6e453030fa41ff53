package guard_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// machine has a SATA disk at 00:17.0, NVMe disks at 01:00.0 and 02:00.0, network cards at 03:00.0
// and 04:00.0, and displays at 05:00.0 and 06:00.0.
const machine = `
symlink sys/class/block/sda -> ../../devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda
symlink sys/class/block/sda1 -> ../../devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda/sda1
symlink sys/class/block/nvme0n1 -> ../../devices/pci0000:00/0000:00:1b.0/0000:01:00.0/nvme/nvme0/nvme0n1
symlink sys/class/block/nvme0n1p2 -> ../../devices/pci0000:00/0000:00:1b.0/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p2
symlink sys/class/block/nvme1n1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1
symlink sys/class/nvme-subsystem/nvme-subsys1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys1
symlink sys/devices/virtual/nvme-subsystem/nvme-subsys1/nvme1 -> ../../../pci0000:00/0000:02:00.0/nvme/nvme1
symlink sys/class/nvme/nvme1 -> ../../devices/pci0000:00/0000:02:00.0/nvme/nvme1
mkdir sys/devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1
mkdir sys/devices/pci0000:00/0000:02:00.0/nvme/nvme1
mkdir sys/devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda/sda1
mkdir sys/devices/pci0000:00/0000:00:1b.0/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p2
symlink sys/class/block/dm-0 -> ../../devices/virtual/block/dm-0
symlink sys/class/block/md0 -> ../../devices/virtual/block/md0
mkdir sys/devices/virtual/block/dm-0/slaves/md0
mkdir sys/devices/virtual/block/md0/slaves/sda1
mkdir sys/devices/virtual/block/md0/slaves/nvme0n1p2
symlink sys/class/net/eth0 -> ../../devices/pci0000:00/0000:03:00.0/net/eth0
symlink sys/class/net/eth1 -> ../../devices/pci0000:00/0000:04:00.0/net/eth1
symlink sys/class/net/bond0 -> ../../devices/virtual/net/bond0
symlink sys/class/net/br0 -> ../../devices/virtual/net/br0
symlink sys/class/net/bond0.7 -> ../../devices/virtual/net/bond0.7
symlink sys/class/net/br-ex -> ../../devices/virtual/net/br-ex
mkdir sys/devices/virtual/net/br-ex
mkdir sys/devices/pci0000:00/0000:03:00.0/net/eth0
mkdir sys/devices/virtual/net/bond0/lower_eth0
mkdir sys/devices/virtual/net/bond0/lower_eth1
mkdir sys/devices/virtual/net/bond0.7/lower_bond0
mkdir sys/devices/virtual/net/br0/lower_bond0.7
mkdir sys/devices/pci0000:00/0000:04:00.0/net/eth1
symlink dev/disk/by-uuid/4711 -> ../../nvme1n1
symlink sys/fs/btrfs/b0b0/devices/sda1 -> ../../../../devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda/sda1
symlink sys/fs/btrfs/b0b0/devices/nvme1n1 -> ../../../../devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1
mkdir sys/fs/btrfs/b1b1/devices/nvme0n1
mkdir sys/fs/btrfs/features
-- sys/devices/virtual/block/dm-0/dm/name --
vg-root
-- sys/devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda/sda1/dev --
8:1
-- sys/devices/pci0000:00/0000:00:1b.0/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p2/dev --
259:2
-- sys/bus/pci/devices/0000:00:17.0/class --
0x010601
-- sys/bus/pci/devices/0000:01:00.0/class --
0x010802
-- sys/bus/pci/devices/0000:02:00.0/class --
0x010802
-- sys/bus/pci/devices/0000:03:00.0/class --
0x020000
-- sys/bus/pci/devices/0000:04:00.0/class --
0x020000
-- sys/bus/pci/devices/0000:05:00.0/class --
0x030000
-- sys/bus/pci/devices/0000:05:00.0/boot_vga --
0
-- sys/bus/pci/devices/0000:05:00.0/vendor --
0x1a03
-- sys/bus/pci/devices/0000:06:00.0/class --
0x030000
-- sys/bus/pci/devices/0000:06:00.0/vendor --
0x10de
-- sys/bus/pci/devices/0000:06:00.0/boot_vga --
`

const consoles = "0000:05:00.0 is the management controller's console\n"

func TestNeeds(t *testing.T) {
	for _, test := range []struct {
		name, files string // beside the machine's
		want        string
	}{
		{"a tree that runs nothing", "", consoles},
		{"a root partition", "-- proc/mounts --\nproc /proc proc rw 0 0\n/dev/sda1 / ext4 rw 0 0\n", "0000:00:17.0! carries /dev/sda1, mounted at /\n" + consoles},
		{"a root file system on LVM on a mirror", "-- proc/mounts --\n/dev/mapper/vg-root / xfs rw 0 0\n",
			"0000:00:17.0! carries /dev/mapper/vg-root, mounted at /\n0000:01:00.0! carries /dev/mapper/vg-root, mounted at /\n" + consoles},
		{"a disk with several paths, and white space", "-- proc/mounts --\n/dev/nvme1n1 /srv/my\\040disk ext4 rw 0 0\n",
			"0000:02:00.0 carries /dev/nvme1n1, mounted at /srv/my disk\n" + consoles},
		{"an unknown root device", "-- proc/mounts --\n/dev/root / ext4 rw 0 0\n",
			"0000:00:17.0! may carry /dev/root, mounted at /: its disk is not determined\n" +
				"0000:01:00.0! may carry /dev/root, mounted at /: its disk is not determined\n" +
				"0000:02:00.0! may carry /dev/root, mounted at /: its disk is not determined\n" + consoles},
		{"from the network and of memory", "-- proc/mounts --\nserver:/x /srv nfs rw 0 0\ntmpfs / tmpfs rw 0 0\n", consoles},
		{"an unknown data disk", "-- proc/mounts --\n/dev/odd /srv ext4 rw 0 0\n/dev/fuse /run/user/fuse fuse.x rw 0 0\n",
			"0000:00:17.0 may carry /dev/odd, mounted at /srv: its disk is not determined\n" +
				"0000:01:00.0 may carry /dev/odd, mounted at /srv: its disk is not determined\n" +
				"0000:02:00.0 may carry /dev/odd, mounted at /srv: its disk is not determined\n" + consoles},
		{"a link in /dev", "-- proc/mounts --\n/dev/disk/by-uuid/4711 /srv ext4 rw 0 0\n",
			"0000:02:00.0 carries /dev/disk/by-uuid/4711, mounted at /srv\n" + consoles},
		{"btrfs of several devices, which names one", "-- proc/mounts --\n/dev/sda1 /srv btrfs rw 0 0\n",
			"0000:00:17.0 carries /dev/sda1, mounted at /srv\n0000:02:00.0 carries /dev/sda1, mounted at /srv\n" + consoles},
		{"swap", "-- proc/swaps --\nFilename Type Size Used Priority\n/dev/dm-0 partition 1 0 -2\n/swapfile file 1 0 -3\n",
			"0000:00:17.0 carries the swap area /dev/dm-0\n0000:01:00.0 carries the swap area /dev/dm-0\n" + consoles},
		{"ZFS, as udev knows it", "-- proc/mounts --\nrpool/ROOT / zfs rw 0 0\n-- run/udev/data/b8:1 --\nS:disk\n" +
			"E:ID_FS_TYPE=ext4\n-- run/udev/data/b259:2 --\nS:disk\nE:ID_FS_TYPE=zfs_member\n",
			"0000:00:17.0! carries rpool/ROOT, mounted at /\n0000:01:00.0! carries rpool/ROOT, mounted at /\n" +
				"0000:02:00.0! carries rpool/ROOT, mounted at /\n" + consoles},
		{"ZFS whose members udev does not agree on",
			"-- proc/mounts --\nrpool/ROOT / zfs rw 0 0\n" + zfsRecords("E:ID_FS_AMBIVALENT=filesystem:zfs_member:5000 filesystem:ext4:1.0", "E:ID_MODEL=x"),
			"0000:01:00.0! carries rpool/ROOT, mounted at /\n" + consoles},
		{"ZFS by the type of its partition", "-- proc/mounts --\nrpool/ROOT / zfs rw 0 0\n" +
			zfsRecords("E:ID_PART_ENTRY_TYPE=6a898cc3-1dd2-11b2-99a6-080020736631", "E:ID_MODEL=x"),
			"0000:01:00.0! carries rpool/ROOT, mounted at /\n" + consoles},
		{"ZFS whose members udev does not know", "-- proc/mounts --\nrpool/ROOT / zfs rw 0 0\n" + zfsRecords("E:ID_MODEL=x", "E:ID_MODEL=x"),
			"0000:00:17.0! may carry rpool/ROOT, mounted at /: its disk is not determined\n" +
				"0000:01:00.0! may carry rpool/ROOT, mounted at /: its disk is not determined\n" +
				"0000:02:00.0! may carry rpool/ROOT, mounted at /: its disk is not determined\n" + consoles},
		{"a default route", "-- proc/net/route --\nIface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT\n" +
			"eth0 00000000 0102000A 0003 0 0 0 00000000 0 0 0\neth1 0002000A 00000000 0001 0 0 0 00FFFFFF 0 0 0\n",
			"0000:03:00.0 carries the default route, through eth0\n" + consoles},
		{"through a bridge on a VLAN on a bond", "-- proc/net/route --\nIface Destination\nbr0 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n",
			"0000:03:00.0 carries the default route, through br0\n0000:04:00.0 carries the default route, through br0\n" + consoles},
		{"through Open vSwitch", "symlink sys/devices/pci0000:00/0000:04:00.0/net/eth1/master -> ../../../../virtual/net/ovs-system\n-- proc/net/route --\nbr-ex 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n",
			"0000:04:00.0 carries the default route, through br-ex\n0000:04:00.0 carries Open vSwitch (ovs-system), through eth1\n" + consoles},
		{"IPv6", "-- proc/net/ipv6_route --\n" +
			"00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth0\n" +
			"00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo\n",
			"0000:03:00.0 carries the default route, through eth0\n" + consoles},
		{"of another namespace", "-- proc/net/route --\nwlan9 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n", consoles},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, joined(machine, test.files))
			if diff := cmp.Diff(test.want, needs(t, root, guard.Running{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// zfsRecords returns udev's records of a machine's disks: one for nvme0n1p2, others for the rest.
func zfsRecords(one, others string) string {
	return "-- run/udev/data/b259:2 --\n" + one + "\n-- run/udev/data/b8:1 --\n" + others + "\n-- run/udev/data/b --\n" + others + "\n"
}

// needs formats the result of guard.Needs: a line for each need, with ! after the address of an
// absolute one.
func needs(t *testing.T, root host.Root, running guard.Running) string {
	t.Helper()
	devices, _, err := pci.Scan(root, pci.Options{})
	if err != nil {
		t.Fatal(err)
	}
	found, err := guard.Needs(root, devices, running)
	if err != nil {
		t.Fatal(err)
	}
	var got strings.Builder
	for _, n := range found {
		described(t, n)
		mark := ""
		if n.Absolute {
			mark = "!"
		}
		fmt.Fprintf(&got, "%s%s %s\n", n.Address, mark, n.Reason)
	}
	return got.String()
}

// described fails the test if a need lacks a part that decisions and texts depend on.
func described(t *testing.T, n guard.Need) {
	t.Helper()
	if !slices.Contains(guard.Uses(), n.Use) || n.File == "" || n.Subject == "" || n.Code == "" || !strings.Contains(n.Reason, n.Subject) {
		t.Errorf("not described: %+v", n)
	}
}

// TestBlind: files that cannot be read are an error.
func TestBlind(t *testing.T) {
	root := hosttest.Lay(t, "mkdir proc/mounts\nmkdir proc/net/route\n"+machine[1:])
	_, err := guard.Needs(root, nil, guard.Running{})
	if want := "/proc/mounts: not a regular file\n/proc/net/route: not a regular file"; err == nil || err.Error() != want {
		t.Errorf("%v", err)
	}
}

// TestBlindToRunning: what of the running machine could not be read is an error, and hides nothing
// that files show.
func TestBlindToRunning(t *testing.T) {
	root := hosttest.Lay(t, joined(storage, mainTable))
	all, err := guard.Needs(root, nil, guard.Running{})
	if err != nil || len(all) == 0 {
		t.Fatal(all, err)
	}
	needs, err := guard.Needs(root, nil, guard.Running{Unread: errors.New("network interfaces: out of memory")})
	if err == nil || err.Error() != "network interfaces: out of memory" || len(needs) != len(all) {
		t.Errorf("%v, %v", needs, err)
	}
}

// TestBlindToPorts: a port of Open vSwitch that cannot be read is an error too.
func TestBlindToPorts(t *testing.T) {
	root := hosttest.Lay(t, machine+"-- sys/devices/pci0000:00/0000:03:00.0/net/eth0/master --\n-- proc/net/route --\n"+
		"br-ex 00000000 0102000A 0003 0 0 0 00000000 0 0 0\n")
	_, err := guard.Needs(root, nil, guard.Running{})
	if want := "/sys/class/net/eth0/master: invalid argument"; err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
}
