package guard_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
)

// storage is a machine with its storage network on eth1 (04:00.0) and its default route through
// eth0 (03:00.0). eth2 (07:00.0) has no carrier, eth3 (07:00.1) is set down. A disk is at 01:00.0.
// Only the main table has routes.
const storage = `
symlink sys/class/block/nvme0n1 -> ../../devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1
symlink sys/class/block/nvme0n1p1 -> ../../devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p1
symlink sys/class/net/eth0 -> ../../devices/pci0000:00/0000:03:00.0/net/eth0
symlink sys/class/net/eth1 -> ../../devices/pci0000:00/0000:04:00.0/net/eth1
symlink sys/class/net/eth2 -> ../../devices/pci0000:00/0000:07:00.0/net/eth2
symlink sys/class/net/eth3 -> ../../devices/pci0000:00/0000:07:00.1/net/eth3
symlink sys/class/net/lo -> ../../devices/virtual/net/lo
mkdir sys/devices/virtual/net/lo
mkdir sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p1
-- sys/class/net/bonding_masters --
-- sys/devices/pci0000:00/0000:03:00.0/net/eth0/flags --
0x1003
-- sys/devices/pci0000:00/0000:03:00.0/net/eth0/carrier --
1
-- sys/devices/pci0000:00/0000:04:00.0/net/eth1/flags --
0x1003
-- sys/devices/pci0000:00/0000:04:00.0/net/eth1/carrier --
1
-- sys/devices/pci0000:00/0000:07:00.0/net/eth2/flags --
0x1003
-- sys/devices/pci0000:00/0000:07:00.0/net/eth2/carrier --
0
-- sys/devices/pci0000:00/0000:07:00.1/net/eth3/flags --
0x1002
-- sys/bus/pci/devices/0000:01:00.0/class --
0x010802
-- sys/bus/pci/devices/0000:03:00.0/class --
0x020000
-- sys/bus/pci/devices/0000:04:00.0/class --
0x020000
-- sys/bus/pci/devices/0000:07:00.0/class --
0x020000
-- sys/bus/pci/devices/0000:07:00.1/class --
0x020000
-- proc/net/route --
Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 010200C0 0003 0 0 0 00000000 0 0 0
eth0 000200C0 00000000 0001 0 0 0 00FFFFFF 0 0 0
eth1 006433C6 00000000 0001 0 0 0 00FFFFFF 0 0 0
-- proc/net/ipv6_route --
20010db8000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth1
20010db8000000000000000000000001 80 00000000000000000000000000000000 00 00000000000000000000000000000000 00000000 00000001 00000000 80200001 eth1
fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000001 00000000 00000001 eth1
00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000001 00000000 00000003 eth0
00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 lo
`

// mainTable is the fib_trie of storage as the kernel writes it, with the addresses 192.0.2.2 (eth0)
// and 198.51.100.2 (eth1).
const mainTable = `-- proc/net/fib_trie --
Main:
  +-- 0.0.0.0/0 3 0 5
     |-- 0.0.0.0
        /0 universe UNICAST
     +-- 127.0.0.0/8 2 0 2
        |-- 127.0.0.1
           /32 host LOCAL
     +-- 192.0.2.0/24 2 0 2
        +-- 192.0.2.0/30 2 0 2
           |-- 192.0.2.0
              /24 link UNICAST
           |-- 192.0.2.2
              /32 host LOCAL
        |-- 192.0.2.255
           /32 link BROADCAST
     +-- 198.51.100.0/24 2 0 2
           |-- 198.51.100.0
              /24 link UNICAST
           |-- 198.51.100.2
              /32 host LOCAL
Local:
     |-- 192.0.2.2
        /32 host LOCAL
     |-- 198.51.100.2
        /32 host LOCAL
`

// ruledTables is mainTable with one more table, of a rule or a VRF.
const ruledTables = mainTable + `Id 10:
     |-- 203.0.113.2
        /32 host LOCAL
`

