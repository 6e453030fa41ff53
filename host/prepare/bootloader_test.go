package prepare_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/hosttest"
	"gpustack/host/prepare"
	"gpustack/host/selection"
)

// TestBootRefused: machines whose next boot prepare could not change, or whose boot files are not
// there, are refused with the command that helps.
func TestBootRefused(t *testing.T) {
	const (
		grubTree = "debian"
		sdBoot   = "debian-systemd-boot"
		kernel   = "boot/efi/EFI/Linux/cafe-6.12.0-1-amd64.efi"
		image    = "unified kernel images (/" + kernel + "): gpustack cannot set kernel arguments on this system"
		install  = "write all kernel arguments of this system, including root=, to /etc/kernel/cmdline; add intel_iommu=on iommu=pt to /etc/kernel/cmdline, then kernel-install add RELEASE IMAGE for each kernel"
		fstab    = "# <file system> <mount point>\nUUID=1 / ext4 defaults 0 1\n"
	)
	live := write("proc/mounts", "/dev/sda2 / ext4 rw 0 0\nsystemd-1 /boot autofs rw 0 0\n")
	booted := hosttest.Variable("LoaderInfo", "systemd-boot 252.33-1~deb12u1")
	notMounted := func(dir string) string { return dir + ": is in /etc/fstab but not mounted" }
	for _, test := range []struct {
		name, distro string
		change       step
		want         string
		command      string // "ROOT" stands for the root
	}{
		{"a unified image beside an entry", sdBoot, steps(booted, write(kernel, "")), image, install},

		{"/boot is not mounted", grubTree, steps(live, write("etc/fstab", fstab+"UUID=2 /boot ext4 defaults 0 2\n")), notMounted("/boot"), "mount UUID=2 ROOT/boot"},
		{"/boot is mounted", grubTree, steps(live, write("etc/fstab", fstab+"UUID=2 /boot/ ext4\n"), write("proc/mounts", "/dev/sda1 /boot ext4 rw 0 0\n")), "", ""},
		{"the EFI system partition is not mounted", grubTree,
			steps(live, write("etc/fstab", fstab+"LABEL=EFI /boot/efi vfat umask=0077 0 1\n")), notMounted("/boot/efi"), "mount LABEL=EFI ROOT/boot/efi"},
		{"it is mounted on demand", grubTree, steps(live,
			write("etc/fstab", fstab+"LABEL=EFI /efi vfat noauto,x-systemd.automount 0 1\n")), notMounted("/efi"), "mount LABEL=EFI ROOT/efi"},
		{"it is mounted by hand only", grubTree, steps(live, write("etc/fstab", fstab+"LABEL=EFI /efi vfat noauto 0 1\n")), "", ""},
		{"a link to its mount point", grubTree,
			steps(link("boot/efi", "/efi"), write("etc/fstab", fstab+"LABEL=EFI /boot/efi vfat umask=0077 0 1\n"),
				write("proc/mounts", "/dev/sda1 /efi vfat rw 0 0\n")), "", ""},
		{"/boot is mounted by hand only, and is not", grubTree,
			steps(live, write("etc/fstab", fstab+"LABEL=boot /boot ext4 noauto 0 2\n")), notMounted("/boot"), "mount LABEL=boot ROOT/boot"},
		{"/boot is mounted by hand only, and the root file system has kernels", grubTree,
			steps(live, write("etc/fstab", fstab+"LABEL=boot /boot ext4 noauto 0 2\n"), write("boot/vmlinuz-6.1.0-28-amd64", "")), "", ""},
		{"a comment", grubTree, steps(live, write("etc/fstab", "#UUID=2 /boot ext4\n/boot\n")), "", ""},
		{"a tree that does not run, without its boot partition", grubTree, write("etc/fstab", fstab+"UUID=2 /boot ext4\n"),
			notMounted("/boot"), "mount UUID=2 ROOT/boot"},
		{"with it", grubTree, steps(write("etc/fstab", fstab+"UUID=2 /boot ext4\nUUID=3 /boot/efi vfat\n"),
			write("boot/vmlinuz-6.1.0-28-amd64", ""), write("boot/efi/EFI/debian/grubx64.efi", "")), "", ""},
		{"an fstab that cannot be read", grubTree, write("etc/fstab/x", ""), "/etc/fstab: not a regular file\n/etc/fstab: not a regular file\n/etc/fstab: not a regular file", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, node{CPU: "GenuineIntel", Distro: test.distro}.Archive())
			test.change(t, root)
			_, err := plan(t, root, selection.Options{})
			got := ""
			if err != nil {
				got = err.Error()
			}
			hosttest.Equal(t, test.want, got)
			command := ""
			var unsupported *boot.Unsupported
			var missing *boot.NotMounted
			switch {
			case errors.As(err, &unsupported):
				command = unsupported.Command
			case errors.As(err, &missing):
				command = missing.Command
			}
			hosttest.EqualIn(t, "command", strings.ReplaceAll(test.command, "ROOT", strings.TrimSuffix(root.Path("/"), "/")), command)
		})
	}
}

