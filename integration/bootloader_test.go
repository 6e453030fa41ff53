package integration

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/boot"
	"gpustack/host/hosttest"
)

// grubProbe answers what grub-mkconfig asks of disks: here is one, of which /etc/loop
// makes a loop device.
const grubProbe = `#!/bin/sh
for word; do
	case $word in
	--target=device) [ -e /etc/loop ] && echo /dev/loop0p2 || echo /dev/vda1 ;;
	--target=fs) echo ext2 ;;
	--target=fs_uuid) echo 0e8a5f6c-3d4f-4d5e-9a51-1c2f6b7f9a10 ;;
	--target=partmap) echo gpt ;;
	--target=abstraction) ;;
	--target=*) echo hd0,gpt1 ;;
	esac
done
`

// TestUpdateGrub: Debian's own update-grub, with all its scripts, makes a menu of what is
// planned: normal entries have the arguments, the contradiction is gone, recovery entries
// are plain. undo makes the menu that was there, and one with another root file system is
// not kept.
func TestUpdateGrub(t *testing.T) {
	files := map[string]string{
		"usr/sbin/grub-probe":          grubProbe,
		"etc/default/grub":             "GRUB_TIMEOUT=5\nGRUB_DISTRIBUTOR=`lsb_release -i -s 2>/dev/null || echo Debian`\nGRUB_CMDLINE_LINUX_DEFAULT=\"quiet iommu=soft\"\nGRUB_CMDLINE_LINUX=\"console=ttyS0\"\n",
		"boot/vmlinuz-4.4.0-1-generic": "an older one\n",
	}
	scripts, err := filepath.Glob("/etc/grub.d/*")
	if err != nil || len(scripts) < 5 {
		t.Fatalf("%v, %v", scripts, err)
	}
	for _, script := range scripts {
		files[script] = hosttest.Read(t, script)
	}
	root := layDebian(t, files, "boot/grub/grub.cfg")
	in := func(argv ...string) {
		t.Helper()
		mustInDebian(t, root, argv...)
	}
	menu := filepath.Join(root, "boot/grub/grub.cfg")
	in("chroot", root, "update-initramfs", "-c", "-k", nodeKernel)
	in("env", "-i", "LC_ALL=C", "PATH=/usr/sbin:/usr/bin:/sbin:/bin", "chroot", root, "update-grub")
	first := hosttest.Read(t, menu)
	in(gpustack, "host", "prepare", "--root", root, "--rebuild", "--yes")
	r := hosttest.Root(t, root)
	entries, err := boot.ReadMenu(r, "/boot/grub/grub.cfg")
	hosttest.NoError(t, err)
	var got []string
	for _, e := range entries {
		if len(e.Args.Values("init")) == 0 { // one for each init that this machine has
			line := e.Kernel + " " + e.Args.String()
			if e.Recovery { // Debian 13's have one argument more
				line = strings.Replace(line, " single dis_ucode_ldr ", " single ", 1)
			}
			got = append(got, line)
		}
	}
	if err := boot.InEffect(entries, boot.Args{"intel_iommu=on", "iommu=pt"}); err != nil {
		t.Error(err)
	}
	slices.Sort(got)
	want := []string{
		"/boot/vmlinuz-4.4.0-1-generic root=/dev/vda1 ro console=ttyS0 quiet intel_iommu=on iommu=pt",
		"/boot/vmlinuz-4.4.0-1-generic root=/dev/vda1 ro single console=ttyS0",
		"/boot/vmlinuz-4.4.0-210-generic root=/dev/vda1 ro console=ttyS0 quiet intel_iommu=on iommu=pt",
		"/boot/vmlinuz-4.4.0-210-generic root=/dev/vda1 ro console=ttyS0 quiet intel_iommu=on iommu=pt",
		"/boot/vmlinuz-4.4.0-210-generic root=/dev/vda1 ro single console=ttyS0",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s\n%s", diff, hosttest.Read(t, menu))
	}
	// From here on the disk is a loop device, as in a chroot without udev.
	hosttest.NoError(t, os.WriteFile(filepath.Join(root, "etc/loop"), nil, 0o644))
	prepared := hosttest.Read(t, menu)
	_, talk, status := inDebian(t, root, gpustack, "host", "prepare", "--root", root, "--rebuild", "--yes")
	if status != 1 || !strings.Contains(talk, "the new menu would boot /boot/vmlinuz-4.4.0-210-generic with root=/dev/loop0") ||
		!strings.Contains(talk, "\ngpustack: error: the files from before the program ran were restored\n") || hosttest.Read(t, menu) != prepared {
		t.Errorf("exit status %d: %s\n%s", status, talk, cmp.Diff(prepared, hosttest.Read(t, menu)))
	}
	hosttest.NoError(t, os.Remove(filepath.Join(root, "etc/loop")))
	in(gpustack, "undo", "--root", root, "--yes")
	in(gpustack, "undo", "--root", root, "--yes")
	hosttest.EqualIn(t, "after undo", first, hosttest.Read(t, menu))
}

// What systemd-boot's partition holds for the node's kernel.
const (
	nodeMachine = "0123456789abcdef0123456789abcdef"
	nodeEntry   = "boot/efi/loader/entries/" + nodeMachine + "-" + nodeKernel + ".conf"
	nodeRoot    = "root=UUID=0e8a5f6c-3d4f-4d5e-9a51-1c2f6b7f9a10"
)

