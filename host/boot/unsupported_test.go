package boot_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/hosttest"
)

// TestSupported: the error for an unsupported machine has the command that sets the arguments
// there.
func TestSupported(t *testing.T) {
	const grub = "-- etc/default/grub --\n-- boot/grub/grub.cfg --\n"
	for _, test := range []struct {
		name, tree, what, command string
	}{
		{"GRUB", grub, "", ""},
		{"nothing at all", "-- etc/os-release --\n", "", ""},
		{"Fedora CoreOS", "-- run/ostree-booted --\n-- usr/bin/rpm-ostree --\n-- usr/bin/bootc --\n", "ostree",
			"rpm-ostree kargs --append-if-missing=intel_iommu=on --append-if-missing=iommu=pt"},
		{"a bootc image", "-- sysroot/ostree/repo/config --\n-- usr/bin/bootc --\n", "bootc",
			`put kargs = ["intel_iommu=on", "iommu=pt"] into /usr/lib/bootc/kargs.d/gpustack.toml of the image, then bootc upgrade`},
		{"another ostree", "-- ostree/repo/config --\n", "ostree",
			"ostree admin kargs edit-in-place --append-if-missing=intel_iommu=on --append-if-missing=iommu=pt"},
		{"NixOS", grub + "-- etc/NIXOS --\n", "NixOS", `boot.kernelParams = [ "intel_iommu=on" "iommu=pt" ]; in its configuration, then nixos-rebuild boot`},
		{"SUSE MicroOS", grub + "-- usr/sbin/transactional-update --\n-- proc/mounts --\n/dev/sda3 / btrfs ro,relatime 0 0\n",
			"transactional-update", "run transactional-update shell, and in it gpustack host prepare"},
		{"SUSE MicroOS, mounted without a source", grub + "-- usr/sbin/transactional-update --\n-- proc/mounts --\n / overlay ro,relatime 0 0\n",
			"transactional-update", "run transactional-update shell, and in it gpustack host prepare"},
		{"the shell of transactional-update", grub + "-- usr/sbin/transactional-update --\n-- proc/mounts --\n/dev/sda3 / btrfs rw,relatime 0 0\n", "", ""},
		{"a mainframe", "-- proc/cpuinfo --\nvendor_id       : IBM/S390\n", "zipl (s390x)",
			"its IOMMU is always on: driverctl set-override ADDRESS vfio-pci for each function; other arguments go to /etc/zipl.conf, then zipl"},
		{"POWER", grub + "-- proc/cpuinfo --\nprocessor	: 0\ncpu		: POWER9, altivec supported\n", "POWER",
			"its IOMMU is always on: driverctl set-override ADDRESS vfio-pci for each function"},
		{"root on NFS", "-- proc/cmdline --\nroot=/dev/nfs nfsroot=192.0.2.1:/srv ip=dhcp\n", "network boot",
			`add intel_iommu=on iommu=pt on the server that this machine boots from; with MAAS: maas PROFILE tag update TAG kernel_opts="intel_iommu=on iommu=pt"`},
		{"a MAAS image", grub + "-- proc/cmdline --\nroot=squash:http://192.0.2.1/squashfs BOOTIF=01-00-00-5e-00-53-01\n", "network boot",
			`add intel_iommu=on iommu=pt on the server that this machine boots from; with MAAS: maas PROFILE tag update TAG kernel_opts="intel_iommu=on iommu=pt"`},
		{"a disk whose name has a colon", grub + "-- proc/cmdline --\nroot=PARTLABEL=a:b\n", "", ""},
		{"Proxmox", "-- etc/kernel/proxmox-boot-uuids --\n", "proxmox-boot-tool",
			"write all kernel arguments of this system, including root=, to /etc/kernel/cmdline; add intel_iommu=on iommu=pt to /etc/kernel/cmdline, then proxmox-boot-tool refresh"},
		{"Pop!_OS", "-- usr/bin/kernelstub --\n-- etc/kernelstub/configuration --\n", "kernelstub", `kernelstub --add-options "intel_iommu=on iommu=pt"`},
		{"SUSE with entries", grub + "-- etc/sysconfig/bootloader --\n## Type: string\nLOADER_TYPE=\"grub2-bls\"\n", "sdbootutil",
			"write all kernel arguments of this system, including root=, to /etc/kernel/cmdline; add intel_iommu=on iommu=pt to /etc/kernel/cmdline, then sdbootutil update-all-entries"},
		{"SUSE with GRUB", grub + "-- etc/sysconfig/bootloader --\nLOADER_TYPE=\"grub2-efi\"\n", "", ""},
		{"unified kernel images", "-- efi/EFI/Linux/f00d-6.1.efi --\n", "unified kernel images (/efi/EFI/Linux/f00d-6.1.efi)",
			"write all kernel arguments of this system, including root=, to /etc/kernel/cmdline; add intel_iommu=on iommu=pt to /etc/kernel/cmdline, then kernel-install add RELEASE IMAGE for each kernel"},
		{"unified kernel images to come", "-- etc/kernel/install.conf --\nlayout=uki\n", "unified kernel images (/etc/kernel/install.conf)",
			"write all kernel arguments of this system, including root=, to /etc/kernel/cmdline; add intel_iommu=on iommu=pt to /etc/kernel/cmdline, then kernel-install add RELEASE IMAGE for each kernel"},
		{"a unified kernel image that GRUB or the firmware started",
			grub + "-- sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f --\nxxxxs\x00\n",
			"unified kernel images (/sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f)",
			"write all kernel arguments of this system, including root=, to /etc/kernel/cmdline; add intel_iommu=on iommu=pt to /etc/kernel/cmdline, then kernel-install add RELEASE IMAGE for each kernel"},
		{"a stub around a kernel that gets its arguments from GRUB, as Ubuntu's for arm64",
			grub + "-- sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f --\nxxxxs\x00\n-- proc/cmdline --\n" +
				"BOOT_IMAGE=/boot/vmlinuz-6.17 root=UUID=1 ro\n", "", ""},
		{"an image beside entries of systemd-boot", debianSystemdBoot + "-- boot/efi/EFI/systemd/x --\n-- boot/efi/EFI/Linux/f00d-6.1.EFI --\n",
			"unified kernel images (/boot/efi/EFI/Linux/f00d-6.1.EFI)",
			"write all kernel arguments of this system, including root=, to /etc/kernel/cmdline; add intel_iommu=on iommu=pt to /etc/kernel/cmdline, then kernel-install add RELEASE IMAGE for each kernel"},
		{"an image that an entry of systemd-boot names", debianSystemdBoot + "-- boot/efi/EFI/systemd/x --\n-- boot/efi/loader/entries/x.conf --\nuki /x.efi\n",
			"unified kernel images (/boot/efi/loader/entries/x.conf)",
			"write all kernel arguments of this system, including root=, to /etc/kernel/cmdline; add intel_iommu=on iommu=pt to /etc/kernel/cmdline, then kernel-install add RELEASE IMAGE for each kernel"},
		{"a program of the firmware beside entries", debianSystemdBoot + "-- boot/efi/EFI/systemd/x --\n-- boot/efi/loader/entries/x.conf --\nefi /x.efi\n", "", ""},
		{"images of the next kernels beside entries, which all get the arguments of one file",
			debianSystemdBoot + "-- boot/efi/EFI/systemd/x --\n-- etc/kernel/install.conf --\nlayout=uki\n", "", ""},
		{"an image beside entries of GRUB", grub + "-- boot/loader/entries/x.conf --\nlinux /x\n-- boot/efi/EFI/Linux/f00d-6.1.efi --\n", "", ""},
		{"flash-kernel", "-- usr/sbin/flash-kernel --\n", "flash-kernel",
			"add intel_iommu=on iommu=pt to LINUX_KERNEL_CMDLINE in /etc/default/flash-kernel, then flash-kernel"},
		{"flash-kernel beside GRUB", grub + "-- usr/sbin/flash-kernel --\n", "", ""},
		{"extlinux", "-- boot/extlinux/extlinux.conf --\n", "extlinux",
			"add intel_iommu=on iommu=pt to U_BOOT_PARAMETERS in /etc/default/u-boot, then u-boot-update"},
	} {
		t.Run(test.name, func(t *testing.T) {
			root := hosttest.Lay(t, test.tree)
			loader := ""
			if facts, _ := host.ReadFacts(root); facts.BootLoader != nil {
				loader = *facts.BootLoader
			}
			err := boot.Supported(root, loader, intel.Args(nil))
			var u *boot.Unsupported
			if test.what == "" {
				if err != nil {
					t.Error(err)
				}
				return
			}
			if !errors.As(err, &u) || u.What != test.what || u.Command != test.command {
				t.Errorf("%v\n%+v", err, u)
			}
		})
	}
}

