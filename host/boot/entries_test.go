package boot_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
)

// loader is the common interface of the boot loaders in this file.
type loader interface {
	Args() boot.Args
	Entries(root host.Root) ([]boot.Entry, error)
	Files() []string
	Plan(files edit.Files, want boot.Want) (edit.Changes, error)
}

func readBLS(root host.Root) (loader, error)         { return boot.ReadBLS(root) }
func readSystemdBoot(root host.Root) (loader, error) { return boot.ReadSystemdBoot(root) }

// grubenv returns an environment block of GRUB's size.
func grubenv(variables string) string {
	text := "# GRUB Environment Block\n" + variables
	return text + strings.Repeat("#", 1024-len(text))
}

// Machines with boot entries as their distributions install them.
const (
	rhel9 = `
-- boot/grub2/grub.cfg --
insmod blscfg
blscfg
-- boot/loader/entries/f00d-5.14.0-427.el9.x86_64.conf --
title Red Hat Enterprise Linux (5.14.0-427.el9.x86_64) 9.4 (Plow)
version 5.14.0-427.el9.x86_64
linux /vmlinuz-5.14.0-427.el9.x86_64
initrd /initramfs-5.14.0-427.el9.x86_64.img $tuned_initrd
options root=/dev/mapper/rhel-root ro crashkernel=1G-4G:192M rd.lvm.lv=rhel/root $tuned_params
grub_users $grub_users
grub_class rhel
-- boot/loader/entries/f00d-5.14.0-70.el9.x86_64.conf --
title Red Hat Enterprise Linux (5.14.0-70.el9.x86_64) 9.0 (Plow)
version 5.14.0-70.el9.x86_64
linux /vmlinuz-5.14.0-70.el9.x86_64
initrd /initramfs-5.14.0-70.el9.x86_64.img $tuned_initrd
options root=/dev/mapper/rhel-root ro  intel_iommu=off quiet $tuned_params
-- boot/loader/entries/f00d-0-rescue.conf --
title Red Hat Enterprise Linux (0-rescue-f00d) 9.0 (Plow)
version 0-rescue-f00d
linux /vmlinuz-0-rescue-f00d
initrd /initramfs-0-rescue-f00d.img
options root=/dev/mapper/rhel-root ro
-- etc/default/grub --
GRUB_CMDLINE_LINUX="crashkernel=1G-4G:192M rd.lvm.lv=rhel/root"
GRUB_ENABLE_BLSCFG=true
`
	rhel8 = `
-- boot/loader/entries/f00d-4.18.0-553.el8.x86_64.conf --
title Red Hat Enterprise Linux (4.18.0-553.el8.x86_64) 8.10 (Ootpa)
version 4.18.0-553.el8.x86_64
linux /vmlinuz-4.18.0-553.el8.x86_64
initrd /initramfs-4.18.0-553.el8.x86_64.img $tuned_initrd
options $kernelopts $tuned_params
id rhel-20240504-4.18.0-553.el8.x86_64
-- boot/loader/entries/f00d-0-rescue.conf --
version 0-rescue-f00d
linux /vmlinuz-0-rescue-f00d
options $kernelopts
-- etc/default/grub --
GRUB_CMDLINE_LINUX="crashkernel=auto rhgb quiet"
GRUB_ENABLE_BLSCFG=true
`
	fedora = `
-- boot/loader/entries/beef-6.11.4-301.fc41.x86_64.conf --
title Fedora Linux (6.11.4-301.fc41.x86_64) 41 (Server Edition)
version 6.11.4-301.fc41.x86_64
linux /vmlinuz-6.11.4-301.fc41.x86_64
initrd /initramfs-6.11.4-301.fc41.x86_64.img
options root=UUID=1234 ro rootflags=subvol=root rhgb quiet
-- etc/kernel/cmdline --
root=UUID=1234 ro rootflags=subvol=root rhgb quiet
-- etc/default/grub --
GRUB_ENABLE_BLSCFG=true
`
	otherEntries = `
-- boot/efi/loader/entries/arch.conf --
title Arch
linux /vmlinuz-linux
options root=UUID=88 rw
-- boot/efi/loader/entries/test.conf --
title Test
linux /test.efi
`
	debianSystemdBoot = `
-- etc/machine-id --
cafe
-- boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf --
title      Debian GNU/Linux 12 (bookworm)
version    6.1.0-28-amd64
machine-id cafe
sort-key   debian
options    root=UUID=77 ro quiet systemd.machine_id=cafe
linux      /cafe/6.1.0-28-amd64/linux
initrd     /cafe/6.1.0-28-amd64/initrd.img-6.1.0-28-amd64
-- boot/efi/loader/entries/d00d-6.1.0-9-amd64.conf --
title      Another system
version    6.1.0-9-amd64
machine-id d00d
options    root=UUID=99 ro
linux      /d00d/6.1.0-9-amd64/linux
-- boot/efi/loader/entries/memtest.conf --
title memtest
efi /memtest.efi
-- usr/bin/kernel-install --
-- lib/modules/6.1.0-28-amd64/modules.dep --
-- boot/vmlinuz-6.1.0-28-amd64 --
-- proc/cmdline --
root=/dev/of-another-machine ro
`
)

