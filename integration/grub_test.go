package integration

import (
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
