package gate

import (
	"fmt"

	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Bonds are the bonds of functions, nil for none, as they were observed.
type Bonds map[pci.Address]machine.Look[*rdma.Bond]

// ReadBonds reads the bonds of functions. An error is that of the functions it is about.
func ReadBonds(root host.Root, functions ...pci.Address) Bonds {
	bonds := Bonds{}
	for _, a := range functions {
		bond, err := rdma.ReadBond(root, a)
		bonds[a] = machine.Saw("/sys/class/net", bond, err)
	}
	return bonds
}

// of returns the bond of a function, or nil.
func (b Bonds) of(a pci.Address) (*rdma.Bond, error) {
	bond, ok := b[a]
	if !ok {
		return nil, fmt.Errorf("%s: its bond was not observed", a)
	}
	return bond.Value, bond.Err
}

// bonded returns the refusal of a function whose VFs would be made while it shares the RDMA device
// of its bond, or nil: with SR-IOV enabled, the driver removes that device (Linux,
// mlx5_eswitch_enable). Slaves of mlx5_core share one if not each has its own; other drivers know
// no such device. No option lifts it where the host boots over the bond: the kernel ends its RDMA
// connections with the device (Linux, nvme_rdma_remove_one), and not every root file system shows
// whether it has one.
func (h Host) bonded(a pci.Address) (*Refusal, error) {
	bond, err := h.Bonds.of(a)
	if err != nil || bond == nil || !h.shares(a) {
		return nil, err
	}
	device, shared := "", false
	for _, m := range bond.Members {
		switch names := bond.Devices[m]; {
		case !h.shares(m):
		case len(names) > 0:
			device = names[0]
		default:
			shared = true
		}
	}
	if !shared || device == "" {
		return nil, nil
	}
	r := &Refusal{Address: a, Code: host.CodeBondedRDMA, Reason: fmt.Sprintf("VFs remove the RDMA device %s of its bond %s", device, bond.Name)}
	for _, m := range bond.Members {
		if never := h.Never(m); never != nil && (h.Needs.Root.Needs[m] != "" || h.Needs.Root.Network != "" || len(h.Needs.Claims[m]) > 0) {
			r.Code, r.Reason, r.Absolute = never.Code, fmt.Sprintf("%s; %s %s", r.Reason, m, never.Reason), true
		}
	}
	return r, nil
}

// shares reports whether a function may share its RDMA device with other slaves of its bond.
func (h Host) shares(a pci.Address) bool {
	d := h.Devices.At(a)
	return d == nil || d.DriverUnread() || d.DriverName() == "mlx5_core"
}
