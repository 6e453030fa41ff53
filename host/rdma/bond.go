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

// Bond is a master of network interfaces, such as a bond, whose adapters may share one RDMA device:
// with mlx5, RoCE of both ports of a card goes through the device of one of them (Linux,
// drivers/net/ethernet/mellanox/mlx5/core/lag). Slaves of a bridge each have their own.
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

// ReadBond returns the bond, or another master, of which an interface of a function is a slave, or
// nil.
func ReadBond(root host.Root, a pci.Address) (*Bond, error) {
	own, err := host.IfPresent(root.ReadDir(path.Join(devicesDir, a.String(), "net")))
	if err != nil {
		return nil, err
	}
	b := Bond{Devices: map[pci.Address][]string{}}
	for _, name := range own {
		if b.Name, err = masterOf(root, name); err != nil {
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
		master, err := masterOf(root, name)
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

// masterOf returns the master of which an interface is a slave, or "".
func masterOf(root host.Root, name string) (string, error) {
	file := path.Join(netDir, name, "master")
	ok, err := root.Exists(file)
	if errors.Is(err, unix.ENOTDIR) { // bonding_masters is a file
		return "", nil
	}
	if err != nil || !ok {
		return "", err
	}
	at, err := root.Real(file)
	return path.Base(at), err
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
