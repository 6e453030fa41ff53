package boot_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/boot"
	"gpustack/host/hosttest"
)

func TestMenu(t *testing.T) {
	root := hosttest.Lay(t, `
-- boot/grub/grub.cfg --
set default=0
menuentry 'Ubuntu' {
	linux	/boot/vmlinuz-2 root=UUID=a ro quiet intel_iommu=on,sm_on iommu=pt
	initrd	/boot/initrd.img-2
}
menuentry 'Ubuntu (recovery mode)' {
	linux	/boot/vmlinuz-2 root=UUID=a ro recovery nomodeset
}
menuentry 'Ubuntu, older' {
	linuxefi	/boot/vmlinuz-1 root=UUID=a ro quiet intel_iommu=on
}
menuentry 'Another system' {
	linux /boot/vmlinuz root=/dev/sdb1 ro
}
`)
	entries, err := boot.ReadMenu(root, "/boot/grub/grub.cfg")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"/boot/vmlinuz root=/dev/sdb1", "/boot/vmlinuz-1 root=UUID=a", "/boot/vmlinuz-2 root=UUID=a"}
	if diff := cmp.Diff(want, boot.Roots(entries)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if err := boot.InEffect(entries, boot.Args{"intel_iommu=on"}); err != nil {
		t.Error(err)
	}
	const missing = "/boot/grub/grub.cfg: the arguments would not be in effect: the entry of /boot/vmlinuz-1 has no iommu=pt"
	if err := boot.InEffect(entries, boot.Args{"intel_iommu=on", "iommu=pt"}); err == nil || err.Error() != missing {
		t.Errorf("%v", err)
	}
}
