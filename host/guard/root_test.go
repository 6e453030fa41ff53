package guard_test

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// classLink is a line that makes a link of a class, as those of disks.
var classLink = regexp.MustCompile(`(?m)^symlink (sys/class/\w+/\S+) -> \.\./\.\./(devices/\S+)$`)

// layParts lays a machine of parts: lines that make links and folders, and files. What they name
// below a link of a class is put where the link leads to.
func layParts(t *testing.T, parts ...string) (host.Root, pci.Devices) {
	t.Helper()
	commands, files := "", ""
	for _, p := range parts {
		text, rest, ok := strings.Cut(p, "-- ")
		commands += text
		if ok {
			files += "-- " + rest
		}
	}
	archive := commands + files
	for _, link := range classLink.FindAllStringSubmatch(commands, -1) {
		archive = strings.ReplaceAll(archive, " "+link[1]+"/", " sys/"+link[2]+"/")
	}
	root := hosttest.Lay(t, archive)
	devices := hosttest.Devices(t, root)
	return root, devices
}

// file is a file of a machine.
func file(name string, lines ...string) string {
	return "-- " + name + " --\n" + strings.Join(lines, "\n") + "\n"
}

// diskAt is a disk with its folder below /sys/devices and its partitions.
func diskAt(dir string, partitions ...string) string {
	name := dir[strings.LastIndex(dir, "/")+1:]
	text := fmt.Sprintf("symlink sys/class/block/%s -> ../../devices/%s\nmkdir sys/devices/%s/holders\n", name, dir, dir)
	for _, p := range partitions {
		text += fmt.Sprintf("symlink sys/class/block/%s -> ../../devices/%s/%s\nmkdir sys/devices/%s/%s/holders\n", p, dir, p, dir, p)
	}
	return text
}

// numbered are the numbers of disks: "sda 8:0".
func numbered(disks ...string) (files string) {
	for _, d := range disks {
		name, number, _ := strings.Cut(d, " ")
		files += file("sys/class/block/"+name+"/dev", number)
	}
	return files
}

// stackedOn is a disk that is made of others, of which each shows it as its holder.
func stackedOn(name string, below ...string) string {
	text := fmt.Sprintf("symlink sys/class/block/%s -> ../../devices/virtual/block/%s\nmkdir sys/devices/virtual/block/%s/slaves\n", name, name, name)
	for _, b := range below {
		text += fmt.Sprintf("symlink sys/devices/virtual/block/%s/slaves/%s -> ../../../../../class/block/%s\n", name, b, b)
		text += fmt.Sprintf("symlink sys/class/block/%s/holders/%s -> ../../x\n", b, name)
	}
	return text
}

// mapping is the name and the uuid of a disk of device-mapper.
func mapping(disk, name, uuid string) string {
	dir := "sys/class/block/" + disk + "/dm/"
	return file(dir+"name", name) + file(dir+"uuid", uuid)
}

// mountinfo are mounts of process 1: "8:1 / ext4 /dev/sda1 rw".
func mountinfo(mounts ...string) string {
	var lines []string
	for i, m := range mounts {
		f := strings.Fields(m)
		lines = append(lines, fmt.Sprintf("%d 1 %s / %s rw,relatime shared:1 - %s %s %s", i+20, f[0], f[1], f[2], f[3], f[4]))
	}
	return file("proc/1/mountinfo", lines...)
}

// recorded is udev's record of a disk by its number.
func recorded(number string, properties ...string) string {
	return file("run/udev/data/b"+number, "S:disk/by-x\nE:"+strings.Join(properties, "\nE:"))
}

