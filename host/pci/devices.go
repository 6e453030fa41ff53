package pci

import (
	"slices"
	"sort"

	"gpustack/host"
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

// AtEach returns the functions at addresses, as far as there are any.
func (ds Devices) AtEach(addresses []Address) (found Devices) {
	for _, a := range addresses {
		if d := ds.At(a); d != nil {
			found = append(found, *d)
		}
	}
	return found
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

// Companions are the classes of functions that a graphics card has beside its display function
// (Linux, include/linux/pci_ids.h): audio over its connectors, and on NVIDIA's Turing a USB and a
// USB-C controller. A processor with graphics (AMD's APUs) has its security processor and the
// board's USB controllers in the same slot: of such a slot only display and audio count.
const (
	classAudio Class = 0x0403
	classUSB   Class = 0x0c03
	classUCSI  Class = 0x0c80
)

// GPUOf returns the GPU of whose card a function is a part, by slot, vendor and class, or nil. They
// are reset together, so a guest gets the GPU only if all of them are bound for guests, also those
// without a driver (Linux, vfio_pci_dev_set_resettable in drivers/vfio/pci/vfio_pci_core.c). A GPU
// is part of its own card, unless it is a further display function of one; a virtual function is
// part of none.
func (ds Devices) GPUOf(d *Device) *Device {
	if d == nil || d.IsVF() || d.Class == nil || d.VendorID == nil {
		return nil
	}
	if d.IsGPU() && !d.IsDisplay() {
		return d
	}
	only := []Class{classAudio, classUSB, classUCSI}
	var gpu *Device
	slot := ds.Slot(d.Address)
	for i := range slot {
		switch o := &slot[i]; {
		case o.IsVF() || o.IsBridge():
		case o.IsGPU():
			if gpu == nil && o.IsVendor(*d.VendorID) {
				gpu = o
			}
		case o.Class == nil || !slices.Contains(only, *o.Class):
			only = []Class{classAudio}
		}
	}
	if !d.IsDisplay() && !slices.Contains(only, *d.Class) {
		return nil
	}
	return gpu
}

// IsCompanion reports whether a function goes to a guest only because the GPU of its card does.
func (ds Devices) IsCompanion(d *Device) bool {
	gpu := ds.GPUOf(d)
	return gpu != nil && gpu.Address != d.Address
}

// with returns a function and those that are assigned with it: the others of a GPU's card, or,
// while the IOMMU is off and shows no groups, those of the slot that no card has. A virtual
// function, whose address may be in the slot of its physical one, is assigned alone.
func (ds Devices) with(d *Device) (all []*Device) {
	if d.IsVF() {
		return []*Device{d}
	}
	slot := ds.Slot(d.Address)
	gpu := slot.GPUOf(d)
	for i := range slot {
		o := &slot[i]
		if o.Address == d.Address || !o.IsVF() && !o.IsBridge() && (gpu != nil || d.IOMMUGroup == nil) && gpu == slot.GPUOf(o) {
			all = append(all, o)
		}
	}
	return all
}

// Expand returns the selected functions with all functions of their cards and all endpoints of the
// IOMMU groups of these, ordered by address. While the IOMMU is off there are no groups, and of a
// card that is no GPU's all functions of the slot count.
func (ds Devices) Expand(selected []Address) []Address {
	groups, cards := map[int]bool{}, host.Set(selected)
	var gone []Address
	for _, a := range selected {
		d := ds.At(a)
		switch {
		case d == nil:
			gone = append(gone, a)
			continue
		case d.IsBridge():
			continue
		}
		for _, o := range ds.with(d) {
			cards[o.Address] = true
			if o.IOMMUGroup != nil {
				groups[*o.IOMMUGroup] = true
			}
		}
	}
	return Unique(append(gone, ds.Where(func(d *Device) bool {
		return cards[d.Address] || !d.IsBridge() && d.IOMMUGroup != nil && groups[*d.IOMMUGroup]
	})...))
}

// With returns a function that returns those of others, by their indices in ascending order, which
// Expand adds to a single function, and the function itself if it is one of them. It takes the time
// of one Expand for all functions together. The caller must not change what it returns.
func (ds Devices) With(others []Address) func(Address) []int {
	byGroup, alone := map[int][]int{}, map[Address][]int{}
	for i, a := range others {
		if d := ds.At(a); d != nil && !d.IsBridge() && d.IOMMUGroup != nil {
			byGroup[*d.IOMMUGroup] = append(byGroup[*d.IOMMUGroup], i)
		} else {
			alone[a] = append(alone[a], i)
		}
	}
	return func(a Address) []int {
		d := ds.At(a)
		if d == nil || d.IsBridge() {
			return alone[a]
		}
		var found [][]int
		groups := map[int]bool{}
		for _, o := range ds.with(d) {
			found = append(found, alone[o.Address])
			if o.IOMMUGroup != nil && !groups[*o.IOMMUGroup] {
				groups[*o.IOMMUGroup] = true
				found = append(found, byGroup[*o.IOMMUGroup])
			}
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
func (ds Devices) Defaults() []Address {
	return ds.Where(func(d *Device) bool { return d.Candidate })
}

// Where returns the functions that is accepts, nil for none.
func (ds Devices) Where(is func(*Device) bool) (addresses []Address) {
	for i := range ds {
		if is(&ds[i]) {
			addresses = append(addresses, ds[i].Address)
		}
	}
	return addresses
}

// VFs returns the virtual functions that exist now, by their physical functions.
func (ds Devices) VFs() map[Address][]Address {
	vfs := map[Address][]Address{}
	for i := range ds {
		if pf := ds[i].SRIOV.PF; pf != nil {
			vfs[*pf] = append(vfs[*pf], ds[i].Address)
		}
	}
	return vfs
}

// Unique returns the addresses sorted, each once. It is never nil.
func Unique(addresses []Address) []Address {
	slices.SortFunc(addresses, Address.Compare)
	return slices.Compact(append([]Address{}, addresses...))
}
