package guard_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// spare is a machine with its root file system on a SATA disk (00:17.0) and an NVMe disk with two
// partitions (01:00.0) that nothing mounts.
const spare = `
symlink sys/class/block/sda -> ../../devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda
symlink sys/class/block/sda1 -> ../../devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda/sda1
symlink sys/class/block/nvme0n1 -> ../../devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1
symlink sys/class/block/nvme0n1p1 -> ../../devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p1
symlink sys/class/block/nvme0n1p2 -> ../../devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p2
mkdir sys/devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda/sda1
-- proc/mounts --
/dev/sda1 / ext4 rw 0 0
-- sys/devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda/sda1/dev --
8:1
-- sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/dev --
259:0
-- sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p1/dev --
259:1
-- sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1/nvme0n1p2/dev --
259:2
-- sys/bus/pci/devices/0000:00:17.0/class --
0x010601
-- sys/bus/pci/devices/0000:01:00.0/class --
0x010802
`

const (
	nvmeDir  = "sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0n1"
	rootDisk = "0000:00:17.0! carries /dev/sda1, mounted at /\n"
)

// above is a disk that is made of another one, as sysfs shows both.
func above(name, below string, files ...string) string {
	tree := virtual(name) + fmt.Sprintf("mkdir sys/devices/virtual/block/%s/slaves/%s\nmkdir %s/holders/%s\n", name, path(below), below, name)
	for i := 0; i+1 < len(files); i += 2 {
		tree += fmt.Sprintf("-- sys/devices/virtual/block/%s/%s --\n%s\n", name, files[i], files[i+1])
	}
	return tree
}

func path(dir string) string { return dir[strings.LastIndex(dir, "/")+1:] }

// udev is udev's record of a disk.
func udev(number string, properties ...string) string {
	text := "-- run/udev/data/b" + number + " --\nS:disk/by-x\n"
	for _, p := range properties {
		text += "E:" + p + "\n"
	}
	return text
}

