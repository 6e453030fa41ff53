package boot

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// Unsupported is a machine whose kernels get their arguments in a way that gpustack
// leaves to others.
type Unsupported struct {
	What    string // "ostree"
	Command string // what sets them there
	// Menu is set where GRUB's menu starts the kernels nevertheless, so that it can be checked.
	Menu bool
}

func (e *Unsupported) Error() string {
	return e.What + ": gpustack does not set kernel arguments there"
}

// Supported is an error of type *Unsupported for machines that have another way to
// kernel arguments than a boot loader's files. want is what the kernel is to get there.
func Supported(root host.Root, want Args) error {
	p := probe{root: root}
	arguments := want.String()
	var appended, quoted []string
	for _, arg := range want {
		appended = append(appended, "--append-if-missing="+arg)
		quoted = append(quoted, `"`+arg+`"`)
	}
	// ostree(1), "Booting": /run/ostree-booted is there when it has booted.
	ostree := p.any("/run/ostree-booted", "/sysroot/ostree", "/ostree/repo")
	cpu := p.text("/proc/cpuinfo")
	running := ParseArgs(p.text("/proc/cmdline"))
	var found *Unsupported
	for _, way := range []struct {
		is            bool
		what, command string
	}{
		{ostree && p.any("/usr/bin/rpm-ostree"), "ostree", "rpm-ostree kargs " + strings.Join(appended, " ")},
		{ostree && p.any("/usr/bin/bootc"), "bootc", "put kargs = [" + strings.Join(quoted, ", ") + "] into /usr/lib/bootc/kargs.d/gpustack.toml of the image, then bootc upgrade"},
		{ostree, "ostree", "ostree admin kargs edit-in-place " + strings.Join(appended, " ")},
		{p.any("/etc/NIXOS"), "NixOS", "boot.kernelParams = [ " + strings.Join(quoted, " ") + " ]; in its configuration, then nixos-rebuild boot"},
		{p.any("/usr/sbin/transactional-update") && p.readOnly(), "transactional-update", "transactional-update shell, and gpustack host prepare in it"},
		// s390x: arch/s390/kernel/processor.c. Its IOMMU is always on, as POWER's is.
		{strings.Contains(cpu, "IBM/S390") || p.any("/etc/zipl.conf"), "zipl (s390x)", "its IOMMU is always on: driverctl set-override ADDRESS vfio-pci for each function; other arguments go to /etc/zipl.conf, then zipl"},
		// arch/powerpc/kernel/setup-common.c, show_cpuinfo.
		{strings.Contains(cpu, "POWER"), "POWER", "its IOMMU is always on: driverctl set-override ADDRESS vfio-pci for each function"},
		{p.networkRoot(running), "network boot", "add " + arguments + " where this machine's kernel comes from; with MAAS: maas PROFILE tag update TAG kernel_opts=\"" + arguments + "\""},
		{p.any("/etc/kernel/proxmox-boot-uuids"), "proxmox-boot-tool", "add " + arguments + " to /etc/kernel/cmdline, then proxmox-boot-tool refresh"},
		{p.any("/usr/bin/kernelstub") && p.any("/etc/kernelstub/configuration"), "kernelstub", "kernelstub --add-options \"" + arguments + "\""},
		{p.bootLoaderOfSUSE("-bls", "systemd-boot"), "sdbootutil", "add " + arguments + " to /etc/kernel/cmdline, then sdbootutil update-all-entries"},
		{p.bootedUnified(running) || p.unifiedImages(), "unified kernel images", "add " + arguments + " to /etc/kernel/cmdline, then kernel-install add RELEASE IMAGE for each kernel"},
		{p.any("/usr/sbin/flash-kernel") && !p.any("/etc/default/grub"), "flash-kernel", "add " + arguments + " to LINUX_KERNEL_CMDLINE in /etc/default/flash-kernel, then flash-kernel"},
		{p.any("/boot/extlinux/extlinux.conf") && !p.any("/etc/default/grub"), "extlinux", "add " + arguments + " to U_BOOT_PARAMETERS in /etc/default/u-boot, then u-boot-update"},
	} {
		if way.is && found == nil {
			found = &Unsupported{way.what, way.command, slices.Contains([]string{"NixOS", "transactional-update", "POWER"}, way.what)}
		}
	}
	switch {
	case p.err != nil:
		return p.err
	case found != nil:
		return found
	}
	return nil
}

