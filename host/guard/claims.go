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
// what fstab(5), crypttab(5) and mdadm.conf(5) are to use.
func (g *guard) claims(parts []part) (map[pci.Address][]Claimant, error) {
	uses, err := g.diskUses()
	if err == nil && !g.root.IsMachine() {
		var planned []diskUse
		planned, err = g.plannedUses()
		uses = append(uses, planned...)
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
		var found []Claimant
		for _, u := range uses {
			if u.name == p.name {
				found = append(found, Claimant{What: node(p.name) + " " + u.what, File: u.file})
			}
		}
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

// diskUses returns the disks of mounted file systems and swap areas. Containers mount the same disk
// at many places: each is named once.
func (g *guard) diskUses() ([]diskUse, error) {
	mounts, err := g.mountsOfInit()
	if err != nil {
		return nil, err
	}
	var uses []diskUse
	named := map[string]bool{}
	add := func(name, what, file string) {
		if name != "" && !named[name] {
			named[name] = true
			uses = append(uses, diskUse{name, what, file})
		}
	}
	for _, m := range mounts {
		disks, err := g.disksOf(m)
		if err != nil {
			return nil, err
		}
		for _, name := range disks {
			add(name, "is mounted at "+m.Place, mountsFile)
		}
		further, err := g.optionUses(m.Options, m.Source+", mounted at "+m.Place, mountsFile)
		if err != nil {
			return nil, err
		}
		for _, u := range further {
			add(u.name, u.what, u.file)
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
	return uses, nil
}

// optionUses returns the disks that options name beside that of a file system or an encrypted disk:
// the log and the realtime device of XFS, a journal of ext4, a detached header of LUKS.
func (g *guard) optionUses(options []string, of, file string) (uses []diskUse, err error) {
	for _, o := range options {
		key, value, _ := strings.Cut(o, "=")
		if !slices.Contains([]string{"logdev", "rtdev", "journal_path", "header"}, key) {
			continue
		}
		name, err := g.tagged(host.UnescapeOctal(value))
		if err != nil {
			return nil, err
		}
		if name != "" {
			uses = append(uses, diskUse{name, "is the " + key + " of " + of, file})
		}
	}
	return uses, nil
}

const swapsFile = "/proc/swaps"

// plannedUses returns the disks that fstab(5), crypttab(5) and mdadm.conf(5) name.
func (g *guard) plannedUses() ([]diskUse, error) {
	var uses []diskUse
	for _, file := range []string{fstabFile, crypttabFile} {
		lines, err := g.lines(file)
		if err != nil && !forbidden(err) {
			return nil, err
		}
		for _, fields := range lines {
			if strings.HasPrefix(fields[0], "#") || len(fields) < 2 {
				continue
			}
			disk, what := host.UnescapeOctal(fields[0]), "to be mounted at "+host.UnescapeOctal(fields[1])
			if file == crypttabFile {
				disk, what = host.UnescapeOctal(fields[1]), "to be opened as "+fields[0]
			}
			what += " (" + file + ")"
			names, err := g.ofFileSystem(disk)
			for _, name := range names {
				uses = append(uses, diskUse{name, "is " + what, file})
			}
			var further []diskUse
			if err == nil && len(fields) > 3 {
				further, err = g.optionUses(strings.Split(fields[3], ","), disk+", "+what, file)
			}
			if err != nil {
				return nil, err
			}
			uses = append(uses, further...)
		}
	}
	members, err := g.members()
	return append(uses, members...), err
}

// ofFileSystem returns the disk that a file names, and each other one with the same file system, as
// btrfs has several.
func (g *guard) ofFileSystem(disk string) ([]string, error) {
	name, err := g.tagged(disk)
	if err != nil || name == "" {
		return nil, err
	}
	own, err := g.udev(name)
	uuid := own.values["ID_FS_UUID"]
	if err != nil || uuid == "" {
		return []string{name}, err
	}
	return g.recordedWith(func(r udevRecord) bool { return r.values["ID_FS_UUID"] == uuid })
}

// poolsDir has a folder for each imported pool (OpenZFS, module/zfs/spa_stats.c).
const poolsDir = "/proc/spl/kstat/zfs"

// members returns the members of the arrays that mdadm.conf(5) names, by uuid or by name, and those
// of pools of ZFS if one is imported, by udev's records.
func (g *guard) members() (uses []diskUse, err error) {
	plain := strings.NewReplacer(":", "", "-", "")
	named := map[string]string{} // the file, by UUID or name
	for _, file := range []string{"/etc/mdadm.conf", "/etc/mdadm/mdadm.conf"} {
		lines, err := g.lines(file)
		if err != nil && !forbidden(err) {
			return nil, err
		}
		for _, fields := range lines {
			for _, word := range fields {
				if strings.HasPrefix(word, "#") {
					break
				}
				switch key, value, _ := strings.Cut(word, "="); strings.ToLower(key) {
				case "uuid":
					named[strings.ToLower(plain.Replace(value))] = file
				case "name":
					named[value] = file
				}
			}
		}
	}
	delete(named, "")
	pools, err := g.list(poolsDir)
	if err != nil {
		return nil, err
	}
	imported := slices.ContainsFunc(pools, func(name string) bool { // else the files of a loaded module
		inside, err := g.entries(path.Join(poolsDir, name))
		return err != nil || len(inside) > 0
	})
	names, err := g.list(blockDir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		record, err := g.udev(name)
		if err != nil {
			return nil, err
		}
		file := cmp.Or(named[strings.ToLower(plain.Replace(record.values["ID_FS_UUID"]))], named[record.values["ID_FS_LABEL"]])
		switch kind := record.values["ID_FS_TYPE"]; {
		case kind == "linux_raid_member" && file != "":
			uses = append(uses, diskUse{name, "is a member of an array (" + file + ")", file})
		case kind == "zfs_member" && imported:
			uses = append(uses, diskUse{name, "is a member of a ZFS pool", poolsDir})
		}
	}
	return uses, nil
}
