package rdma

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// Bond is a bond of network interfaces whose adapters may share one RDMA device: with mlx5, RoCE of
// both ports of a card goes through the device of one of them (Linux,
// drivers/net/ethernet/mellanox/mlx5/core/lag).
type Bond struct {
	Name    string
	Members []pci.Address            // the functions of its slaves
	Devices map[pci.Address][]string // their RDMA devices
}

// Device returns the function that has an RDMA device of the bond, and the device, or nil.
func (b *Bond) Device() (*pci.Address, string) {
	if b == nil {
		return nil, ""
	}
	for _, a := range b.Members {
		if names := b.Devices[a]; len(names) > 0 {
			return &a, names[0]
		}
	}
	return nil, ""
}

// ReadBond returns the bond, or the team device, of which an interface of a function is a slave, or
// nil.
func ReadBond(root host.Root, a pci.Address) (*Bond, error) {
	names, err := host.IfPresent(root.ReadDir(path.Join(devicesDir, a.String(), "net")))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		m, err := masterOf(root, name)
		if err != nil {
			return nil, err
		}
		if m == nil {
			continue
		}
		b := &Bond{Name: m.name, Devices: map[pci.Address][]string{}}
		for _, slave := range m.slaves {
			at, err := root.Real(path.Join(netDir, slave, "device"))
			if err != nil {
				return nil, host.OfFile(path.Join(netDir, slave), err)
			}
			of, err := pci.ParseAddress(path.Base(at))
			if err != nil || slices.Contains(b.Members, of) {
				continue // a slave that is no PCI function
			}
			b.Members = append(b.Members, of)
			if b.Devices[of], err = host.IfPresent(root.ReadDir(path.Join(devicesDir, of.String(), "infiniband"))); err != nil {
				return nil, err
			}
		}
		return b, nil
	}
	return nil, nil
}

// master is a bond or a team device.
type master struct {
	name   string
	slaves []string
	team   bool // no bond: its slaves' addresses do not move
}

// masterOf returns the bond or team device of which an interface is a slave, or nil. A bond names
// its slaves (Linux, Documentation/networking/bonding.rst: bonding/slaves). A team has no file of
// its own: its slaves are the interfaces below it (Documentation/ABI/testing/sysfs-class-net,
// lower_*). Other masters have slaves too, but mlx5 shares a device over a bond or a team alone
// (netif_is_lag_master): a bridge has a folder, Open vSwitch its name, a VRF the flag IFF_MASTER
// (drivers/net/vrf.c).
func masterOf(root host.Root, name string) (*master, error) {
	at, err := root.Real(path.Join(netDir, name, "master"))
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	m := &master{name: path.Base(at)}
	dir := path.Join(netDir, m.name)
	text, err := root.ReadFile(path.Join(dir, "bonding/slaves"))
	if err == nil {
		m.slaves = strings.Fields(string(text))
		return m, nil
	}
	if !host.IsAbsent(err) {
		return nil, err
	}
	m.team = true
	names, err := host.IfPresent(root.ReadDir(dir))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if lower, ok := strings.CutPrefix(name, "lower_"); ok {
			m.slaves = append(m.slaves, lower)
		}
	}
	flags, err := readFlags(root, m.name)
	if err != nil {
		return nil, err
	}
	if slices.Contains(names, "bridge") || m.name == "ovs-system" || flags != nil && *flags&unix.IFF_MASTER != 0 {
		return nil, nil
	}
	return m, nil
}

// readFlags returns the flags of an interface (Linux, include/uapi/linux/if.h), nil if they are not
// shown.
func readFlags(root host.Root, name string) (*int64, error) {
	file := path.Join(netDir, name, "flags")
	data, err := root.ReadFile(file)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	flags, err := strconv.ParseInt(strings.TrimSpace(string(data)), 0, 64)
	if err != nil {
		return nil, fmt.Errorf("%s: not a number: %q", file, data)
	}
	return &flags, nil
}

const devicesDir = "/sys/bus/pci/devices"
