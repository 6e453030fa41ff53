package pci

import (
	"slices"
	"sort"
)

// Devices are all functions of a machine, ordered by address, as [Scan] returns them.
type Devices []Device

// At returns the function at an address, or nil.
func (ds Devices) At(a Address) *Device {
	i, ok := ds.index(a)
	if !ok {
		return nil
	}
	return &ds[i]
}

func (ds Devices) index(a Address) (int, bool) {
	return sort.Find(len(ds), func(i int) int { return a.Compare(ds[i].Address) })
}

// Path returns the bridges above a function, outermost first. It is never nil.
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

// Card returns a function that reports whether a device is on the card of a selected function: in
// its slot. A virtual function, whose address may be in the slot of its physical one, is assigned
// alone.
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

// Expand returns the selected functions with all functions of their cards and all endpoints of the
// IOMMU groups of these, ordered by address. While the IOMMU is off there are no groups.
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

// Defaults returns the functions that host prepare selects if none are named or recorded.
func (ds Devices) Defaults() (addresses []Address) {
	for i := range ds {
		if ds[i].Candidate {
			addresses = append(addresses, ds[i].Address)
		}
	}
	return addresses
}

// VFs returns the number of virtual functions of each physical function.
func (ds Devices) VFs() map[Address]int {
	vfs := map[Address]int{}
	for i := range ds {
		if pf := ds[i].SRIOV.PF; pf != nil {
			vfs[*pf]++
		}
	}
	return vfs
}

// Unique returns the addresses sorted, each once. It is never nil.
func Unique(addresses []Address) []Address {
	slices.SortFunc(addresses, Address.Compare)
	return slices.Compact(append([]Address{}, addresses...))
}