// TestUnsupportedUnread: an error names the file that cannot be read, not the partition.
func TestUnsupportedUnread(t *testing.T) {
	err := boot.Supported(hosttest.Lay(t, "-- efi/EFI/Linux --\n"), "", intel.Args(nil))
	if want := "/efi/EFI/Linux: not a directory"; err == nil || err.Error() != want {
		t.Errorf("error %v, want %s", err, want)
	}
}

// TestManyMounts: /proc/mounts of a host with thousands of containers exceeds the limit of
// ReadFile.
func TestManyMounts(t *testing.T) {
	var mounts strings.Builder
	mounts.WriteString("-- etc/fstab --\nUUID=1 /boot ext4 defaults 0 2\n-- usr/sbin/transactional-update --\n-- proc/mounts --\n/dev/sda2 / ext4 rw 0 0\n")
	layers := strings.Repeat("/var/lib/containers/storage/overlay/l/ABCDEFGHIJKLMNOPQRSTUVWXYZ:", 30)
	for i := range 3000 {
		fmt.Fprintf(&mounts, "overlay /var/lib/containers/%d overlay rw,lowerdir=%s 0 0\n", i, layers)
	}
	mounts.WriteString("/dev/sda1 /boot ext4 rw 0 0\n")
	root := hosttest.Lay(t, mounts.String())
	if err := boot.Mounted(root); err != nil {
		t.Error(err)
	}
	if err := boot.Supported(root, "", nil); err != nil {
		t.Error(err)
	}
}

