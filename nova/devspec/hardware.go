package devspec

import (
	"path"
	"slices"

	"gpustack/host"
	"gpustack/host/pci"
)

// Hardware is the functions of one machine.
type Hardware struct {
	Devices    []pci.Device
	interfaces map[string]pci.Address
	pfs        map[string]bool // that may have VFs, as Nova tells from sriov_totalvfs
}

// NewHardware returns the machine with these functions. interfaces are the functions of its network
// interfaces by name, nil if they are unknown; see [Interfaces].
func NewHardware(devices []pci.Device, interfaces map[string]pci.Address) Hardware {
	h := Hardware{devices, interfaces, map[string]bool{}}
	for i := range devices {
		if n := devices[i].SRIOV.TotalVFs; n != nil && *n > 0 {
			h.pfs[devices[i].Address.String()] = true
		}
	}
	return h
}

// Interfaces returns the functions of network interfaces by their names: devname is looked
// up there (nova/pci/utils.py, get_function_by_ifname). Interfaces without one are left out.
func Interfaces(root host.Root) (map[string]pci.Address, error) {
	const dir = "/sys/class/net"
	names, err := root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		return nil, err
	}
	interfaces := map[string]pci.Address{}
	if len(names) == 0 {
		return interfaces, nil
	}
	open, err := root.OpenDir(dir)
	if err != nil {
		return nil, err
	}
	defer open.Close() //nolint:errcheck // only read
	for _, name := range names {
		entry, err := open.Entry(name)
		if err != nil {
			continue
		}
		link, err := entry.Readlink("device")
		if err != nil {
			continue // a virtual interface, or one that is gone: its devname stays unknown
		}
		if address, err := pci.ParseAddress(path.Base(link)); err == nil { // others are no PCI devices
			interfaces[name] = address
		}
	}
	return interfaces, nil
}

// IsPF reports whether the function at an address may have VFs.
func (h Hardware) IsPF(address string) bool {
	return h.pfs[address]
}

// locate returns the spec with the address of the interface that its devname names, if the
// machine has it.
func (h Hardware) locate(s Spec) Spec {
	name, _ := s.Object["devname"].(string)
	address, known := h.interfaces[name]
	if !s.Devname || s.Faulty || !known {
		return s
	}
	s.located, s.Single = true, address.String()
	for i, n := range [4]int{int(address.Domain), int(address.Bus), int(address.Slot), int(address.Function)} {
		s.address[i].text = fieldKinds[i].write(n)
	}
	return s
}

// LacksInterface reports whether a spec names a network interface that the machine does not have.
// It is false if the interfaces are unknown.
func (h Hardware) LacksInterface(s Spec) bool {
	return s.Devname && h.interfaces != nil && h.locate(s).unlocated()
}

// Matches reports whether a spec matches a function of the machine. The address of a PF
// matches its VFs too (devspec.py, WhitelistPciAddress.match).
func (h Hardware) Matches(s Spec, d *pci.Device) bool {
	if s.Faulty || d.VendorID == nil || d.ProductID == nil || !s.MatchesIDs(d.VendorID.String(), d.ProductID.String()) {
		return false
	}
	if s = h.locate(s); s.unlocated() { // unknown: it may be another machine's
		return false
	}
	return s.matchesAddress(d.Address) || d.SRIOV.PF != nil && s.Single == d.SRIOV.PF.String() && h.pfs[s.Single]
}

// Lacks reports whether a spec is by the address of one function, and none that the machine has
// matches it. One whose ids are unknown may.
func (h Hardware) Lacks(s Spec) bool {
	return !s.Faulty && s.Single != "" && !slices.ContainsFunc(h.Devices, func(d pci.Device) bool {
		return h.Matches(s, &d) || d.Address.String() == s.Single && (d.VendorID == nil || d.ProductID == nil)
	})
}

// classNetwork is the base class of network controllers (PCI Code and ID Assignment
// Specification, 1.3).
const classNetwork = 0x02

// MayMatch reports whether the machine has a network controller that both specs may match,
// of which one has a devname whose function is unknown.
func (h Hardware) MayMatch(a, b Spec) bool {
	a, b = h.locate(a), h.locate(b)
	if !a.unlocated() && !b.unlocated() {
		return false
	}
	return slices.ContainsFunc(h.Devices, func(d pci.Device) bool {
		may := func(s Spec) bool {
			return h.Matches(s, &d) || s.unlocated() && !s.Faulty && d.VendorID != nil && d.ProductID != nil && s.MatchesIDs(d.VendorID.String(), d.ProductID.String())
		}
		return d.Class != nil && *d.Class>>8 == classNetwork && may(a) && may(b)
	})
}

// Contains reports whether a spec matches every device that another one matches,
// whatever devices there are. PFs are those of the machine.
func (h Hardware) Contains(s, other Spec) bool {
	s, other = h.locate(s), h.locate(other)
	switch {
	case s.Faulty, other.Faulty:
		return false
	case s.Vendor != Anything && s.Vendor != other.Vendor, s.Product != Anything && s.Product != other.Product:
		return false
	case s.unlocated() || s.Opaque():
		return false
	case other.unlocated() || other.Opaque():
		return s.Everywhere()
	}
	if other.Single != "" && h.pfs[other.Single] && other.Single != s.Single {
		if slices.ContainsFunc(h.Devices, func(d pci.Device) bool { return h.Matches(other, &d) && !h.Matches(s, &d) }) {
			return false
		}
	}
	if s.Single != "" && h.pfs[s.Single] && other.Single != "" {
		for i := range h.Devices {
			if d := &h.Devices[i]; d.Address.String() == other.Single && d.SRIOV.PF != nil && d.SRIOV.PF.String() == s.Single {
				return true
			}
		}
	}
	for i, f := range slices.Backward(s.address[:]) { // the field with most values last
		if !f.contains(other.address[i]) {
			return false
		}
	}
	return true
}

// Share reports whether the machine has a device that both specs match.
func (h Hardware) Share(a, b Spec) bool {
	return slices.ContainsFunc(h.Devices, func(d pci.Device) bool { return h.Matches(a, &d) && h.Matches(b, &d) })
}
