package guard

import (
	"cmp"
	"errors"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

const blockDir = "/sys/class/block"

// part is a disk or a partition on functions of the machine. Disks that are made of others are
// none.
type part struct {
	name      string // in sysfs
	disk      string // of which it is a partition, or ""
	functions []pci.Address
}

// node returns the name of a disk in /dev: sysfs writes cciss!c0d0 for cciss/c0d0.
func node(name string) string { return "/dev/" + strings.ReplaceAll(name, "!", "/") }

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

// block returns the name that sysfs has for a block device, found by its name in /dev, by its
// name in device-mapper, or by the target of a link such as /dev/disk/by-uuid/…. It returns "" if
// sysfs has no such device.
func (g *guard) block(dev string) (string, error) {
	var names []string
	if mapped, ok := strings.CutPrefix(dev, "/dev/mapper/"); ok {
		name, err := g.mapped(mapped)
		if err != nil {
			return "", err
		}
		names = append(names, name)
	}
	target, err := g.root.Real(dev)
	if err != nil {
		return "", err
	}
	// sysfs writes cciss/c0d0 as cciss!c0d0.
	inSysfs := strings.ReplaceAll(strings.TrimPrefix(dev, "/dev/"), "/", "!")
	names = append(names, inSysfs, path.Base(target))
	for _, name := range names {
		ok, err := g.exists(path.Join(blockDir, name))
		if err != nil {
			return "", err
		}
		if ok && name != "" {
			return name, nil
		}
	}
	return "", nil
}

// mapped returns the block device with a name in device-mapper, or "".
func (g *guard) mapped(name string) (string, error) {
	all, err := g.list(blockDir)
	if err != nil {
		return "", err
	}
	for _, block := range all {
		if !strings.HasPrefix(block, "dm-") {
			continue
		}
		mapped, err := g.attribute(path.Join(blockDir, block, "dm/name"))
		if err != nil {
			return "", err
		}
		if mapped == name {
			return block, nil
		}
	}
	return "", nil
}

// Parts of the sysfs path of a block device, named by the Linux source that creates them.
var (
	// iSCSI: drivers/scsi/scsi_transport_iscsi.c.
	iscsiSession = host.LazyRegexp(`/(host[0-9]+)/session([0-9]+)/`)
	// FCoE: drivers/scsi/fcoe/fcoe_sysfs.c.
	interfaceDir = host.LazyRegexp(`/net/([^/]+)/`)
	// NVMe over fabrics: drivers/nvme/host/fabrics.c.
	fabricsDir = host.LazyRegexp(`/nvme-fabrics/ctl/(nvme[0-9]+)(/|$)`)
	// Multipath NVMe: drivers/nvme/host/multipath.c.
	subsystemDir = host.LazyRegexp(`/nvme-subsystem/(nvme-subsys[0-9]+)/`)
)

// Names of whole disks in sysfs.
var (
	diskOfSlaves = host.LazyRegexp(`^(dm-[0-9]+|md.+)$`)
	diskInMemory = host.LazyRegexp(`^z?ram[0-9]+$`)
	diskOfServer = host.LazyRegexp(`^[nr]bd[0-9]+$`)
)

// stack is what a block device lies on, as far as the kernel lists it.
type stack struct {
	functions []pci.Address
	names     []string // in sysfs, of the device and of each device that it lies on
	lost      string   // why a device below cannot be followed to its hardware, or ""
	network   string   // the device below that is served over a network, or ""
}

// stack returns what a block device lies on, by its name in sysfs: the functions on the path of its
// directory, those of the controllers of its NVMe subsystem, or the devices that device-mapper and
// md are made of, which the kernel lists all (Linux, Documentation/ABI/testing/sysfs-block, slaves).
// It is lost at a device of any other driver: the cache of bcache and the other host of DRBD are no
// slaves.
func (g *guard) stack(name string) (stack, error) {
	var s stack
	err := g.stackOn(&s, name)
	s.functions = pci.Unique(s.functions)
	return s, err
}

func (g *guard) stackOn(s *stack, name string) error {
	if slices.Contains(s.names, name) {
		return nil
	}
	s.names = append(s.names, name)
	target, err := g.device(blockDir, name)
	if err != nil {
		return err
	}
	disk, err := g.whole(name, target)
	if err != nil {
		return err
	}
	server := served(target, disk)
	s.network = cmp.Or(s.network, server)
	functions, err := g.functions(target)
	if err != nil || len(functions) > 0 {
		s.functions = append(s.functions, functions...)
		return err
	}
	if m := fabricsDir().FindStringSubmatch(target); m != nil {
		return g.stackOnController(s, m[1])
	}
	if m := subsystemDir().FindStringSubmatch(target); m != nil {
		return g.stackOnSubsystem(s, m[1])
	}
	slaves, err := g.list(path.Join(blockDir, disk, "slaves"))
	if err != nil {
		return err
	}
	s.names = append(s.names, disk)
	for _, slave := range slaves {
		if err := g.stackOn(s, slave); err != nil {
			return err
		}
	}
	switch {
	case diskOfSlaves().MatchString(disk) && len(slaves) > 0, server != "":
	case diskInMemory().MatchString(disk):
		_, err := g.backing(s, disk, "backing_dev")
		return err
	case strings.Contains(target, "/nvdimm-bridge"): // CXL (Linux, drivers/cxl/core/pmem.c): any of its memory devices
		functions, err := g.ofClass("/sys/bus/cxl/devices")
		s.functions = append(s.functions, functions...)
		return err
	case strings.Contains(target, "/ndbus"): // an NVDIMM
	case target == "":
		s.lost = cmp.Or(s.lost, "sysfs does not show where "+node(name)+" is")
	default:
		// The file of a loop device may be a disk; one of a file system is on a mounted disk.
		if found, err := g.backing(s, disk, "loop/backing_file"); err != nil || found {
			return err
		}
		s.lost = cmp.Or(s.lost, "the kernel does not list which devices "+node(disk)+" lies on")
	}
	return nil
}

// whole returns the disk of which a block device is a partition, or the device itself.
func (g *guard) whole(name, target string) (string, error) {
	disk := path.Base(path.Dir(target))
	isDisk, err := g.exists(path.Join(blockDir, disk))
	if target == "" || !isDisk {
		disk = name
	}
	return disk, err
}

// hardware returns the functions that a device depends on, by the path of its directory: those on
// the path, or those of all controllers of the multipath NVMe subsystem that it belongs to.
func (g *guard) hardware(target string) ([]pci.Address, error) {
	functions, err := g.functions(target)
	if err != nil || len(functions) > 0 {
		return functions, err
	}
	var s stack
	if m := fabricsDir().FindStringSubmatch(target); m != nil {
		err = g.stackOnController(&s, m[1])
	} else if m := subsystemDir().FindStringSubmatch(target); m != nil {
		err = g.stackOnSubsystem(&s, m[1])
	}
	return pci.Unique(s.functions), err
}

// backing adds the disk that an attribute of another disk names, if it names one: that of a
// compressed disk in memory or of a loop device (Linux, Documentation/admin-guide/blockdev/zram.rst,
// backing_dev; drivers/block/loop.c, backing_file).
func (g *guard) backing(s *stack, disk, attribute string) (found bool, err error) {
	backing, err := g.attribute(path.Join(blockDir, disk, attribute))
	if err != nil || !strings.HasPrefix(backing, "/dev/") {
		return false, err
	}
	name, err := g.block(backing)
	if err == nil && name == "" {
		s.lost = cmp.Or(s.lost, "sysfs does not have "+backing+", below "+node(disk))
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return true, g.stackOn(s, name)
}

// served returns the name of a disk that lies on a server, by its name and the path of its directory
// in sysfs, or "".
func served(target, name string) string {
	switch {
	case iscsiSession().MatchString(target):
		return node(name) + " over iSCSI"
	case interfaceDir().MatchString(target):
		return node(name) + " over Fibre Channel over Ethernet"
	case diskOfServer().MatchString(name):
		return node(name) + " of a server"
	}
	return ""
}

// stackOnSubsystem adds the controllers of a multipath NVMe subsystem, whose disks are virtual
// devices.
func (g *guard) stackOnSubsystem(s *stack, subsystem string) error {
	entries, err := g.list(path.Join("/sys/class/nvme-subsystem", subsystem))
	if err != nil {
		return err
	}
	found := false
	for _, e := range entries {
		isController, err := g.exists(path.Join(nvmeDir, e))
		if err != nil {
			return err
		}
		if isController {
			found = true
			err = g.stackOnController(s, e)
		}
		if err != nil {
			return err
		}
	}
	if !found {
		s.lost = cmp.Or(s.lost, "the kernel lists no controller of "+subsystem)
	}
	return nil
}

const nvmeDir = "/sys/class/nvme"

// stackOnController adds the functions of an NVMe controller. One that is reached over a network has
// none; for Fibre Channel, each of the host's adapters counts (Linux, drivers/nvme/host/sysfs.c,
// transport).
func (g *guard) stackOnController(s *stack, controller string) error {
	target, err := g.device(nvmeDir, controller)
	if err != nil {
		return err
	}
	functions, err := g.functions(target)
	if err != nil || len(functions) > 0 {
		s.functions = append(s.functions, functions...)
		return err
	}
	transport, err := g.attribute(path.Join(nvmeDir, controller, "transport"))
	if err != nil {
		return err
	}
	switch transport {
	case "tcp", "rdma":
		s.network = cmp.Or(s.network, "NVMe over "+strings.ToUpper(transport)+" ("+controller+")")
		return nil
	case "fc":
		if functions, err = g.ofClass("/sys/class/fc_host"); err != nil {
			return err
		}
	}
	s.functions = append(s.functions, functions...)
	if len(functions) == 0 {
		s.lost = cmp.Or(s.lost, "the kernel does not list the hardware of the NVMe controller "+controller)
	}
	return nil
}

// ofClass returns the functions of all devices in a folder of links in sysfs.
func (g *guard) ofClass(dir string) (functions []pci.Address, err error) {
	names, err := g.list(dir)
	for _, name := range names {
		target, deviceErr := g.device(dir, name)
		more, functionsErr := g.functions(target)
		functions = append(functions, more...)
		err = errors.Join(err, deviceErr, functionsErr)
	}
	return functions, err
}

// forbidden reports whether an error says that the user may not read a file or enter a namespace,
// which is no error for a user who cannot change anything.
func forbidden(err error) bool {
	return (errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES)) && os.Geteuid() != 0
}
