package guard

import (
	"errors"
	"net/netip"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

const blockDir = "/sys/class/block"

// origin is the hardware, servers and files that a block device or file system depends on.
type origin struct {
	functions []pci.Address
	servers   []server
	places    []place
	unknown   bool // any disk of the machine is possible
}

// server is a host on the network that serves a disk or a file system.
type server struct {
	address netip.Addr // invalid: not determined
	through string     // the interface that reaches it; "": the routes to its address decide
}

// place is a file or directory of the machine that a disk or another file system is backed by.
type place struct {
	kind string // "file" of a loop device, "layer" of an overlay
	name string // an absolute path; "": not determined
}

// anywhere returns the origin of data that may be on any disk, local or over the network.
func anywhere() origin {
	return origin{unknown: true, servers: []server{{}}}
}

func (o *origin) join(more origin) {
	o.functions = append(o.functions, more.functions...)
	o.servers = append(o.servers, more.servers...)
	o.places = append(o.places, more.places...)
	o.unknown = o.unknown || more.unknown
}

// disk returns the origin of a block device by its name in /dev: through partitions, LVM, md, dm,
// bcache and DRBD down to PCI functions, servers and files. The origin is unknown if sysfs has no
// such device.
func (g *guard) disk(dev string) (origin, error) {
	name, err := g.block(dev)
	if err != nil {
		return origin{}, err
	}
	if name == "" {
		return origin{unknown: true}, nil
	}
	return g.below(name, map[string]bool{})
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
	diskInMemory = host.LazyRegexp(`^z?ram[0-9]+$`)
	diskOfFile   = host.LazyRegexp(`^loop[0-9]+$`)
	diskOfZFS    = host.LazyRegexp(`^zd[0-9]+$`)
	diskMirrored = host.LazyRegexp(`^drbd[0-9]+$`) // to another host
	diskOfServer = host.LazyRegexp(`^[nr]bd[0-9]+$`)
)

// below returns the origin of a block device by its name in sysfs. seen has the devices that were
// visited already.
func (g *guard) below(name string, seen map[string]bool) (origin, error) {
	if seen[name] {
		return origin{}, nil
	}
	seen[name] = true
	if g.carried != nil {
		g.carried[name] = true
	}
	target, err := g.device(blockDir, name)
	if err != nil {
		return origin{}, err
	}
	functions, err := g.functions(target)
	if err != nil || len(functions) > 0 {
		return origin{functions: functions}, err
	}
	disk := name // the whole disk, if name is a partition
	if _, rest, ok := strings.Cut(target, "/block/"); ok {
		disk, _, _ = strings.Cut(rest, "/")
	}
	// The devices that a disk is made of (Linux, Documentation/ABI/testing/sysfs-block).
	slaves, err := g.list(path.Join(blockDir, disk, "slaves"))
	if err != nil {
		return origin{}, err
	}
	if len(slaves) == 0 {
		return g.end(disk, target, seen)
	}
	var o origin
	for _, slave := range slaves {
		more, err := g.below(slave, seen)
		if err != nil {
			return origin{}, err
		}
		o.join(more)
	}
	if diskMirrored().MatchString(disk) {
		o.servers = append(o.servers, server{})
	}
	return o, nil
}

// end returns the origin of a disk without a PCI function on its path and without disks
// below it.
func (g *guard) end(disk, target string, seen map[string]bool) (origin, error) {
	switch {
	case diskInMemory().MatchString(disk), strings.Contains(target, "/ndbus"): // memory, NVDIMMs
		return origin{}, nil
	case diskMirrored().MatchString(disk): // a diskless client, or its disk is not in sysfs
		return anywhere(), nil
	case diskOfServer().MatchString(disk): // sysfs has neither nbd's server nor rbd's OSDs
		return origin{servers: []server{{}}}, nil
	case diskOfFile().MatchString(disk):
		return g.loop(disk, seen)
	case diskOfZFS().MatchString(disk):
		return g.zfsMembers()
	}
	if m := iscsiSession().FindStringSubmatch(target); m != nil {
		return g.iscsi(m[1], m[2])
	}
	if m := interfaceDir().FindStringSubmatch(target); m != nil {
		return origin{servers: []server{{through: m[1]}}}, nil
	}
	if m := fabricsDir().FindStringSubmatch(target); m != nil {
		return g.controller(m[1])
	}
	if m := subsystemDir().FindStringSubmatch(target); m != nil {
		return g.subsystem(m[1])
	}
	if strings.Contains(target, "/virtual/") || strings.Contains(target, "/vhci_hcd") {
		return anywhere(), nil // the driver may use the network: ATA over Ethernet, ublk, USB/IP
	}
	return origin{unknown: true}, nil
}

// loop returns the backing file of a loop device, or the origin of the disk that it is (Linux,
// drivers/block/loop.c, backing_file).
func (g *guard) loop(disk string, seen map[string]bool) (origin, error) {
	file, err := g.attribute(path.Join(blockDir, disk, "loop/backing_file"))
	if err != nil {
		return origin{}, err
	}
	if strings.HasSuffix(file, " (deleted)") || !path.IsAbs(file) {
		file = "" // any file system is possible, even one that is not mounted here
	}
	if strings.HasPrefix(file, "/dev/") {
		if name, err := g.block(file); err != nil || name != "" {
			if err != nil {
				return origin{}, err
			}
			return g.below(name, seen)
		}
	}
	return origin{places: []place{{"file", file}}}, nil
}

// iscsi returns the portals of a session: for each connection, the configured address and the
// address that the target redirected it to (Linux, drivers/scsi/scsi_transport_iscsi.c,
// persistent_address and address), and the interface that its socket is bound to, if any
// (iscsi_host_get_param in drivers/scsi/libiscsi.c).
func (g *guard) iscsi(scsiHost, session string) (origin, error) {
	const dir = "/sys/class/iscsi_connection"
	connections, err := g.list(dir)
	if err != nil {
		return origin{}, err
	}
	var o origin
	for _, c := range connections {
		if !strings.HasPrefix(c, "connection"+session+":") {
			continue
		}
		for _, name := range []string{"persistent_address", "address"} {
			text, err := g.attribute(path.Join(dir, c, name))
			if errors.Is(err, unix.ENOTCONN) {
				continue // the connection is down
			}
			if err != nil {
				return origin{}, err
			}
			if s := parseServer(text); s.address.IsValid() { // persistent_address may be a hostname
				o.servers = append(o.servers, s)
			}
		}
	}
	if len(o.servers) == 0 {
		o.servers = []server{{}}
	}
	through, err := g.attribute(path.Join("/sys/class/iscsi_host", scsiHost, "netdev"))
	if err != nil {
		return origin{}, err
	}
	// "default" and "(null)" are not interfaces.
	if ok, err := g.exists(path.Join(netDir, through)); err != nil || ok && through != "" {
		o.servers = append(o.servers, server{through: through})
		return o, err
	}
	return o, nil
}

// parseServer parses the IP address of a server. A hostname gives a server that is not
// determined, because no file shows the addresses of the name.
func parseServer(text string) server {
	address, err := netip.ParseAddr(strings.Trim(text, "[]"))
	if err != nil {
		return server{}
	}
	return server{address: address}
}

// hardware returns the functions that a device depends on, by the path of its directory: those on
// the path, or those of all controllers of the multipath NVMe subsystem that it belongs to.
func (g *guard) hardware(target string) ([]pci.Address, error) {
	functions, err := g.functions(target)
	m := subsystemDir().FindStringSubmatch(target)
	if err != nil || len(functions) > 0 || m == nil {
		return functions, err
	}
	o, err := g.subsystem(m[1])
	return pci.Unique(o.functions), err
}

// subsystem returns the origin of a multipath NVMe subsystem, whose disks are virtual devices: the
// origins of all its controllers.
func (g *guard) subsystem(name string) (origin, error) {
	entries, err := g.list(path.Join("/sys/class/nvme-subsystem", name))
	if err != nil {
		return origin{}, err
	}
	var o origin
	found := false
	for _, e := range entries {
		ok, err := g.exists(path.Join("/sys/class/nvme", e))
		if err != nil {
			return origin{}, err
		}
		if !ok {
			continue // an attribute
		}
		found = true
		more, err := g.controller(e)
		if err != nil {
			return origin{}, err
		}
		o.join(more)
	}
	if !found {
		return anywhere(), nil
	}
	return o, nil
}

// controller returns the origin of an NVMe controller: PCI functions, or the server for NVMe over
// fabrics (Linux, drivers/nvme/host/sysfs.c, transport and address).
func (g *guard) controller(name string) (origin, error) {
	const dir = "/sys/class/nvme"
	target, err := g.device(dir, name)
	if err != nil {
		return origin{}, err
	}
	functions, err := g.functions(target)
	if err != nil || len(functions) > 0 {
		return origin{functions: functions}, err
	}
	transport, err := g.attribute(path.Join(dir, name, "transport"))
	if err != nil {
		return origin{}, err
	}
	text, err := g.attribute(path.Join(dir, name, "address"))
	if err != nil {
		return origin{}, err
	}
	address := nvmeAddress(text)
	switch transport {
	case "tcp", "rdma":
		s := parseServer(address["traddr"])
		s.through = address["host_iface"]
		return origin{servers: []server{s}}, nil
	case "fc":
		return g.fcHost(address["host_traddr"])
	}
	return anywhere(), nil
}

// nvmeAddress parses "traddr=192.0.2.9,trsvcid=4420,host_iface=eth1" (Linux,
// nvmf_get_address in drivers/nvme/host/fabrics.c).
func nvmeAddress(text string) map[string]string {
	values := map[string]string{}
	for field := range strings.SplitSeq(text, ",") {
		if key, value, ok := strings.Cut(field, "="); ok {
			values[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	return values
}

// fcHost returns the functions of the Fibre Channel adapter with a port name, given as NVMe
// writes it: "nn-0x20000090fa0b1c2d:pn-0x10000090fa0b1c2d" (Linux, drivers/nvme/host/fc.c).
func (g *guard) fcHost(address string) (origin, error) {
	const dir = "/sys/class/fc_host"
	_, port, ok := strings.Cut(address, "pn-")
	hosts, err := g.list(dir)
	if err != nil {
		return origin{}, err
	}
	for _, h := range hosts {
		name, err := g.attribute(path.Join(dir, h, "port_name"))
		if err != nil {
			return origin{}, err
		}
		if !ok || !strings.EqualFold(name, port) {
			continue
		}
		target, err := g.device(dir, h)
		if err != nil {
			return origin{}, err
		}
		functions, err := g.functions(target)
		if err != nil || len(functions) > 0 {
			return origin{functions: functions}, err
		}
	}
	return anywhere(), nil
}

const btrfsDir = "/sys/fs/btrfs"

// btrfs returns the origins of all devices of a btrfs file system, of which source is one (Linux,
// fs/btrfs/sysfs.c: btrfs/UUID/devices has a link to each).
func (g *guard) btrfs(source string) (origin, error) {
	o, err := g.disk(source)
	if err != nil || o.unknown {
		return o, err
	}
	name, err := g.block(source)
	if err != nil {
		return origin{}, err
	}
	systems, err := g.list(btrfsDir)
	if err != nil {
		return origin{}, err
	}
	for _, system := range systems {
		dir := path.Join(btrfsDir, system, "devices")
		if ok, err := g.exists(dir); err != nil || !ok {
			if err != nil {
				return origin{}, err
			}
			continue // "features" and others
		}
		members, err := g.list(dir)
		if err != nil {
			return origin{}, err
		}
		if !slices.Contains(members, name) {
			continue
		}
		for _, member := range members {
			more, err := g.below(member, map[string]bool{})
			if err != nil {
				return origin{}, err
			}
			o.join(more)
		}
	}
	return o, nil
}

// zfsMembers returns the origins of the members of all ZFS pools. The kernel does not show which
// disks a pool has, so the members are the disks that udev has recorded as such (systemd,
// sd-device's database: run/udev/data/bMAJOR:MINOR). A disk without a record counts too. A member
// with traces of another file system has ID_FS_AMBIVALENT in place of ID_FS_TYPE (systemd,
// src/udev/udev-builtin-blkid.c), or the partition type of OpenZFS.
func (g *guard) zfsMembers() (origin, error) {
	if g.zfs != nil {
		return *g.zfs, nil // found before; or this member is a ZFS volume with a guest's pool
	}
	g.zfs = &origin{}
	blocks, err := g.list(blockDir)
	if err != nil {
		return origin{}, err
	}
	var o origin
	found := false
	for _, name := range blocks {
		record, err := g.udev(name)
		if err != nil {
			return origin{}, err
		}
		hidden, err := g.isHidden(name)
		if err != nil {
			return origin{}, err
		}
		isMember := strings.Contains(record.text, "zfs_member") || record.values["ID_PART_ENTRY_TYPE"] == zfsPartition
		if record.known && !isMember || hidden || diskOfZFS().MatchString(name) {
			continue
		}
		file, err := g.attribute(path.Join(blockDir, name, "loop/backing_file"))
		if err != nil {
			return origin{}, err
		}
		if file == "" && diskOfFile().MatchString(name) {
			continue // a loop device without a backing file has no content
		}
		found = true
		more, err := g.below(name, map[string]bool{})
		if err != nil {
			return origin{}, err
		}
		o.join(more)
	}
	o.unknown = o.unknown || !found
	g.zfs = &o
	return o, nil
}

// Classes of controllers with disks, in addition to base class 01 (Linux,
// include/linux/pci_ids.h).
const (
	fibreChannel pci.Class = 0x0c04
	sdHost       pci.Class = 0x0805
)

// storage returns the functions that can have disks. It leaves out USB controllers, which GPUs
// have too: an unknown disk must not make the host need every GPU.
func (g *guard) storage() []pci.Address {
	var addresses []pci.Address
	for i := range g.devices {
		if c := g.devices[i].Class; c != nil && (c.IsStorage() || *c == fibreChannel || *c == sdHost) {
			addresses = append(addresses, g.devices[i].Address)
		}
	}
	return addresses
}
