package nova

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// Errors of --hca.
var (
	// ErrNoAdapter means that neither the machine nor an inventory has the function.
	ErrNoAdapter = host.WithHint(errors.New("no such function on this machine or in an inventory"),
		host.Textf("on the compute node, '%s' lists adapters; on a controller, give --inventory FILE with the output of %s",
			host.NewCommand("rdma scan").Elsewhere(), host.NewCommand("host scan").Flag("all").Flag("o", "json").Elsewhere()))
	// ErrNoVFs means that a physical function has no VFs, and is not assigned as a whole.
	ErrNoVFs = host.WithHint(errors.New("has no VFs, and is not prepared as a whole"),
		host.Textf("run %s with --vfs N, or with --whole, and reboot", host.NewCommand("rdma prepare").Flag("device", "ADDRESS")))
	// ErrForContainers means that the VFs of an adapter remain with their host driver.
	ErrForContainers = host.WithHint(errors.New("is prepared for containers, not for guests"),
		host.Textf("give guests an adapter of their own: '%s' lists them", host.NewCommand("rdma scan").Elsewhere()))
	// ErrRecordedForContainers means that container prepare has recorded a function.
	ErrRecordedForContainers = host.WithHint(host.WithCode(errors.New("is for containers"), host.CodeRole, ""),
		host.Textf("take it from containers first: %s", host.NewCommand("container prepare").Flag("remove", "ADDRESS")))
	// ErrNeeded means that a driver of the host has a function of [Recorded.Needed].
	ErrNeeded = host.WithHint(errors.New("is in use by the host, or may be: a port of a bond or bridge, or what it boots from"), "offer another adapter")
	// ErrOfferedTwice means that two values of --hca stand for one function.
	ErrOfferedTwice = host.WithHint(errors.New("is given twice"), "give each function once: a physical function stands for all its VFs")
	// ErrWholeAndVFs means that a physical function and a VF of it would both be offered.
	ErrWholeAndVFs = host.WithHint(errors.New("a physical function and its VFs cannot both be offered: nova-compute with report_in_placement would not start"),
		"give --hca either the physical function or its VFs")
)

// LinkInfiniBand and LinkEthernet are the link layers of an [Adapter], as the kernel names them.
const (
	LinkInfiniBand = "InfiniBand"
	LinkEthernet   = "Ethernet"
)

// Network is a physical_network of Neutron. The empty one stands for tunnels, and is written as
// null (nova/pci/devspec.py, PciDeviceSpec).
type Network string

// MarshalJSON returns the name, or null.
func (n Network) MarshalJSON() ([]byte, error) {
	if n == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(n))
}

// HCA is how guests get the functions of one adapter: by an alias, or by ports of Neutron.
type HCA struct {
	Address pci.Address
	Alias   string   // "" for ports
	Network *Network // nil for an alias
}

// Adapter is what is known of a physical function with RDMA beyond its PCI attributes.
type Adapter struct {
	Address    pci.Address
	LinkLayer  string // LinkInfiniBand, LinkEthernet, or "" if it is unknown
	Whole      bool   // rdma prepare has recorded the function itself for guests
	Containers bool   // rdma prepare has recorded the VFs for containers
	VFs        []AdapterVF
}

// AdapterVF is a VF that rdma prepare has recorded; it exists from the next boot on.
type AdapterVF struct {
	Address   pci.Address
	ProductID pci.ID
}

// ParseHCA reads ADDRESS=alias:NAME, ADDRESS=port:PHYSNET, or ADDRESS=port for tunnel networks.
func ParseHCA(s string) (HCA, error) {
	text, way, ok := strings.Cut(s, "=")
	kind, name, named := strings.Cut(way, ":")
	if !ok || kind != "alias" && kind != "port" {
		return HCA{}, fmt.Errorf("%q must be ADDRESS=alias:NAME, ADDRESS=port:PHYSNET or ADDRESS=port", s)
	}
	address, err := pci.ParseGiven(text)
	if err != nil {
		return HCA{}, fmt.Errorf("%q: %w", s, err)
	}
	h := HCA{Address: address}
	switch {
	case kind == "alias" && strings.TrimSpace(name) == "":
		return HCA{}, fmt.Errorf("%q: the name of the alias is missing", s)
	case kind == "alias" && strings.ContainsAny(name, ":,"):
		return HCA{}, fmt.Errorf("%q: the name must not contain : or , because flavors separate aliases with them", s)
	case kind == "alias":
		h.Alias = strings.TrimSpace(name)
	case named && strings.TrimSpace(name) == "":
		return HCA{}, fmt.Errorf("%q: the physical network is missing; ADDRESS=port without a colon is for tunnel networks", s)
	default:
		network := Network(strings.TrimSpace(name))
		h.Network = &network
	}
	return h, nil
}

// hcaFunction is a function that an HCA offers.
type hcaFunction struct {
	address         pci.Address
	vendor, product pci.ID
	kind            pci.DeviceType
	pf              *pci.Address
}

