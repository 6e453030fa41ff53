package guard

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"path"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

const netDir = "/sys/class/net"

// isUp reports whether an interface is set up (Linux, Documentation/ABI/testing/sysfs-class-net; IFF_UP
// in include/uapi/linux/if.h).
func (g *guard) isUp(name string) (host.Bool, error) {
	text, err := g.attribute(path.Join(netDir, name, "flags"))
	if errors.Is(err, unix.EINVAL) {
		return host.No, nil // just removed: netdev_show in net/core/net-sysfs.c
	}
	if err != nil || text == "" {
		return host.Unknown, err
	}
	flags, err := strconv.ParseUint(text, 0, 32)
	if err != nil {
		return host.Unknown, fmt.Errorf("%s/%s/flags: not a number: %q", netDir, name, text)
	}
	return host.BoolOf(flags&unix.IFF_UP != 0), nil
}

// ReadAddresses returns the addresses of each interface of the running machine by rtnetlink(7). No
// file shows which interface has an IPv4 address.
func ReadAddresses() (map[string][]netip.Addr, error) {
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("network interfaces: %w", err)
	}
	addresses := map[string][]netip.Addr{}
	for _, i := range interfaces {
		networks, err := i.Addrs()
		if err != nil {
			return nil, fmt.Errorf("addresses of %s: %w", i.Name, err)
		}
		for _, n := range networks {
			if prefix, err := netip.ParsePrefix(n.String()); err == nil {
				addresses[i.Name] = append(addresses[i.Name], prefix.Addr())
			}
		}
	}
	return addresses, nil
}

// Interface is a network interface of a function.
type Interface struct {
	Name       string
	Up         bool   // it is set up, or its state is not shown
	Unknown    bool   // its state is not shown
	Master     bool   // it is a port of MasterName
	MasterName string // a bond, a bridge, a VRF, Open vSwitch, or ""
}

// interfacesOf returns the interfaces of each function that this network namespace shows, also those
// of its subfunctions and of devices below it.
func (g *guard) interfacesOf() (map[pci.Address]Links, error) {
	names, err := g.list(netDir)
	if err != nil {
		return nil, err
	}
	links := map[pci.Address]Links{}
	for _, name := range names {
		target, err := g.device(netDir, name)
		if err != nil {
			return nil, err
		}
		if target == "" {
			continue // bonding_masters is a file, and an interface can be removed at any time
		}
		up, err := g.isUp(name)
		if err != nil {
			return nil, err
		}
		master, err := g.link(path.Join(netDir, name), "master")
		if err != nil {
			return nil, err
		}
		i := Interface{Name: name, Up: up != host.No, Unknown: !up.Known()}
		if master != "" {
			i.Master, i.MasterName = true, path.Base(master)
		}
		for element := range strings.SplitSeq(path.Dir(target), "/") {
			if a, err := pci.ParseAddress(element); err == nil {
				l := links[a]
				l.Interfaces = append(l.Interfaces, i)
				links[a] = l
			}
		}
	}
	for i := range g.devices {
		d := &g.devices[i]
		driver := d.DriverName()
		if l := links[d.Address]; len(l.Interfaces) == 0 && d.Class != nil && d.Class.IsNetwork() && driver != "" && !pci.LeavesAlone(driver) {
			links[d.Address] = Links{Hidden: true}
		}
	}
	return links, nil
}