// TestPartitionTwice: a boot partition that is reached by two names, by a link or as two mounts, is
// changed once.
func TestPartitionTwice(t *testing.T) {
	root := hosttest.Lay(t, node{CPU: "GenuineIntel", Distro: "debian-systemd-boot"}.Archive())
	link("efi", "boot/efi")(t, root)
	p, err := plan(t, root, selection.Options{})
	hosttest.NoError(t, err)
	if err := p.Files.Apply(context.Background(), root); err != nil {
		t.Error(err)
	}
}

// TestProgramsNeedBootFiles: no program runs, and none is planned, while a boot partition is not
// mounted: undo and recovery would change the mount point.
func TestProgramsNeedBootFiles(t *testing.T) {
	root := hosttest.Lay(t, "-- etc/fstab --\nUUID=2 /boot ext4\n-- proc/mounts --\n")
	var missing *boot.NotMounted
	if _, err := prepare.CurrentPrograms(root, []host.Program{{Kind: host.UpdateGrub}}); !errors.As(err, &missing) {
		t.Errorf("%v", err)
	}
	if _, err := prepare.CurrentPrograms(root, nil); err != nil {
		t.Errorf("%v", err)
	}
}

// TestVariantDisagreement: where kernels disagree about the variant driver of a device, the kernel
// that boots by default decides, and each other kernel is named in a warning.
func TestVariantDisagreement(t *testing.T) {
	const (
		aliases  = "alias vfio_pci:v*d*sv*sd*bc*sc*i* vfio_pci\n"
		variant  = "alias vfio_pci:v000010DEd000011B4sv*sd*bc*sc*i* k4200_vfio_pci\n" + aliases
		modules  = "kernel/vfio.ko:\nkernel/vfio_iommu_type1.ko:\nkernel/vfio-pci.ko:\n"
		old      = "6.1.0-28-amd64"
		young    = "6.1.0-30-amd64"
		noDriver = "kernel 6.1.0-30-amd64 has no k4200_vfio_pci: when it is booted, no driver binds 0000:01:00.0, 0000:02:00.0"
		plain    = "kernel 6.1.0-28-amd64 has the variant driver k4200_vfio_pci for 0000:01:00.0, 0000:02:00.0, but 6.1.0-30-amd64, which boots by default, has none: vfio-pci is used"
		another  = "kernel 6.1.0-30-amd64 has the variant driver k4200_new_vfio_pci for 0000:01:00.0, 0000:02:00.0, but 6.1.0-28-amd64, which boots by default, has k4200_vfio_pci: that one is used"
	)
	menu := func(releases ...string) step { return write("boot/grub/grub.cfg", menuOf(releases...)) }
	has := func(release, more, aliases string) step {
		return steps(write("lib/modules/"+release+"/modules.dep", modules+more), write("lib/modules/"+release+"/modules.alias", aliases))
	}
	for _, test := range []struct {
		name   string
		change step
		driver string
		want   []string
	}{
		{"all have it", has(young, "kernel/k4200_vfio_pci.ko:\n", variant), "k4200_vfio_pci", nil},
		{"the newest has none, and no menu is there", has(young, "", aliases), "vfio-pci",
			[]string{plain}},
		{"the default has none", steps(has(young, "", aliases), menu(young, old)), "vfio-pci",
			[]string{plain}},
		{"the default has one", steps(has(young, "", aliases), menu(old, young)), "k4200_vfio_pci",
			[]string{noDriver}},
		{"another variant, and both modules", steps(has(young, "kernel/k4200_vfio_pci.ko:\n",
			strings.ReplaceAll(variant, "k4200", "k4200_new")), menu(old, young)), "k4200_vfio_pci",
			[]string{another}},
		{"a default that the operator has set", steps(has(young, "", aliases), menu(old, young),
			write("etc/default/grub", "GRUB_DEFAULT=saved\nGRUB_CMDLINE_LINUX_DEFAULT=quiet\n")), "vfio-pci",
			[]string{plain}},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, node{CPU: "GenuineIntel", Aliases: variant}.Archive())
			write("lib/modules/"+old+"/modules.dep", modules+"kernel/k4200_vfio_pci.ko:\n")(t, root)
			test.change(t, root)
			p, err := plan(t, root, selection.Options{})
			hosttest.NoError(t, err)
			if f := p.Functions[0]; f.Driver != test.driver {
				t.Errorf("%s is bound to %s, want %s", f.Address, f.Driver, test.driver)
			}
			var got []string
			for _, w := range p.Warnings {
				if strings.Contains(w, "k4200") {
					got = append(got, w)
				}
			}
			hosttest.Equal(t, test.want, got)
		})
	}
}