// disks are a SATA disk (sda, 00:17.0), NVMe disks (nvme0n1, 01:00.0, and nvme1n1 with the
// controllers 02:00.0 and 03:00.0) and one behind Intel's VMD (nvme3n1, 10000:01:00.0 below 00:0e.0).
var disks = diskAt("pci0000:00/0000:00:17.0/ata1/host0/block/sda", "sda1", "sda2") +
	diskAt("pci0000:00/0000:00:1b.0/0000:01:00.0/nvme/nvme0/nvme0n1", "nvme0n1p1", "nvme0n1p2") +
	diskAt("virtual/nvme-subsystem/nvme-subsys1/nvme1n1", "nvme1n1p1") +
	diskAt("pci0000:00/0000:00:0e.0/pci10000:00/10000:00:01.0/10000:01:00.0/nvme/nvme3/nvme3n1") + `
symlink sys/class/nvme-subsystem/nvme-subsys1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys1
symlink sys/devices/virtual/nvme-subsystem/nvme-subsys1/nvme1 -> ../../../pci0000:00/0000:02:00.0/nvme/nvme1
symlink sys/devices/virtual/nvme-subsystem/nvme-subsys1/nvme2 -> ../../../pci0000:00/0000:03:00.0/nvme/nvme2
symlink sys/class/nvme/nvme1 -> ../../devices/pci0000:00/0000:02:00.0/nvme/nvme1
symlink sys/class/nvme/nvme2 -> ../../devices/pci0000:00/0000:03:00.0/nvme/nvme2
mkdir sys/devices/pci0000:00/0000:02:00.0/nvme/nvme1
mkdir sys/devices/pci0000:00/0000:03:00.0/nvme/nvme2
`

// disksFiles are the files of disks, and of the functions.
var disksFiles = numbered("sda 8:0", "sda1 8:1", "sda2 8:2", "nvme0n1 259:0", "nvme0n1p1 259:1", "nvme0n1p2 259:2", "nvme1n1 259:8", "nvme1n1p1 259:9", "nvme3n1 259:12") +
	function("0000:00:17.0", "010601") + function("0000:01:00.0", "010802") + function("0000:02:00.0", "010802") + function("0000:03:00.0", "010802") +
	function("0000:00:0e.0", "010400") + function("10000:00:01.0", "060400") + function("10000:01:00.0", "010802") + function("0000:00:1b.0", "060400")

// overFabrics is a disk of NVMe over fabrics, without the transport of its controller.
const overFabrics = `symlink sys/class/block/nvme9n1 -> ../../devices/virtual/nvme-fabrics/ctl/nvme9/nvme9n1
symlink sys/class/nvme/nvme9 -> ../../devices/virtual/nvme-fabrics/ctl/nvme9
mkdir sys/devices/virtual/nvme-fabrics/ctl/nvme9/nvme9n1
`

func function(address, class string) string {
	return file("sys/bus/pci/devices/"+address+"/class", "0x"+class)
}