// TestEntries plans Intel's arguments for machines with boot entries and checks the changed lines.
// All other bytes remain, and a second plan changes nothing.
func TestEntries(t *testing.T) {
	fedoraChanged := map[string]string{
		"/boot/loader/entries/beef-6.11.4-301.fc41.x86_64.conf": `
-options root=UUID=1234 ro rootflags=subvol=root rhgb quiet
+options root=UUID=1234 ro rootflags=subvol=root rhgb quiet intel_iommu=on iommu=pt`,
		"/etc/kernel/cmdline": `
-root=UUID=1234 ro rootflags=subvol=root rhgb quiet
+root=UUID=1234 ro rootflags=subvol=root rhgb quiet intel_iommu=on iommu=pt`,
		"/etc/default/grub": `
+# gpustack begin
+# Written by gpustack host prepare. "gpustack undo" reverts it.
+GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt"
+# gpustack end`,
	}
	for _, test := range []struct {
		name, tree string
		read       func(host.Root) (loader, error)
		args       string // what the next boot has
		want       map[string]string
	}{
		{"RHEL 9: options in each entry, one against it, the rescue entry plain", rhel9, readBLS,
			"root=/dev/mapper/rhel-root ro crashkernel=1G-4G:192M rd.lvm.lv=rhel/root",
			map[string]string{
				"/boot/loader/entries/f00d-5.14.0-427.el9.x86_64.conf": `
-options root=/dev/mapper/rhel-root ro crashkernel=1G-4G:192M rd.lvm.lv=rhel/root $tuned_params
+options root=/dev/mapper/rhel-root ro crashkernel=1G-4G:192M rd.lvm.lv=rhel/root $tuned_params intel_iommu=on iommu=pt`,
				"/boot/loader/entries/f00d-5.14.0-70.el9.x86_64.conf": `
-options root=/dev/mapper/rhel-root ro  intel_iommu=off quiet $tuned_params
+options root=/dev/mapper/rhel-root ro quiet $tuned_params intel_iommu=on iommu=pt`,
				"/etc/default/grub": `
+# gpustack begin
+# Written by gpustack host prepare. "gpustack undo" reverts it.
+GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt"
+# gpustack end`,
			}},
		{"RHEL 9: what tuned adds counts", rhel9 + "-- boot/grub2/grubenv --\n" +
			grubenv("saved_entry=f00d-5.14.0-70.el9.x86_64\ntuned_params=iommu=pt nohz=on\n"), readBLS,
			"root=/dev/mapper/rhel-root ro intel_iommu=off quiet iommu=pt nohz=on",
			map[string]string{
				"/boot/loader/entries/f00d-5.14.0-427.el9.x86_64.conf": `
-options root=/dev/mapper/rhel-root ro crashkernel=1G-4G:192M rd.lvm.lv=rhel/root $tuned_params
+options root=/dev/mapper/rhel-root ro crashkernel=1G-4G:192M rd.lvm.lv=rhel/root $tuned_params intel_iommu=on`,
				"/boot/loader/entries/f00d-5.14.0-70.el9.x86_64.conf": `
-options root=/dev/mapper/rhel-root ro  intel_iommu=off quiet $tuned_params
+options root=/dev/mapper/rhel-root ro quiet $tuned_params intel_iommu=on`,
				"/etc/default/grub": `
+# gpustack begin
+# Written by gpustack host prepare. "gpustack undo" reverts it.
+GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt"
+# gpustack end`,
			}},
		{"RHEL 8: options in GRUB's environment, which lies on the EFI system partition", "symlink boot/grub2/grubenv -> ../efi/EFI/redhat/grubenv\n" +
			rhel8 + "-- boot/efi/EFI/redhat/grubenv --\n" +
			grubenv("saved_entry=f00d-4.18.0-553.el8.x86_64\nkernelopts=root=/dev/mapper/rhel-root ro crashkernel=auto rhgb quiet \nboot_success=0\n"), readBLS,
			"root=/dev/mapper/rhel-root ro crashkernel=auto rhgb quiet",
			map[string]string{
				"/boot/grub2/grubenv": `
-kernelopts=root=/dev/mapper/rhel-root ro crashkernel=auto rhgb quiet 
+kernelopts=root=/dev/mapper/rhel-root ro crashkernel=auto rhgb quiet intel_iommu=on iommu=pt`,
				"/etc/default/grub": `
+# gpustack begin
+# Written by gpustack host prepare. "gpustack undo" reverts it.
+GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt"
+# gpustack end`,
			}},
		{"RHEL 8: options that the menu sets by itself",
			rhel8 + "-- boot/grub2/grub.cfg --\nif [ -z \"${kernelopts}\" ]; then\n  set kernelopts=\"root=/dev/sda1 ro amd_iommu=off\"\nfi\nblscfg\n", readBLS,
			"root=/dev/sda1 ro amd_iommu=off",
			map[string]string{
				"/boot/grub2/grubenv": `
+# GRUB Environment Block
+kernelopts=root=/dev/sda1 ro amd_iommu=off intel_iommu=on iommu=pt`,
				"/etc/default/grub": `
+# gpustack begin
+# Written by gpustack host prepare. "gpustack undo" reverts it.
+GRUB_CMDLINE_LINUX="$GRUB_CMDLINE_LINUX intel_iommu=on iommu=pt"
+# gpustack end`,
			}},
		{"Fedora: what later kernels get is kept in step", fedora, readBLS,
			"root=UUID=1234 ro rootflags=subvol=root rhgb quiet", fedoraChanged},
		{"Fedora: an entry by two names", "symlink boot/loader/entries/default.conf -> beef-6.11.4-301.fc41.x86_64.conf\n" + fedora, readBLS,
			"root=UUID=1234 ro rootflags=subvol=root rhgb quiet", fedoraChanged},
		{"no /etc/default/grub, and an entry without options or a last newline", "-- boot/loader/entries/a.conf --\nlinux /vmlinuz\ninitrd /initrd", readBLS, "",
			map[string]string{"/boot/loader/entries/a.conf": "\n+options intel_iommu=on iommu=pt"}},
		{"options in several lines", "-- boot/loader/entries/a.conf --\noptions root=/dev/a intel_iommu=off\nlinux /vmlinuz\n" +
			"options \tiommu=soft ro\n", readBLS, "root=/dev/a intel_iommu=off iommu=soft ro",
			map[string]string{"/boot/loader/entries/a.conf": `
-options root=/dev/a intel_iommu=off
+options root=/dev/a
-options 	iommu=soft ro
+options 	ro intel_iommu=on iommu=pt`}},
		{"systemd-boot on Debian: what later kernels get begins with what the newest has, another system's entry stays", debianSystemdBoot, readSystemdBoot,
			"root=UUID=77 ro quiet systemd.machine_id=cafe",
			map[string]string{
				"/boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf": `
-options    root=UUID=77 ro quiet systemd.machine_id=cafe
+options    root=UUID=77 ro quiet systemd.machine_id=cafe intel_iommu=on iommu=pt`,
				"/etc/kernel/cmdline": `
+root=UUID=77 ro quiet systemd.machine_id=cafe intel_iommu=on iommu=pt`,
			}},
		{"systemd-boot beside a newer system and a tool without ids", debianSystemdBoot + otherEntries, readSystemdBoot,
			"root=UUID=77 ro quiet systemd.machine_id=cafe",
			map[string]string{
				"/boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf": `
-options    root=UUID=77 ro quiet systemd.machine_id=cafe
+options    root=UUID=77 ro quiet systemd.machine_id=cafe intel_iommu=on iommu=pt`,
				"/boot/efi/loader/entries/arch.conf": `
-options root=UUID=88 rw
+options root=UUID=88 rw intel_iommu=on iommu=pt`,
				"/boot/efi/loader/entries/test.conf": `
+options intel_iommu=on iommu=pt`,
				"/etc/kernel/cmdline": `
+root=UUID=77 ro quiet systemd.machine_id=cafe intel_iommu=on iommu=pt`,
			}},
		{"systemd-boot with a command line of the distribution",
			debianSystemdBoot + "-- usr/lib/kernel/cmdline --\n# all of them\nroot=LABEL=a\n  quiet\n", readSystemdBoot,
			"root=LABEL=a quiet",
			map[string]string{
				"/boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf": `
-options    root=UUID=77 ro quiet systemd.machine_id=cafe
+options    root=UUID=77 ro quiet systemd.machine_id=cafe intel_iommu=on iommu=pt`,
				"/etc/kernel/cmdline": `
+root=LABEL=a quiet intel_iommu=on iommu=pt`,
			}},
		{"systemd-boot with a command line of the operator",
			debianSystemdBoot + "-- etc/kernel/cmdline --\n# ours\nroot=UUID=77 intel_iommu=on,sm_on\n\nquiet iommu=soft", readSystemdBoot,
			"root=UUID=77 intel_iommu=on,sm_on quiet iommu=soft",
			map[string]string{
				"/boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf": `
-options    root=UUID=77 ro quiet systemd.machine_id=cafe
+options    root=UUID=77 ro quiet systemd.machine_id=cafe intel_iommu=on iommu=pt`,
				"/etc/kernel/cmdline": `
-quiet iommu=soft
+quiet iommu=pt`,
			}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, test.tree)
			l, err := test.read(root)
			hosttest.NoError(t, err)
			hosttest.EqualIn(t, "arguments", test.args, l.Args().String())
			plan, err := l.Plan(edit.Observe(root, l.Files()...), intel)
			hosttest.NoError(t, err)
			got := map[string]string{}
			for _, c := range plan.Pending() {
				got[c.Name] = changedLines(c)
			}
			hosttest.Equal(t, test.want, got)
			hosttest.NoError(t, plan.Apply(context.Background(), root))
			if l, err = test.read(root); err != nil {
				t.Fatal(err)
			}
			again, err := l.Plan(edit.Observe(root, l.Files()...), intel)
			hosttest.NoError(t, err)
			for _, c := range again.Pending() {
				t.Errorf("planned again:\n%s", c.Diff())
			}
			entries, err := l.Entries(root)
			hosttest.NoError(t, err)
			if err := boot.InEffect(entries, boot.Args{"intel_iommu=on", "iommu=pt"}); err != nil {
				t.Error(err)
			}
		})
	}
}