// withSystemdBoot are the files of a node that systemd-boot starts. Its running kernel
// has other arguments.
var withSystemdBoot = map[string]string{
	"etc/machine-id": nodeMachine + "\n",
	"boot/efi/EFI/systemd/systemd-bootx64.efi": "",
	// A tree's partition is none, by which newer ones find it (systemd 257).
	"etc/kernel/install.conf":                               "layout=bls\nBOOT_ROOT=/boot/efi\n",
	"boot/efi/" + nodeMachine + "/" + nodeKernel + "/linux": "",
	"proc/cmdline": "initrd=\\a root=/dev/of-the-running-kernel ro intel_iommu=on iommu=pt\n",
}

// TestSystemdBoot: systemd's own kernel-install makes the entry of what is planned, with
// the initramfs that initramfs-tools' own update-initramfs makes; bootctl reads in it what
// gpustack does; and undo, with the arguments of a prepared kernel running, leads back to
// the first.
func TestSystemdBoot(t *testing.T) {
	root := layDebian(t, withSystemdBoot, "boot/grub", "etc/default")
	in := func(argv ...string) string {
		t.Helper()
		return mustInDebian(t, root, argv...)
	}
	// The machine is installed with the distribution's own programs.
	in("chroot", root, "update-initramfs", "-c", "-k", nodeKernel)
	cmdline := filepath.Join(root, "etc/kernel/cmdline")
	hosttest.NoError(t, os.MkdirAll(filepath.Dir(cmdline), 0o755))
	hosttest.NoError(t, os.WriteFile(cmdline, []byte(nodeRoot+" ro quiet\n"), 0o644))
	in("chroot", root, "kernel-install", "add", nodeKernel, "/boot/vmlinuz-"+nodeKernel)
	// Nothing says what later kernels get.
	hosttest.NoError(t, os.Remove(cmdline))
	first := hosttest.Read(t, filepath.Join(root, nodeEntry))
	if !strings.Contains(first, "options    "+nodeRoot+" ro quiet systemd.machine_id="+nodeMachine+"\n") {
		t.Fatalf("the first entry:\n%s", first)
	}
	before := configured(t, root)

	out := in(gpustack, "host", "prepare", "--root", root, "--rebuild", "--yes")
	for _, line := range []string{"then runs update-initramfs -u -k all\n", "then runs kernel-install add " + nodeKernel + " /boot/vmlinuz-" + nodeKernel + "\n"} {
		hosttest.Contains(t, line, out)
	}
	want := strings.Replace(first, "options    "+nodeRoot+" ro quiet systemd.machine_id="+nodeMachine, "options    "+nodeRoot+" ro quiet systemd.machine_id="+nodeMachine+" intel_iommu=on iommu=pt", 1)
	if got := hosttest.Read(t, filepath.Join(root, nodeEntry)); got != want {
		t.Errorf("(-want +got):\n%s", cmp.Diff(want, got))
	}
	image := filepath.Join(root, "boot/efi", nodeMachine, nodeKernel, "initrd.img-"+nodeKernel)
	hosttest.EqualIn(t, "the partition has another initramfs", hosttest.Read(t, filepath.Join(root, "boot/initrd.img-"+nodeKernel)), hosttest.Read(t, image))
	bootctl(t, root)
	hosttest.Contains(t, "nothing to do", in(gpustack, "host", "prepare", "--root", root, "--dry-run"))

	in(gpustack, "undo", "--root", root, "--yes")
	if got := hosttest.Read(t, filepath.Join(root, nodeEntry)); got != first {
		t.Errorf("after undo (-want +got):\n%s", cmp.Diff(first, got))
	}
	hosttest.EqualIn(t, "after undo", before, configured(t, root))

	// An initramfs that the partition gets from another's hook, and that starts nothing.
	const spoil = "etc/kernel/install.d/99-spoil.install"
	hosttest.NoError(t, os.MkdirAll(filepath.Dir(filepath.Join(root, spoil)), 0o755))
	hosttest.NoError(t,
		os.WriteFile(filepath.Join(root, spoil), []byte("#!/bin/sh\n[ \"$1\" = add ] || exit 0\necho nothing > \"$3\"/initrd.img-\"$2\"\n"), 0o755))
	good := hosttest.Read(t, image)
	_, talk, status := inDebian(t, root, gpustack, "host", "prepare", "--root", root, "--rebuild", "--yes")
	if status != 1 || !strings.Contains(talk, image[len(root):]) {
		t.Errorf("with a spoilt initramfs: exit status %d: %s", status, talk)
	}
	hosttest.EqualIn(t, "the spoilt initramfs has stayed", good, hosttest.Read(t, image))
	if got := hosttest.Read(t, filepath.Join(root, nodeEntry)); got != want {
		t.Errorf("its entry (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// bootctl holds what gpustack reads in the entries against what systemd does.
func bootctl(t *testing.T, root string) {
	t.Helper()
	out, talk, status := inDebian(t, root, "env", "SYSTEMD_RELAX_ESP_CHECKS=1", "chroot", root, "bootctl", "--esp-path=/boot/efi", "list", "--json=short")
	if status != 0 {
		t.Fatalf("exit status %d: %s", status, talk)
	}
	var theirs struct {
		Path, Linux, Options string
		Initrd               []string
	}
	// An object for each entry; since systemd 257 in a list.
	if err := json.Unmarshal([]byte(strings.Trim(out, "[]\n")), &theirs); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	r := hosttest.Root(t, root)
	loader, err := boot.ReadSystemdBoot(r)
	hosttest.NoError(t, err)
	ours, err := loader.Entries(r)
	if err != nil || len(ours) != 1 {
		t.Fatalf("%v, %v", ours, err)
	}
	const partition = "/boot/efi"
	if e := ours[0]; theirs.Path != e.File || theirs.Options != e.Args.String() || theirs.Linux != e.Kernel || !slices.Equal([]string{partition + theirs.Initrd[0]}, e.Initrds) {
		t.Errorf("%+v, bootctl: %+v", e, theirs)
	}
}
