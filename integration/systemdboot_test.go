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