// TestAccept: a machine whose loader gpustack does not edit is accepted once the file that the loader
// reads has the arguments, and with a warning if only the running kernel has them.
func TestAccept(t *testing.T) {
	const (
		// forum.proxmox.com, thread 179366.
		proxmox = "-- etc/kernel/proxmox-boot-uuids --\n1234-ABCD\n"
		bootc   = "-- run/ostree-booted --\n-- usr/bin/bootc --\n"
		cmdline = "-- etc/kernel/cmdline --\nroot=ZFS=rpool/ROOT/pve-1 boot=zfs "
		booted  = "-- proc/cmdline --\ninitrd=\\EFI\\proxmox\\initrd.img root=ZFS=rpool "
	)
	for name, test := range map[string]struct {
		tree, vendor string
		want         string // "refused", or the warning
		initramfs    bool
		plan         string // the error of a plan
	}{
		"Proxmox, nothing set":             {proxmox + cmdline + "\n", "intel", "refused", false, ""},
		"Proxmox, nothing is needed":       {proxmox + cmdline + "\n", "amd", "", true, ""},
		"Proxmox on arm64":                 {proxmox + cmdline + "\n", "arm", "", true, ""},
		"Proxmox, set":                     {proxmox + cmdline + "intel_iommu=on\n", "intel", "", true, ""},
		"Proxmox, only booted with it":     {proxmox + cmdline + "\n" + booted + "intel_iommu=on\n", "intel", "/etc/kernel/cmdline lacks intel_iommu=on, which the running kernel has: add intel_iommu=on iommu=pt to /etc/kernel/cmdline, then proxmox-boot-tool refresh", true, ""},
		"Proxmox with GRUB, not in its":    {proxmox + cmdline + "intel_iommu=on\n-- etc/default/grub --\n-- proc/cmdline --\nBOOT_IMAGE=/vmlinuz\n", "intel", "refused", false, ""},
		"Proxmox with GRUB, set":           {proxmox + "-- etc/default/grub --\nGRUB_CMDLINE_LINUX_DEFAULT='intel_iommu=on'\n-- proc/cmdline --\nBOOT_IMAGE=/vmlinuz\n", "intel", "", true, ""},
		"Proxmox, switched off":            {proxmox + cmdline + "amd_iommu=off\n", "amd", "", true, "set kernel arguments with the same tool: add none, remove amd_iommu=off"},
		"Proxmox, on and off":              {proxmox + cmdline + "intel_iommu=on iommu=soft\n", "intel", "", true, "set kernel arguments with the same tool: add none, remove iommu=soft"},
		"bootc, only booted with it":       {bootc + booted + "intel_iommu=on iommu=pt ostree=/ostree/boot.1/default/abc/0\n", "intel", "bootc: only the running kernel shows intel_iommu=on; whether the next boot has it is unknown", false, ""},
		"bootc, the entry of the next one": {bootc + "-- boot/loader/entries/ostree-1.conf --\nversion 1\nlinux /a\noptions root=a\n-- boot/loader/entries/ostree-2.conf --\nversion 2\nlinux /b\noptions root=a intel_iommu=on\n", "intel", "", false, ""},
		"unified kernel images":            {"-- efi/EFI/Linux/f00d-6.1.efi --\n" + cmdline + "intel_iommu=on\n", "intel", "", false, ""},
		"NixOS":                            {"-- etc/NIXOS --\n" + booted + "intel_iommu=on\n", "intel", "refused", false, ""},
		"network boot, booted with it":     {"-- proc/cmdline --\nroot=/dev/nfs intel_iommu=on\n", "intel", "network boot: only the running kernel shows intel_iommu=on; whether the next boot has it is unknown", false, ""},
	} {
		t.Run(name, func(t *testing.T) {
			want, _ := boot.WantIOMMU(test.vendor, false)
			var unsupported *boot.Unsupported
			if err := boot.Supported(hosttest.Lay(t, test.tree), "", want.Args(nil)); !errors.As(err, &unsupported) {
				t.Fatal(err)
			}
			loader, ok := unsupported.Accept(want.Args(nil))
			switch {
			case !ok:
				if test.want != "refused" {
					t.Errorf("refused: %v", unsupported.Command)
				}
				return
			case loader.Warning != test.want || loader.Initramfs != test.initramfs:
				t.Errorf("warning %q, initramfs %v", loader.Warning, loader.Initramfs)
			}
			got := ""
			want, _ = boot.WantIOMMU(test.vendor, true)
			if _, err := loader.Plan(nil, want); errors.As(err, &unsupported) {
				got = unsupported.Command
			}
			hosttest.EqualIn(t, "plan", test.plan, got)
		})
	}
}
