package guard

import (
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// part is a disk or a partition on functions of the machine. Disks that are made of others are
// none.
type part struct {
	name      string // in sysfs
	disk      string // of which it is a partition, or ""
	functions []pci.Address
}

// node returns the name of a disk in /dev: sysfs writes cciss!c0d0 for cciss/c0d0.
func node(name string) string { return "/dev/" + strings.ReplaceAll(name, "!", "/") }

// unmounted adds the uses of disks that mounts and swap areas of the process's own mount namespace
// do not show. Those are added before: a disk that they use is not named again for what lies
// between.
func (g *guard) unmounted() error {
	parts, err := g.parts()
	if err != nil {
		return err
	}
	active := []func() error{g.otherNamespaces, g.loops, g.pools, g.lio, g.nvmeTargets, func() error { return g.holding(parts) }}
	// What is not active now is named if nothing else names it.
	for _, find := range append(active, g.resume, g.fstab, g.crypttab, func() error { return g.signatures(parts) }) {
		if err := find(); err != nil {
			return err
		}
	}
	return nil
}

// Disks returns the names in /dev of the whole disks on functions, each once. A disk on several of
// them, such as one of multipath NVMe, is one disk.
func Disks(root host.Root, devices pci.Devices, functions ...pci.Address) ([]string, error) {
	if len(functions) == 0 {
		return nil, nil // other disks do not matter, readable or not
	}
	g := guard{root: root, devices: devices}
	parts, err := g.parts()
	var disks []string
	for _, p := range parts {
		if p.disk == "" && slices.ContainsFunc(p.functions, func(a pci.Address) bool { return slices.Contains(functions, a) }) {
			disks = append(disks, node(p.name))
		}
	}
	return disks, err
}

// isHidden reports whether a disk is a path of a multipath disk: it has no node and cannot be
// opened (Linux, Documentation/ABI/stable/sysfs-block, hidden). Its content is that of the disk.
func (g *guard) isHidden(name string) (bool, error) {
	hidden, err := g.attribute(path.Join(blockDir, name, "hidden"))
	return hidden == "1", err
}

// parts returns the disks and partitions that lie on functions, partitions first.
func (g *guard) parts() ([]part, error) {
	names, err := g.list(blockDir)
	if err != nil {
		return nil, err
	}
	var partitions, disks []part
	for _, name := range names {
		hidden, err := g.isHidden(name)
		if err != nil {
			return nil, err
		}
		if hidden {
			continue
		}
		target, err := g.device(blockDir, name)
		if err != nil {
			return nil, err
		}
		p := part{name: name}
		if p.functions, err = g.hardware(target); err != nil {
			return nil, err
		}
		if disk := path.Base(path.Dir(target)); slices.Contains(names, disk) {
			p.disk = disk
		}
		switch {
		case len(p.functions) == 0:
		case p.disk != "":
			partitions = append(partitions, p)
		default:
			disks = append(disks, p)
		}
	}
	return append(partitions, disks...), nil
}

// above adds what a disk depends on, by its name in sysfs, for what lies on it.
func (g *guard) above(name string, absolute bool, of subject) error {
	o, err := g.below(name, map[string]bool{})
	if err != nil {
		return err
	}
	return g.need(o, absolute, of, nil)
}

// holding adds disks that are made of the parts (Linux, bd_link_disk_holder in block/holder.c): LVM
// and other disks of device-mapper, md, bcache, DRBD. A cache of bcache has no such link, but a
// folder (Documentation/admin-guide/bcache.rst).
func (g *guard) holding(parts []part) error {
	for _, p := range parts {
		dir := path.Join(blockDir, p.name, "holders")
		holders, err := g.list(dir)
		if err != nil {
			return err
		}
		on := ", on " + node(p.name)
		for _, h := range holders {
			if g.carried[h] {
				continue
			}
			what, err := g.stacked(h)
			if err != nil {
				return err
			}
			g.add(host.CodeDisk, p.functions, false, "carries ", subject{UseHolder, path.Join(dir, h), what}, on)
		}
		cache := path.Join(blockDir, p.name, "bcache")
		ok, err := g.exists(cache)
		if err != nil {
			return err
		}
		if ok && len(holders) == 0 {
			g.add(host.CodeDisk, p.functions, false, "carries ", subject{UseHolder, cache, "a registered disk of bcache"}, on)
		}
		g.carried[p.name] = g.carried[p.name] || ok || len(holders) > 0
	}
	return nil
}

// stacked returns the name and kind of a disk that is made of others. device-mapper's names and
// uuids are those of the programs that create them (Linux,
// Documentation/ABI/testing/sysfs-block-dm; dm-uuid prefixes in libdevmapper, lib/device/dev-type.c
// of LVM).
func (g *guard) stacked(name string) (string, error) {
	dir := path.Join(blockDir, name)
	mapped, err := g.attribute(path.Join(dir, "dm/name"))
	if err != nil {
		return "", err
	}
	uuid, err := g.attribute(path.Join(dir, "dm/uuid"))
	if err != nil {
		return "", err
	}
	switch {
	case strings.HasPrefix(uuid, "LVM-"):
		return "/dev/mapper/" + mapped + ", an active LVM volume", nil
	case strings.HasPrefix(uuid, "CRYPT-"):
		return "/dev/mapper/" + mapped + ", an open encrypted device", nil
	case strings.HasPrefix(uuid, "mpath-"):
		return "/dev/mapper/" + mapped + ", an active multipath device", nil
	case mapped != "":
		return "/dev/mapper/" + mapped + ", an active disk of device-mapper", nil
	case strings.HasPrefix(name, "md"):
		return node(name) + ", an active RAID array", nil
	case strings.HasPrefix(name, "bcache"):
		return node(name) + ", an active disk of bcache", nil
	}
	return node(name) + ", an active disk", nil
}

// loops adds loop devices whose backing file is a disk. Those of files are on mounted file systems.
func (g *guard) loops() error {
	names, err := g.list(blockDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		if !diskOfFile().MatchString(name) || g.carried[name] {
			continue
		}
		file := path.Join(blockDir, name, "loop/backing_file")
		disk, err := g.attribute(file)
		if err != nil {
			return err
		}
		if !strings.HasPrefix(disk, "/dev/") {
			continue
		}
		below, err := g.block(disk)
		if err == nil && below != "" {
			err = g.above(below, false, subject{UseHolder, file, node(name) + ", a loop device, on " + disk})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// poolsDir has a folder for each imported pool (OpenZFS, module/zfs/spa_stats.c).
const poolsDir = "/proc/spl/kstat/zfs"

// pools adds imported pools of ZFS of which no file system is mounted, as those that have volumes
// only.
func (g *guard) pools() error {
	names, err := g.list(poolsDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		dir := path.Join(poolsDir, name)
		mounted := slices.ContainsFunc(g.mounts, func(m mount) bool {
			pool, _, _ := strings.Cut(m.source, "/")
			return m.kind == "zfs" && pool == name
		})
		file, err := g.first(dir, "state", "txgs", "io")
		if err != nil {
			return err
		}
		if file == "" || mounted {
			continue
		}
		o, err := g.zfsMembers()
		if err == nil {
			err = g.need(o, false, subject{UsePool, file, "the ZFS pool " + name}, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// first returns the first of the files that a folder has, or "".
func (g *guard) first(dir string, names ...string) (string, error) {
	entries, err := g.entries(dir)
	for _, name := range names {
		if slices.Contains(entries, name) {
			return path.Join(dir, name), err
		}
	}
	return "", err
}

// signatures adds the content of parts that nothing uses, as udev has recorded it. A disk without a
// record has no known content: O_EXCL is the second opinion before it leaves the host.
func (g *guard) signatures(parts []part) error {
	full := map[string]bool{} // disks with a use of, or content on, one of their partitions
	for _, p := range parts {
		if g.carried[p.name] {
			full[p.disk] = true
			continue
		}
		record, err := g.udev(p.name)
		if err != nil {
			return err
		}
		content := record.content()
		if content == "" && p.disk == "" && !full[p.name] {
			content = record.table()
		}
		if content == "" {
			continue
		}
		full[p.disk] = true
		g.add(host.CodeDisk, p.functions, false, "has ", subject{UseSignature, record.file, node(p.name) + " with " + content}, ", which nothing uses now")
	}
	return nil
}
