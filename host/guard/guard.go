package guard

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// Need is why the host needs a function.
type Need struct {
	Address pci.Address
	Reason  string
	// Absolute needs cannot be waived: the host does not run without its root
	// file system.
	Absolute bool
}

// Needs returns all needs that files below root show, in order of address. What
// cannot be read is an error: a guard that does not see must not let pass.
func Needs(root host.Root, devices []pci.Device) ([]Need, error) {
	g := guard{root: root, devices: devices}
	err := errors.Join(g.mounts(), g.swaps(), g.routes())
	g.consoles()
	slices.SortStableFunc(g.needs, func(a, b Need) int { return a.Address.Compare(b.Address) })
	return g.needs, err
}

type guard struct {
	root    host.Root
	devices []pci.Device
	needs   []Need
}

func (g *guard) add(addresses []pci.Address, absolute bool, format string, args ...any) {
	reason := fmt.Sprintf(format, args...)
	for _, a := range addresses {
		if !slices.ContainsFunc(g.needs, func(n Need) bool { return n.Address == a && n.Reason == reason }) {
			g.needs = append(g.needs, Need{a, reason, absolute})
		}
	}
}

// lines returns the fields of each line of a file, none where it is absent.
func (g *guard) lines(name string) ([][]string, error) {
	data, err := g.root.ReadFile(name)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, host.Cause(err))
	}
	var lines [][]string
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 0 {
			lines = append(lines, fields)
		}
	}
	return lines, nil
}

// mounts goes through the mounted file systems (proc_pid_mounts(5)).
func (g *guard) mounts() error {
	mounts, err := g.lines("/proc/mounts")
	if err != nil {
		return err
	}
	for _, m := range mounts {
		if len(m) < 3 {
			continue
		}
		source, place, kind := unescape(m[0]), unescape(m[1]), m[2]
		var disks []pci.Address
		known := true
		switch {
		case kind == "zfs":
			disks, err = g.zfsMembers()
		case kind == "btrfs":
			disks, known, err = g.btrfs(source)
		case strings.HasPrefix(source, "/dev/") && source != "/dev/fuse":
			disks, known, err = g.disk(source)
		default:
			continue // of memory, from the network, or a program's (FUSE's /dev/fuse)
		}
		if err != nil {
			return err
		}
		g.add(disks, place == "/", "carries %s, mounted at %s", source, place)
		switch { // where nobody knows which it is, it is every one
		case !known && place == "/":
			g.add(g.storage(), true, "may carry the root file system: what %s is cannot be told", source)
		case !known:
			g.add(g.storage(), false, "may carry %s, mounted at %s: what it is cannot be told", source, place)
		}
	}
	return nil
}

// swaps goes through the swap areas (proc_swaps(5)). A file lies on a file system
// that is mounted.
func (g *guard) swaps() error {
	swaps, err := g.lines("/proc/swaps")
	if err != nil {
		return err
	}
	for _, s := range swaps[min(1, len(swaps)):] {
		if strings.HasPrefix(s[0], "/dev/") {
			disks, known, err := g.disk(unescape(s[0]))
			if err != nil {
				return err
			}
			g.add(disks, false, "carries the swap area %s", s[0])
			if !known {
				g.add(g.storage(), false, "may carry the swap area %s: what it is cannot be told", s[0])
			}
		}
	}
	return nil
}

