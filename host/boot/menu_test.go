package boot_test

import (
	"fmt"
	"testing"

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
	hosttest.NoError(t, err)
	if others := boot.CompareRoots(entries, entries); others != nil {
		t.Errorf("%v", others)
	}
	if err := boot.InEffect(entries, boot.Args{"intel_iommu=on"}); err != nil {
		t.Error(err)
	}
	const missing = "/boot/grub/grub.cfg: the arguments would not take effect: the entry of /boot/vmlinuz-1 has no iommu=pt"
	hosttest.Equal(t, missing, fmt.Sprint(boot.InEffect(entries, boot.Args{"intel_iommu=on", "iommu=pt"})))
}

// TestCompareRoots: only a kernel in both menus without the root file system of its first entry, or
// a default with a new root file system, is an error.
func TestCompareRoots(t *testing.T) {
	const (
		kernel   = "linux /vmlinuz-2 root=UUID=a ro\n"
		recovery = "linux /vmlinuz-2 root=UUID=a ro single\n"
		older    = "linux /vmlinuz-1 root=UUID=a ro\n"
		snapshot = "linux /vmlinuz-2 root=UUID=s ro\n"
		other    = "linux /vmlinuz root=/dev/sdb1 ro\n"
		loop     = "linux /vmlinuz-2 root=/dev/loop0p2 ro\n"
		changed  = "/boot/grub/grub.cfg: the new menu would boot "
	)
	for _, test := range []struct {
		name, before, after string
		want                []string
	}{
		{"no menu before", "", loop, nil},
		{"as before", kernel + recovery + other, kernel + recovery + other, nil},
		{"a kernel was removed", kernel + older, kernel, nil},
		{"a kernel was installed", older, kernel + older, nil},
		{"all kernels are new", older, kernel, nil},
		{"another system is gone", kernel + other, kernel, nil},
		{"another snapshot", kernel + snapshot, kernel + "linux /vmlinuz-2 root=UUID=t ro\n", nil},
		{"recovery entries are switched off", kernel + recovery, kernel, nil},
		{"of two root= the last counts", "linux /vmlinuz-2 root=UUID=x root=UUID=a\n", kernel, nil},
		{"a loop device", kernel + recovery + older, loop + "linux /vmlinuz-2 root=/dev/loop0p2 single\nlinux /vmlinuz-1 root=/dev/loop0p2 ro\n",
			[]string{changed + "/vmlinuz-2 with root=/dev/loop0p2 instead of root=UUID=a", changed + "/vmlinuz-1 with root=/dev/loop0p2 instead of root=UUID=a"}},
		{"a loop device beside a snapshot", kernel + snapshot, loop + snapshot, []string{changed + "/vmlinuz-2 with root=/dev/loop0p2 instead of root=UUID=a"}},
		{"a loop device, only another system's kernel is in both", older + other, loop + other,
			[]string{changed + "/vmlinuz-2 with root=/dev/loop0p2 instead of root=UUID=a"}},
		{"a loop device, all kernels are new", older, loop, []string{changed + "/vmlinuz-2 with root=/dev/loop0p2 instead of root=UUID=a"}},
		{"a second root=", kernel, "linux /vmlinuz-2 root=UUID=a root=/dev/loop0p2\n",
			[]string{changed + "/vmlinuz-2 with root=/dev/loop0p2 instead of root=UUID=a"}},
		{"no root=", kernel, "linux /vmlinuz-2 ro\n", []string{changed + "/vmlinuz-2 with no root= instead of root=UUID=a"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			read := func(text string) []boot.Entry {
				entries, err := boot.ReadMenu(hosttest.Lay(t, "-- boot/grub/grub.cfg --\n"+text), "/boot/grub/grub.cfg")
				hosttest.NoError(t, err)
				return entries
			}
			var got []string
			for _, other := range boot.CompareRoots(read(test.before), read(test.after)) {
				got = append(got, other.Error())
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}
