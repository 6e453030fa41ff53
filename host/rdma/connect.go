package rdma

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"gpustack/host"
)

// Errors of ports to which nothing can connect by an IP address (rdma_cm(7)).
var (
	ErrNotActive = host.WithHint(errors.New("is not ACTIVE"), host.Textf("%s names the cause", host.NewCommand("rdma check")))
	// ErrNoCM is the error of EFA, whose kernel driver does not serve the connection manager.
	ErrNoCM = host.WithHint(errors.New("has no connection manager: its link layer is Unspecified"),
		"programs use EFA through libfabric: fi_pingpong -p efa tests it")
	// ErrFabric is the error of adapters that NVIDIA's Fabric Manager uses (VPD field SMDL=SW_MNG).
	ErrFabric = host.WithHint(errors.New("manages the NVSwitches of this machine: it belongs to NVIDIA's Fabric Manager"),
		"use the adapters beside the GPUs")
	ErrNoIPoIB = host.WithHint(errors.New("has no IPoIB interface, and rdma_cm needs an IP address"),
		"modprobe ib_ipoib; ip link set INTERFACE up; ip address add ADDRESS/PREFIX dev INTERFACE")
	ErrIPoIBDown = host.WithHint(errors.New("has its IPoIB interface down"), "ip link set INTERFACE up")
	// ErrNoCarrier is the error of IPoIB interfaces that have not joined their broadcast group (Linux,
	// drivers/infiniband/ulp/ipoib/ipoib_multicast.c).
	ErrNoCarrier = host.WithHint(errors.New("has an IPoIB interface without carrier, which has not joined its broadcast group"),
		"add the port's partition with the flag ipoib to the subnet manager's partitions.conf, with a rate and mtu that this port has")
	ErrBackup = host.WithHint(errors.New("has only a backup of a bond, whose address is at another port"),
		"test the port of the bond's active slave: cat /sys/class/net/BOND/bonding/active_slave")
	ErrNoAddress = host.WithHint(errors.New("has no IP address, and rdma_cm needs one"),
		"ip link set INTERFACE up; ip address add ADDRESS/PREFIX dev INTERFACE")
)

// Address is an IP address of a port.
type Address struct {
	IP     netip.Addr
	Netdev string // the network interface
}

// Reach returns the IP addresses by which others can connect to a port, IPv4 first, or why none
// can. The adapter must have been read with its GIDs. addresses returns those of a network
// interface; nil if they are unknown, as on a tree: then an interface that is up is no error.
func (a Adapter) Reach(p Port, addresses func(netdev string) ([]netip.Addr, error)) ([]Address, error) {
	var found []Address
	add := func(ip netip.Addr, netdev string) {
		ip = ip.Unmap()
		// A RoCE port has two GIDs of each address, for RoCE v1 and v2.
		if ip.IsGlobalUnicast() && !slices.ContainsFunc(found, func(a Address) bool { return a.IP == ip }) {
			found = append(found, Address{ip, netdev})
		}
	}
	var netdevs []string
	var err error
	switch {
	case a.ManagesNVSwitches():
		return nil, ErrFabric
	case p.LinkLayer == LinkUnspecified:
		return nil, ErrNoCM
	case p.State != "ACTIVE":
		return nil, fmt.Errorf("%w: its state is %s (%s)", ErrNotActive, p.State, p.PhysState)
	case p.IsInfiniBand():
		netdevs, err = p.ipNetdevs()
	case a.NodeType == rnic:
		netdevs = a.Netdevs
	default:
		for _, g := range p.GIDs {
			add(g.GID, g.Netdev)
		}
		if len(found) == 0 && p.GIDsErr != nil {
			return nil, p.GIDsErr
		}
	}
	if err != nil {
		return nil, err
	}
	for _, name := range netdevs {
		if addresses == nil {
			return nil, nil
		}
		ips, err := addresses(name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		for _, ip := range ips {
			add(ip, name)
		}
	}
	if len(found) == 0 {
		return nil, ErrNoAddress
	}
	slices.SortStableFunc(found, func(a, b Address) int { return a.IP.BitLen() - b.IP.BitLen() })
	return found, nil
}

// ipNetdevs returns the interfaces whose IP addresses are at an InfiniBand port: its IPoIB
// interfaces that are up, or the bond, if it is up, of one that is the bond's active slave.
func (p Port) ipNetdevs() (netdevs []string, err error) {
	err = ErrNoIPoIB
	for _, i := range p.IPoIB {
		down := ""
		switch {
		case i.Up == host.No:
			down = i.Name
		case i.Bond != "" && i.carries == host.No:
			err = fmt.Errorf("%w: %s of %s", ErrBackup, i.Name, i.Bond)
		case i.Carrier == host.No:
			err = fmt.Errorf("%w: %s", ErrNoCarrier, i.Name)
		case i.Bond != "" && i.bondUp == host.No:
			down = i.Bond
		case i.Bond != "":
			netdevs = append(netdevs, i.Bond)
		default:
			netdevs = append(netdevs, i.Name)
		}
		if down != "" && !errors.Is(err, ErrBackup) && !errors.Is(err, ErrNoCarrier) {
			err = host.WithHint(fmt.Errorf("%w: %s", ErrIPoIBDown, down), host.Plain("ip link set "+down+" up"))
		}
	}
	if netdevs != nil {
		return netdevs, nil
	}
	return nil, err
}

// rnic is the node type of iWARP adapters, whose GIDs are no IP addresses (RFC 5040; Linux,
// drivers/infiniband/core/sysfs.c, node_type_show).
const rnic = "RNIC"

// ManagesNVSwitches reports whether the adapter is a part of an HGX board that NVIDIA's Fabric
// Manager uses to manage the NVSwitches.
func (a Adapter) ManagesNVSwitches() bool {
	return a.Function != nil && a.Function.IsNVSwitch()
}