// TestGrace: a GB200 is bound to its variant driver by address although the aliases of the kernel
// lack its id, and is refused where no kernel has the module (github.com/NVIDIA/k8s-dra-driver-gpu
// 1268, and OpenNebula's guide for GB200).
func TestGrace(t *testing.T) {
	for _, test := range []struct {
		name, modules, aliases string
		want                   string // "DRIVER how" of each function, or the error
	}{
		{"an alias", "kernel/nvgrace-gpu-vfio-pci.ko:\n", "alias vfio_pci:v000010DEd00002941sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci\n", "nvgrace_gpu_vfio_pci by address"},
		{"no alias", "kernel/nvgrace-gpu-vfio-pci.ko:\n", "alias vfio_pci:v000010DEd00002342sv*sd*bc*sc*i* nvgrace_gpu_vfio_pci\n", "nvgrace_gpu_vfio_pci by address"},
		{"no module", "", "", "driver nvgrace_gpu_vfio_pci: no installed kernel has it"},
	} {
		t.Run(test.name, func(t *testing.T) {
			const modules = "kernel/vfio.ko:\nkernel/vfio_iommu_type1.ko:\nkernel/vfio-pci.ko:\n"
			root := hosttest.Lay(t, node{CPU: "GenuineIntel", Aliases: test.aliases}.Archive())
			write("lib/modules/6.1.0-28-amd64/modules.dep", modules+test.modules)(t, root)
			for _, a := range []string{"0000:01:00.0", "0000:02:00.0"} {
				write("sys/bus/pci/devices/"+a+"/modalias", "pci:v000010DEd00002941sv000010DEsd00002046bc03sc02i00\n")(t, root)
			}
			p, err := plan(t, root, selection.Options{})
			if err != nil {
				if want := "0000:01:00.0: " + test.want; !strings.HasPrefix(err.Error(), want) {
					t.Errorf("%v, want %s", err, want)
				}
				return
			}
			for _, f := range p.Functions {
				if got := f.Driver + " by " + string(f.By); f.ProductID == 0x2941 && got != test.want {
					t.Errorf("%s: %s, want %s", f.Address, got, test.want)
				}
			}
		})
	}
}

// TestRemovedKernel: a kernel of which a package of modules has left a folder cannot start, and
// does not keep the blacklist in /etc. Where a file may be that kernel, it can.
func TestRemovedKernel(t *testing.T) {
	const old = "5.10.0-19-amd64"
	for _, test := range []struct {
		name  string
		step  step
		start bool
	}{
		{"modules alone", steps(), false},
		{"its configuration", write("boot/config-"+old, ""), false},
		{"in /boot", write("boot/vmlinuz-"+old, ""), true},
		{"under another name", write("boot/kernel-"+old+"-x86_64", ""), true},
		{"beside its modules", write("lib/modules/"+old+"/vmlinuz", ""), true},
		{"in the menu", write("boot/grub/grub.cfg", menuOf(old)), true},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, node{CPU: "GenuineIntel"}.Archive())
			steps(write("lib/modules/"+old+"/modules.dep", "updates/dkms/nvidia.ko:\nkernel/vfio-pci.ko:\n"), test.step)(t, root)
			p, err := plan(t, root, selection.Options{})
			hosttest.NoError(t, err)
			if said := strings.Contains(strings.Join(p.Warnings, "\n"), "kernel "+old+" has no initramfs"); said != test.start {
				t.Errorf("%q", p.Warnings)
			}
			if covered := !strings.Contains(strings.Join(p.Warnings, "\n"), "gpustack=off"); covered == test.start {
				t.Errorf("%q", p.Warnings)
			}
		})
	}
}

// TestInitrdless: images of Ubuntu's for clouds have GRUB try kernels without an initramfs. Then
// no hook runs: the plan says so, and the blacklist remains in /etc.
func TestInitrdless(t *testing.T) {
	root := hosttest.Lay(t, node{CPU: "GenuineIntel", More: "-- etc/default/grub.d/40-force-partuuid.cfg --\nGRUB_FORCE_PARTUUID=0b3e\n"}.Archive())
	p, err := plan(t, root, selection.Options{})
	hosttest.NoError(t, err)
	for _, warning := range []string{
		"GRUB_FORCE_PARTUUID is set: GRUB tries to start kernels without their initramfs, and then the host's drivers may bind functions first; set GRUB_FORCE_PARTUUID= in a file of /etc/default/grub.d that sorts last, then run update-grub",
		"gpustack=off does not cover the blacklist (nouveau): it remains in /etc/modprobe.d, since GRUB tries to start kernels without their initramfs",
	} {
		if !slices.Contains(p.Warnings, warning) {
			t.Errorf("no warning %q in %q", warning, p.Warnings)
		}
	}
	for _, c := range p.Files {
		if c.Name == "/"+hosttest.Ours && !strings.Contains(string(c.After.Content), "blacklist nouveau") {
			t.Errorf("%s", c.After.Content)
		}
	}
	write("etc/default/grub.d/99-site.cfg", "GRUB_FORCE_PARTUUID=\n")(t, root)
	if p, err = plan(t, root, selection.Options{}); err != nil || strings.Contains(strings.Join(p.Warnings, "\n"), "initramfs") {
		t.Errorf("%v %q", err, p.Warnings)
	}
}