// changedLines returns the removed and added lines of a change, without GRUB's padding.
func changedLines(c edit.Change) string {
	var b strings.Builder
	for line := range strings.Lines(c.Diff()) {
		line = strings.TrimSuffix(line, "\n")
		if !strings.HasPrefix(line, "---") && !strings.HasPrefix(line, "+++") &&
			strings.ContainsAny(line[:min(1, len(line))], `-+`) && !strings.Contains(line, "####") {
			fmt.Fprintf(&b, "\n%s", line)
		}
	}
	return b.String()
}

// TestEnvironmentBlock: a changed environment block keeps its size, here one byte more than GRUB's
// because of a newline, and the comment that grub-editenv has written before the variables since
// GRUB 2.06, as on Debian 13.
func TestEnvironmentBlock(t *testing.T) {
	const comment = "# WARNING: Do not edit this file by tools other than grub-editenv!!!\n"
	for name, variables := range map[string]string{
		"escaped characters":    "a=x\\\\y\\\nz\nkernelopts=root=/dev/a ro",
		"a comment":             comment + "kernelopts=root=/dev/a ro",
		"a comment, and others": comment + "saved_entry=0\nkernelopts=root=/dev/a ro",
	} {
		t.Run(name, func(t *testing.T) {
			root := hosttest.Lay(t, rhel8+"-- boot/grub2/grubenv --\n"+grubenv(variables+"\n"))
			l, err := boot.ReadBLS(root)
			hosttest.NoError(t, err)
			plan, err := l.Plan(edit.Observe(root, l.Files()...), intel)
			hosttest.NoError(t, err)
			hosttest.NoError(t, plan.Apply(context.Background(), root))
			got, err := root.ReadFile("boot/grub2/grubenv")
			if want := grubenv(variables+" intel_iommu=on iommu=pt\n") + "#"; err != nil || string(got) != want {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
}

// TestEntriesRefused covers machines whose entries cannot be given the wanted arguments.
func TestEntriesRefused(t *testing.T) {
	for _, test := range []struct {
		name, tree string
		read       func(host.Root) (loader, error)
		is         error
		want       string
	}{
		{"no entries", "-- boot/loader/entries/0.conf --\nefi /shell.efi\n", readBLS, boot.ErrNoEntries, "/boot/loader/entries: no boot entries"},
		{"only for rescue", "-- boot/loader/entries/a-0-rescue.conf --\nlinux /v\n", readBLS, boot.ErrNoEntries, "/boot/loader/entries: no boot entries"},
		{"tuned says otherwise, after the entries", rhel9 + "-- boot/grub2/grubenv --\n" + grubenv("tuned_params=intel_iommu=off\n"), readBLS, boot.ErrNotInEffect,
			"/boot/loader/entries/f00d-5.14.0-427.el9.x86_64.conf: the arguments would not take effect: variables in /boot/grub2/grubenv set intel_iommu=off"},
		{"no value for kernelopts", rhel8, readBLS, boot.ErrNotInEffect,
			"/boot/grub2/grubenv: the arguments would not take effect: the boot entries use $kernelopts, which is not set"},
		{"a variable that is a part of a word", strings.Replace(rhel8, "$kernelopts $tuned_params", "$kernelopts-x", 1) +
			"-- boot/grub2/grubenv --\n" + grubenv("kernelopts=root=/dev/b iommu=soft\n"), readBLS, boot.ErrNotInEffect,
			"/boot/loader/entries/f00d-4.18.0-553.el8.x86_64.conf: the arguments would not take effect: " +
				"its kernel would get \"root=/dev/b intel_iommu=on iommu=pt-x iommu=pt\""},
		{"an environment without room", rhel8 + "-- boot/grub2/grubenv --\n" +
			grubenv("kernelopts=root=/dev/a "+strings.Repeat("x", 955)+"\n"), readBLS, boot.ErrNotInEffect,
			"/boot/grub2/grubenv: the arguments would not take effect: needs 1028 bytes, the file has 1025"},
		{"arguments of init in a variable", strings.Replace(rhel8, "$tuned_params", "", 1) +
			"-- boot/grub2/grubenv --\n" + grubenv("kernelopts=root=/dev/b -- single\n"), readBLS,
			boot.ErrNotInEffect, "/boot/loader/entries/f00d-4.18.0-553.el8.x86_64.conf: the arguments would not take effect: variables in /boot/grub2/grubenv have --"},
		{"arguments of init", strings.Replace(rhel9, "quiet $tuned_params", "quiet -- $tuned_params", 1), readBLS, boot.ErrNotInEffect,
			"/boot/loader/entries/f00d-5.14.0-70.el9.x86_64.conf: the arguments would not take effect"},
		{"arguments of init, on a line of their own", strings.Replace(debianSystemdBoot, "linux ", "options -- single\nlinux ", 1),
			readSystemdBoot, boot.ErrNotInEffect,
			"/boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf: the arguments would not take effect"},
		{"an environment that is none", rhel8 + "-- boot/grub2/grubenv --\nkernelopts=root=/dev/a\n", readBLS, nil,
			"/boot/grub2/grubenv: not a GRUB environment block"},
		{"an environment with more behind", rhel8 + "-- boot/grub2/grubenv --\n" +
			strings.Replace(grubenv("kernelopts=root=/dev/a\n"), "##########", "####x#####", 1), readBLS, nil, "/boot/grub2/grubenv: not a GRUB environment block"},
		{"systemd-boot without a root file system", strings.ReplaceAll(debianSystemdBoot, "root=UUID=77 ", ""), readSystemdBoot, boot.ErrNoRoot,
			"/boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf: has no root= argument, without which kernels installed later would not boot"},
		{"systemd-boot with entries that may be another system's", strings.ReplaceAll(debianSystemdBoot, "machine-id cafe", "") + otherEntries +
			"-- proc/cmdline --\nroot=live:CDLABEL=x quiet\n", readSystemdBoot, nil,
			"/boot/efi/loader/entries/test.conf: may be another system's entry: it has neither this machine's id nor the root= of the running kernel"},
		{"systemd-boot of an image, which has no id yet", strings.Replace(debianSystemdBoot, "\ncafe\n", "\nuninitialized\n", 1), readSystemdBoot, nil,
			"/boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf: may be another system's entry: it has neither this machine's id nor the root= of the running kernel"},
		{"systemd-boot without entries of this system",
			strings.ReplaceAll(debianSystemdBoot, "machine-id cafe", "machine-id fade"), readSystemdBoot, boot.ErrNoEntries,
			"/efi/loader/entries, /boot/loader/entries, /boot/efi/loader/entries: no boot entries"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, test.tree)
			l, err := test.read(root)
			if err == nil {
				_, err = l.Plan(edit.Observe(root, l.Files()...), intel)
			}
			if err == nil || err.Error() != test.want || test.is != nil && !errors.Is(err, test.is) {
				t.Errorf("%v, want %s", err, test.want)
			}
			// Files of entries and the environment must not be renamed.
			if hint := host.HintOf(err).String(); strings.Contains(hint, "rename") {
				t.Error(hint)
			}
		})
	}
}

// TestKept: Restore gives entries that a program has rewritten their previous arguments, and
// unchanged entries their previous bytes.
func TestKept(t *testing.T) {
	const name = "boot/efi/loader/entries/cafe-6.1.0-28-amd64.conf"
	first := hosttest.Lay(t, debianSystemdBoot)
	before, err := first.ReadFile(name)
	hosttest.NoError(t, err)
	other := strings.Replace(string(before), "root=UUID=77 ro", "root=/dev/loop0 ro intel_iommu=on", 1)
	for _, test := range []struct {
		name, now, want string
	}{
		{"as it was", string(before), string(before)},
		{"other arguments", other, string(before)},
		{"another form", strings.ReplaceAll(other, "   ", " "), string(before)},
		{"another initramfs", strings.Replace(other, "initrd.img", "initrd-2.img", 1), strings.Replace(string(before), "initrd.img", "initrd-2.img", 1)},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, debianSystemdBoot)
			kept, err := boot.KeepEntries(root)
			hosttest.NoError(t, err)
			hosttest.NoError(t, edit.Write(root, name, []byte(test.now), 0o644))
			plan, err := kept.Restore(root)
			hosttest.NoError(t, err)
			hosttest.NoError(t, plan.Apply(context.Background(), root))
			got, err := root.ReadFile(name)
			if diff := cmp.Diff(test.want, string(got)); diff != "" || err != nil {
				t.Errorf("(-want +got):\n%s%v", diff, err)
			}
		})
	}
}

