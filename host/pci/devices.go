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

// Slot returns the functions that are in a function's slot, itself among them.
func (ds Devices) Slot(a Address) Devices {
	first, _ := ds.index(a.Card())
	last := first
	for last < len(ds) && ds[last].Address.SameSlot(a) {
		last++
	}
	return ds[first:last]
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

// With returns a function that returns those of others, by their indices in ascending order, which
// Expand adds to a single function, and the function itself if it is one of them. It takes the time
// of one Expand for all functions together. The caller must not change what it returns.
func (ds Devices) With(others []Address) func(Address) []int {
	bySlot, byGroup := map[Address][]int{}, map[int][]int{}
	alone := map[Address][]int{} // others that Expand adds to nothing: bridges, and what is gone
	for i, a := range others {
		switch d := ds.At(a); {
		case d == nil || d.IsBridge():
			alone[a] = append(alone[a], i)
		case d.IOMMUGroup != nil:
			byGroup[*d.IOMMUGroup] = append(byGroup[*d.IOMMUGroup], i)
		case d.IsVF():
			alone[a] = append(alone[a], i)
		default:
			bySlot[a.Card()] = append(bySlot[a.Card()], i)
		}
	}
	return func(a Address) []int {
		found := [][]int{alone[a]}
		members := ds.Slot(a)
		if d := ds.At(a); d != nil && d.IsVF() {
			members = Devices{*d} // it is assigned alone
		} else {
			found = append(found, bySlot[a.Card()])
		}
		groups := map[int]bool{}
		for i := range members {
			d := &members[i]
			if d.IsBridge() || d.IsVF() && d.Address != a || d.IOMMUGroup == nil || groups[*d.IOMMUGroup] {
				continue
			}
			groups[*d.IOMMUGroup] = true
			found = append(found, byGroup[*d.IOMMUGroup])
		}
		found = slices.DeleteFunc(found, func(indices []int) bool { return len(indices) == 0 })
		if len(found) == 1 {
			return found[0]
		}
		all := slices.Concat(found...)
		slices.Sort(all)
		return all
	}
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

// Set returns the addresses as a set.
func Set(addresses []Address) map[Address]bool {
	set := make(map[Address]bool, len(addresses))
	for _, a := range addresses {
		set[a] = true
	}
	return set
}

// Unique returns the addresses sorted, each once. It is never nil.
func Unique(addresses []Address) []Address {
	slices.SortFunc(addresses, Address.Compare)
	return slices.Compact(append([]Address{}, addresses...))
}
