package vm

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// The functions of the machine "uses".
const (
	usedDisk = "0000:01:00.0" // an NVMe controller with native multipath, of which the disk is nvme0n1
	usedCard = "0000:02:00.0" // a network card, eth0
)

// A use is one of a disk or of a network card that a running kernel shows.
type use struct {
	name     string
	function string
	begin    string   // a script
	stay     []string // a program that keeps the use up, in which begin runs first
	end      string   // a script
	says     string   // of the refusal without --allow; "" for nothing of the use
	allowed  string   // of the refusal with --allow; "" if that lets the function go
}

const (
	claimed = "its disk /dev/nvme0n1 is claimed: "
	asked   = claimed + "/dev/nvme0n1 is in use: the kernel refuses to open it exclusively"
)

var uses = []use{
	{
		name: "a mount", function: usedDisk, begin: "mount /dev/nvme0n1 /mnt", end: "umount /mnt",
		says: claimed + "/dev/nvme0n1 is mounted at /mnt", allowed: claimed + "/dev/nvme0n1 is mounted at /mnt",
	},
	{
		name: "a mount in another mount namespace", function: usedDisk, stay: []string{"unshare", "-m", "sh", "-ec", "mount /dev/nvme0n1 /mnt; echo ready; exec sleep 1000"},
		allowed: asked,
	},
	{
		name: "a lazily unmounted file system with an open file", function: usedDisk,
		stay: []string{"sh", "-ec", "mount /dev/nvme0n1 /mnt; exec 9>/mnt/open; umount -l /mnt; echo ready; exec sleep 1000"}, allowed: asked,
	},
	{
		name: "swap", function: usedDisk, begin: "dd if=/dev/nvme0n1 of=/tmp/head bs=4096 count=2; mkswap /dev/nvme0n1; swapon /dev/nvme0n1",
		end: "swapoff /dev/nvme0n1; dd if=/tmp/head of=/dev/nvme0n1 bs=4096; sync", says: claimed, allowed: claimed,
	},
	{
		name: "device mapper", function: usedDisk, begin: "guest map used /dev/nvme0n1", end: "guest map used",
		says: claimed + "/dev/nvme0n1 is part of ", allowed: claimed + "/dev/nvme0n1 is part of ",
	},
	{
		name: "a RAID array", function: usedDisk, begin: `
echo md_used >/sys/module/md_mod/parameters/new_array
cd /sys/block/md_used/md
echo raid1 >level; echo 1 >raid_disks
cat /sys/class/block/nvme0n1/dev >new_dev
echo 0 >dev-nvme0n1/slot
echo active >array_state`, end: "echo clear >/sys/block/md_used/md/array_state",
		says: claimed + "/dev/nvme0n1 is part of /dev/md_used", allowed: claimed + "/dev/nvme0n1 is part of /dev/md_used",
	},
	{
		name: "an external journal", function: usedDisk, begin: externalJournal, end: "umount /mnt; rm /tmp/fs; mke2fs /dev/nvme0n1",
		says: claimed + "/dev/nvme0n1 is the journal of a mounted file system", allowed: claimed + "/dev/nvme0n1 is the journal",
	},
	{
		name: "a loop device", function: usedDisk, begin: "losetup /dev/loop0 /dev/nvme0n1", end: "losetup -d /dev/loop0",
	},
	{
		name: "the target of NVMe", function: usedDisk, begin: `
modprobe nvmet
mount -t configfs configfs /sys/kernel/config
mkdir -p /sys/kernel/config/nvmet/subsystems/nqn.used/namespaces/1
cd /sys/kernel/config/nvmet/subsystems/nqn.used/namespaces/1
echo -n /dev/nvme0n1 >device_path
echo 1 >enable`, end: `
cd /sys/kernel/config/nvmet/subsystems/nqn.used
echo 0 >namespaces/1/enable
rmdir namespaces/1
cd ..
rmdir nqn.used
cd /
umount /sys/kernel/config`,
	},
	{name: "an open disk", function: usedDisk, stay: []string{"guest", "hold", "/dev/nvme0n1"}, allowed: "has /dev/nvme0n1 open"},
	{name: "an open character device", function: usedDisk, stay: []string{"guest", "hold", "/dev/ng0n1"}, allowed: "has /dev/ng0n1 open"},
	{
		name: "an open disk by another name", function: usedDisk, stay: another("b", "/sys/class/block/nvme0n1/dev"), end: "rm /tmp/another",
		allowed: "has /dev/nvme0n1 (as /tmp/another) open",
	},
	{
		name: "an open character device by another name", function: usedDisk, stay: another("c", "/sys/class/nvme-generic/ng0n1/dev"), end: "rm /tmp/another",
		allowed: "has /dev/ng0n1 (as /tmp/another) open",
	},
	{name: "an open controller", function: usedDisk, stay: []string{"guest", "hold", "/dev/nvme0"}, allowed: "has /dev/nvme0 open"},
	{
		name: "an address", function: usedCard, begin: "ip link set eth0 up; ip address add 192.0.2.2/24 dev eth0", end: "ip address flush dev eth0; ip link set eth0 down",
		says: "eth0 is up",
	},
	{
		name: "a card in another network namespace", function: usedCard, stay: besides("ip link set eth0 netns $p"),
		end: waitFor("/sys/class/net/eth0"), says: "no interface is shown here",
	},
}

