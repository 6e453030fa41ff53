package pci

import "slices"

// Devices are the functions of a machine, in order of their addresses, as [Scan] returns them.
type Devices []Device

// At returns the function at an address, or nil.
func (ds Devices) At(a Address) *Device {
	i, ok := slices.BinarySearchFunc(ds, a, func(d Device, a Address) int { return d.Address.Compare(a) })
	if !ok {
		return nil
	}
	return &ds[i]
}

// Path returns the bridges above a function, the outermost first. It is never nil.
func (ds Devices) Path(d *Device) []Address {
	const buses = 256
	path := []Address{}
	for d.Parent != nil && len(path) < buses {
		path = append(path, *d.Parent)
		if d = ds.At(*d.Parent); d == nil {
			break
		}
	}
	slices.Reverse(path)
	return path
}

// Card returns whether a function is of the card of one of the selected functions: of its slot. A
// virtual function, whose address may be in the slot of its physical one, is assigned alone.
func (ds Devices) Card(selected []Address) func(*Device) bool {
	named, slots := map[Address]bool{}, map[Address]bool{}
	for _, a := range selected {
		named[a] = true
		if d := ds.At(a); d == nil || !d.IsVF() {
			slots[a.Card()] = true
		}
	}
	return func(d *Device) bool {
		return named[d.Address] || slots[d.Address.Card()] && !d.IsVF()
	}
}

// Expand returns the selected functions with all functions of their cards, and with the endpoints
// of all IOMMU groups that those are in, in order of address. While the IOMMU is off there are no
// groups.
func (ds Devices) Expand(selected []Address) []Address {
	groups, ofCard := map[int]bool{}, ds.Card(selected)
	all := slices.Clone(selected)
	for i := range ds {
		if d := &ds[i]; !d.IsBridge() && ofCard(d) {
			all = append(all, d.Address)
			if d.IOMMUGroup != nil {
				groups[*d.IOMMUGroup] = true
			}
		}
	}
	for i := range ds {
		if d := &ds[i]; !d.IsBridge() && d.IOMMUGroup != nil && groups[*d.IOMMUGroup] {
			all = append(all, d.Address)
		}
	}
	return Unique(all)
}

// Defaults returns the functions that host prepare selects where none is named or recorded.
func (ds Devices) Defaults() (addresses []Address) {
	for i := range ds {
		if ds[i].Candidate {
			addresses = append(addresses, ds[i].Address)
		}
	}
	return addresses
}

// VFs returns how many virtual functions each physical function has.
func (ds Devices) VFs() map[Address]int {
	vfs := map[Address]int{}
	for i := range ds {
		if pf := ds[i].SRIOV.PF; pf != nil {
			vfs[*pf]++
		}
	}
	return vfs
}

// Unique sorts addresses and returns each of them once. It is never nil.
func Unique(addresses []Address) []Address {
	slices.SortFunc(addresses, Address.Compare)
	return slices.Compact(append([]Address{}, addresses...))
}