// TestUnmounted: a disk is in use without a mount, by each way that files show.
func TestUnmounted(t *testing.T) {
	const nvme = "0000:01:00.0 "
	const idle = ", which nothing uses now\n"
	lio := func(files string) string {
		return strings.ReplaceAll(files, "LIO", "sys/kernel/config/target/core")
	}
	other := func(file, process string, lines ...string) string {
		return "symlink proc/self -> 1\nsymlink proc/1/ns/mnt -> mnt:[1]\nsymlink proc/2/ns/mnt -> mnt:[1]\nsymlink proc/70/ns/mnt -> mnt:[7]\nsymlink proc/71/ns/mnt -> mnt:[7]\n" +
			"mkdir proc/71/mountinfo\nmkdir proc/2/mountinfo\n-- proc/70/" + file + " --\n" + strings.Join(lines, "\n") + "\n-- proc/70/comm --\n" + process + "\n"
	}
	for _, test := range []struct{ name, files, want string }{
		{"an idle disk, of which udev knows no content", udev("259:0", "ID_MODEL=x") + udev("259:1", "ID_PART_ENTRY_NUMBER=1"), ""},
		{"an idle disk, of which udev knows nothing", "", ""},
		{"LVM", above("dm-0", nvmeDir, "dm/name", "cinder--volumes-volume--1", "dm/uuid", "LVM-abc"),
			nvme + "carries /dev/mapper/cinder--volumes-volume--1, an active LVM volume, on /dev/nvme0n1\n"},
		{"LVM on a partition, and the signature of its volume group", above("dm-0", nvmeDir+"/nvme0n1p1", "dm/name", "vg-a", "dm/uuid", "LVM-abc") + udev("259:1", "ID_FS_TYPE=LVM2_member"),
			nvme + "carries /dev/mapper/vg-a, an active LVM volume, on /dev/nvme0n1p1\n"},
		{"LUKS", above("dm-0", nvmeDir, "dm/name", "safe", "dm/uuid", "CRYPT-LUKS2-abc-safe"), nvme + "carries /dev/mapper/safe, an open encrypted device, on /dev/nvme0n1\n"},
		{"multipath", above("dm-0", nvmeDir, "dm/name", "mpatha", "dm/uuid", "mpath-3600"), nvme + "carries /dev/mapper/mpatha, an active multipath device, on /dev/nvme0n1\n"},
		{"another target of device-mapper", above("dm-0", nvmeDir, "dm/name", "x"), nvme + "carries /dev/mapper/x, an active disk of device-mapper, on /dev/nvme0n1\n"},
		{"a mirror", above("md0", nvmeDir), nvme + "carries /dev/md0, an active RAID array, on /dev/nvme0n1\n"},
		{"a backing disk of bcache", above("bcache0", nvmeDir) + "mkdir " + nvmeDir + "/bcache\n", nvme + "carries /dev/bcache0, an active disk of bcache, on /dev/nvme0n1\n"},
		{"a cache of bcache", "mkdir " + nvmeDir + "/bcache\n", nvme + "carries a registered disk of bcache, on /dev/nvme0n1\n"},
		{"DRBD", above("drbd0", nvmeDir), nvme + "carries /dev/drbd0, an active disk, on /dev/nvme0n1\n"},
		{"a loop device on a disk", virtual("loop3") + "-- sys/devices/virtual/block/loop3/loop/backing_file --\n/dev/nvme0n1p2\n",
			nvme + "carries /dev/loop3, a loop device, on /dev/nvme0n1p2\n"},
		{"a mounted loop device on a disk", virtual("loop3") + "-- sys/devices/virtual/block/loop3/loop/backing_file --\n/dev/nvme0n1p2\n" +
			"-- proc/mounts --\n/dev/sda1 / ext4 rw 0 0\n/dev/loop3 /srv ext4 rw 0 0\n", nvme + "carries /dev/loop3, mounted at /srv\n"},
		{"LVM that is mounted", above("dm-0", nvmeDir, "dm/name", "vg-a", "dm/uuid", "LVM-abc") + "-- proc/mounts --\n/dev/sda1 / ext4 rw 0 0\n/dev/mapper/vg-a /srv ext4 rw 0 0\n",
			nvme + "carries /dev/mapper/vg-a, mounted at /srv\n"},
		{"a pool of ZFS with volumes only", udev("259:1", "ID_FS_TYPE=zfs_member") + udev("259:0", "ID_PART_TABLE_TYPE=gpt") + udev("259:2", "ID_FS_TYPE=vfat") + udev("8:1", "ID_FS_TYPE=ext4") + udev("", "X=") +
			"-- proc/spl/kstat/zfs/arcstats --\n1\n-- proc/spl/kstat/zfs/tank/state --\nONLINE\n",
			nvme + "carries the ZFS pool tank\n" + nvme + "has /dev/nvme0n1p2 with a file system (vfat)" + idle},
		{"a pool of ZFS that is mounted", udev("259:1", "ID_FS_TYPE=zfs_member") + udev("8:1", "ID_FS_TYPE=ext4") + udev("259:0", "X=") + udev("259:2", "X=") + udev("", "X=") +
			"-- proc/spl/kstat/zfs/tank/state --\nONLINE\n-- proc/mounts --\n/dev/sda1 / ext4 rw 0 0\ntank/x /srv zfs rw 0 0\n", nvme + "carries tank/x, mounted at /srv\n"},
		{"a disk that LIO offers", lio("-- LIO/iblock_0/disk/udev_path --\n/dev/nvme0n1\n-- LIO/iblock_0/disk/enable --\n1\n"),
			nvme + "carries the target iblock_0/disk of LIO\n"},
		{"a disk that LIO offers by its number", lio("-- LIO/iblock_0/disk/udev_path --\n\n-- LIO/iblock_0/disk/info --\nStatus: ACTIVATED\n        iBlock device: x  UDEV PATH: N/A  readonly: 0\n        Major: 259 Minor: 2  CLAIMED: IBLOCK\n"),
			nvme + "carries the target iblock_0/disk of LIO\n"},
		{"a disk of LIO that is not enabled", lio("-- LIO/iblock_0/disk/udev_path --\n/dev/nvme0n1\n-- LIO/iblock_0/disk/enable --\n0\n-- LIO/iblock_0/hba_info --\nx\n-- LIO/alua/x --\n"), ""},
		{"a namespace of the NVMe target", "-- sys/kernel/config/nvmet/subsystems/nqn/namespaces/1/device_path --\n/dev/nvme0n1p1\n-- sys/kernel/config/nvmet/subsystems/nqn/namespaces/1/enable --\n1\n" +
			"-- sys/kernel/config/nvmet/subsystems/nqn/namespaces/2/device_path --\n/dev/nvme0n1p2\n-- sys/kernel/config/nvmet/subsystems/nqn/namespaces/2/enable --\n0\n",
			nvme + "carries namespace 1 of the NVMe target nqn\n"},
		{"a controller of the NVMe target", "symlink sys/class/nvme/nvme0 -> ../../devices/pci0000:00/0000:01:00.0/nvme/nvme0\n" +
			"-- sys/kernel/config/nvmet/subsystems/nqn/passthru/device_path --\n/dev/nvme0\n-- sys/kernel/config/nvmet/subsystems/nqn/passthru/enable --\n1\n",
			nvme + "carries the controller of the NVMe target nqn\n"},
		{"a mount of another namespace", other("mountinfo", "nginx", "1 0 8:1 / / rw - ext4 /dev/sda1 rw", `2 1 259:1 / /my\040data rw shared:1 - xfs /dev/x rw`),
			nvme + "carries /dev/nvme0n1p1, mounted at /my data in the mount namespace of nginx (pid 70)\n"},
		{"a mount of another namespace whose disk sysfs does not show", other("mountinfo", "nginx", "1 0 7:9 / /data rw - xfs /dev/x rw"),
			"0000:00:17.0 may carry /dev/x, mounted at /data in the mount namespace of nginx (pid 70): its disk is not determined\n" +
				nvme + "may carry /dev/x, mounted at /data in the mount namespace of nginx (pid 70): its disk is not determined\n"},
		{"btrfs of another namespace", other("mountinfo", "nginx", "1 0 0:42 /sub /data rw - btrfs /dev/nvme0n1p2 rw", "2 1 0:43 / /x rw - overlay overlay rw"),
			nvme + "carries /dev/nvme0n1p2, mounted at /data in the mount namespace of nginx (pid 70)\n"},
		{"mounts without a source in another namespace", other("mountinfo", "nginx", "1 0 8:1 / / rw - ext4 /dev/sda1 rw", "2 1 0:50 / /run rw shared:2 - tmpfs  rw,size=1k", "3 1 0:51 / /x rw master:2 propagate_from:1 -  none rw",
			`4 1 259:1 / /a\011b\134c`+"\u00a0d"+` rw - xfs /dev/x rw`), nvme + "carries /dev/nvme0n1p1, mounted at /a\tb\\c\u00a0d in the mount namespace of nginx (pid 70)\n"},
		{"a disk of another namespace by a name outside of /dev", other("mountinfo", "nginx", "1 0 259:2 / /data rw - ext4 /tmp/node rw", "2 0 259:1 / /more rw - ext4  rw"),
			nvme + "carries /dev/nvme0n1p2, mounted at /data in the mount namespace of nginx (pid 70)\n" + nvme + "carries /dev/nvme0n1p1, mounted at /more in the mount namespace of nginx (pid 70)\n"},
		{"a mount without a source", mounted("/dev/sda1 / ext4 rw 0 0", " /run tmpfs rw 0 0", "/dev/nvme0n1p1 /a\u00a0b ext4 rw 0 0"), nvme + "carries /dev/nvme0n1p1, mounted at /a\u00a0b\n"},
		{"a process that has ended", "symlink proc/self -> 1\nsymlink proc/1/ns/mnt -> mnt:[1]\nsymlink proc/9/ns/mnt -> mnt:[9]\nmkdir proc/10/ns\n", ""},
		{"a zombie, and the next process of its namespace", "symlink proc/self -> 1\nsymlink proc/1/ns/mnt -> mnt:[1]\nmkdir proc/69/ns/mnt\nsymlink proc/70/ns/mnt -> mnt:[7]\nsymlink proc/71/ns/mnt -> mnt:[7]\n" +
			"-- proc/69/stat --\n69 (sh) Z 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0\n-- proc/71/comm --\nnginx\n-- proc/71/mountinfo --\n1 0 259:1 / /data rw - xfs /dev/x rw\n",
			nvme + "carries /dev/nvme0n1p1, mounted at /data in the mount namespace of nginx (pid 71)\n"},
		{"resume", udev("259:2", "ID_FS_UUID_ENC=47-11", "ID_FS_TYPE=swap", "ID_FS_USAGE=other") + "-- proc/cmdline --\nquiet resume=UUID=47-11 splash\n",
			nvme + "carries the image of hibernation (resume=UUID=47-11)\n"},
		{"resume by number", "-- proc/cmdline --\nresume=259:2\n", nvme + "carries the image of hibernation (resume=259:2)\n"},
		{"resume, switched off", "-- proc/cmdline --\nresume=/dev/nvme0n1p2 noresume\n", ""},
		{"resume from active swap", "-- proc/cmdline --\nresume=/dev/nvme0n1p2\n-- proc/swaps --\nFilename\n/dev/nvme0n1p2 partition 1 0 -2\n", nvme + "carries the swap area /dev/nvme0n1p2\n"},
		{"fstab", udev("259:1", `ID_FS_LABEL_ENC=my\x20data`, "ID_FS_TYPE=ext4", "ID_FS_USAGE=filesystem") + udev("259:2", "ID_PART_ENTRY_UUID=aa") +
			"-- etc/fstab --\n# LABEL=x\nLABEL=my\\040data /srv ext4 noauto 0 0\nPARTUUID=AA none swap sw 0 0\nnas:/x /x nfs rw 0 0\nUUID=gone /y ext4\n",
			nvme + "carries LABEL=my data, to be mounted at /srv (/etc/fstab), not active now\n" + nvme + "carries PARTUUID=AA, to be used as swap (/etc/fstab), not active now\n"},
		{"fstab of what the host boots from", "-- etc/fstab --\n/dev/nvme0n1p1 /boot/efi vfat noauto 0 0\n",
			"0000:01:00.0! carries /dev/nvme0n1p1, to be mounted at /boot/efi (/etc/fstab), not active now\n"},
		{"fstab of what is mounted", "-- etc/fstab --\n/dev/nvme0n1p1 /srv ext4 rw\n-- proc/mounts --\n/dev/sda1 / ext4 rw 0 0\n/dev/nvme0n1p1 /srv ext4 rw 0 0\n", nvme + "carries /dev/nvme0n1p1, mounted at /srv\n"},
		{"crypttab", "symlink dev/disk/by-id/nvme-x -> ../../nvme0n1\n-- etc/crypttab --\nsafe /dev/disk/by-id/nvme-x /etc/key luks\n",
			nvme + "carries /dev/disk/by-id/nvme-x, to be opened as safe (/etc/crypttab), not active now\n"},
		{"crypttab of what is open", above("dm-0", nvmeDir, "dm/name", "safe", "dm/uuid", "CRYPT-LUKS2-x") + "-- etc/crypttab --\nsafe /dev/nvme0n1 none luks\n",
			nvme + "carries /dev/mapper/safe, an open encrypted device, on /dev/nvme0n1\n"},
		{"a file system that nothing mounts", udev("259:1", "ID_FS_TYPE=ext4", "ID_FS_USAGE=filesystem", `ID_FS_LABEL_ENC=my\x20data`) + udev("259:0", "ID_PART_TABLE_TYPE=gpt"),
			nvme + `has /dev/nvme0n1p1 with a file system (ext4, label "my data")` + idle},
		{"members of arrays that are not active", udev("259:1", "ID_FS_TYPE=LVM2_member", "ID_FS_USAGE=raid") + udev("259:2", "ID_FS_TYPE=crypto_LUKS", "ID_FS_USAGE=crypto"),
			nvme + "has /dev/nvme0n1p1 with a member of a volume group, an array or a pool (LVM2_member)" + idle + nvme + "has /dev/nvme0n1p2 with encrypted data (crypto_LUKS)" + idle},
		{"signatures that contradict each other", udev("259:0", "ID_FS_AMBIVALENT=filesystem:zfs_member:5000 filesystem:ext4:1.0"),
			nvme + "has /dev/nvme0n1 with several signatures (filesystem:zfs_member:5000 filesystem:ext4:1.0)" + idle},
		{"partitions without content", udev("259:0", "ID_PART_TABLE_TYPE=gpt") + udev("259:1", "ID_PART_ENTRY_NUMBER=1"), nvme + "has /dev/nvme0n1 with a partition table (gpt)" + idle},
		{"a partition of ZFS", udev("259:1", "ID_PART_ENTRY_TYPE=6a898cc3-1dd2-11b2-99a6-080020736631"), nvme + "has /dev/nvme0n1p1 with a partition of ZFS" + idle},
	} {
		t.Run(test.name, func(t *testing.T) {
			want := test.want
			if !strings.HasPrefix(want, "0000:00:17.0") {
				want = rootDisk + want
			} else {
				want = strings.Replace(want, "0000:00:17.0 may", rootDisk+"0000:00:17.0 may", 1)
			}
			base := spare
			if strings.Contains(test.files, "-- proc/mounts --") {
				base = strings.Replace(spare, "-- proc/mounts --\n/dev/sda1 / ext4 rw 0 0\n", "", 1)
			}
			if diff := cmp.Diff(want, needs(t, hosttest.Lay(t, joined(base, test.files)), guard.Running{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnmountedRemote: a use without a mount of a disk over the network, of a file or of an unknown
// disk depends on what a mounted file system on it depends on.
func TestUnmountedRemote(t *testing.T) {
	const roots = "/dev/nvme0n1p1 / ext4 rw 0 0"
	const storageNIC = "0000:04:00.0 carries "
	fstab := func(line string) string { return mounted(roots) + "-- etc/fstab --\n" + line + "\n" }
	offered := func(disk string) string {
		return mounted(roots) + "-- sys/kernel/config/target/core/iblock_0/disk/udev_path --\n" + disk + "\n"
	}
	for _, test := range []struct{ name, files, want string }{
		{"fstab, iSCSI", iscsiDisk + fstab("/dev/sda1 /srv ext4 noauto,_netdev 0 0"), storageNIC + "/dev/sda1, to be mounted at /srv (/etc/fstab), not active now, through eth1\n"},
		{"fstab, NVMe over TCP", fabricsAt("tcp", "traddr=198.51.100.9,trsvcid=4420") + fstab("/dev/nvme9n1 none swap sw 0 0"), storageNIC + "/dev/nvme9n1, to be used as swap (/etc/fstab), not active now, through eth1\n"},
		{"fstab of what the host boots from, iSCSI", iscsiDisk + fstab("/dev/sda1 /boot ext4 noauto 0 0"), "0000:04:00.0! carries /dev/sda1, to be mounted at /boot (/etc/fstab), not active now, through eth1\n"},
		{"crypttab, iSCSI", iscsiDisk + mounted(roots) + "-- etc/crypttab --\nsafe /dev/sda1 none luks\n", storageNIC + "/dev/sda1, to be opened as safe (/etc/crypttab), not active now, through eth1\n"},
		{"LIO, iSCSI", iscsiDisk + offered("/dev/sda"), storageNIC + "the target iblock_0/disk of LIO, through eth1\n"},
		{"LIO, NVMe over TCP", fabricsAt("tcp", "traddr=198.51.100.9") + offered("/dev/nvme9n1"), storageNIC + "the target iblock_0/disk of LIO, through eth1\n"},
		{"a loop device on iSCSI", virtual("loop3") + iscsiDisk + mounted(roots) + "-- sys/devices/virtual/block/loop3/loop/backing_file --\n/dev/sda1\n",
			storageNIC + "/dev/loop3, a loop device, on /dev/sda1, through eth1\n"},
		{"fstab, an unknown disk", "symlink sys/class/block/odd -> ../../devices/platform/odd/block/odd\nmkdir sys/devices/platform/odd/block/odd\n" + fstab("/dev/odd /srv ext4 noauto 0 0"),
			"0000:01:00.0 may carry /dev/odd, to be mounted at /srv (/etc/fstab), not active now: its disk is not determined\n"},
		{"fstab, a loop device of a file that is gone", virtual("loop3") + fstab("/dev/loop3 /srv ext4 noauto 0 0") + "-- sys/devices/virtual/block/loop3/loop/backing_file --\n/x (deleted)\n",
			"0000:01:00.0 may carry a file of /dev/loop3, to be mounted at /srv (/etc/fstab), not active now: its disk is not determined\n" +
				strings.ReplaceAll("0000:03:00.0 FILE, through eth0: SERVER\n0000:04:00.0 FILE, through eth1: SERVER\n", "FILE", "may carry a file of /dev/loop3, to be mounted at /srv (/etc/fstab), not active now")},
		{"fstab, a loop device of a file", virtual("loop3") + fstab("/dev/loop3 /srv ext4 noauto 0 0") + "-- sys/devices/virtual/block/loop3/loop/backing_file --\n/x\n", ""},
		{"iSCSI that is logged in and in no file", iscsiDisk + mounted(roots), ""},
		{"fstab, a disk in memory", virtual("zram0") + fstab("/dev/zram0 none swap sw 0 0"), ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			var found strings.Builder
			for line := range strings.Lines(needs(t, hosttest.Lay(t, joined(storage, test.files, mainTable)), guard.Running{})) {
				if !strings.Contains(line, "default route") && !strings.Contains(line, "the address") && !strings.Contains(line, ", mounted at /\n") {
					found.WriteString(line)
				}
			}
			if diff := cmp.Diff(strings.ReplaceAll(test.want, "SERVER", "the interface that reaches its server is not determined"), found.String()); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestUnmountedBlind: files about disks that cannot be read or are malformed are an error.
func TestUnmountedBlind(t *testing.T) {
	const process = "symlink proc/self -> 1\nsymlink proc/1/ns/mnt -> mnt:[1]\nsymlink proc/70/ns/mnt -> mnt:[7]\n"
	for _, test := range []struct{ name, files, want string }{
		{"fstab", "mkdir etc/fstab\n", "/etc/fstab: not a regular file"},
		{"crypttab", "mkdir etc/crypttab\n", "/etc/crypttab: not a regular file"},
		{"the kernel command line", "mkdir proc/cmdline\n", "/proc/cmdline: not a regular file"},
		{"a mount table", process + "mkdir proc/70/mountinfo\n", "/proc/70/mountinfo: not a regular file"},
		{"a line of a mount table", process + "-- proc/70/mountinfo --\n1 0 8:1 / / rw\n", `/proc/70/mountinfo: not a mount: "1 0 8:1 / / rw"`},
		{"the namespace of a process that runs", process + "mkdir proc/71/ns/mnt\n-- proc/71/stat --\n71 (sh) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 9 0 0\n", "/proc/71/ns/mnt: invalid argument"},
		{"udev's record", "mkdir run/udev/data/b259:1\n", "/run/udev/data/b259:1: not a regular file"},
		{"holders", "-- " + nvmeDir + "/holders --\n", "/sys/class/block/nvme0n1/holders: not a directory"},
		{"LIO", "mkdir sys/kernel/config/target/core/iblock_0/x/udev_path\n", "/sys/kernel/config/target/core/iblock_0/x/udev_path: not a regular file"},
		{"the NVMe target", "mkdir sys/kernel/config/nvmet/subsystems/q/namespaces/1/device_path\n", "/sys/kernel/config/nvmet/subsystems/q/namespaces/1/device_path: not a regular file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if _, err := guard.Needs(hosttest.Lay(t, joined(spare, test.files)), nil, guard.Running{}); fmt.Sprint(err) != test.want {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

// multipath is a machine with a multipath NVMe disk on two controllers (01:00.0 and 02:00.0), whose
// paths are hidden: they have neither a number nor a node.
const multipath = `
symlink sys/class/block/sda -> ../../devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda
symlink sys/class/block/sda1 -> ../../devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda/sda1
symlink sys/class/block/nvme0c0n1 -> ../../devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0c0n1
symlink sys/class/block/nvme0c1n1 -> ../../devices/pci0000:00/0000:02:00.0/nvme/nvme1/nvme0c1n1
symlink sys/class/block/nvme0n1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1
symlink sys/class/block/nvme0n1p1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/nvme0n1p1
symlink sys/class/nvme/nvme0 -> ../../devices/pci0000:00/0000:01:00.0/nvme/nvme0
symlink sys/class/nvme/nvme1 -> ../../devices/pci0000:00/0000:02:00.0/nvme/nvme1
symlink sys/class/nvme-generic/ng0n1 -> ../../devices/virtual/nvme-subsystem/nvme-subsys0/ng0n1
symlink sys/class/nvme-subsystem/nvme-subsys0 -> ../../devices/virtual/nvme-subsystem/nvme-subsys0
symlink sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0 -> ../../../pci0000:00/0000:01:00.0/nvme/nvme0
symlink sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme1 -> ../../../pci0000:00/0000:02:00.0/nvme/nvme1
mkdir sys/devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda/sda1
mkdir sys/devices/virtual/nvme-subsystem/nvme-subsys0/ng0n1
-- sys/devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda/dev --
8:0
-- sys/devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda/sda1/dev --
8:1
-- sys/devices/pci0000:00/0000:01:00.0/nvme/nvme0/nvme0c0n1/hidden --
1
-- sys/devices/pci0000:00/0000:02:00.0/nvme/nvme1/nvme0c1n1/hidden --
1
-- sys/devices/virtual/nvme-subsystem/nvme-subsys0/subsysnqn --
nqn.2014-08.org.nvmexpress:uuid:x
-- sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/hidden --
0
-- sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/dev --
259:0
-- sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1/nvme0n1p1/dev --
259:1
-- sys/bus/pci/devices/0000:00:17.0/class --
0x010601
-- sys/bus/pci/devices/0000:01:00.0/class --
0x010802
-- sys/bus/pci/devices/0000:02:00.0/class --
0x010802
`

// TestMultipathNVMe: what uses a multipath disk uses each of its controllers, and its hidden paths
// are disks of nothing.
func TestMultipathNVMe(t *testing.T) {
	const head = "sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1"
	for _, test := range []struct{ name, files, want string }{
		{"idle", "", ""},
		{"a partition is mounted", mounted("/dev/sda1 / ext4 rw 0 0", "/dev/nvme0n1p1 /data ext4 rw 0 0"), "carries /dev/nvme0n1p1, mounted at /data\n"},
		{"LVM", above("dm-0", head, "dm/name", "vg-a", "dm/uuid", "LVM-abc"), "carries /dev/mapper/vg-a, an active LVM volume, on /dev/nvme0n1\n"},
		{"swap", "-- proc/swaps --\nFilename\n/dev/nvme0n1p1 partition 1 0 -2\n", "carries the swap area /dev/nvme0n1p1\n"},
		{"content that nothing uses", udev("259:1", "ID_FS_TYPE=xfs"), "has /dev/nvme0n1p1 with a file system (xfs), which nothing uses now\n"},
		{"LIO", "-- sys/kernel/config/target/core/iblock_0/disk/udev_path --\n/dev/nvme0n1\n", "carries the target iblock_0/disk of LIO\n"},
		{"the character device of a namespace", "-- sys/kernel/config/nvmet/subsystems/nqn/passthru/device_path --\n/dev/ng0n1\n", "carries the controller of the NVMe target nqn\n"},
		{"a pool of ZFS on another disk", udev("8:0", "ID_PART_TABLE_TYPE=gpt") + udev("8:1", "ID_FS_TYPE=zfs_member") + udev("259:0", "ID_MODEL=x") + udev("259:1", "ID_PART_ENTRY_NUMBER=1") +
			mounted("/dev/sda1 / ext4 rw 0 0") + "-- proc/spl/kstat/zfs/tank/state --\nONLINE\n", "only sda"},
	} {
		t.Run(test.name, func(t *testing.T) {
			files := test.files
			if !strings.Contains(files, "-- proc/mounts --") {
				files += mounted("/dev/sda1 / ext4 rw 0 0")
			}
			want := rootDisk
			switch test.want {
			case "":
			case "only sda":
				want += "0000:00:17.0 carries the ZFS pool tank\n"
			default:
				want += "0000:01:00.0 " + test.want + "0000:02:00.0 " + test.want
			}
			if diff := cmp.Diff(want, needs(t, hosttest.Lay(t, joined(multipath, files)), guard.Running{})); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

// TestDisks: the disks of functions are whole disks with a node, each once.
func TestDisks(t *testing.T) {
	both := []pci.Address{{Bus: 1}, {Bus: 2}}
	for _, test := range []struct {
		name, tree string
		functions  []pci.Address
		want       []string
	}{
		{"a disk with partitions", spare, both, []string{"/dev/nvme0n1"}},
		{"one path of a multipath disk", multipath, both[1:], []string{"/dev/nvme0n1"}},
		{"both paths of a multipath disk", multipath, both, []string{"/dev/nvme0n1"}},
		{"a function without disks", multipath, []pci.Address{{Bus: 3}}, nil},
		{"a disk with a slash in its name", "symlink sys/class/block/cciss!c0d0 -> ../../devices/pci0000:00/0000:01:00.0/cciss0/c0d0/block/cciss!c0d0\n" +
			"mkdir sys/devices/pci0000:00/0000:01:00.0/cciss0/c0d0/block/cciss!c0d0\n", both, []string{"/dev/cciss/c0d0"}},
		{"no block devices", "mkdir sys\n", both, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := guard.Disks(hosttest.Lay(t, joined(test.tree)), nil, test.functions...)
			if diff := cmp.Diff(test.want, got); diff != "" || err != nil {
				t.Errorf("%v (-want +got):\n%s", err, diff)
			}
		})
	}
	unread := hosttest.Lay(t, joined(spare, "mkdir "+nvmeDir+"/hidden\n"))
	if _, err := guard.Disks(unread, nil, both...); err == nil {
		t.Error("an attribute that cannot be read is no error")
	}
	if disks, err := guard.Disks(unread, nil); err != nil || disks != nil {
		t.Errorf("of no function: %q, %v", disks, err)
	}
}
