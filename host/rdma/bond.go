package rdma

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/pci"
)

// Bond is a bond or a team of network interfaces, whose adapters may share one RDMA device: with
// mlx5, RoCE of both ports of a card goes through the device of one of them (Linux,
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

// ReadBond returns the bond or team of which an interface of a function is a slave, or nil.
func ReadBond(root host.Root, a pci.Address) (*Bond, error) {
	own, err := host.IfPresent(root.ReadDir(path.Join(devicesDir, a.String(), "net")))
	if err != nil {
		return nil, err
	}
	b := Bond{Devices: map[pci.Address][]string{}}
	for _, name := range own {
		if b.Name, _, err = masterOf(root, name); err != nil {
			return nil, err
		}
		if b.Name != "" {
			break
		}
	}
	if b.Name == "" {
		return nil, nil
	}
	names, err := root.ReadDir(netDir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		master, _, err := masterOf(root, name)
		if err != nil {
			return nil, err
		}
		if master != b.Name {
			continue
		}
		at, err := root.Real(path.Join(netDir, name, "device"))
		if err != nil && !host.IsAbsent(err) {
			return nil, host.OfFile(path.Join(netDir, name), err)
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
	return &b, nil
}

// masterOf returns the bond or team of which an interface is a slave, or "", and whether it is a
// bond. Other masters have slaves too, but mlx5 shares a device over these alone
// (netif_is_lag_master): a bridge has a folder, Open vSwitch its name, and a VRF the flag
// IFF_MASTER (drivers/net/vrf.c), which a team lacks.
func masterOf(root host.Root, name string) (master string, bond bool, err error) {
	file := path.Join(netDir, name, "master")
	ok, err := root.Exists(file)
	if errors.Is(err, unix.ENOTDIR) { // bonding_masters is a file
		return "", false, nil
	}
	if err != nil || !ok {
		return "", false, err
	}
	at, err := root.Real(file)
	if err != nil {
		return "", false, err
	}
	master = path.Base(at)
	if bond, err = root.Exists(path.Join(netDir, master, "bonding")); err != nil || bond {
		return master, bond, err
	}
	bridge, err := root.Exists(path.Join(netDir, master, "bridge"))
	flags, unread := readFlags(root, master)
	if bridge || master == "ovs-system" || flags != nil && *flags&unix.IFF_MASTER != 0 {
		return "", false, nil
	}
	return master, false, errors.Join(err, unread)
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
