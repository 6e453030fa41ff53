package guard

import (
	"path"
	"slices"
	"strings"
)

// firmwareNetwork returns the folder or ACPI table by which firmware tells that it boots from a disk
// on a network, or "": iSCSI (Linux, Documentation/ABI/testing/sysfs-ibft) or NVMe.
func (g *guard) firmwareNetwork() (string, error) {
	const dir = "/sys/firmware/ibft"
	entries, err := g.list(dir)
	if err != nil || len(entries) > 0 {
		return dir, err
	}
	for _, table := range []string{"iBFT", "IBFT", "NBFT"} {
		file := path.Join("/sys/firmware/acpi/tables", table)
		if ok, err := g.exists(file); err != nil || ok {
			return file, err
		}
	}
	return "", nil
}

// bootNetwork adds why the boot needs a network beside the file systems themselves: the kernel
// command line, firmware, or the key of an encrypted disk.
func (r *rootReader) bootNetwork() error {
	lines, err := r.lines(cmdlineFile)
	if err != nil {
		return err
	}
	for _, word := range slices.Concat(lines...) {
		if asksForNetwork(word) {
			r.reach(word + " on the kernel command line")
		}
	}
	file, err := r.firmwareNetwork()
	if err != nil {
		return err
	}
	if file != "" {
		r.reach("firmware boots from a network (" + file + ")")
	}
	return r.networkKeys()
}

// asksForNetwork reports whether a parameter of the kernel command line brings up an interface
// before the root file system is mounted (Linux, Documentation/admin-guide/nfs/nfsroot.rst;
// dracut.cmdline(7); initramfs-tools(7); PXELINUX adds BOOTIF).
func asksForNetwork(word string) bool {
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "ip", "nfsaddrs":
		return value != "" && value != "off" && value != "none"
	case "rd.neednet":
		return value != "0"
	case "BOOTIF", "netroot", "nfsroot", "nbdroot", "netboot", "coreos.live.rootfs_url":
		return value != ""
	case "root":
		kind, _, _ := strings.Cut(strings.TrimPrefix(value, "live:"), ":")
		return value == "/dev/nfs" ||
			slices.Contains([]string{"nfs", "nfs4", "nbd", "squash", "iscsi", "nvmf", "http", "https", "ftp", "tftp", "dhcp", "dhcp6"}, kind)
	}
	return strings.HasPrefix(key, "rd.iscsi.") || strings.HasPrefix(key, "rd.nvmf.")
}

// clevis returns what puts clevis into the initramfs of dracut or initramfs-tools, where it unlocks
// encrypted disks with keys of a server, or "".
func (g *guard) clevis() (string, error) {
	for _, dir := range []string{"/usr/lib/dracut/modules.d", "/usr/share/initramfs-tools/hooks", "/etc/initramfs-tools/hooks"} {
		names, err := g.list(dir)
		if err != nil {
			return "", err
		}
		for _, name := range names {
			if strings.Contains(name, "clevis") {
				return path.Join(dir, name), nil
			}
		}
	}
	return "", nil
}

// networkKeys adds the encrypted disks below the followed file systems whose key may come from a
// server: crypttab(5) says _netdev or tang, or the initramfs has clevis.
func (r *rootReader) networkKeys() error {
	lines, err := r.lines(crypttabFile)
	if err != nil && !forbidden(err) {
		return err
	}
	clevis, err := r.clevis()
	if err != nil {
		return err
	}
	for _, name := range r.names {
		uuid, err := r.attribute(path.Join(blockDir, name, "dm/uuid"))
		if err != nil {
			return err
		}
		if !strings.HasPrefix(uuid, "CRYPT-") {
			continue
		}
		mapped, err := r.attribute(path.Join(blockDir, name, "dm/name"))
		if err != nil {
			return err
		}
		what := "the key of /dev/mapper/" + mapped
		if clevis != "" {
			r.reach(what + " may come from a server (" + clevis + ")")
		}
		for _, fields := range lines {
			if fields[0] == mapped && len(fields) > 3 && (strings.Contains(fields[3], "_netdev") || strings.Contains(fields[3], "tang")) {
				r.reach(what + " comes from a server (" + crypttabFile + ": " + fields[3] + ")")
			}
		}
	}
	return nil
}