// probe asks for traces, and keeps the first error.
type probe struct {
	root host.Root
	err  error
}

func (p *probe) keep(name string, err error) {
	if err != nil && !host.IsAbsent(err) && p.err == nil {
		p.err = fmt.Errorf("%s: %w", name, host.Cause(err))
	}
}

func (p *probe) any(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		ok, err := p.root.Exists(name)
		p.keep(name, err)
		return ok
	})
}

func (p *probe) text(name string) string {
	data, err := p.root.ReadHead(name, 4096)
	p.keep(name, err)
	return string(data)
}

// readOnly tells whether the root file system is mounted so that nothing can be
// changed in it.
func (p *probe) readOnly() bool {
	data, err := p.root.ReadTable("/proc/mounts")
	p.keep("/proc/mounts", err)
	ro := false
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) >= 4 && f[1] == "/" {
			ro = slices.Contains(strings.Split(f[3], ","), "ro")
		}
	}
	return ro
}

// networkRoot tells whether the running kernel's root file system, or the kernel
// itself, came over the network (dracut.cmdline(7); Linux, Documentation/admin-guide/
// nfs/nfsroot.rst; BOOTIF is what PXELINUX adds).
func (p *probe) networkRoot(running Args) bool {
	for _, v := range running.Values("root") {
		kind, _, _ := strings.Cut(v, ":")
		if v == "/dev/nfs" || slices.Contains([]string{"nfs", "nfs4", "nbd", "squash", "live", "http", "https", "dhcp"}, kind) && strings.Contains(v, ":") {
			return true
		}
	}
	return len(running.Values("BOOTIF")) > 0 || len(running.Values("netroot")) > 0 || len(running.Values("nfsroot")) > 0
}

// bootLoaderOfSUSE tells whether SUSE's setting names a loader whose entries
// sdbootutil makes, by the end of its name.
func (p *probe) bootLoaderOfSUSE(ends ...string) bool {
	data, err := p.root.ReadFile("/etc/sysconfig/bootloader")
	p.keep("/etc/sysconfig/bootloader", err)
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "LOADER_TYPE="); ok {
			value = strings.Trim(value, `"'`)
			return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(value, end) })
		}
	}
	return false
}

// unifiedImages tells whether kernels are started from images that hold their
// arguments ("type #2" of the Boot Loader Specification): there are some, and no
// entries that are files.
func (p *probe) unifiedImages() bool {
	images := false
	for _, partition := range partitionsOf(p.root) {
		names, err := p.root.ReadDir(path.Join(partition, "EFI/Linux"))
		p.keep(partition, err)
		images = images || slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(path.Ext(n), ".efi") })
		entries, err := readEntries(p.root, path.Join(partition, "loader/entries"))
		p.keep(partition, err)
		if newest(entries) != nil {
			return false
		}
	}
	return images || strings.Contains(p.text("/etc/kernel/install.conf"), "layout=uki")
}

// bootedUnified returns whether the machine was started from a unified kernel image by something
// other than systemd-boot, usually the firmware: the stub in the image sets StubInfo
// (systemd.io/BOOT_LOADER_INTERFACE). UnifiedDefault decides about machines with systemd-boot. A
// kernel with BOOT_IMAGE= has its arguments from GRUB, even if there is a stub around it that adds
// device trees alone (Ubuntu's for arm64, github.com/ubuntu/stubble).
func (p *probe) bootedUnified(running Args) bool {
	return p.variable("StubInfo") != "" && !strings.HasPrefix(p.variable("LoaderInfo"), "systemd-boot") && len(running.Values("BOOT_IMAGE")) == 0
}
