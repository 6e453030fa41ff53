package guard_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpustack/host/guard"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// at are the functions of disks.
func at(addresses ...string) (list []pci.Address) {
	for _, a := range addresses {
		address, err := pci.ParseAddress(a)
		if err != nil {
			panic(err)
		}
		list = append(list, address)
	}
	return list
}

func claimsText(claims []guard.Claimant) string {
	text := ""
	for _, c := range claims {
		text += fmt.Sprintf("%s %s: %s [%s]\n", c.Address, c.Disk, c.What, c.File)
	}
	return text
}

// TestClaimsOfTree: without the kernel's answer, files show what claims a disk.
func TestClaimsOfTree(t *testing.T) {
	const nvme = "0000:01:00.0 /dev/nvme0n1: "
	const member = "ID_FS_TYPE=linux_raid_member"
	for _, test := range []struct {
		name  string
		parts []string
		want  string
	}{
		{"nothing", []string{mountinfo("8:1 / ext4 /dev/sda1 rw"), recorded("259:1", "ID_FS_TYPE=ext4")}, ""},
		{"a mount", []string{mountinfo("8:1 / ext4 /dev/sda1 rw", "259:1 /srv ext4 /dev/nvme0n1p1 rw", "259:1 /a ext4 /dev/nvme0n1p1 rw")}, nvme + "/dev/nvme0n1p1 is mounted at /srv [/proc/mounts]\n"},
		{"the log of XFS", []string{mountinfo("8:1 /srv xfs /dev/sda1 rw,logdev=/dev/nvme0n1p2")}, nvme + "/dev/nvme0n1p2 is the logdev of /dev/sda1, mounted at /srv [/proc/mounts]\n"},
		{"bcachefs", []string{mountinfo("0:30 /srv bcachefs /dev/sda1:/dev/nvme0n1p1 rw")}, nvme + "/dev/nvme0n1p1 is mounted at /srv [/proc/mounts]\n"},
		{"btrfs", []string{"symlink sys/fs/btrfs/b0b0/devices/nvme0n1 -> x\nmkdir sys/fs/btrfs/features\n"}, nvme + "/dev/nvme0n1 is part of the mounted btrfs file system b0b0 [/sys/fs/btrfs/b0b0/devices/nvme0n1]\n"},
		{"swap", []string{file("proc/swaps", "Filename Type Size Used Priority", "/dev/nvme0n1p2 partition 1 0 -2", "/swap.img file 1 0 -3")}, nvme + "/dev/nvme0n1p2 is a swap area [/proc/swaps]\n"},
		{"LVM", []string{stackedOn("dm-0", "nvme0n1p1"), mapping("dm-0", "vg-a", "LVM-abc")},
			nvme + "/dev/nvme0n1p1 is part of /dev/mapper/vg-a [/sys/class/block/nvme0n1p1/holders/dm-0]\n"},
		{"md", []string{stackedOn("md0", "nvme0n1")}, nvme + "/dev/nvme0n1 is part of /dev/md0 [/sys/class/block/nvme0n1/holders/md0]\n"},
		{"the disk of swap in memory", []string{stackedOn("zram0"), file("sys/class/block/zram0/backing_dev", "/dev/nvme0n1p1"), file("proc/swaps", "/dev/zram0 partition 1 0 100")},
			nvme + "/dev/nvme0n1p1 is below /dev/zram0, which is a swap area [/proc/swaps]\n"},
		{"a cache of bcache", []string{"mkdir sys/class/block/nvme0n1p1/bcache\n"}, nvme + "/dev/nvme0n1p1 is a registered disk of bcache [/sys/class/block/nvme0n1p1/bcache]\n"},
		{"a journal", []string{file("proc/fs/jbd2/nvme0n1p1/info", ""), file("proc/fs/jbd2/sda1-8/info", "")}, nvme + "/dev/nvme0n1p1 is the journal of a mounted file system [/proc/fs/jbd2/nvme0n1p1]\n"},
		{"fstab", []string{file("etc/fstab", "# /dev/nvme0n1p1 /x ext4", "UUID=47-11 /srv ext4 noauto 0 0", "UUID=gone /y ext4 noauto 0 0"), recorded("259:1", "ID_FS_UUID_ENC=47-11")}, nvme + "/dev/nvme0n1p1 is to be mounted at /srv (/etc/fstab) [/etc/fstab]\n"},
		{"crypttab", []string{file("etc/crypttab", "safe /dev/nvme0n1p2 none luks")}, nvme + "/dev/nvme0n1p2 is to be opened as safe (/etc/crypttab) [/etc/crypttab]\n"},
		{"a member of an array", []string{recorded("259:1", member)},
			nvme + "/dev/nvme0n1p1 has the signature linux_raid_member, of which the host may make a disk []\n"},
		{"a member of a pool", []string{recorded("259:1", "ID_FS_TYPE=zfs_member")},
			nvme + "/dev/nvme0n1p1 has the signature zfs_member, of which the host may make a disk []\n"},
		{"LUKS", []string{recorded("259:1", "ID_FS_TYPE=crypto_LUKS")},
			nvme + "/dev/nvme0n1p1 has the signature crypto_LUKS, of which the host may make a disk []\n"},
		{"fstab and a link without udev's record", []string{file("etc/fstab", "UUID=47-11 /srv ext4"),
			"symlink dev/disk/by-uuid/47-11 -> ../../nvme0n1p1\n", file("dev/nvme0n1p1", "")},
			nvme + "/dev/nvme0n1p1 is to be mounted at /srv (/etc/fstab) [/etc/fstab]\n"},
		{"fstab, and neither a link nor a record", []string{file("etc/fstab", "LABEL=a /srv ext4")},
			nvme + "/dev/nvme0n1p1 may be what is to be mounted at /srv (/etc/fstab) [/etc/fstab]\n" +
				nvme + "/dev/nvme0n1p2 may be what is to be mounted at /srv (/etc/fstab) [/etc/fstab]\n" +
				nvme + "/dev/nvme0n1 may be what is to be mounted at /srv (/etc/fstab) [/etc/fstab]\n"},
		{"a loop device of a disk", []string{stackedOn("loop0"), file("sys/class/block/loop0/loop/backing_file", "/dev/nvme0n1p1"),
			mountinfo("0:99 /srv ext4 /dev/loop0 rw")},
			nvme + "/dev/nvme0n1p1 is below /dev/loop0, which is mounted at /srv [/proc/mounts]\n"},
		{"a link of udev", []string{file("etc/fstab", "/dev/disk/by-id/nvme-a-part1 /srv ext4"), file("run/udev/data/b259:1", "S:disk/by-id/nvme-a-part1")},
			nvme + "/dev/nvme0n1p1 is to be mounted at /srv (/etc/fstab) [/etc/fstab]\n"},
		{"the second device of btrfs", []string{file("etc/fstab", "/dev/sda2 /srv btrfs"), recorded("8:2", "ID_FS_UUID=47", "ID_FS_TYPE=btrfs"), recorded("259:1", "ID_FS_UUID=47", "ID_FS_TYPE=btrfs")},
			nvme + "/dev/nvme0n1p1 is to be mounted at /srv (/etc/fstab) [/etc/fstab]\n"},
		{"the log of fstab", []string{file("etc/fstab", "/dev/sda2 /srv xfs noauto,logdev=/dev/nvme0n1p1")}, nvme + "/dev/nvme0n1p1 is the logdev of /dev/sda2, to be mounted at /srv (/etc/fstab) [/etc/fstab]\n"},
		{"the header of crypttab", []string{file("etc/crypttab", "safe /dev/sda2 none luks,header=/dev/nvme0n1p2")}, nvme + "/dev/nvme0n1p2 is the header of /dev/sda2, to be opened as safe (/etc/crypttab) [/etc/crypttab]\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, devices := layParts(t, append([]string{disks, disksFiles}, test.parts...)...)
			got, err := guard.Observe(root, devices)
			hosttest.NoError(t, err)
			hosttest.Equal(t, test.want, claimsText(got.Claims[at("0000:01:00.0")[0]]))
		})
	}
}

