package guard

import (
	"cmp"
	"errors"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// Claimant is what claims a disk of a function.
type Claimant struct {
	Address pci.Address
	Disk    string // "/dev/nvme1n1", the whole disk
	What    string // "/dev/nvme1n1p1 is mounted at /srv"
	File    string // that shows it, or ""
}

// Ask adds what the kernel says of the disks of functions, where no file shows who claims them. ask
// opens a whole disk exclusively and closes it: its answer ErrClaimed is the claim. Any other error
// of it is returned: a disk that does not answer may be claimed.
func (n *Needs) Ask(ask func(disk string) error, functions ...pci.Address) error {
	var errs []error
	for _, a := range functions {
		for _, name := range n.Disks[a] {
			disk := node(name)
			isNamed := slices.ContainsFunc(n.Claims[a], func(c Claimant) bool { return c.Disk == disk })
			switch err := ask(disk); {
			case !errors.Is(err, ErrClaimed):
				errs = append(errs, err)
			case !isNamed:
				n.Claims[a] = append(n.Claims[a], Claimant{a, disk, disk + " is in use: the kernel refuses to open it exclusively", ""})
			}
		}
	}
	return errors.Join(errs...)
}

// claims returns what claims the disks of each function as far as files show it: the disks above, the
// mount table, swap areas, btrfs and journals; on a tree, which no kernel can be asked about, also
// what fstab(5) and crypttab(5) are to use, and members of arrays, volume groups and pools.
func (g *guard) claims(parts []part) (map[pci.Address][]Claimant, error) {
	uses, err := g.diskUses()
	if err == nil && !g.root.IsMachine() {
		var members []diskUse
		members, err = g.members()
		uses = append(uses, members...)
	}
	if err != nil {
		return nil, err
	}
	below := make([]stack, len(uses))
	for i, u := range uses {
		if below[i], err = g.stack(u.name); err != nil {
			return nil, err
		}
	}
	claims := map[pci.Address][]Claimant{}
	for _, p := range parts {
		found := host.Map(host.Filter(uses, func(u diskUse) bool { return u.name == p.name }),
			func(u diskUse) Claimant { return Claimant{What: node(p.name) + " " + u.what, File: u.file} })
		above, err := g.aboveOf(p.name)
		if err != nil {
			return nil, err
		}
		found = append(found, above...)
		for i, u := range uses { // a compressed disk in memory is no holder of its disk
			if len(above) == 0 && u.name != p.name && slices.Contains(below[i].names, p.name) {
				found = append(found, Claimant{What: node(p.name) + " is below " + node(u.name) + ", which " + u.what, File: u.file})
			}
		}
		for _, c := range found {
			for _, a := range p.functions {
				c.Address, c.Disk = a, node(cmp.Or(p.disk, p.name))
				claims[a] = append(claims[a], c)
			}
		}
	}
	return claims, nil
}

// diskUse is the use of a disk by its name in sysfs.
type diskUse struct{ name, what, file string }

// aboveOf returns the disks that are made of a disk (Linux, bd_link_disk_holder in block/holder.c):
// LVM and other disks of device-mapper, md, bcache, DRBD. A cache of bcache has no such link, but a
// folder (Documentation/admin-guide/bcache.rst). A disk that is the journal of a file system has a
// folder of jbd2.
func (g *guard) aboveOf(name string) (claims []Claimant, err error) {
	dir := path.Join(blockDir, name, "holders")
	holders, err := g.list(dir)
	if err != nil {
		return nil, err
	}
	for _, h := range holders {
		made := node(h)
		mapped, err := g.attribute(path.Join(blockDir, h, "dm/name")) // of a disk of device-mapper
		if err != nil {
			return nil, err
		}
		if mapped != "" {
			made = "/dev/mapper/" + mapped
		}
		claims = append(claims, Claimant{What: node(name) + " is part of " + made, File: path.Join(dir, h)})
	}
	for _, at := range []struct{ dir, what string }{
		{path.Join(blockDir, name, "bcache"), "is a registered disk of bcache"},
		{path.Join(journals, name), "is the journal of a mounted file system"},
	} {
		ok, err := g.exists(at.dir)
		if err != nil {
			return nil, err
		}
		if ok && len(holders) == 0 {
			claims = append(claims, Claimant{What: node(name) + " " + at.what, File: at.dir})
		}
	}
	return claims, nil
}

// mountUse is the use of a file system or an encrypted disk.
type mountUse struct {
	host.Mount
	what, file string
}

// mountUses returns the mounted file systems, and in a tree those that fstab(5) and crypttab(5) name.
func (g *guard) mountUses() ([]mountUse, error) {
	mounts, err := g.mountsOfInit()
	if err != nil {
		return nil, err
	}
	uses := host.Map(mounts, func(m host.Mount) mountUse { return mountUse{m, "mounted at " + m.Place, mountsFile} })
	for _, file := range []string{fstabFile, crypttabFile} {
		if g.root.IsMachine() {
			break
		}
		mounts, err := g.table(file)
		if err != nil && !forbidden(err) {
			return nil, err
		}
		for _, m := range mounts {
			what := "to be mounted at " + m.Place
			if file == crypttabFile {
				what = "to be opened as " + m.Source
				m.Source = m.Place
			}
			uses = append(uses, mountUse{m, what + " (" + file + ")", file})
		}
	}
	return uses, nil
}

// diskUses returns the disks of file systems and swap areas. Containers mount the same disk at many
// places: each is named once.
func (g *guard) diskUses() ([]diskUse, error) {
	var uses []diskUse
	named := map[string]bool{}
	add := func(name, what, file string) {
		if name != "" && !named[name] {
			named[name] = true
			uses = append(uses, diskUse{name, what, file})
		}
	}
	swaps, err := g.lines(swapsFile)
	if err != nil {
		return nil, err
	}
	for _, fields := range swaps {
		area := host.UnescapeOctal(fields[0])
		if !strings.HasPrefix(area, "/dev/") {
			continue // the header, or a swap file on a mounted file system
		}
		name, err := g.block(area)
		if err != nil {
			return nil, err
		}
		add(name, "is a swap area", swapsFile)
	}
	mounts, err := g.mountUses()
	if err != nil {
		return nil, err
	}
	for _, m := range mounts {
		disks, is, err := g.disksOfUse(m)
		if err != nil {
			return nil, err
		}
		for _, name := range disks {
			add(name, is+m.what, m.file)
		}
		for _, o := range m.Options { // a log and a realtime device of XFS, a journal of ext4, a detached header of LUKS
			key, value, _ := strings.Cut(o, "=")
			if !slices.Contains([]string{"logdev", "rtdev", "journal_path", "header"}, key) {
				continue
			}
			name, err := g.tagged(host.UnescapeOctal(value))
			if err != nil {
				return nil, err
			}
			add(name, "is the "+key+" of "+m.Source+", "+m.what, m.file)
		}
	}
	systems, err := g.list(btrfsDir)
	if err != nil {
		return nil, err
	}
	for _, system := range systems {
		dir := path.Join(btrfsDir, system, "devices")
		devices, err := g.entries(dir)
		if err != nil {
			return nil, err
		}
		for _, name := range devices {
			add(name, "is part of the mounted btrfs file system "+system, path.Join(dir, name))
		}
	}
	return uses, nil
}

const swapsFile = "/proc/swaps"

// disksOfUse returns the disks of a file system, of one that is not mounted by the signatures of
// disks. On a tree that shows no signature each disk may be the one: is says which of both it is.
func (g *guard) disksOfUse(m mountUse) (disks []string, is string, err error) {
	disks, err = g.disksOf(m.Mount)
	if err != nil || m.file == mountsFile {
		return disks, "is ", err
	}
	if len(disks) > 0 {
		disks, err = g.ofFileSystem(disks[0])
		return disks, "is ", err
	}
	if shown, err := g.showsTags(); err != nil || shown || !slices.ContainsFunc(tags, func(t tag) bool { return strings.HasPrefix(m.Source, t.name) }) {
		return nil, "", err
	}
	disks, err = g.list(blockDir)
	return disks, "may be what is ", err
}

// ofFileSystem returns a disk and each other one with the same file system, as btrfs has several.
func (g *guard) ofFileSystem(name string) ([]string, error) {
	own, err := g.udev(name)
	uuid := own.values["ID_FS_UUID"]
	if err != nil || uuid == "" {
		return []string{name}, err
	}
	return g.recordedWith(func(r udevRecord) bool { return r.values["ID_FS_UUID"] == uuid })
}

// members returns the disks that have the signature of an array, a volume group or a pool by udev's
// records: the next boot may assemble it. Not all of these types end in _member (util-linux,
// libblkid/src/superblocks).
func (g *guard) members() ([]diskUse, error) {
	names, err := g.recordedWith(func(r udevRecord) bool {
		kind := r.values["ID_FS_TYPE"]
		return strings.HasSuffix(kind, "_member") || slices.Contains([]string{"crypto_LUKS", "bcache", "drbd", "ceph_bluestore"}, kind)
	})
	return host.Map(names, func(name string) diskUse {
		return diskUse{name, "has the signature " + g.records[name].values["ID_FS_TYPE"] + ", of which the host may make a disk", ""}
	}), err
}
