package trial

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"gpustack/host"
)

// Way is how a peer is reached: by a port, from one of its addresses.
type Way struct {
	Target  Target
	Source  Address
	Peer    netip.Addr
	Warning string // the kernel's route is another one; "" if it is not
}

// Route returns the way to a peer, a name or an IP address. The kernel's route to it decides which
// port is used, or the selector of the request if one port is left.
func (m Machine) Route(ctx context.Context, peer string) (Way, error) {
	ctx, cancel := context.WithTimeout(ctx, m.Timeout)
	defer cancel()
	found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", peer)
	if err != nil {
		err = host.WithHint(err, host.Textf("give the IP address of the peer's RDMA port: %s, there", host.NewCommand("rdma scan").Flag("gids")))
		return Way{}, fmt.Errorf("--peer %s: %w", peer, err)
	}
	var errs []error
	for _, ip := range found {
		way, err := m.way(ctx, ip.Unmap())
		if err == nil {
			return way, nil
		}
		errs = append(errs, err)
	}
	return Way{}, fmt.Errorf("--peer %s: %w", peer, errors.Join(errs...))
}

// way returns the way to an IP address.
func (m Machine) way(ctx context.Context, ip netip.Addr) (Way, error) {
	local, err := sourceOf(ctx, ip, m.Port)
	if err != nil {
		return Way{}, host.WithHint(err, "ip route get "+ip.String())
	}
	if target, source, ok := At(m.Targets, local); ok {
		return Way{Target: target, Source: source, Peer: ip}, nil
	}
	if m.Device == "" || len(m.Targets) > 1 {
		return Way{}, host.WithHint(fmt.Errorf("the route to %s leaves by the address %s, which no RDMA port that can be tested has", ip, local),
			"use an address of the RDMA network, or choose the port: --device ADDRESS")
	}
	target := m.Targets[0]
	source, err := target.Like(ip)
	return Way{target, source, ip, fmt.Sprintf("the route to %s leaves by the address %s, not by %s", ip, local, target)}, err
}

// sourceOf returns the address by which the kernel's route to ip leaves. Connecting a UDP socket
// sends no packet (udp(7)).
func sourceOf(ctx context.Context, ip netip.Addr, port int) (netip.Addr, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(ip.String(), strconv.Itoa(port)))
	if err != nil {
		return netip.Addr{}, err
	}
	defer c.Close() //nolint:errcheck // nothing was written
	local, err := netip.ParseAddrPort(c.LocalAddr().String())
	return local.Addr().Unmap(), err
}

// netdevAddresses returns the IP addresses of a network interface of the running machine.
func netdevAddresses(name string) ([]netip.Addr, error) {
	i, err := net.InterfaceByName(name)
	if err != nil {
		return nil, err
	}
	all, err := i.Addrs()
	if err != nil {
		return nil, err
	}
	var found []netip.Addr
	for _, a := range all {
		prefix, err := netip.ParsePrefix(a.String())
		if err != nil {
			return nil, err
		}
		found = append(found, prefix.Addr())
	}
	return found, nil
}