const iscsiDisk = `symlink sys/class/block/sda -> ../../devices/platform/host2/session1/target2:0:0/2:0:0:0/block/sda
symlink sys/class/block/sda1 -> ../../devices/platform/host2/session1/target2:0:0/2:0:0:0/block/sda/sda1
mkdir sys/devices/platform/host2/session1/target2:0:0/2:0:0:0/block/sda/sda1
-- sys/class/iscsi_connection/connection1:0/persistent_address --
198.51.100.9
-- sys/class/iscsi_connection/connection1:0/address --
198.51.100.9
-- sys/class/iscsi_connection/connection11:0/address --
192.0.2.9
`

// fabrics is an NVMe over fabrics disk with one controller, without its transport and address.
const fabrics = `symlink sys/class/block/nvme9n1 -> ../../devices/virtual/nvme-fabrics/ctl/nvme9/nvme9n1
symlink sys/class/nvme/nvme9 -> ../../devices/virtual/nvme-fabrics/ctl/nvme9
mkdir sys/devices/virtual/nvme-fabrics/ctl/nvme9/nvme9n1
`

func fabricsAt(transport, address string) string {
	return fabrics + "-- sys/devices/virtual/nvme-fabrics/ctl/nvme9/transport --\n" + transport +
		"\n-- sys/devices/virtual/nvme-fabrics/ctl/nvme9/address --\n" + address + "\n"
}

func virtual(disk string) string {
	return "symlink sys/class/block/" + disk + " -> ../../devices/virtual/block/" + disk + "\nmkdir sys/devices/virtual/block/" + disk + "\n"
}

// joined builds an archive of parts: symlink and mkdir lines go before the first file.
func joined(parts ...string) string {
	var head, files strings.Builder
	for _, part := range parts {
		file := false
		for line := range strings.Lines(strings.TrimPrefix(part, "\n")) {
			if file = file || strings.HasPrefix(line, "-- "); file {
				files.WriteString(line)
			} else {
				head.WriteString(line)
			}
		}
	}
	return head.String() + files.String()
}

func mounted(lines ...string) string {
	return "-- proc/mounts --\n" + strings.Join(lines, "\n") + "\n"
}