func TestReadRoot(t *testing.T) {
	const sata, nvme = "0000:00:17.0 ", "0000:01:00.0 "
	const onSATA = sata + "/dev/sda1, mounted at /\n"
	const journalAt = "-- proc/fs/jbd2/%s/info --\n"
	ext4 := mountinfo("8:1 / ext4 /dev/sda1 rw")
	internal := fmt.Sprintf(journalAt, "sda1-8")
	cmdline := func(words string) string { return file("proc/cmdline", "root=UUID=12 ro "+words) }
	crypt := stackedOn("dm-0", "sda1") + mapping("dm-0", "luks-root", "CRYPT-LUKS2-4711-luks-root") + numbered("dm-0 253:0")
	cryptRoot := mountinfo("253:0 / xfs /dev/mapper/luks-root rw")
	onCrypt := sata + "/dev/mapper/luks-root, mounted at /\n"
	for _, test := range []struct {
		name                 string
		parts                []string
		needs, lost, network string
	}{
		{"a partition", []string{ext4}, onSATA, "", ""},
		{"the disk by its number, since the source is no name of it", []string{mountinfo("8:1 / ext4 /dev/root rw")}, sata + "/dev/root, mounted at /\n", "", ""},
		{"every place", []string{mountinfo("8:1 / xfs /dev/sda1 rw", "8:2 /var ext4 /dev/sda2 rw", "259:1 /boot/efi vfat /dev/nvme0n1p1 rw", "259:2 /usr squashfs /dev/nvme0n1p2 ro", "259:9 /boot ext4 /dev/nvme1n1p1 rw", "259:12 /etc ext4 /dev/nvme3n1 rw")},
			"0000:00:0e.0 /dev/nvme3n1, mounted at /etc\n" + sata + "/dev/sda1, mounted at /; /dev/sda2, mounted at /var\n" +
				nvme + "/dev/nvme0n1p2, mounted at /usr; /dev/nvme0n1p1, mounted at /boot/efi\n" +
				"0000:02:00.0 /dev/nvme1n1p1, mounted at /boot\n0000:03:00.0 /dev/nvme1n1p1, mounted at /boot\n10000:01:00.0 /dev/nvme3n1, mounted at /etc\n", "", ""},
		{"other places are no part of it", []string{mountinfo("8:1 / ext4 /dev/sda1 rw", "259:1 /srv ext4 /dev/nvme0n1p1 rw", "259:2 /var/lib f2fs /dev/nvme0n1p2 rw")}, onSATA, "", ""},
		{"NVMe with two controllers", []string{mountinfo("259:9 / xfs /dev/nvme1n1p1 rw")}, "0000:02:00.0 /dev/nvme1n1p1, mounted at /\n0000:03:00.0 /dev/nvme1n1p1, mounted at /\n", "", ""},
		{"VMD", []string{mountinfo("259:12 / xfs /dev/nvme3n1 rw")}, "0000:00:0e.0 /dev/nvme3n1, mounted at /\n10000:01:00.0 /dev/nvme3n1, mounted at /\n", "", ""},
		{"LVM on md on NVMe and SATA", []string{stackedOn("md127", "nvme0n1p2", "sda2"), stackedOn("dm-1", "md127"), numbered("dm-1 253:1"), mountinfo("253:1 / ext4 /dev/mapper/vg-root rw")},
			sata + "/dev/mapper/vg-root, mounted at /\n" + nvme + "/dev/mapper/vg-root, mounted at /\n", "", ""},
		{"a partition of md", []string{stackedOn("md0", "nvme0n1"), "symlink sys/class/block/md0p1 -> ../../devices/virtual/block/md0/md0p1\nmkdir sys/devices/virtual/block/md0/md0p1\n", mountinfo("0:0 / ext4 /dev/md0p1 rw")},
			nvme + "/dev/md0p1, mounted at /\n", "", ""},
		{"device-mapper without a disk below", []string{stackedOn("dm-1"), mountinfo("0:0 / ext4 /dev/dm-1 rw")}, "", "/dev/dm-1, mounted at /: the kernel does not list which devices /dev/dm-1 lies on", ""},
		{"bcache: its cache is no slave", []string{stackedOn("bcache0", "sda1"), mountinfo("0:0 / ext4 /dev/bcache0 rw")}, sata + "/dev/bcache0, mounted at /\n", "/dev/bcache0, mounted at /: the kernel does not list which devices /dev/bcache0 lies on", ""},
		{"bcache below LVM", []string{stackedOn("bcache0", "sda1"), stackedOn("dm-1", "bcache0"), mountinfo("0:0 / ext4 /dev/dm-1 rw")}, sata + "/dev/dm-1, mounted at /\n", "/dev/dm-1, mounted at /: the kernel does not list which devices /dev/bcache0 lies on", ""},
		{"DRBD", []string{stackedOn("drbd0", "sda1"), mountinfo("0:0 / xfs /dev/drbd0 rw")}, sata + "/dev/drbd0, mounted at /\n", "/dev/drbd0, mounted at /: the kernel does not list which devices /dev/drbd0 lies on", ""},
		{"a loop device", []string{stackedOn("loop0"), mountinfo("0:0 / ext4 /dev/loop0 rw")}, "", "/dev/loop0, mounted at /: the kernel does not list which devices /dev/loop0 lies on", ""},
		{"a disk that sysfs does not have", []string{mountinfo("9:9 / ext4 /dev/sdq1 rw")}, "", "/dev/sdq1, mounted at / (ext4): the kernel does not list which disks it is on", ""},
		{"a disk without a function", []string{diskAt("platform/soc/sdb"), mountinfo("0:0 / ext4 /dev/sdb rw")}, "", "/dev/sdb, mounted at /: the kernel does not list which devices /dev/sdb lies on", ""},
		{"an NVDIMM", []string{diskAt("platform/ACPI0012:00/ndbus0/region0/namespace0.0/block/pmem0"), mountinfo("0:0 / xfs /dev/pmem0 rw")}, "", "", ""},
		{"a compressed disk in memory with a disk to write to", []string{stackedOn("zram0"), file("sys/class/block/zram0/backing_dev", "/dev/nvme0n1p1"), mountinfo("0:0 / ext4 /dev/zram0 rw")}, nvme + "/dev/zram0, mounted at /\n", "", ""},

		{"btrfs on two disks", []string{"symlink sys/fs/btrfs/b0b0/devices/sda1 -> x\nsymlink sys/fs/btrfs/b0b0/devices/nvme0n1p1 -> x\nmkdir sys/fs/btrfs/features\nsymlink sys/fs/btrfs/c0c0/devices/nvme3n1 -> x\n", mountinfo("0:30 / btrfs /dev/sda1 rw")},
			onSATA + nvme + "/dev/sda1, mounted at /\n", "", ""},
		{"btrfs that the kernel does not list", []string{mountinfo("0:30 / btrfs /dev/sda1 rw")}, onSATA, "/dev/sda1, mounted at / (btrfs): the kernel does not list its devices", ""},
		{"ZFS", []string{mountinfo("0:30 / zfs rpool/ROOT rw")}, "", "rpool/ROOT, mounted at / (zfs): the kernel does not list which disks it is on", ""},
		{"bcachefs on two disks", []string{mountinfo("0:30 / bcachefs /dev/sda1:/dev/nvme0n1p1 rw")}, sata + "/dev/sda1:/dev/nvme0n1p1, mounted at /\n" + nvme + "/dev/sda1:/dev/nvme0n1p1, mounted at /\n",
			"/dev/sda1:/dev/nvme0n1p1, mounted at / (bcachefs): a file system of this type may be on further disks", ""},
		{"bcachefs on one disk", []string{mountinfo("8:1 / bcachefs /dev/sda1 rw")}, onSATA, "/dev/sda1, mounted at / (bcachefs): a file system of this type may be on further disks", ""},
		{"f2fs", []string{mountinfo("8:1 / f2fs /dev/sda1 rw")}, onSATA, "/dev/sda1, mounted at / (f2fs): a file system of this type may be on further disks", ""},
		{"XFS with a log", []string{mountinfo("8:1 / xfs /dev/sda1 rw,logdev=/dev/nvme0n1p1")}, onSATA, "/dev/sda1, mounted at / (xfs): logdev=/dev/nvme0n1p1 is another disk", ""},
		{"XFS with a realtime device", []string{mountinfo("8:1 / xfs /dev/sda1 rw,rtdev=/dev/nvme0n1p1")}, onSATA, "/dev/sda1, mounted at / (xfs): rtdev=/dev/nvme0n1p1 is another disk", ""},
		{"an overlay", []string{mountinfo("0:30 / overlay overlay rw,lowerdir=/a,upperdir=/b")}, "", "overlay, mounted at / (overlay): the kernel does not list which disks it is on", ""},
		{"memory", []string{mountinfo("0:2 / rootfs rootfs rw", "0:30 / tmpfs tmpfs rw")}, "", "", ""},
		{"no mount that is known", nil, "", "no file shows what is mounted at /", ""},

		{"an internal journal, and the external one of another file system", []string{ext4, internal, fmt.Sprintf(journalAt, "nvme0n1p1")}, onSATA, "", ""},
		{"an external journal by jbd2", []string{ext4, fmt.Sprintf(journalAt, "nvme0n1p1")}, onSATA, "/dev/sda1, mounted at / (ext4): its journal may be on /dev/nvme0n1p1", ""},
		{"an external journal by jbd2, of a partition with a similar name", []string{ext4, fmt.Sprintf(journalAt, "sda1-8x"), fmt.Sprintf(journalAt, "sda2-8"), fmt.Sprintf(journalAt, "nvme0n1")}, onSATA, "/dev/sda1, mounted at / (ext4): its journal may be on /dev/nvme0n1", ""},
		{"an external journal by udev", []string{ext4, recorded("259:1", "ID_FS_TYPE=jbd")}, onSATA, "/dev/sda1, mounted at / (ext4): its journal may be on /dev/nvme0n1p1", ""},
		{"an external journal by an option", []string{mountinfo("8:1 / ext4 /dev/sda1 rw,journal_dev=0x10301"), internal}, onSATA, "/dev/sda1, mounted at / (ext4): journal_dev=0x10301 is another disk", ""},
		{"an external journal by its path", []string{mountinfo("8:1 / ext4 /dev/sda1 rw,journal_path=/dev/nvme0n1p1"), internal}, onSATA, "/dev/sda1, mounted at / (ext4): journal_path=/dev/nvme0n1p1 is another disk", ""},

		{"NFS", []string{mountinfo("0:30 / nfs4 10.0.0.1:/export rw")}, "", "", "10.0.0.1:/export, mounted at / (nfs4)"},
		{"CephFS at /var", []string{ext4, mountinfo("8:1 / ext4 /dev/sda1 rw", "0:30 /var ceph 10.0.0.1:/ rw")}, onSATA, "", "10.0.0.1:/, mounted at /var (ceph)"},
		{"iSCSI", []string{diskAt("platform/host2/session1/target2:0:0/2:0:0:0/block/sdb"), mountinfo("0:0 / ext4 /dev/sdb rw")}, "", "", "/dev/sdb, mounted at /: /dev/sdb over iSCSI"},
		{"iSCSI of an adapter", []string{diskAt("pci0000:00/0000:01:00.0/host2/session1/target2:0:0/2:0:0:0/block/sdb"), mountinfo("0:0 / ext4 /dev/sdb rw")}, nvme + "/dev/sdb, mounted at /\n", "", "/dev/sdb, mounted at /: /dev/sdb over iSCSI"},
		{"FCoE", []string{diskAt("pci0000:00/0000:01:00.0/net/eth9/ctlr_0/host5/block/sdb"), mountinfo("0:0 / ext4 /dev/sdb rw")}, nvme + "/dev/sdb, mounted at /\n", "", "/dev/sdb, mounted at /: /dev/sdb over Fibre Channel over Ethernet"},
		{"a partition of nbd", []string{diskAt("virtual/block/nbd0", "nbd0p1"), mountinfo("0:0 / ext4 /dev/nbd0p1 rw")}, "", "", "/dev/nbd0p1, mounted at /: /dev/nbd0 of a server"},
		{"a server's disk and an unknown one in LVM", []string{diskAt("virtual/block/nbd0"), diskAt("platform/soc/sdz"), stackedOn("dm-1", "nbd0", "sdz"), mountinfo("0:0 / ext4 /dev/dm-1 rw")}, "",
			"/dev/dm-1, mounted at /: the kernel does not list which devices /dev/sdz lies on", "/dev/dm-1, mounted at /: /dev/nbd0 of a server"},
		{"rbd", []string{diskAt("virtual/block/rbd0"), mountinfo("0:0 / ext4 /dev/rbd0 rw")}, "", "", "/dev/rbd0, mounted at /: /dev/rbd0 of a server"},
		{"NVMe over TCP", []string{overFabrics, file("sys/class/nvme/nvme9/transport", "tcp"), mountinfo("0:0 / ext4 /dev/nvme9n1 rw")}, "", "", "/dev/nvme9n1, mounted at /: NVMe over TCP (nvme9)"},
		{"NVMe over Fibre Channel", []string{overFabrics, "symlink sys/class/fc_host/host3 -> ../../devices/pci0000:00/0000:01:00.0/host3/fc_host/host3\n", file("sys/class/nvme/nvme9/transport", "fc"), mountinfo("0:0 / ext4 /dev/nvme9n1 rw")},
			nvme + "/dev/nvme9n1, mounted at /\n", "", ""},
		{"NVMe over fabrics by other means", []string{overFabrics, file("sys/class/nvme/nvme9/transport", "loop"), mountinfo("0:0 / ext4 /dev/nvme9n1 rw")}, "", "/dev/nvme9n1, mounted at /: the kernel does not list the hardware of the NVMe controller nvme9", ""},
		{"virtiofs", []string{"symlink sys/bus/virtio/drivers/virtiofs/virtio3 -> ../../../../devices/pci0000:00/0000:01:00.0/virtio3\n",
			mountinfo("0:30 / virtiofs root rw")}, "", "root, mounted at / (virtiofs): the kernel does not list which disks it is on", ""},
		{"9p of a hypervisor that does not show its device", []string{mountinfo("0:30 / 9p root rw,trans=virtio")}, "",
			"root, mounted at / (9p): the kernel does not list which disks it is on", "root, mounted at / (9p)"},
		{"9p of a server", []string{mountinfo("0:30 / 9p 10.0.0.1 rw,trans=tcp")}, "",
			"10.0.0.1, mounted at / (9p): the kernel does not list which disks it is on", "10.0.0.1, mounted at / (9p)"},

		{"ip= of the boot", []string{ext4, cmdline("ip=dhcp")}, onSATA, "", "ip=dhcp on the kernel command line"},
		{"ip= switched off", []string{ext4, cmdline("ip=off ip=none ipv6.disable=1 rd.neednet=0 ip=")}, onSATA, "", ""},
		{"BOOTIF", []string{ext4, cmdline("BOOTIF=01-aa")}, onSATA, "", "BOOTIF=01-aa on the kernel command line"},
		{"rd.neednet", []string{ext4, cmdline("rd.neednet")}, onSATA, "", "rd.neednet on the kernel command line"},
		{"netroot", []string{ext4, cmdline("netroot=iscsi:@10.0.0.1::3260::iqn")}, onSATA, "", "netroot=iscsi:@10.0.0.1::3260::iqn on the kernel command line"},
		{"a live image of a server", []string{mountinfo("0:30 / tmpfs tmpfs rw"), cmdline("root=live:http://192.0.2.1/x")}, "", "", "root=live:http://192.0.2.1/x on the kernel command line"},
		{"rd.iscsi", []string{ext4, cmdline("rd.iscsi.firmware=1")}, onSATA, "", "rd.iscsi.firmware=1 on the kernel command line"},
		{"iBFT", []string{ext4, "mkdir sys/firmware/ibft/ethernet0\n"}, onSATA, "", "firmware boots from a network (/sys/firmware/ibft)"},
		{"the table of NVMe", []string{ext4, file("sys/firmware/acpi/tables/NBFT", "x")}, onSATA, "", "firmware boots from a network (/sys/firmware/acpi/tables/NBFT)"},
		{"an encrypted disk", []string{crypt, cryptRoot, file("etc/crypttab", "luks-root UUID=12 none luks,discard", "# luks-root x none _netdev", "data UUID=13 none _netdev")}, onCrypt, "", ""},
		{"an encrypted disk with a key of a server", []string{crypt, cryptRoot, file("etc/crypttab", "luks-root UUID=12 none luks,_netdev")}, onCrypt, "", "the key of /dev/mapper/luks-root comes from a server (/etc/crypttab: luks,_netdev)"},
		{"an encrypted disk and clevis", []string{crypt, cryptRoot, "mkdir usr/lib/dracut/modules.d/60clevis-pin-tang\n"}, onCrypt, "", "the key of /dev/mapper/luks-root may come from a server (/usr/lib/dracut/modules.d/60clevis-pin-tang)"},
		{"clevis without an encrypted disk", []string{ext4, file("usr/share/initramfs-tools/hooks/clevis", "")}, onSATA, "", ""},

		{"the mounts of process 1 are not those of this one", []string{ext4, file("proc/self/mountinfo", "1 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw")}, onSATA, "", ""},
		{"without process 1", []string{file("proc/self/mountinfo", "1 1 259:1 / / rw - ext4 /dev/nvme0n1p1 rw")}, nvme + "/dev/nvme0n1p1, mounted at /\n", "", ""},
		{"a snapshot of mounts alone", []string{file("proc/mounts", "/dev/sda1 / ext4 rw 0 0")}, onSATA, "", ""},
		{"a tree with fstab alone", []string{file("etc/fstab", "# x / y", "UUID=47-11 / ext4 rw 0 0", "LABEL=gone /boot ext4 rw 0 0", "/dev/nvme0n1p2 none swap sw 0 0"), recorded("8:1", "ID_FS_UUID_ENC=47-11")}, sata + "UUID=47-11, mounted at /\n", "", ""},
		{"a tree with fstab and a disk that it does not have", []string{file("etc/fstab", "UUID=47-12 / ext4 rw 0 0")}, "", "UUID=47-12, mounted at / (ext4): the kernel does not list which disks it is on", ""},
		{"an automount point of /boot", []string{mountinfo("8:1 / ext4 /dev/sda1 rw", "0:30 /boot autofs systemd-1 rw"), file("etc/fstab", "/dev/nvme0n1p1 /boot vfat x-systemd.automount 0 2", "/dev/nvme0n1p2 / ext4 rw 0 1")}, onSATA + nvme + "/dev/nvme0n1p1, mounted at /boot\n", "", ""},
		{"a VF of NVMe needs its PF", []string{"symlink sys/bus/pci/devices/0000:01:00.0/physfn -> ../0000:02:00.0\n", mountinfo("259:1 / xfs /dev/nvme0n1p1 rw")}, nvme + "/dev/nvme0n1p1, mounted at /\n0000:02:00.0 /dev/nvme0n1p1, mounted at /\n", "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, devices := layParts(t, append([]string{disks, disksFiles}, test.parts...)...)
			got, err := guard.ReadRoot(root, devices)
			hosttest.NoError(t, err)
			needs := ""
			for _, a := range slices.SortedFunc(maps.Keys(got.Needs), pci.Address.Compare) {
				needs += fmt.Sprintf("%s %s\n", a, got.Needs[a])
			}
			hosttest.Equal(t, []string{test.needs, test.lost, test.network}, []string{needs, got.Lost, got.Network})
		})
	}
}

// TestReadRootFailsClosed: what cannot be read may hide a need.
func TestReadRootFailsClosed(t *testing.T) {
	mounts := mountinfo("0:0 / ext4 /dev/sdb1 rw")
	for _, test := range []struct{ name, mounts string }{
		{"proc/1/mountinfo", ""}, {"proc/cmdline", mounts}, {"etc/fstab", mounts}, {"etc/crypttab", mounts},
		{"sys/class/block/sdb1/dev", mounts}, {"run/udev/data/b8:16", mounts},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, devices := layParts(t, function("0000:01:00.0", "010802"), diskAt("pci0000:00/0000:01:00.0/sdb", "sdb1"), numbered("sdb 8:16"), test.mounts, "mkdir "+test.name+"\n")
			if got, err := guard.ReadRoot(root, devices); err == nil {
				t.Errorf("no error: %v", got)
			}
		})
	}
}