// externalJournal mounts a file system in a file whose journal is the disk. What makes both are bytes
// of struct ext4_super_block and of struct journal_superblock_s (Linux, fs/ext4/ext4.h and
// include/linux/jbd2.h), for no mke2fs of busybox's does.
const externalJournal = `
put() { printf "$3" | dd of=$1 bs=1 seek=$2 conv=notrunc; }
uuid=0123456789abcdef
dd if=/dev/zero of=/dev/nvme0n1 bs=1M count=8
put /dev/nvme0n1 1028 '\000\040'     # s_blocks_count_lo
put /dev/nvme0n1 1044 '\001'         # s_first_data_block
put /dev/nvme0n1 1080 '\123\357'     # s_magic
put /dev/nvme0n1 1100 '\001'         # s_rev_level
put /dev/nvme0n1 1120 '\010'         # s_feature_incompat: a journal
put /dev/nvme0n1 1128 $uuid
put /dev/nvme0n1 2048 '\300\073\071\230\000\000\000\004' # h_magic, h_blocktype
put /dev/nvme0n1 2060 '\000\000\004\000\000\000\020\000\000\000\000\001\000\000\000\001' # s_blocksize, s_maxlen, s_first, s_sequence
put /dev/nvme0n1 2096 $uuid
put /dev/nvme0n1 2112 '\000\000\000\001' # s_nr_users
dd if=/dev/zero of=/tmp/fs bs=1M count=16
mke2fs -F -b 1024 /tmp/fs
put /tmp/fs 1116 '\004'              # s_feature_compat: has a journal
put /tmp/fs 1232 $uuid               # s_journal_uuid
mount -t ext4 -o loop,journal_path=/dev/nvme0n1 /tmp/fs /mnt`

// another is what has a device open by another name, as a container does: a node of a kind, by the
// file with its number.
func another(kind, number string) []string {
	return []string{"sh", "-ec", "mknod /tmp/another " + kind + " $(tr : ' ' <" + number + ")\nexec guest hold /tmp/another"}
}

// besides is what runs a script while a process, $p, is in a network namespace of its own, prints a
// line and stays.
func besides(script string) []string {
	return []string{"sh", "-ec", `
unshare -n sleep 1000 & p=$!
trap 'kill $p' TERM
while [ "$(readlink /proc/$p/ns/net)" = "$(readlink /proc/self/ns/net)" ]; do sleep 0.1; done
` + script + `
echo ready
wait || true
wait`}
}

// waitFor waits for files.
func waitFor(files ...string) string {
	return "for file in " + strings.Join(files, " ") + "; do i=0; while [ ! -e $file ]; do [ $i -lt 100 ]; i=$((i+1)); sleep 0.1; done; done\n"
}

// TestUses compares the gate with a running kernel: what a tree cannot hold, such as namespaces, open
// files and disks that are claimed. Without --allow a disk and a network card never leave, and the
// refusal names what claims the disk, or the interface that is up. With --allow they leave, unless the kernel has
// claimed the disk or a process has the function open.
func TestUses(t *testing.T) {
	t.Parallel()
	disk := filepath.Join(t.TempDir(), "disk")
	hosttest.NoError(t, os.WriteFile(disk, nil, 0o644))
	hosttest.NoError(t, os.Truncate(disk, 64<<20))
	topology := named(t, "uses")
	boot := append(fromMemory(linux, initramfs, topology), "-drive", "if=none,id=data,format=raw,cache=unsafe,file="+disk)
	m := start(t, topology, boot)
	m.run("sh", "-ec", waitFor("/dev/nvme0n1", "/sys/class/net/eth0")+`
[ -e /sys/class/nvme-subsystem/nvme-subsys0/nvme0n1 ]
for module in crc32c_generic ext4 loop dm_mod raid1; do modprobe $module; done
mkdir -p /mnt /boot/grub /etc/default /etc/initramfs-tools /usr/sbin
echo GRUB_CMDLINE_LINUX= >/etc/default/grub
touch /boot/grub/grub.cfg
for program in update-grub update-initramfs; do ln -s /bin/busybox /usr/sbin/$program; done
mke2fs /dev/nvme0n1`)
	for _, u := range uses {
		t.Run(u.name, func(t *testing.T) {
			m := machine{m.Machine, t}
			bind := []string{"gpustack", "host", "bind", "--live", "--yes", "--device", u.function}
			dryRun := append(bind[:len(bind):len(bind)], "--dry-run", "--allow", u.function)
			m.keepsDrivers(func() {
				if u.begin != "" {
					m.run("sh", "-ec", u.begin)
				}
				end := func() {}
				if len(u.stay) > 0 {
					end = m.stay(u.stay...)
				}
				m.refused(u.says, bind[1:]...)
				m.refused(u.says, "host", "prepare", "--yes", "--device", u.function)
				allowed := m.try(dryRun...)
				if u.allowed == "" && allowed.Status != 2 || u.allowed != "" && (allowed.Status != 1 || !strings.Contains(allowed.Stderr, u.allowed)) {
					t.Errorf("--allow: exit status %d\n%s%s", allowed.Status, allowed.Stdout, allowed.Stderr)
				}
				end()
				if u.end != "" {
					m.run("sh", "-ec", u.end)
				}
			})
			if after := m.try("gpustack", "host", "bind", "--live", "--dry-run", "--device", u.function, "--allow", u.function); after.Status != 2 {
				t.Errorf("after its end: exit status %d\n%s%s", after.Status, after.Stdout, after.Stderr)
			}
		})
	}
	binds("01:00.0")(m)
	binds("02:00.0")(m)
}