// unescape undoes what the kernel does to white space in these files: \040.
func unescape(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+3 < len(s) {
			if n, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				b.WriteByte(byte(n))
				i += 3
				continue
			}
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

const blockDir = "/sys/class/block"

// disk returns the functions that a block device lies on, through partitions,
// LVM, md and dm. It is not known where sysfs has no such device.
func (g *guard) disk(dev string) (addresses []pci.Address, known bool, err error) {
	name, err := g.block(dev)
	if err != nil || name == "" {
		return nil, false, err
	}
	addresses, err = g.below(blockDir, name, map[string]bool{}, g.slaves)
	return addresses, true, err
}

// block returns what sysfs calls a block device, or "" where it has none: by the name
// in /dev, by device-mapper's, or by where a link such as /dev/disk/by-uuid/… leads.
func (g *guard) block(dev string) (string, error) {
	var names []string
	if mapped, ok := strings.CutPrefix(dev, "/dev/mapper/"); ok {
		name, err := g.mapped(mapped)
		if err != nil {
			return "", err
		}
		names = append(names, name)
	}
	place, err := g.root.Resolve(dev)
	if err != nil {
		return "", g.cause(dev, err)
	}
	names = append(names, strings.ReplaceAll(strings.TrimPrefix(dev, "/dev/"), "/", "!"), path.Base(place)) // as sysfs spells cciss/c0d0
	for _, name := range names {
		ok, err := g.root.Exists(path.Join(blockDir, name))
		if err != nil {
			return "", g.cause(path.Join(blockDir, name), err)
		}
		if ok && name != "" {
			return name, nil
		}
	}
	return "", nil
}

const btrfsDir = "/sys/fs/btrfs"

// btrfs returns the functions of all devices of the file system that one is a part of
// (Linux, fs/btrfs/sysfs.c: a link for each in btrfs/UUID/devices). Mounts name one.
func (g *guard) btrfs(source string) (addresses []pci.Address, known bool, err error) {
	addresses, known, err = g.disk(source)
	if err != nil || !known {
		return addresses, known, err
	}
	name, err := g.block(source)
	if err != nil {
		return nil, false, err
	}
	systems, err := g.list(btrfsDir)
	if err != nil {
		return nil, false, err
	}
	for _, system := range systems {
		dir := path.Join(btrfsDir, system, "devices")
		if ok, err := g.root.Exists(dir); err != nil || !ok {
			if err != nil {
				return nil, false, g.cause(dir, err)
			}
			continue // "features" and others
		}
		members, err := g.list(dir)
		if err != nil {
			return nil, false, err
		}
		if !slices.Contains(members, name) {
			continue
		}
		for _, member := range members {
			more, err := g.below(blockDir, member, map[string]bool{}, g.slaves)
			if err != nil {
				return nil, false, err
			}
			addresses = append(addresses, more...)
		}
	}
	return addresses, true, nil
}

func (g *guard) cause(name string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", name, host.Cause(err))
}

// mapped returns the block device that device-mapper calls by a name.
func (g *guard) mapped(name string) (string, error) {
	all, err := g.list(blockDir)
	if err != nil {
		return "", err
	}
	for _, block := range all {
		if !strings.HasPrefix(block, "dm-") {
			continue
		}
		data, err := g.root.ReadFile(path.Join(blockDir, block, "dm/name"))
		if err != nil && !host.IsAbsent(err) {
			return "", g.cause(path.Join(blockDir, block, "dm/name"), err)
		}
		if strings.TrimSpace(string(data)) == name {
			return block, nil
		}
	}
	return "", nil
}

// list returns a folder's names, none where it is absent.
func (g *guard) list(dir string) ([]string, error) {
	names, err := g.root.ReadDir(dir)
	if host.IsAbsent(err) {
		return nil, nil
	}
	return names, g.cause(dir, err)
}

// below returns the functions below a device of a class folder: those on the path
// of its own folder, or, where it is a virtual device, those of what it is made of.
func (g *guard) below(class, name string, seen map[string]bool, parts func(string) ([]string, error)) ([]pci.Address, error) {
	if seen[name] {
		return nil, nil
	}
	seen[name] = true
	dir, err := g.root.OpenDir(class)
	if err != nil {
		return nil, g.cause(class, err)
	}
	defer dir.Close() //nolint:errcheck // only read from
	target, err := dir.Readlink(name)
	if err != nil && !host.IsAbsent(err) && !errors.Is(err, unix.EINVAL) {
		return nil, g.cause(path.Join(class, name), err)
	}
	var addresses []pci.Address
	for element := range strings.SplitSeq(target, "/") {
		if a, err := pci.ParseAddress(element); err == nil {
			addresses = append(addresses, a)
		}
	}
	if len(addresses) > 0 {
		return addresses[len(addresses)-1:], nil
	}
	made, err := parts(name)
	if err != nil {
		return nil, err
	}
	for _, part := range made {
		more, err := g.below(class, part, seen, parts)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, more...)
	}
	if len(made) == 0 {
		return g.nvme(target)
	}
	return addresses, nil
}

// slaves are the block devices that one is made of (Linux,
// Documentation/ABI/testing/sysfs-block).
func (g *guard) slaves(name string) ([]string, error) {
	return g.list(path.Join(blockDir, name, "slaves"))
}

// nvme returns the controllers of an NVMe subsystem with several paths, whose
// disks are virtual devices (drivers/nvme/host/multipath.c).
func (g *guard) nvme(target string) ([]pci.Address, error) {
	_, rest, ok := strings.Cut(target, "/nvme-subsystem/")
	if !ok {
		return nil, nil
	}
	subsystem, _, _ := strings.Cut(rest, "/")
	entries, err := g.list(path.Join("/sys/class/nvme-subsystem", subsystem))
	if err != nil {
		return nil, err
	}
	var addresses []pci.Address
	for _, e := range entries {
		controller := path.Join("/sys/class/nvme", e)
		ok, err := g.root.Exists(controller)
		if err != nil {
			return nil, g.cause(controller, err)
		}
		if !ok {
			continue // an attribute
		}
		more, err := g.below("/sys/class/nvme", e, map[string]bool{}, func(string) ([]string, error) { return nil, nil })
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, more...)
	}
	return addresses, nil
}