// TestSystemdBootPrograms: each kernel with an entry is reinstalled.
func TestSystemdBootPrograms(t *testing.T) {
	root := hosttest.Lay(t, debianSystemdBoot+"-- lib/modules/6.1.0-9-amd64/modules.dep --\n-- boot/vmlinuz-6.1.0-9-amd64 --\n")
	b, err := boot.ReadSystemdBoot(root)
	hosttest.NoError(t, err)
	want := []host.Program{{Kind: host.KernelInstall, Release: "6.1.0-28-amd64", File: "/boot/vmlinuz-6.1.0-28-amd64"}}
	for _, got := range [][]host.Program{b.Programs(true, false), b.Programs(false, true)} {
		hosttest.Equal(t, want, got)
	}
	if got := b.Programs(false, false); got != nil {
		t.Errorf("%v", got)
	}
}

// FuzzEntry: for any entry, either Plan returns an error, or the kernel gets its arguments without
// the conflicting ones and with the wanted ones, and no other line of the entry changes.
func FuzzEntry(f *testing.F) {
	f.Add("linux /v\noptions root=/dev/a  ro intel_iommu=off\n", "")
	f.Add("linux /v\r\noptions \troot=/dev/a\r\noptions iommu=soft \"a b=c\" $kernelopts ${tuned_params}x\r\n",
		"kernelopts=root=/dev/b iommu=nopt\ntuned_params=nohz=on\n")
	f.Add("options\nlinux /v", "kernelopts=a\\\\b\n")
	f.Add("linux /v\noptions iommuoptft \"a b=c\" $kernelopts\x17\n", "kernelopts=root=/dev/b iommu=no\x8bt\n")
	f.Add("# options x\n\n options\toption=1\nlinux /v\n", "tuned_params=iommu=pt intel_iommu=off\n")
	f.Add("linux /v\noptions#", "kernelopts=a\n")
	f.Fuzz(func(t *testing.T, entry, variables string) {
		if strings.Contains(entry, "\n-- ") || strings.HasPrefix(entry, "-- ") || len(variables) > 900 || strings.Contains(variables, "\n-- ") {
			return // would be another file of the archive
		}
		root := hosttest.Lay(t, "-- boot/loader/entries/a.conf --\n"+entry+"\n-- boot/grub2/grubenv --\n"+grubenv(variables))
		l, err := boot.ReadBLS(root)
		if err != nil {
			return
		}
		before := l.Args()
		plan, err := l.Plan(edit.Observe(root, l.Files()...), intel)
		if err != nil {
			return
		}
		for _, c := range plan.Pending() { // without waiting for the disk
			hosttest.NoError(t, os.WriteFile(root.Path(c.Name), c.After.Content, 0o644))
		}
		l, err = boot.ReadBLS(root)
		hosttest.NoError(t, err)
		if change := intel.Change(l.Args()); !change.IsZero() {
			t.Errorf("%q: %v is still to be done", l.Args(), change)
		}
		got, want := slices.Clone(l.Args()), intel.Change(before).Apply(before)
		slices.Sort(got)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q became %q, want %q", before, got, want)
		}
		now, err := root.ReadFile("boot/loader/entries/a.conf")
		hosttest.NoError(t, err)
		hosttest.EqualIn(t, "other lines", otherLines(entry+"\n"), otherLines(string(now)))
	})
}

// otherLines returns the lines that set no options.
func otherLines(text string) (lines []string) {
	for line := range strings.Lines(text) {
		if fields := strings.FieldsFunc(line, func(r rune) bool { return strings.ContainsRune(" \t\r\n", r) }); len(fields) == 0 || fields[0] != "options" {
			lines = append(lines, line)
		}
	}
	return lines
}