// TestNetworkDisks: a disk on a server needs the network card that reaches the server, or every
// card with carrier if that is not determined.
func TestNetworkDisks(t *testing.T) {
	const route = "0000:03:00.0 carries the default route, through eth0\n"
	const address = "0000:04:00.0 carries the address 198.51.100.2, through eth1\n"
	// through is an absolute need of eth1; anyOf is a possible need of both cards.
	through := func(what string) string {
		return "0000:04:00.0! carries " + what + ", through eth1\n"
	}
	may := func(card, mark, what string) string {
		through := map[string]string{"0000:03:00.0": "eth0", "0000:04:00.0": "eth1"}
		return card + mark + " may carry " + what + ", through " + through[card] + ": the interface that reaches its server is not determined\n"
	}
	anyOf := func(mark, what string) string {
		return may("0000:03:00.0", mark, what) + route + may("0000:04:00.0", mark, what) + address
	}
	disk := func(mark, what string) string {
		return "0000:01:00.0" + mark + " may carry " + what + ": its disk is not determined\n"
	}
	for _, test := range []struct{ name, files, want string }{
		{"nothing", "", route + address},
		{"iSCSI", joined(iscsiDisk, mounted("/dev/sda1 / ext4 rw 0 0")), route + through("/dev/sda1, mounted at /") + address},
		{"iSCSI below LVM, at /srv", joined(iscsiDisk, virtual("dm-0"),
			"mkdir sys/devices/virtual/block/dm-0/slaves/sda1\n-- sys/devices/virtual/block/dm-0/dm/name --\nvg-srv\n", mounted("/dev/mapper/vg-srv /srv xfs rw 0 0")),
			route + "0000:04:00.0 carries /dev/mapper/vg-srv, mounted at /srv, through eth1\n" + address},
		{"iSCSI without a connection", joined(strings.Split(iscsiDisk, "-- ")[0], mounted("/dev/sda1 / ext4 rw 0 0")), anyOf("!", "/dev/sda1, mounted at /")},
		{"swap on iSCSI", joined(iscsiDisk, "-- proc/swaps --\nFilename\n/dev/sda1 partition 1 0 -2\n"),
			route + "0000:04:00.0 carries the swap area /dev/sda1, through eth1\n" + address},
		{"a partition of md on iSCSI", joined(iscsiDisk,
			"symlink sys/class/block/md0p1 -> ../../devices/virtual/block/md0/md0p1\n"+
				"symlink sys/class/block/md0 -> ../../devices/virtual/block/md0\nmkdir sys/devices/virtual/block/md0/md0p1\n"+
				"mkdir sys/devices/virtual/block/md0/slaves/sda1\n", mounted("/dev/md0p1 / ext4 rw 0 0")),
			route + through("/dev/md0p1, mounted at /") + address},
		{"NVMe over TCP", joined(fabricsAt("tcp", "traddr=198.51.100.9,trsvcid=4420,src_addr=198.51.100.2"),
			mounted("/dev/nvme9n1 / ext4 rw 0 0")), route + through("/dev/nvme9n1, mounted at /") + address},
		{"NVMe over RDMA by IPv6", joined(fabricsAt("rdma", "traddr=2001:db8::9,trsvcid=4420"), mounted("/dev/nvme9n1 / ext4 rw 0 0")),
			"0000:03:00.0! carries /dev/nvme9n1, mounted at /, through eth0\n" + route + through("/dev/nvme9n1, mounted at /") + address},
		{"NVMe over TCP bound to an interface", joined(fabricsAt("tcp", "traddr=203.0.113.9,trsvcid=4420,host_iface=eth1"),
			mounted("/dev/nvme9n1 / ext4 rw 0 0")), route + through("/dev/nvme9n1, mounted at /") + address},
		{"NVMe over Fibre Channel", joined(fabricsAt("fc", "traddr=nn-0x1:pn-0x2,host_traddr=nn-0x20000090fa0b1c2d:pn-0x10000090fa0b1c2d"),
			"symlink sys/class/fc_host/host5 -> ../../devices/pci0000:00/0000:01:00.0/host5/fc_host/host5\n"+
				"mkdir sys/devices/pci0000:00/0000:01:00.0/host5/fc_host/host5\n"+
				"-- sys/devices/pci0000:00/0000:01:00.0/host5/fc_host/host5/port_name --\n0x10000090fa0b1c2d\n", mounted("/dev/nvme9n1 / ext4 rw 0 0")),
			"0000:01:00.0! carries /dev/nvme9n1, mounted at /\n" + route + address},
		{"NVMe over fabrics on this host", joined(fabricsAt("loop", "traddr=0"), mounted("/dev/nvme9n1 /usr ext4 rw 0 0")),
			disk("!", "/dev/nvme9n1, mounted at /usr") + anyOf("!", "/dev/nvme9n1, mounted at /usr")},
		{"NVMe with several paths", joined(fabricsAt("tcp", "traddr=198.51.100.9"),
			"symlink sys/class/block/nvme8n1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys8/nvme8n1\n"+
				"mkdir sys/devices/virtual/nvme-subsystem/nvme-subsys8/nvme8n1\n"+
				"symlink sys/class/nvme-subsystem/nvme-subsys8 -> ../../devices/virtual/nvme-subsystem/nvme-subsys8\n"+
				"symlink sys/devices/virtual/nvme-subsystem/nvme-subsys8/nvme9 -> ../../nvme-fabrics/ctl/nvme9\n", mounted("/dev/nvme8n1 / ext4 rw 0 0")),
			route + through("/dev/nvme8n1, mounted at /") + address},
		{"FCoE", joined("symlink sys/class/block/sdb -> ../../devices/virtual/net/eth1.9-fcoe/ctlr_0/host6/rport-6:0-0/target6:0:0/6:0:0:0/block/sdb\n"+
			"mkdir sys/devices/virtual/net/eth1.9-fcoe/ctlr_0/host6/rport-6:0-0/target6:0:0/6:0:0:0/block/sdb\n"+
			"mkdir sys/devices/virtual/net/eth1.9-fcoe/lower_eth1\n"+
			"symlink sys/class/net/eth1.9-fcoe -> ../../devices/virtual/net/eth1.9-fcoe\n", mounted("/dev/sdb / ext4 rw 0 0")),
			route + "0000:04:00.0! carries /dev/sdb, mounted at /, through eth1.9-fcoe\n" + address},
		{"nbd", joined(virtual("nbd0"), mounted("/dev/nbd0 / ext4 rw 0 0")), anyOf("!", "/dev/nbd0, mounted at /")},
		{"rbd", joined("symlink sys/class/block/rbd0 -> ../../devices/rbd/0/block/rbd0\n"+
			"symlink sys/class/block/rbd0p1 -> ../../devices/rbd/0/block/rbd0/rbd0p1\nmkdir sys/devices/rbd/0/block/rbd0/rbd0p1\n",
			mounted("/dev/rbd0p1 /srv ext4 rw 0 0")), anyOf("", "/dev/rbd0p1, mounted at /srv")},
		{"DRBD", joined(virtual("drbd0"), "mkdir sys/devices/virtual/block/drbd0/slaves/nvme0n1p1\n",
			mounted("/dev/drbd0 / ext4 rw 0 0")), "0000:01:00.0! carries /dev/drbd0, mounted at /\n" + anyOf("!", "/dev/drbd0, mounted at /")},
		{"a disk of an unknown driver", joined(virtual("etherd!e1.0"), mounted("/dev/etherd/e1.0 / ext4 rw 0 0")),
			disk("!", "/dev/etherd/e1.0, mounted at /") + anyOf("!", "/dev/etherd/e1.0, mounted at /")},
		{"a disk of Xen's", joined("symlink sys/class/block/xvda -> ../../devices/vbd-51712/block/xvda\n"+
			"mkdir sys/devices/vbd-51712/block/xvda\n", mounted("/dev/xvda / ext4 rw 0 0")), disk("!", "/dev/xvda, mounted at /") + route + address},
		{"memory", joined(virtual("zram0"), virtual("ram0"),
			"symlink sys/class/block/pmem0 -> ../../devices/LNXSYSTM:00/ndbus0/region0/namespace0.0/block/pmem0\n"+
				"mkdir sys/devices/LNXSYSTM:00/ndbus0/region0/namespace0.0/block/pmem0\n",
			mounted("/dev/ram0 / ext4 rw 0 0", "/dev/pmem0 /usr ext4 rw 0 0"), "-- proc/swaps --\nFilename\n/dev/zram0 partition 1 0 -2\n"), route + address},
		{"a ZFS volume", joined(virtual("zd0"), virtual("loop7"), iscsiDisk, mounted("/dev/zd0 /srv ext4 rw 0 0")),
			"0000:01:00.0 carries /dev/zd0, mounted at /srv\n" + route + "0000:04:00.0 carries /dev/zd0, mounted at /srv, through eth1\n" + address},
		{"a guest's pool on a partition of a ZFS volume",
			joined(virtual("zd0"), "symlink sys/class/block/zd0p1 -> ../../devices/virtual/block/zd0/zd0p1\n"+
				"mkdir sys/devices/virtual/block/zd0/zd0p1\n", mounted("rpool/ROOT / zfs rw 0 0")), "0000:01:00.0! carries rpool/ROOT, mounted at /\n" + route + address},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, needs(t, hosttest.Lay(t, joined(storage, mainTable, test.files)), guard.Running{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestFileSystems: network and stacked file systems count if they have files that the host or
// nova-compute needs.
func TestFileSystems(t *testing.T) {
	const route = "0000:03:00.0 carries the default route, through eth0\n"
	const address = "0000:04:00.0 carries the address 198.51.100.2, through eth1\n"
	through := func(mark, what string) string {
		return route + "0000:04:00.0" + mark + " carries " + what + ", through eth1\n" + address
	}
	anyOf := func(mark, what string) string {
		const why = ": the interface that reaches its server is not determined\n"
		return "0000:03:00.0" + mark + " may carry " + what + ", through eth0" + why + route + "0000:04:00.0" + mark +
			" may carry " + what + ", through eth1" + why + address
	}
	disk := func(mark, what string) string {
		return "0000:01:00.0" + mark + " may carry " + what + ": its disk is not determined\n"
	}
	const nvme = "0000:01:00.0"
	for _, test := range []struct{ name, files, want string }{
		{"NFS at /", mounted("198.51.100.9:/r / nfs4 rw,vers=4.2,addr=198.51.100.9 0 0"), through("!", "198.51.100.9:/r, mounted at /")},
		{"NFS behind the gateway", mounted("203.0.113.9:/r / nfs rw,addr=203.0.113.9 0 0"),
			"0000:03:00.0! carries 203.0.113.9:/r, mounted at /, through eth0\n" + route + address},
		{"NFS of a name", mounted("nas:/r / nfs rw 0 0"), anyOf("!", "nas:/r, mounted at /")},
		{"NFS of this host", mounted("198.51.100.2:/r / nfs rw,addr=198.51.100.2 0 0"), anyOf("!", "198.51.100.2:/r, mounted at /")},
		{"NFS of a tunnel on this host", mounted("127.0.0.1:/r / nfs4 rw,addr=127.0.0.1 0 0"), anyOf("!", "127.0.0.1:/r, mounted at /")},
		{"NFS of this host by IPv6", mounted("[2001:db8::1]:/r / nfs rw,addr=2001:db8::1 0 0"), anyOf("!", "[2001:db8::1]:/r, mounted at /")},
		{"NFS by a neighbour's IPv6", mounted("[fe80::9%eth1]:/r / nfs rw,addr=fe80::9%eth1 0 0"), through("!", "[fe80::9%eth1]:/r, mounted at /")},
		{"NFS for guests", mounted("/dev/nvme0n1p1 / ext4 rw 0 0", "198.51.100.9:/i /var/lib/nova/instances nfs4 rw,addr=198.51.100.9 0 0"),
			nvme + "! carries /dev/nvme0n1p1, mounted at /\n" + through("", "198.51.100.9:/i, mounted at /var/lib/nova/instances")},
		{"NFS that holds the guests' folder", mounted("198.51.100.9:/i /var/lib nfs4 rw,addr=198.51.100.9 0 0"), through("", "198.51.100.9:/i, mounted at /var/lib")},
		{"NFS where nova.conf says", joined("-- etc/nova/nova.conf --\n[x]\ninstances_path = /x\n[DEFAULT]\nstate_path=/srv/nova\n"+
			"#instances_path = /y\ninstances_path = $state_path/guests\n",
			mounted("198.51.100.9:/i /srv/nova/guests nfs4 rw,addr=198.51.100.9 0 0")), through("", "198.51.100.9:/i, mounted at /srv/nova/guests")},
		{"NFS that a link leads to", joined("symlink var/lib/nova -> ../../data/nova\nmkdir data/nova\nmkdir var/lib\n",
			mounted("/dev/nvme0n1p1 / ext4 rw 0 0", "198.51.100.9:/i /data nfs4 rw,addr=198.51.100.9 0 0")),
			nvme + "! carries /dev/nvme0n1p1, mounted at /\n" + through("", "198.51.100.9:/i, mounted at /data")},
		{"NFS elsewhere", mounted("198.51.100.9:/i /mnt nfs4 rw,addr=198.51.100.9 0 0"), route + address},
		{"CIFS", mounted("//nas/home /home cifs rw,addr=198.51.100.9 0 0"), through("", "//nas/home, mounted at /home")},
		{"9p of a server", mounted("198.51.100.9 /usr 9p rw,trans=tcp 0 0"), through("!", "198.51.100.9, mounted at /usr")},
		{"9p and virtiofs of a hypervisor", joined("symlink sys/bus/virtio/drivers/9pnet_virtio/virtio1 -> ../../../../devices/pci0000:00/0000:07:00.0/virtio1\n"+
			"symlink sys/bus/virtio/drivers/virtiofs/virtio2 -> ../../../../devices/pci0000:00/0000:07:00.1/virtio2\n",
			"-- sys/bus/virtio/drivers/virtiofs/uevent --\n-- sys/bus/virtio/drivers/9pnet_virtio/bind --\n",
			mounted("root / 9p rw,trans=virtio 0 0", "usr /usr virtiofs rw 0 0")),
			route + address + "0000:07:00.0! carries root, mounted at /\n0000:07:00.1! carries usr, mounted at /usr\n"},
		{"CephFS, whose data other servers have", mounted("198.51.100.9:6789:/ / ceph rw 0 0"), anyOf("!", "198.51.100.9:6789:/, mounted at /")},
		{"Gluster's client", mounted("nas:/v /var fuse.glusterfs rw 0 0"), anyOf("", "nas:/v, mounted at /var")},
		{"an unknown file system", mounted("x / fuse.x rw 0 0"), disk("!", "x, mounted at /") + anyOf("!", "x, mounted at /")},
		{"in memory, and what is hidden", mounted("rootfs / rootfs rw 0 0", "tmpfs / tmpfs rw 0 0",
			"systemd-1 /home autofs rw 0 0", "proc /proc proc rw 0 0",
			"overlay /var/lib/docker/overlay2/x/merged overlay rw,lowerdir=l/A:l/B,upperdir=/u 0 0"), route + address},
		{"/boot and below, and /usr", joined("symlink sys/class/block/vda -> ../../devices/pci0000:00/0000:07:00.0/virtio0/block/vda\n"+
			"mkdir sys/devices/pci0000:00/0000:07:00.0/virtio0/block/vda\n",
			mounted("/dev/nvme0n1p1 /boot/efi vfat rw 0 0", "/dev/vda /usr ext4 rw 0 0", "/dev/vda /usr/local ext4 rw 0 0")),
			nvme + "! carries /dev/nvme0n1p1, mounted at /boot/efi\n" + route + address +
				"0000:07:00.0! carries /dev/vda, mounted at /usr\n0000:07:00.0 carries /dev/vda, mounted at /usr/local\n"},
		{"an overlay over NFS", mounted(`198.51.100.9:/r /media/ro\040:x nfs rw,addr=198.51.100.9 0 0`,
			"tmpfs /media/rw tmpfs rw 0 0", `overlay / overlay rw,lowerdir=/media/ro\040\134:x,upperdir=/media/rw/u,workdir=/media/rw/w 0 0`),
			route + "0000:04:00.0! carries the layer /media/ro :x of overlay, mounted at /, through eth1\n" + address},
		{"an overlay over a disk", mounted("/dev/nvme0n1p1 /media/ro ext4 ro 0 0", "overlay / overlay rw,lowerdir+=/media/ro,upperdir=/media/ro/u 0 0"),
			nvme + " carries /dev/nvme0n1p1, mounted at /media/ro\n" + nvme +
				"! carries the layer /media/ro of overlay, mounted at /\n" + nvme + "! carries the layer /media/ro/u of overlay, mounted at /\n" + route + address},
		{"an overlay over what is hidden", mounted("overlay / overlay rw,lowerdir=/run/base,upperdir=/run/u 0 0", "tmpfs /run/u tmpfs rw 0 0"),
			disk("!", "the layer /run/base of overlay, mounted at /") + anyOf("!", "the layer /run/base of overlay, mounted at /")},
		{"a file of NFS", joined(virtual("loop0"), "-- sys/devices/virtual/block/loop0/loop/backing_file --\n/img/usr.img\n",
			mounted("198.51.100.9:/i /img nfs4 rw,addr=198.51.100.9 0 0", "/dev/loop0 /usr squashfs ro 0 0")),
			through("!", "the file /img/usr.img of /dev/loop0, mounted at /usr")},
		{"a file of a disk", joined(virtual("loop0"), "-- sys/devices/virtual/block/loop0/loop/backing_file --\n/var/snap\n",
			mounted("/dev/nvme0n1p1 / ext4 rw 0 0", "/dev/loop0 /snap/core squashfs ro 0 0")),
			nvme + "! carries /dev/nvme0n1p1, mounted at /\n" + route + address},
		{"a file that is hidden", joined(virtual("loop0"),
			"-- sys/devices/virtual/block/loop0/loop/backing_file --\n/rofs (deleted)\n", mounted("/dev/loop0 / squashfs ro 0 0")),
			disk("!", "a file of /dev/loop0, mounted at /") + anyOf("!", "a file of /dev/loop0, mounted at /")},
		{"a swap file of NFS", joined("-- proc/swaps --\nFilename\n/mnt/swap file 1 0 -2\n",
			mounted("198.51.100.9:/i /mnt nfs4 rw,addr=198.51.100.9 0 0")), through("", "the swap file /mnt/swap")},
	} {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, needs(t, hosttest.Lay(t, joined(storage, mainTable, test.files)), guard.Running{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}