// zfsMembers returns what udev has found members of ZFS pools on: the kernel does
// not tell which (systemd, sd-device's database: run/udev/data/bMAJOR:MINOR). With
// no word from udev, every disk counts.
func (g *guard) zfsMembers() ([]pci.Address, error) {
	blocks, err := g.list(blockDir)
	if err != nil {
		return nil, err
	}
	var addresses []pci.Address
	for _, name := range blocks {
		number, err := g.root.ReadFile(path.Join(blockDir, name, "dev"))
		if err != nil && !host.IsAbsent(err) {
			return nil, g.cause(path.Join(blockDir, name, "dev"), err)
		}
		data, err := g.root.ReadFile("/run/udev/data/b" + strings.TrimSpace(string(number)))
		if err != nil && !host.IsAbsent(err) {
			return nil, g.cause("/run/udev/data", err)
		}
		if err == nil && !strings.Contains(string(data), "\nE:ID_FS_TYPE=zfs_member\n") {
			continue
		}
		more, err := g.below(blockDir, name, map[string]bool{}, g.slaves)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, more...)
	}
	return addresses, nil
}

// storage returns the functions that disks can be on.
func (g *guard) storage() []pci.Address {
	var addresses []pci.Address
	for i := range g.devices {
		if c := g.devices[i].Class; c != nil && c.IsStorage() {
			addresses = append(addresses, g.devices[i].Address)
		}
	}
	return addresses
}

const netDir = "/sys/class/net"

// routes follows the default routes, IPv4's (proc_pid_net(5)) and IPv6's (Linux,
// net/ipv6/route.c, rt6_info_route), down to the cards.
func (g *guard) routes() error {
	v4, err := g.lines("/proc/net/route")
	if err != nil {
		return err
	}
	v6, err := g.lines("/proc/net/ipv6_route")
	if err != nil {
		return err
	}
	interfaces := map[string]bool{}
	for _, r := range v4 {
		if len(r) >= 8 && r[1] == "00000000" && r[7] == "00000000" {
			interfaces[r[0]] = true
		}
	}
	for _, r := range v6 {
		if len(r) >= 10 && strings.Trim(r[0], "0") == "" && r[1] == "00" && r[9] != "lo" {
			interfaces[r[9]] = true
		}
	}
	return g.carries(slices.Sorted(maps.Keys(interfaces)), "the default route")
}

// lower returns the interfaces that one is made of: those that the kernel links
// (bonds, bridges, VLANs), or, where it links none, the ports of Open vSwitch.
func (g *guard) lower(name string) ([]string, error) {
	entries, err := g.list(path.Join(netDir, name))
	if err != nil {
		return nil, err
	}
	var lower []string
	for _, e := range entries {
		if l, ok := strings.CutPrefix(e, "lower_"); ok {
			lower = append(lower, l)
		}
	}
	if lower != nil {
		return lower, nil
	}
	all, err := g.list(netDir)
	if err != nil {
		return nil, err
	}
	for _, port := range all {
		dir, err := g.root.OpenDir(path.Join(netDir, port))
		if errors.Is(err, unix.ENOTDIR) || host.IsAbsent(err) {
			continue // bonding_masters is a file; an interface can go
		}
		if err != nil {
			return nil, g.cause(path.Join(netDir, port), err)
		}
		master, err := dir.Readlink("master")
		dir.Close() //nolint:errcheck // only read from
		if err != nil && !host.IsAbsent(err) {
			return nil, g.cause(path.Join(netDir, port, "master"), err)
		}
		if err == nil && path.Base(master) == "ovs-system" {
			lower = append(lower, port)
		}
	}
	return lower, nil
}

// Makers of the display controllers in management controllers.
const (
	aspeed pci.ID = 0x1a03
	matrox pci.ID = 0x102b
)

func (g *guard) consoles() {
	for i := range g.devices {
		switch d := &g.devices[i]; {
		case d.BootVGA != nil && *d.BootVGA:
			g.add([]pci.Address{d.Address}, false, "is the console (boot_vga)")
		case d.IsDisplay() && (d.IsVendor(aspeed) || d.IsVendor(matrox)):
			g.add([]pci.Address{d.Address}, false, "is the management controller's console")
		}
	}
}
