package guard

import (
	"cmp"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// Root is what the file systems that the host boots from need.
type Root struct {
	// Needs is what each function carries: "/dev/nvme0n1p2, mounted at /".
	Needs map[pci.Address]string
	// Lost is why not every function can be known, or "": "/dev/sda1, mounted at / (f2fs): …".
	Lost string
	// Network is why the host needs a network to boot, or "": "ip=dhcp on the kernel command line".
	Network string
}

// rootPlaces are the mount points of the file systems that the host boots from.
var rootPlaces = []string{"/", "/usr", "/boot", "/boot/efi", "/etc", "/var"}

// ReadRoot returns what the file systems mounted at rootPlaces in the mount namespace of process 1
// need. It follows them only where the kernel lists each device below: partitions, device-mapper,
// md, NVMe subsystems and btrfs, below file systems of one device. It fails closed: what cannot be
// read is an error, because it may hide a need.
func ReadRoot(root host.Root, devices pci.Devices) (Root, error) {
	r := rootReader{guard: guard{root: root, devices: devices}, Root: Root{Needs: map[pci.Address]string{}}}
	mounts, err := r.bootMounts()
	if err != nil {
		return Root{}, err
	}
	for _, m := range mounts {
		if err := r.mount(m); err != nil {
			return Root{}, err
		}
	}
	if !slices.ContainsFunc(mounts, func(m host.Mount) bool { return m.Place == "/" }) {
		r.lose("no file shows what is mounted at /")
	}
	return r.Root, r.bootNetwork()
}

type rootReader struct {
	guard
	Root
	names []string // in sysfs, of the block devices that were followed
}

func (r *rootReader) lose(why string)  { r.Lost = cmp.Or(r.Lost, why) }
func (r *rootReader) reach(why string) { r.Network = cmp.Or(r.Network, why) }

// bootMounts returns the mounts at rootPlaces. What fstab(5) names for a place where nothing is
// mounted now, or only an automount point, counts too.
func (r *rootReader) bootMounts() ([]host.Mount, error) {
	all, err := r.mountsOfInit()
	if err != nil {
		return nil, err
	}
	planned, err := r.table(fstabFile)
	if err != nil {
		return nil, err
	}
	var mounts []host.Mount
	for _, place := range rootPlaces {
		isMounted := false
		for _, m := range all {
			if m.Place == place {
				mounts = append(mounts, m)
				isMounted = isMounted || m.Kind != "autofs"
			}
		}
		for _, m := range planned {
			if path.Clean(m.Place) != place || isMounted || m.Kind == "swap" {
				continue
			}
			disks, err := r.disksOf(m)
			if err != nil {
				return nil, err
			}
			if len(disks) > 0 || place == "/" { // another disk is not in the machine
				mounts = append(mounts, m)
			}
		}
	}
	return mounts, nil
}

// mountsOfInit returns the mounts in the mount namespace of process 1. /proc does not show that
// process to users who may not see it, and snapshots of older kernels have /proc/mounts alone.
func (g *guard) mountsOfInit() ([]host.Mount, error) {
	for _, file := range []string{host.ProcessFile(1, "mountinfo"), "/proc/self/mountinfo", "/proc/mounts"} {
		data, err := g.root.ReadTable(file)
		if host.IsAbsent(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		parse := host.ParseMountInfo
		if path.Base(file) == "mounts" {
			parse = host.ParseMounts
		}
		mounts, err := parse(string(data))
		return mounts, host.OfFile(file, err)
	}
	return nil, nil
}

// table returns the lines of fstab(5) or crypttab(5), of which the second field is Place.
func (g *guard) table(file string) (mounts []host.Mount, err error) {
	lines, err := g.lines(file)
	for _, fields := range lines {
		if strings.HasPrefix(fields[0], "#") || len(fields) < 2 {
			continue
		}
		m := host.Mount{Source: host.UnescapeOctal(fields[0]), Place: host.UnescapeOctal(fields[1])}
		if len(fields) > 2 {
			m.Kind = fields[2]
		}
		if len(fields) > 3 {
			m.Options = strings.Split(fields[3], ",")
		}
		mounts = append(mounts, m)
	}
	return mounts, err
}

// File systems by their types, at the places that the host boots from.
var (
	kindsInMemory = []string{"autofs", "ramfs", "rootfs", "tmpfs"}
	kindsOfServer = []string{"nfs", "nfs4", "cifs", "smb3", "ceph", "fuse.ceph", "glusterfs", "fuse.glusterfs", "lustre", "gpfs", "beegfs", "afs"}
	// Their data is on the disk that they are mounted from.
	kindsOfOneDisk = []string{"ext2", "ext3", "ext4", "xfs", "vfat", "squashfs", "iso9660"}
)

// mount follows a mounted file system.
func (r *rootReader) mount(m host.Mount) error {
	what := cmp.Or(m.Source, m.Kind) + ", mounted at " + m.Place
	switch {
	case slices.Contains(kindsInMemory, m.Kind):
		return nil
	case slices.Contains(kindsOfServer, m.Kind):
		r.reach(what + " (" + m.Kind + ")")
		return nil
	case m.Kind == "9p": // of a server, or of a hypervisor
		r.reach(what + " (9p)")
	}
	disks, err := r.disksOf(m)
	if err != nil {
		return err
	}
	switch {
	case len(disks) == 0:
		r.lose(what + " (" + m.Kind + "): the kernel does not list which disks it is on")
	case m.Kind == "btrfs":
		all, err := r.btrfsDevices(disks[0])
		if err != nil {
			return err
		}
		if len(all) == 0 {
			r.lose(what + " (btrfs): the kernel does not list its devices")
		}
		disks = append(disks, all...)
	case !slices.Contains(kindsOfOneDisk, m.Kind):
		r.lose(what + " (" + m.Kind + "): a file system of this type may be on further disks")
	default:
		further, err := r.further(m, disks[0])
		if err != nil {
			return err
		}
		if further != "" {
			r.lose(what + " (" + m.Kind + "): " + further)
		}
	}
	for _, disk := range disks {
		if err := r.disk(disk, what); err != nil {
			return err
		}
	}
	return nil
}

// disk adds the functions that a disk is on.
func (r *rootReader) disk(name, what string) error {
	s, err := r.stack(name)
	if err != nil {
		return err
	}
	r.need(s.functions, what)
	r.names = append(r.names, s.names...)
	if s.lost != "" {
		r.lose(what + ": " + s.lost)
	}
	if s.network != "" {
		r.reach(what + ": " + s.network)
	}
	return nil
}

func (r *rootReader) need(functions []pci.Address, what string) {
	for _, a := range functions {
		switch had := r.Needs[a]; {
		case had == "":
			r.Needs[a] = what
		case !slices.Contains(strings.Split(had, "; "), what):
			r.Needs[a] = had + "; " + what
		}
	}
}

// disksOf returns the names in sysfs of the disks that a file system is mounted from: by the disk's
// number, or by the source of the mount where the number is none, as that of btrfs, or not known.
// bcachefs has several sources: /dev/sda:/dev/sdb.
func (g *guard) disksOf(m host.Mount) ([]string, error) {
	if m.Number != "" && !strings.HasPrefix(m.Number, "0:") {
		if name, err := g.numbered(m.Number); err != nil || name != "" {
			return []string{name}, err
		}
	}
	sources := []string{m.Source}
	if m.Kind == "bcachefs" {
		sources = strings.Split(m.Source, ":")
	}
	var disks []string
	for _, source := range sources {
		if !strings.HasPrefix(source, "/dev/") && !strings.Contains(source, "=") {
			continue
		}
		name, err := g.tagged(source)
		if err != nil {
			return nil, err
		}
		if name != "" {
			disks = append(disks, name)
		}
	}
	return disks, nil
}

const btrfsDir = "/sys/fs/btrfs"

// btrfsDevices returns the devices of the btrfs file system of which name is one, or none if the
// kernel does not list them (Linux, fs/btrfs/sysfs.c: btrfs/UUID/devices has a link to each).
func (g *guard) btrfsDevices(name string) ([]string, error) {
	systems, err := g.list(btrfsDir)
	if err != nil {
		return nil, err
	}
	for _, system := range systems {
		devices, err := g.entries(path.Join(btrfsDir, system, "devices")) // "features" has none
		if err != nil || slices.Contains(devices, name) {
			return devices, err
		}
	}
	return nil, nil
}

// further returns why a file system of one disk may need another one, or "": the log or the realtime
// device of XFS (Linux, fs/xfs/xfs_super.c) or the journal of ext4.
func (r *rootReader) further(m host.Mount, name string) (string, error) {
	for _, o := range m.Options {
		switch key, value, _ := strings.Cut(o, "="); key {
		case "logdev", "rtdev", "journal_dev", "journal_path":
			return fmt.Sprintf("%s=%s is another disk", key, value), nil
		}
	}
	if !strings.HasPrefix(m.Kind, "ext") {
		return "", nil
	}
	return r.journal(name)
}

// Files that name what the host boots from.
const (
	fstabFile    = "/etc/fstab"
	crypttabFile = "/etc/crypttab"
	cmdlineFile  = "/proc/cmdline"
)

// mountsFile shows the file systems of the process's own mount namespace.
const mountsFile = "/proc/mounts"
