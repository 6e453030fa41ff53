package guard

import (
	"errors"
	"fmt"
	"net/netip"
	"path"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// Usage is what uses a function, as far as it is seen at a glance: it explains a refusal and decides
// nothing.
type Usage struct {
	Address pci.Address
	What    string // after its subject: "is mounted at /srv (/dev/nvme1n1p1)"
	File    string // that shows it, or ""
}

// ReadUses returns what uses functions, ordered by address, without processes, which [Holders]
// returns. A file that cannot be read costs its words and is a warning.
func ReadUses(root host.Root, devices pci.Devices, running Running) ([]Usage, []string) {
	u := usageReader{guard: guard{root: root, devices: devices}}
	var warnings []string
	for _, read := range []func() error{
		u.disks, u.backing, func() error { return u.routes(running) }, func() error { return u.session(running) },
		func() error { return u.addresses(running) }, u.interfaces, u.consoles,
	} {
		if err := read(); err != nil {
			warnings = append(warnings, fmt.Sprintf("cannot determine all uses of PCI functions: %v", err))
		}
	}
	slices.SortStableFunc(u.found, func(a, b Usage) int { return a.Address.Compare(b.Address) })
	return u.found, warnings
}

type usageReader struct {
	guard
	found []Usage
}

func (u *usageReader) add(functions []pci.Address, what, file string) {
	for _, a := range functions {
		if !slices.ContainsFunc(u.found, func(had Usage) bool { return had.Address == a && had.What == what }) {
			u.found = append(u.found, Usage{a, what, file})
		}
	}
}

// onDisk adds the use of a disk, by its name in sysfs, to the functions that it lies on.
func (u *usageReader) onDisk(name, what, file string) ([]string, error) {
	s, err := u.stack(name)
	u.add(s.functions, what+" ("+node(name)+")", file)
	return s.names, err
}

// disks adds mounted file systems, swap areas, disks that are made of others, and content that
// nothing uses, as udev has recorded it.
func (u *usageReader) disks() error {
	uses, err := u.diskUses()
	if err != nil {
		return err
	}
	used := map[string]bool{} // in sysfs
	for _, d := range uses {
		names, err := u.onDisk(d.name, d.what, d.file)
		if err != nil {
			return err
		}
		for _, name := range names {
			used[name] = true
		}
	}
	parts, err := u.parts()
	if err != nil {
		return err
	}
	for _, p := range parts {
		if err := u.part(p, used); err != nil {
			return err
		}
	}
	return nil
}

// part adds what is above or on a disk or partition that no mounted file system uses.
func (u *usageReader) part(p part, used map[string]bool) error {
	if used[p.name] {
		used[p.disk] = true
		return nil
	}
	above, err := u.aboveOf(p.name)
	if err != nil {
		return err
	}
	for _, c := range above {
		u.add(p.functions, "carries a disk in use: "+c.What, c.File)
	}
	record, err := u.udev(p.name)
	if err != nil {
		return err
	}
	content := record.content()
	if content == "" && p.disk == "" {
		content = record.table()
	}
	if len(above) == 0 && content != "" {
		u.add(p.functions, "has "+content+" on "+node(p.name), record.file)
	}
	used[p.disk] = used[p.disk] || len(above) > 0 || content != ""
	return nil
}

// backing adds disks that loop devices, compressed disks in memory and targets of NVMe over fabrics
// and LIO use, most of which claim nothing.
func (u *usageReader) backing() error {
	names, err := u.list(blockDir)
	if err != nil {
		return err
	}
	for _, name := range names {
		for _, attribute := range []string{"loop/backing_file", "backing_dev"} {
			if err := u.backed(path.Join(blockDir, name, attribute), "is below "+node(name)); err != nil {
				return err
			}
		}
	}
	for _, targets := range []struct{ dir, below, attribute string }{
		{"/sys/kernel/config/nvmet/subsystems", "namespaces", "device_path"}, // Linux, drivers/nvme/target/configfs.c
		{"/sys/kernel/config/target/core", "", "udev_path"},                  // LIO (Linux, drivers/target/target_core_configfs.c)
	} {
		names, err := u.list(targets.dir)
		if err != nil {
			return err
		}
		for _, name := range names {
			dir := path.Join(targets.dir, name, targets.below)
			exported, err := u.entries(dir)
			if err != nil {
				return err
			}
			for _, e := range exported {
				if err := u.backed(path.Join(dir, e, targets.attribute), "is offered over a network as "+path.Join(name, e)); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// backed adds the use of the disk whose node a file of the kernel names.
func (u *usageReader) backed(file, what string) error {
	disk, err := u.attribute(file)
	if err != nil || !strings.HasPrefix(disk, "/dev/") {
		return err
	}
	name, err := u.block(disk)
	if err != nil || name == "" {
		return err
	}
	_, err = u.onDisk(name, what, file)
	return err
}

// through adds the use of an interface to the functions that carry it.
func (u *usageReader) through(name, what, file string) error {
	functions, err := u.carriers(name)
	u.add(functions, what, file)
	return err
}

// Files with the main routing tables (proc_pid_net(5); Linux, rt6_info_route in net/ipv6/route.c).
const (
	routesFile4 = "/proc/net/route"
	routesFile6 = "/proc/net/ipv6_route"
)

// routes adds the interfaces of default routes, and those that other routes lead through, which in
// a tree stand for addresses.
func (u *usageReader) routes(running Running) error {
	var errs []error
	for _, name := range running.DefaultRoutes {
		errs = append(errs, u.through(name, "has the default route through "+name, ""))
	}
	for _, table := range []struct {
		file                         string
		destination, length, through int
	}{{routesFile4, 1, 7, 0}, {routesFile6, 0, 1, 9}} {
		lines, err := u.lines(table.file)
		errs = append(errs, err)
		for _, r := range lines {
			if len(r) <= max(table.length, table.through) || r[0] == "Iface" {
				continue
			}
			name := r[table.through]
			local := strings.HasPrefix(r[table.destination], "fe8") || strings.HasPrefix(r[table.destination], "ff0") || r[table.length] == "80"
			switch {
			case strings.Trim(r[table.destination]+r[table.length], "0") == "":
				errs = append(errs, u.through(name, "has the default route through "+name, table.file))
			case running.Addresses == nil && (table.file != routesFile6 || !local):
				errs = append(errs, u.through(name, "has a route through "+name, table.file))
			}
		}
	}
	return errors.Join(errs...)
}

// session adds the interface with the server's address of the operator's ssh session.
func (u *usageReader) session(running Running) error {
	words := strings.Fields(running.Session)
	if len(words) != 4 {
		return nil
	}
	server, err := netip.ParseAddr(words[2])
	if err != nil {
		return nil // sshd is not connected by IP (OpenSSH, ssh_remote_ipaddr in packet.c)
	}
	for name, own := range running.Addresses {
		if name == server.Zone() || slices.Contains(own, server.WithZone("").Unmap()) {
			if err := u.through(name, "carries the ssh session from "+words[0], ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// addresses adds interfaces with an address that other hosts reach.
func (u *usageReader) addresses(running Running) error {
	for name, own := range running.Addresses {
		if slices.ContainsFunc(own, global) {
			if err := u.through(name, "has an address on "+name, ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// interfaces adds what each interface of a function is part of, and whether it has carrier.
func (u *usageReader) interfaces() error {
	links, err := u.interfacesOf()
	if err != nil {
		return err
	}
	for i := range u.devices {
		a := u.devices[i].Address
		for _, i := range links[a].Interfaces {
			dir := path.Join(netDir, i.Name)
			entries, err := u.entries(dir)
			if err != nil {
				return err
			}
			for _, e := range entries {
				if upper, ok := strings.CutPrefix(e, "upper_"); ok && upper != i.MasterName {
					u.add([]pci.Address{a}, "carries "+upper+" through "+i.Name, path.Join(dir, e))
				}
			}
			if i.Master {
				u.add([]pci.Address{a}, "has the port "+i.Name+" of "+i.MasterName, path.Join(dir, "master"))
			}
			if i.Carrier {
				u.add([]pci.Address{a}, "has carrier on "+i.Name, path.Join(dir, "carrier"))
			}
		}
		if links[a].Hidden {
			u.add([]pci.Address{a}, "has the network driver "+u.devices[i].DriverName()+" and no interface in this network namespace", "")
		}
	}
	return nil
}

// consoles adds the kernel's consoles on serial ports (Linux, fs/proc/consoles.c).
func (u *usageReader) consoles() error {
	const file, ports = "/proc/consoles", "/sys/class/tty"
	lines, err := u.lines(file)
	for _, fields := range lines {
		target, deviceErr := u.device(ports, fields[0])
		functions, functionsErr := u.functions(target)
		u.add(functions, "is the console ("+fields[0]+")", file)
		err = errors.Join(err, deviceErr, functionsErr)
	}
	return err
}

// ReadDefaultRoutes returns the interfaces of the default routes of the running machine by
// rtnetlink(7): those of each next hop, of which files show the first one.
func ReadDefaultRoutes() ([]string, error) {
	routes, err := netlink.RouteListFiltered(netlink.FAMILY_ALL, &netlink.Route{Table: unix.RT_TABLE_UNSPEC}, netlink.RT_FILTER_TABLE)
	if err != nil && !errors.Is(err, netlink.ErrDumpInterrupted) {
		return nil, fmt.Errorf("routes: %w", err)
	}
	var names []string
	add := func(index int) {
		if link, err := netlink.LinkByIndex(index); err == nil {
			names = append(names, link.Attrs().Name)
		}
	}
	for _, r := range routes {
		if r.Dst != nil {
			if ones, _ := r.Dst.Mask.Size(); ones > 0 {
				continue
			}
		}
		if r.LinkIndex > 0 {
			add(r.LinkIndex)
		}
		for _, hop := range r.MultiPath {
			add(hop.LinkIndex)
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}
