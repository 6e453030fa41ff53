package rdma

import (
	"bytes"
	"errors"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// netdev is a network interface of a PCI function, or of a subfunction.
type netdev struct {
	name        string
	function    *pci.Address // nil for virtual interfaces
	at          string       // the folder of its device in sysfs; "" for virtual interfaces
	port        int          // dev_port, from 0
	ipoib       *IPoIB
	mtu         *int
	up, carrier host.Bool
	representor bool // of a port of the adapter's switch, see pci.IsRepresentor
	switchdev   bool // the physical port of an adapter whose switch is in mode switchdev
}

// typeInfiniBand is the hardware type of IPoIB interfaces (Linux, ARPHRD_INFINIBAND).
const typeInfiniBand = "32"

// interfaces returns the machine's network interfaces.
func (r *reader) interfaces() []netdev {
	names, err := r.root.ReadDir(netDir)
	if err != nil && !host.IsAbsent(err) {
		r.warn(netDir, err)
	}
	var found []netdev
	for _, name := range names {
		dir := path.Join(netDir, name)
		if _, err := r.root.Exists(path.Join(dir, "ifindex")); errors.Is(err, unix.ENOTDIR) {
			continue // bonding_masters, a file
		}
		n := netdev{name: name, mtu: r.number(dir, "mtu", 10), up: isUp(r, name)}
		// Reading fails while the interface is down (Linux, net/core/net-sysfs.c, carrier_show).
		if carrier, err := r.root.ReadFile(path.Join(dir, "carrier")); err == nil {
			n.carrier = host.BoolOf(strings.TrimSpace(string(carrier)) == "1")
		}
		if at, err := r.root.Real(path.Join(dir, "device")); err == nil {
			n.at = at
			if a, err := pci.ParseAddress(path.Base(at)); err == nil {
				n.function = &a
			}
		}
		if kind, _ := r.text(dir, "type"); kind == typeInfiniBand {
			n.ipoib = r.ipoib(dir, name)
			n.ipoib.MTU, n.ipoib.Up, n.ipoib.Carrier = n.mtu, n.up, n.carrier
			setBond(r, n.ipoib)
		}
		// Reading fails where the driver has no names of ports, or no switch (EOPNOTSUPP).
		if port, err := r.root.ReadFile(path.Join(dir, "phys_port_name")); err == nil {
			n.representor = pci.IsRepresentor(string(port))
		}
		if id, err := r.root.ReadFile(path.Join(dir, "phys_switch_id")); err == nil {
			n.switchdev = len(bytes.TrimSpace(id)) > 0
		}
		if port := r.number(dir, "dev_port", 10); port != nil {
			n.port = *port
		}
		found = append(found, n)
	}
	// A child has its parent's port.
	for i := range found {
		if p := found[i].ipoib; p != nil && p.Parent != "" {
			k := slices.IndexFunc(found, func(n netdev) bool { return n.name == p.Parent })
			if k >= 0 {
				found[i].function, found[i].at, found[i].port = found[k].function, found[k].at, found[k].port
			}
		}
	}
	return found
}

// ipoib reads the attributes of an IPoIB interface (Linux, Documentation/infiniband/ipoib.rst).
func (r *reader) ipoib(dir, name string) *IPoIB {
	i := IPoIB{Name: name}
	i.Mode, _ = r.text(dir, "mode")
	i.Parent, _ = r.text(dir, "parent")
	if text, ok := r.text(dir, "pkey"); ok {
		key, err := strconv.ParseUint(text, 0, 16)
		if err != nil {
			r.warn(path.Join(dir, "pkey"), err)
		} else {
			k := uint16(key)
			i.PKey = &k
		}
	}
	return &i
}

// isUp reports whether an interface is set up, Unknown if that is not shown.
func isUp(r *reader, name string) host.Bool {
	flags, err := readFlags(r.root, name)
	if err != nil {
		r.warnings = append(r.warnings, err.Error())
	}
	if flags == nil {
		return host.Unknown
	}
	return host.BoolOf(*flags&unix.IFF_UP != 0)
}

// setBond sets the bond of which an IPoIB interface is a slave, and what decides whether the bond's
// addresses are reached through it.
func setBond(r *reader, i *IPoIB) {
	m, bond, err := masterOf(r.root, i.Name)
	if err != nil {
		r.warnings = append(r.warnings, err.Error())
	}
	if bond { // else a VRF or another master, which moves no addresses
		i.Bond, i.carries, i.bondUp = m, carries(r, m, i.Name), isUp(r, m)
	}
}

// carries reports whether the addresses of a bond are those of a slave: a bond of IPoIB interfaces
// has the hardware address of its active slave, with the GID of a port in it (Linux,
// Documentation/networking/bonding.rst, fail_over_mac). It is Unknown if that is not shown.
func carries(r *reader, bond, slave string) host.Bool {
	one, ok := r.text(path.Join(netDir, bond), "address")
	other, also := r.text(path.Join(netDir, slave), "address")
	if !ok || !also {
		return host.Unknown
	}
	return host.BoolOf(one == other)
}

// addInterfaces adds the interfaces of the adapter's function, or of its subfunction. Of a function
// with two ports, dev_port says to which one an interface belongs.
func (a *Adapter) addInterfaces(all []netdev) {
	for _, n := range all {
		switch own := a.at != "" && n.at == a.at || a.Address != nil && n.function != nil && *n.function == *a.Address; {
		case !own:
			continue
		case n.representor:
			a.Representors = append(a.Representors, n.name)
			continue
		}
		a.Netdevs = append(a.Netdevs, n.name)
		a.Switchdev = a.Switchdev || n.switchdev
		a.setMTU(n)
		for i := range a.Ports {
			p := &a.Ports[i]
			if len(a.Ports) > 1 && p.Number != n.port+1 {
				continue
			}
			p.Netdevs = append(p.Netdevs, n.name)
			if n.ipoib == nil {
				p.Up, p.Carrier = n.up, n.carrier
			}
			if n.ipoib != nil {
				p.IPoIB = append(p.IPoIB, *n.ipoib)
			}
		}
	}
}

// setMTU sets the MTUs of the port that an Ethernet interface belongs to. The kernel shows them to
// programs with verbs alone, but drivers derive them from the MTU of the interface when they are
// asked (Linux, drivers/infiniband/hw: mlx4_ib, mlx5_ib and bnxt_re by iboe_get_mtu of
// include/rdma/ib_addr.h; irdma by ib_mtu_int_to_enum). Those of other drivers remain unknown.
func (a *Adapter) setMTU(n netdev) {
	headers, known := map[string]int{"mlx4_core": roceHeaders, "mlx5_core": roceHeaders, "bnxt_en": roceHeaders, "ice": 0, "i40e": 0}[a.Driver]
	if !known || n.mtu == nil {
		return
	}
	for i := range a.Ports {
		p := &a.Ports[i]
		if p.LinkLayer != LinkEthernet || p.ActiveMTU != nil || len(a.Ports) > 1 && p.Number != n.port+1 {
			continue
		}
		most, active := MaxMTU, minMTU
		for active < most && 2*active <= *n.mtu-headers {
			active *= 2
		}
		p.MaxMTU, p.ActiveMTU = &most, &active
		p.netdev, p.netdevMTU = n.name, *n.mtu
	}
}

// The MTUs of InfiniBand, and so of RoCE, are powers of two.
const (
	minMTU = 256
	MaxMTU = 4096
	// roceHeaders is the room for headers of RoCE v2 that the kernel leaves in an interface's MTU
	// (iboe_get_mtu).
	roceHeaders = 96
)
