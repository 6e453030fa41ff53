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

// Needs is what a machine shows of the uses of its functions: what determines which may leave the
// host.
type Needs struct {
	Root   Root
	Claims map[pci.Address][]Claimant
	Disks  map[pci.Address][]string // the names of whole disks
	Links  map[pci.Address]Links    // of functions with interfaces or RDMA ports, and of network functions
	// Below is what hangs below each function of a GPU's card, "" for nothing.
	Below map[pci.Address]string
}

// Links are the network interfaces and RDMA ports of a function.
type Links struct {
	Interfaces []Interface
	Hidden     bool   // a network driver binds the function, and this namespace shows no interface of it
	Active     string // "has the active port 1 of mlx5_0": the first RDMA port that is not down, or ""
}

// Idle reports whether all interfaces are seen to be down and no part of another one.
func (l Links) Idle() bool { return l.Why() == "" }

// IsUp reports whether an interface is up, or may be one of another namespace.
func (l Links) IsUp() bool {
	return l.Hidden || slices.ContainsFunc(l.Interfaces, func(i Interface) bool { return i.Up })
}

// Why returns why the interfaces are not idle, or "".
func (l Links) Why() string {
	if l.Hidden {
		return "no interface is shown here: it may be in another network namespace, or have a driver of DPDK"
	}
	for _, i := range l.Interfaces {
		switch {
		case i.Master:
			return i.Name + " is a port of " + i.MasterName
		case i.Up:
			return i.Name + " is up"
		}
	}
	return ""
}

// Observe reads the uses of functions. devices are all functions of the machine. It fails closed:
// what cannot be read is an error.
func Observe(root host.Root, devices pci.Devices) (n Needs, err error) {
	var rootErr, linksErr, belowErr, claimsErr error
	n.Root, rootErr = ReadRoot(root, devices)
	g := guard{root: root, devices: devices}
	parts, disksErr := g.parts()
	n.Disks = disksOf(parts)
	n.Links, linksErr = g.readLinks()
	n.Below, belowErr = g.below()
	n.Claims, claimsErr = g.claims(parts)
	return n, errors.Join(rootErr, disksErr, linksErr, belowErr, claimsErr)
}

// disksOf returns the whole disks of each function.
func disksOf(parts []part) map[pci.Address][]string {
	disks := map[pci.Address][]string{}
	for _, p := range parts {
		for _, a := range p.functions {
			if p.disk == "" {
				disks[a] = append(disks[a], p.name)
			}
		}
	}
	return disks
}

// rdmaDir has the RDMA devices of this network namespace.
const rdmaDir = "/sys/class/infiniband"

// readLinks reads the interfaces and RDMA ports of functions.
func (g *guard) readLinks() (map[pci.Address]Links, error) {
	links, err := g.interfacesOf()
	if err != nil {
		return nil, err
	}
	var errs []error
	names, err := g.list(rdmaDir)
	errs = append(errs, err)
	for _, name := range names {
		target, err := g.device(rdmaDir, name)
		errs = append(errs, err)
		functions, err := g.functions(target)
		errs = append(errs, err)
		active, err := g.activePort(name)
		errs = append(errs, err)
		for _, a := range functions {
			l := links[a]
			l.Active = cmp.Or(l.Active, active)
			links[a] = l
		}
	}
	return links, errors.Join(errs...)
}

// activePort returns the first port of an RDMA device that is not down, or "" (Linux,
// Documentation/ABI/stable/sysfs-class-infiniband: "1: DOWN").
func (g *guard) activePort(name string) (string, error) {
	dir := path.Join(rdmaDir, name, "ports")
	ports, err := g.list(dir)
	for _, port := range ports {
		state, stateErr := g.attribute(path.Join(dir, port, "state"))
		if err = errors.Join(err, stateErr); !strings.HasPrefix(state, "1:") {
			return "has the active port " + port + " of " + name, err
		}
	}
	return "", err
}
