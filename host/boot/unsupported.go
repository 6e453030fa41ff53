package boot

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// Unsupported is the error of a machine whose kernel arguments are managed by a tool that gpustack
// does not support.
type Unsupported struct {
	What    string // "ostree"
	Command string // that sets the arguments on such a machine
	// Menu is set if GRUB's menu boots the kernels nevertheless, so that it can be checked.
	Menu bool
	// Initramfs is set if the machine boots the images that its initramfs generator makes.
	Initramfs bool

	edits   bool   // gpustack accepts the machine once the arguments are set
	file    string // that the boot loader, or the tool that configures it, reads; "" for none known
	args    Args   // in file
	running Args   // of the running kernel
}

func (e *Unsupported) Error() string {
	return e.What + ": gpustack cannot set kernel arguments on this system"
}

// Hint returns the command that sets the arguments.
func (e *Unsupported) Hint() string { return e.Command }

const (
	// never is the file of a system that gpustack does not accept: its own files would not remain.
	never            = "never"
	writeAll         = "write all kernel arguments of this system, including root=, to " + kernelCmdline
	reinstallKernels = "then kernel-install add RELEASE IMAGE for each kernel"
	overrideDriver   = "its IOMMU is always on: driverctl set-override ADDRESS vfio-pci for each function"
)