// TestClaimsOfKernel: the kernel is asked about each whole disk on a function or below it. Its claim
// is added where no file shows one.
func TestClaimsOfKernel(t *testing.T) {
	parts := []string{disks, disksFiles, mountinfo("8:1 / ext4 /dev/sda1 rw", "259:9 /srv xfs /dev/nvme1n1p1 rw")}
	failed := errors.New("does not answer")
	for _, test := range []struct {
		name      string
		functions []string
		answers   map[string]error
		asked     string
		want      string
		err       error
	}{
		{"none", nil, nil, "", "", nil},
		{"one of two controllers", []string{"0000:03:00.0"}, map[string]error{"/dev/nvme1n1": fmt.Errorf("x: %w", guard.ErrClaimed)}, "/dev/nvme1n1", "0000:03:00.0 /dev/nvme1n1: /dev/nvme1n1p1 is mounted at /srv [/proc/mounts]\n", nil},
		{"the controller above one", []string{"0000:00:0e.0"}, map[string]error{"/dev/nvme3n1": guard.ErrClaimed}, "/dev/nvme3n1", "0000:00:0e.0 /dev/nvme3n1: /dev/nvme3n1 is in use: the kernel refuses to open it exclusively []\n", nil},
		{"not claimed", []string{"0000:01:00.0"}, nil, "/dev/nvme0n1", "", nil},
		{"no answer", []string{"0000:01:00.0", "0000:00:17.0"}, map[string]error{"/dev/nvme0n1": failed, "/dev/sda": guard.ErrClaimed}, "/dev/nvme0n1 /dev/sda", "0000:00:17.0 /dev/sda: /dev/sda1 is mounted at / [/proc/mounts]\n", failed},
	} {
		t.Run(test.name, func(t *testing.T) {
			root, devices := layParts(t, parts...)
			needs, err := guard.Observe(root, devices)
			hosttest.NoError(t, err)
			var asked []string
			var got []guard.Claimant
			err = needs.Ask(func(disk string) error {
				asked = append(asked, disk)
				return test.answers[disk]
			}, at(test.functions...)...)
			for _, a := range at(test.functions...) {
				got = append(got, needs.Claims[a]...)
			}
			if !errors.Is(err, test.err) {
				t.Errorf("error %v, want %v", err, test.err)
			}
			slices.Sort(asked)
			hosttest.Equal(t, []string{test.asked, test.want}, []string{strings.Join(asked, " "), claimsText(got)})
		})
	}
}
