package rdmaprepare

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/netconf"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// errNetwork is the error of VFs for containers that would get an address of the host.
var errNetwork = host.WithHint(errors.New("would give VFs a static address of the host"), "exclude the VFs from what the file matches")

// errUpper is the error of VFs for containers that would become ports of a bond or bridge of the
// host, or carry a VLAN.
var errUpper = host.WithHint(errors.New("would put an interface of the host on VFs"), "exclude the VFs from what the file matches")

// matchesVFs reports whether network configuration matches the VFs of an adapter. Their names are
// not known yet: they begin as those of the adapter (systemd.net-naming-scheme(7): v and a number
// at the end), or as those of the kernel. So are their hardware addresses, which no file has.
func matchesVFs(n netconf.Network, p rdma.Prepared, names []string) bool {
	name := netconf.Matches(n.Names, func(pattern string) bool {
		return netconf.IsPattern(pattern) &&
			(netconf.Fits(pattern, "eth9") || slices.ContainsFunc(names, func(pf string) bool { return netconf.Fits(pattern, pf+"v0") }))
	})
	driver := netconf.Matches(n.Drivers, func(pattern string) bool { return netconf.Fits(pattern, p.Driver) })
	kind := netconf.Matches(n.Types, func(pattern string) bool { return netconf.Fits(pattern, "ether") })
	if !name || !driver || !kind || len(n.Addresses) > 0 {
		return false
	}
	return slices.ContainsFunc(p.VFs, func(vf rdma.PreparedVF) bool {
		return netconf.Matches(n.Paths, func(pattern string) bool { return netconf.Fits(pattern, "pci-"+vf.Address.String()) })
	})
}

// networks refuses VFs for containers that the host's configuration would give a static address,
// which the adapter has already, or put an interface on, and warns of DHCP.
func (w *wanting) networks(p rdma.Prepared) {
	if p.Use != rdma.ForContainers || len(p.VFs) == 0 {
		return
	}
	var names []string
	if a := w.Stack.At(p.Address); a != nil {
		names = a.Netdevs
	}
	var vfs []pci.Address
	for _, vf := range p.VFs {
		vfs = append(vfs, vf.Address)
	}
	name := "NAME"
	if len(names) > 0 {
		name = names[0]
	}
	for _, n := range w.Networks {
		switch {
		case !matchesVFs(n, p, names):
		case n.Static, n.Upper != "":
			cause := errNetwork
			if n.Upper != "" {
				cause = errUpper
			}
			err := host.WithHint(host.WithCode(fmt.Errorf("%s:%d: %w: %s", n.File, n.Line, cause, n.Text), host.CodeNetwork, ""), n.Exclude(vfs, name))
			w.fail(gate.Refuse(p.Address, err))
		default:
			w.Warnings = append(w.Warnings, fmt.Sprintf("%s:%d: gives VFs of %s addresses by DHCP: %s", n.File, n.Line, p.Address, n.Exclude(vfs, name)))
		}
	}
}