// Supported returns an error of type *Unsupported if the machine's kernel arguments are not set in
// files of its boot loader, which host.Facts names. want is the arguments that the kernel needs, for
// the error's command.
func Supported(root host.Root, loader string, want Args) error {
	p := probe{root: root}
	arguments := want.String()
	appended := host.Map(want, func(arg string) string { return "--append-if-missing=" + arg })
	quoted := host.Map(want, func(arg string) string { return `"` + arg + `"` })
	// ostree(1), "Booting": /run/ostree-booted exists on systems booted with ostree.
	ostree := p.any("/run/ostree-booted", "/sysroot/ostree", "/ostree/repo")
	cpu := p.text("/proc/cpuinfo")
	running := ParseArgs(p.text("/proc/cmdline"))
	grub := len(running.Values("BOOT_IMAGE")) > 0
	images := p.unifiedImages(loader == "systemd-boot", grub)
	var found *Unsupported
	proxmox := p.any("/etc/kernel/proxmox-boot-uuids")
	for _, way := range []struct {
		is            bool
		what, command string
		file          string // see Unsupported
	}{
		{ostree && p.any("/usr/bin/rpm-ostree"), "ostree", "rpm-ostree kargs " + strings.Join(appended, " "), blsDir},
		{ostree && p.any("/usr/bin/bootc"), "bootc",
			"put kargs = [" + strings.Join(quoted, ", ") + "] into /usr/lib/bootc/kargs.d/gpustack.toml" +
				" of the image, then bootc upgrade", blsDir},
		{ostree, "ostree", "ostree admin kargs edit-in-place " + strings.Join(appended, " "), blsDir},
		{p.any("/etc/NIXOS"), "NixOS",
			"boot.kernelParams = [ " + strings.Join(quoted, " ") + " ]; in its configuration, then nixos-rebuild boot", never},
		{p.any("/usr/sbin/transactional-update") && p.readOnly(), "transactional-update",
			fmt.Sprintf("run transactional-update shell, and in it %s", host.NewCommand("host prepare")), never},
		// s390x: arch/s390/kernel/processor.c.
		{strings.Contains(cpu, "IBM/S390") || p.any("/etc/zipl.conf"), "zipl (s390x)",
			overrideDriver + "; other arguments go to /etc/zipl.conf, then zipl", never},
		// arch/powerpc/kernel/setup-common.c, show_cpuinfo.
		{strings.Contains(cpu, "POWER"), "POWER", overrideDriver, never},
		{p.networkRoot(running), "network boot",
			"add " + arguments + " on the server that this machine boots from; with MAAS: " +
				"maas PROFILE tag update TAG kernel_opts=\"" + arguments + "\"", ""},
		// Proxmox VE Administration Guide, "Editing the Kernel Commandline".
		{proxmox && grub, "proxmox-boot-tool",
			"add " + arguments + " to GRUB_CMDLINE_LINUX_DEFAULT in /etc/default/grub, then proxmox-boot-tool refresh", GrubDefault},
		{proxmox, "proxmox-boot-tool", "add " + arguments + " to /etc/kernel/cmdline, then proxmox-boot-tool refresh", kernelCmdline},
		{p.any("/usr/bin/kernelstub") && p.any("/etc/kernelstub/configuration"), "kernelstub",
			"kernelstub --add-options \"" + arguments + "\"", ""},
		{p.bootLoaderOfSUSE("-bls", "systemd-boot"), "sdbootutil",
			"add " + arguments + " to /etc/kernel/cmdline, then sdbootutil update-all-entries", kernelCmdline},
		{len(images) > 0, "unified kernel images (" + strings.Join(images, ", ") + ")",
			"add " + arguments + " to /etc/kernel/cmdline, " + reinstallKernels, kernelCmdline},
		{p.any("/usr/sbin/flash-kernel") && !p.any("/etc/default/grub"), "flash-kernel",
			"add " + arguments + " to LINUX_KERNEL_CMDLINE in /etc/default/flash-kernel, then flash-kernel", ""},
		{p.any("/boot/extlinux/extlinux.conf") && !p.any("/etc/default/grub"), "extlinux",
			"add " + arguments + " to U_BOOT_PARAMETERS in /etc/default/u-boot, then u-boot-update", ""},
	} {
		if way.is && found == nil {
			found = &Unsupported{What: way.what, Command: way.command, running: running}
			found.Menu = slices.Contains([]string{"NixOS", "transactional-update", "POWER"}, way.what)
			found.Initramfs = slices.Contains([]string{"proxmox-boot-tool", "kernelstub", "flash-kernel", "extlinux"}, way.what)
			if found.edits = way.file != never; found.edits {
				found.file, found.args = p.arguments(way.file)
			}
			if way.file == kernelCmdline && found.file == "" { // without it, kernels get the running kernel's
				found.Command = writeAll + "; " + found.Command
			}
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

// arguments returns the kernel arguments in a file, and the file: of a folder, that of its newest
// entry. Without the file it returns "".
func (p *probe) arguments(name string) (file string, args Args) {
	switch name {
	case "":
	case blsDir:
		entries, err := readEntries(p.root, blsDir)
		p.keep(err)
		if e := newest(entries); e != nil {
			return e.name, e.options()
		}
	case GrubDefault:
		g, err := readGrub(p.root, grubNormal)
		p.keep(err)
		if err == nil {
			return name, g.Args()
		}
	default:
		data, err := p.root.ReadFile(name)
		p.keep(err)
		if err == nil {
			return name, cmdlineArgs(data)
		}
	}
	return "", nil
}

// probe reads files and keeps the first error.
type probe struct {
	root host.Root
	err  error
}

// keep keeps the first error, which names its file.
func (p *probe) keep(err error) {
	if err != nil && !host.IsAbsent(err) && p.err == nil {
		p.err = err
	}
}

func (p *probe) any(names ...string) bool {
	return slices.ContainsFunc(names, func(name string) bool {
		ok, err := p.root.Exists(name)
		p.keep(err)
		return ok
	})
}

func (p *probe) text(name string) string {
	data, err := p.root.ReadHead(name, 4096)
	p.keep(err)
	return string(data)
}

// readOnly reports whether the root file system is mounted read-only.
func (p *probe) readOnly() bool {
	data, err := p.root.ReadTable("/proc/mounts")
	p.keep(err)
	mounts, err := host.ParseMounts(string(data))
	p.keep(host.OfFile("/proc/mounts", err))
	ro := false
	for _, m := range mounts {
		if m.Place == "/" {
			ro = slices.Contains(m.Options, "ro")
		}
	}
	return ro
}

// networkRoot reports whether the running kernel, or its root file system, came over the network
// (dracut.cmdline(7); Linux, Documentation/admin-guide/nfs/nfsroot.rst; PXELINUX adds BOOTIF).
func (p *probe) networkRoot(running Args) bool {
	kinds := []string{"nfs", "nfs4", "nbd", "squash", "live", "http", "https", "dhcp"}
	for _, v := range running.Values("root") {
		kind, _, found := strings.Cut(v, ":")
		if v == "/dev/nfs" || found && slices.Contains(kinds, kind) {
			return true
		}
	}
	return slices.ContainsFunc([]string{"BOOTIF", "netroot", "nfsroot"}, func(name string) bool {
		return len(running.Values(name)) > 0
	})
}

// bootLoaderOfSUSE reports whether SUSE's configuration names a boot loader that ends with one of
// ends. sdbootutil makes the entries of those.
func (p *probe) bootLoaderOfSUSE(ends ...string) bool {
	data, err := p.root.ReadFile("/etc/sysconfig/bootloader")
	p.keep(err)
	for line := range strings.Lines(string(data)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), "LOADER_TYPE="); ok {
			value = strings.Trim(value, `"'`)
			return slices.ContainsFunc(ends, func(end string) bool { return strings.HasSuffix(value, end) })
		}
	}
	return false
}

// unifiedImages returns the unified kernel images of the machine, which contain their arguments
// ("type #2" of the Boot Loader Specification), or what else shows that it boots one. Beside text
// file entries they count with systemd-boot alone, which sorts an image before entries of the same
// system, unless its variables or loader.conf select another (systemd, src/boot/efi/boot.c,
// config_entry_compare).
func (p *probe) unifiedImages(systemdBoot, grub bool) (images []string) {
	isText := false
	for _, partition := range partitionsOf(p.root) {
		dir := path.Join(partition, "EFI/Linux")
		names, err := p.root.ReadDir(dir)
		p.keep(err)
		images = append(images, host.Map(host.Filter(names, func(name string) bool { return strings.EqualFold(path.Ext(name), ".efi") }),
			func(name string) string { return path.Join(dir, name) })...)
		entries, err := readAllEntries(p.root, entriesDir(partition))
		p.keep(err)
		for _, e := range entries {
			if e.get("uki") != "" {
				images = append(images, e.name)
			}
			isText = isText || e.get("linux") != "" && !e.isRescue()
		}
	}
	if isText && !systemdBoot {
		images = nil
	}
	// The stub in an image sets StubInfo (systemd.io/BOOT_LOADER_INTERFACE). A kernel with BOOT_IMAGE=
	// has its arguments from GRUB, even if it has a stub that only adds device trees (Ubuntu's for
	// arm64, github.com/ubuntu/stubble).
	stub, conf := "/sys/firmware/efi/efivars/StubInfo-4a67b082-0a4c-41cf-b6c7-440b29bb8c4f", "/etc/kernel/install.conf"
	switch {
	case len(images) > 0:
	case !grub && p.any(stub):
		return []string{stub}
	case !isText && strings.Contains(p.text(conf), "layout=uki"):
		return []string{conf}
	}
	return images
}