// addHCAs adds the aliases and device specs of all adapters. Specs are by address and product: the
// address of a physical function alone would match its VFs too (nova/pci/devspec.py,
// WhitelistPciAddress.match).
func (w *Want) addHCAs(o Options) (aliases []Alias, errs []error) {
	offered := map[pci.Address]HCA{}
	for _, h := range o.HCAs {
		functions, err := o.functions(h)
		if err != nil {
			errs = append(errs, fmt.Errorf("--hca %s: %w", h.Address, err))
			continue
		}
		w.Warnings = append(w.Warnings, o.hcaWarnings(h, functions)...)
		for _, f := range functions {
			var err error
			switch _, twice := offered[f.address]; {
			case slices.Contains(o.Containers, f.address):
				err = ErrRecordedForContainers
			case twice:
				err = ErrOfferedTwice
			case h.Network == nil && slices.Contains(o.Needed, f.address):
				err = ErrNeeded
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("--hca %s: %s %w", h.Address, f.address, err))
				continue
			}
			offered[f.address] = h
			a := Alias{Name: h.Alias, VendorID: f.vendor, ProductID: f.product, DeviceType: string(f.kind)}
			if h.Alias != "" && !slices.Contains(aliases, a) {
				aliases = append(aliases, a)
			}
			if o.Role.Computes() {
				w.Specs = append(w.Specs, Spec{Address: &f.address, VendorID: f.vendor, ProductID: f.product, PhysicalNetwork: h.Network, Managed: o.Managed})
			}
		}
	}
	return aliases, errs
}

// functions returns the functions that an HCA stands for: a VF, all VFs of a physical function, or
// the function as a whole.
func (o Options) functions(h HCA) ([]hcaFunction, error) {
	devices := pci.Devices(o.Devices)
	for _, other := range o.Hosts {
		if devices.At(h.Address) == nil {
			devices = other.Devices
		}
	}
	d := devices.At(h.Address)
	// A recorded VF need not exist yet.
	for _, a := range o.Adapters {
		for _, vf := range a.VFs {
			pf := devices.At(a.Address)
			if d == nil && vf.Address == h.Address && pf != nil && pf.VendorID != nil {
				if a.Containers {
					return nil, fmt.Errorf("%s %w", a.Address, ErrForContainers)
				}
				return []hcaFunction{{vf.Address, *pf.VendorID, vf.ProductID, pci.TypeVF, &a.Address}}, nil
			}
		}
	}
	if d == nil {
		return nil, ErrNoAdapter
	}
	if d.VendorID == nil || d.ProductID == nil || d.DeviceType == nil {
		return nil, errors.New("vendor, product and SR-IOV of the function cannot be read")
	}
	adapter := o.adapter(d)
	if adapter.Containers {
		return nil, ErrForContainers
	}
	if d.SRIOV.PF != nil {
		return []hcaFunction{{d.Address, *d.VendorID, *d.ProductID, pci.TypeVF, d.SRIOV.PF}}, nil
	}
	vfs := host.Map(adapter.VFs, func(vf AdapterVF) hcaFunction {
		return hcaFunction{vf.Address, *d.VendorID, vf.ProductID, pci.TypeVF, &d.Address}
	})
	for k := range devices {
		vf := &devices[k]
		if len(adapter.VFs) > 0 || vf.SRIOV.PF == nil || *vf.SRIOV.PF != d.Address {
			continue
		}
		if vf.VendorID == nil || vf.ProductID == nil {
			return nil, fmt.Errorf("vendor and product of the VF %s cannot be read", vf.Address)
		}
		vfs = append(vfs, hcaFunction{vf.Address, *vf.VendorID, *vf.ProductID, pci.TypeVF, &d.Address})
	}
	switch {
	case adapter.Whole && len(vfs) > 0:
		return nil, fmt.Errorf("%w: it is prepared as a whole, but has %d VFs until the next boot", ErrWholeAndVFs, len(vfs))
	case len(vfs) > 0:
		return vfs, nil
	case !adapter.Whole && *d.DeviceType == pci.TypePF && !pci.LeavesAlone(d.DriverName()):
		return nil, ErrNoVFs
	}
	return []hcaFunction{{d.Address, *d.VendorID, *d.ProductID, *d.DeviceType, nil}}, nil
}

// adapter returns what is known of the adapter of a function.
func (o Options) adapter(d *pci.Device) Adapter {
	address := host.Or(d.SRIOV.PF, d.Address)
	if i := slices.IndexFunc(o.Adapters, func(a Adapter) bool { return a.Address == address }); i >= 0 {
		return o.Adapters[i]
	}
	return Adapter{Address: address}
}

// hcaWarnings returns warnings about the way in which guests get an adapter.
func (o Options) hcaWarnings(h HCA, functions []hcaFunction) (warnings []string) {
	link := o.adapter(&pci.Device{Address: functions[0].address, SRIOV: pci.SRIOV{PF: functions[0].pf}}).LinkLayer
	switch {
	case h.Alias == "" && link != LinkEthernet:
		warnings = append(warnings, fmt.Sprintf("--hca %s: on InfiniBand, Nova runs ebrctl of networking-mlnx for a port and only logs its failure: the guest "+
			"then has a dead port; %s=alias:NAME is recommended", h.Address, h.Address))
	case h.Alias != "" && link == LinkEthernet:
		warnings = append(warnings, fmt.Sprintf("--hca %s: Neutron does not know a RoCE function that guests get by alias: MAC, VLAN and security are not its; "+
			"%s=port:PHYSNET is recommended", h.Address, h.Address))
	}
	if h.Alias == "" && o.Placement {
		warnings = append(warnings, fmt.Sprintf("--hca %s: devices with physical_network are never in Placement: no alias can select them under pci_in_placement", h.Address))
	}
	return warnings
}
