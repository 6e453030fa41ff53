package gate

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/machine"
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

const netDir = "/sys/class/net"

// ReadBond returns the bond, or the team device, of which an interface of a function is a slave, or
// nil.
func ReadBond(root host.Root, a pci.Address) (*Bond, error) {
	names, err := list(root, path.Join(machine.DevicesDir, a.String(), "net"))
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
			if b.Devices[of], err = list(root, path.Join(machine.DevicesDir, of.String(), "infiniband")); err != nil {
				return nil, err
			}
		}
		return b, nil
	}
	return nil, nil
}

// Bonds are the bonds of functions, nil for none, as they were observed.
type Bonds map[pci.Address]machine.Look[*Bond]

// ReadBonds reads the bonds of functions. An error is that of the functions it is about.
func ReadBonds(root host.Root, functions ...pci.Address) Bonds {
	bonds := Bonds{}
	for _, a := range functions {
		bond, err := ReadBond(root, a)
		bonds[a] = machine.Saw(netDir, bond, err)
	}
	return bonds
}

// of returns the bond of a function, or nil.
func (b Bonds) of(a pci.Address) (*Bond, error) {
	bond, ok := b[a]
	if !ok {
		return nil, fmt.Errorf("%s: its bond was not observed", a)
	}
	return bond.Value, bond.Err
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

// bonded returns the refusals of a function whose VFs would be made while the RDMA device that it
// shares with its bond is in use: with SR-IOV enabled, the driver removes that device (Linux,
// mlx5_eswitch_enable). Slaves of mlx5_core share one if not each has its own; other drivers know
// no such device.
func (h Host) bonded(a pci.Address) (refusals []*Refusal, err error) {
	bond, err := h.Bonds.of(a)
	if err != nil || bond == nil || !h.shares(a) {
		return nil, err
	}
	device, shared := map[pci.Address]string{}, false
	for _, m := range bond.Members {
		switch names := bond.Devices[m]; {
		case !h.shares(m):
		case len(names) > 0:
			device[m] = names[0]
		default:
			shared = true
		}
	}
	for _, need := range h.RDMA {
		if name := device[need.Address]; shared && name != "" {
			refusals = append(refusals, &Refusal{Address: a, Code: host.CodeBondedRDMA, File: need.File, Absolute: need.Absolute,
				Reason: fmt.Sprintf("VFs remove the RDMA device %s of its bond %s, which %s", name, bond.Name, need.Reason)})
		}
	}
	return refusals, nil
}

// shares reports whether a function may share its RDMA device with other slaves of its bond.
func (h Host) shares(a pci.Address) bool {
	d := h.Devices.At(a)
	return d == nil || d.DriverUnread() || d.DriverName() == "mlx5_core"
}

func list(root host.Root, dir string) ([]string, error) {
	names, err := root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		return nil, fmt.Errorf("%s: %w", dir, host.Cause(err))
	}
	slices.Sort(names)
	return names, nil
}
