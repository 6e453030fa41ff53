package rdma

import (
	"errors"
	"fmt"
	"path"
	"slices"
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
	names, err := list(root, path.Join(devicesDir, a.String(), "net"))
	if err != nil {
		return nil, err
	}
	masters, err := list(root, netDir)
	if err != nil {
		return nil, err
	}
	for _, master := range masters {
		slaves, err := readSlaves(root, master)
		if err != nil {
			return nil, err
		}
		if !slices.ContainsFunc(names, func(n string) bool { return slices.Contains(slaves, n) }) {
			continue
		}
		b := &Bond{Name: master, Devices: map[pci.Address][]string{}}
		for _, slave := range slaves {
			at, err := root.Real(path.Join(netDir, slave, "device"))
			if err != nil {
				return nil, fmt.Errorf("%s/%s: %w", netDir, slave, host.Cause(err))
			}
			of, err := pci.ParseAddress(path.Base(at))
			if err != nil || slices.Contains(b.Members, of) {
				continue // a slave that is no PCI function
			}
			b.Members = append(b.Members, of)
			if b.Devices[of], err = list(root, path.Join(devicesDir, of.String(), "infiniband")); err != nil {
				return nil, err
			}
		}
		return b, nil
	}
	return nil, nil
}

// readSlaves returns the slaves of a bond (Linux, Documentation/networking/bonding.rst:
// bonding/slaves), or the several interfaces on which another one lies, as a team device does,
// which has no file of its own (Documentation/ABI/testing/sysfs-class-net, lower_*). Ports of a
// bridge share nothing.
func readSlaves(root host.Root, master string) (slaves []string, err error) {
	dir := path.Join(netDir, master)
	text, err := root.ReadFile(path.Join(dir, "bonding/slaves"))
	switch {
	case errors.Is(err, unix.ENOTDIR): // a file beside the interfaces, such as bonding_masters
		return nil, nil
	case err == nil:
		return strings.Fields(string(text)), nil
	case !host.IsAbsent(err):
		return nil, fmt.Errorf("%s: %w", dir, host.Cause(err))
	}
	names, err := list(root, dir)
	if err != nil || slices.Contains(names, "bridge") {
		return nil, err
	}
	for _, name := range names {
		if lower, ok := strings.CutPrefix(name, "lower_"); ok {
			slaves = append(slaves, lower)
		}
	}
	if len(slaves) < 2 {
		return nil, nil
	}
	return slaves, nil
}

const devicesDir = "/sys/bus/pci/devices"

// list returns the sorted names in a folder, none if it does not exist.
func list(root host.Root, dir string) ([]string, error) {
	names, err := root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		return nil, fmt.Errorf("%s: %w", dir, host.Cause(err))
	}
	slices.Sort(names)
	return names, nil
}
