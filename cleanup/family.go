package cleanup

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// FreedWith returns the other rows that Nova writes when it frees devices together, as
// PciDevice.free does (nova/objects/pci_device.py), whatever is in these rows: with a PF its VFs
// and vdpa devices, and with a VF or vdpa device its PF, if every other function of the PF is
// available or freed too. known are rows of the same compute nodes, of which others do not matter.
func FreedWith(freed, known []Device) (with []Device) {
	return freedWith(freed, known, Device.childOf, func(k Device) bool { return k.Status != StatusAvailable })
}

// mayFree returns the rows that Nova may write when it frees devices: those of FreedWith, and the
// PF of a VF or vdpa device, unless the instance of another function of the PF is on the node and
// inUse says that this instance uses the function. The row of any other function may be freed at
// the same time, by the audit of nova-compute or by another repair. So may a row that only a
// migration keeps: the migration may end.
func mayFree(freed, known []Device, inUse func(Device) bool) (with []Device) {
	return freedWith(freed, known, Device.partOf, func(k Device) bool { return k.taken() && k.OnNode && inUse(k) })
}

func freedWith(freed, known []Device, of func(child, pf Device) bool, blocks func(Device) bool) (with []Device) {
	isFreed := func(d Device) bool { return slices.ContainsFunc(freed, func(f Device) bool { return f.ID == d.ID }) }
	for _, d := range known {
		if isFreed(d) || slices.ContainsFunc(with, func(w Device) bool { return w.ID == d.ID }) {
			continue
		}
		ofFreed := slices.ContainsFunc(freed, func(pf Device) bool { return of(d, pf) })
		parent := slices.ContainsFunc(freed, func(f Device) bool { return of(f, d) })
		blocked := slices.ContainsFunc(known, func(k Device) bool { return of(k, d) && !isFreed(k) && blocks(k) })
		if ofFreed || parent && !blocked {
			with = append(with, d)
		}
	}
	slices.SortFunc(with, func(a, b Device) int { return int(a.ID - b.ID) })
	return with
}

// partOf returns whether the device is a VF or a vdpa device of a PF.
func (d Device) partOf(pf Device) bool {
	return d.virtual() && pf.Type == TypePF && d.Node == pf.Node && strings.EqualFold(*d.Parent, pf.Address)
}

// childOf returns whether Nova relates the rows of a device and its PF (nova/pci/manager.py,
// _build_device_tree): rows that are to be removed are no part of a tree, addresses are compared
// with their letter case, and a PF is found only by devices whose address is greater.
func (d Device) childOf(pf Device) bool {
	gone := func(d Device) bool { return d.Status == "removed" || d.Status == "deleted" }
	return d.partOf(pf) && *d.Parent == pf.Address && d.Address > pf.Address && !gone(d) && !gone(pf)
}

// related returns the functions of a card that are the device's PF, or its VFs and vdpa devices.
func (d Device) related(card []Device) []Device {
	return slices.DeleteFunc(slices.Clone(card), func(k Device) bool { return !k.partOf(d) && !d.partOf(k) })
}

// virtual returns whether the device is a VF or a vdpa device with a PF.
func (d Device) virtual() bool {
	return (d.Type == TypeVF || d.Type == TypeVDPA) && d.Parent != nil
}

// SRIOV returns whether the device may have relatives: other functions of the same PF.
func (d Device) SRIOV() bool {
	return d.Type == TypePF || d.Type == TypeVF || d.Type == TypeVDPA
}

// taken returns whether the row says that the device is an instance's.
func (d Device) taken() bool {
	return d.Status == StatusClaimed || d.Status == StatusAllocated
}

// latestChange returns the latest of a time and of the last changes of rows.
func latestChange(since time.Time, rows []Device) time.Time {
	for _, d := range rows {
		if d.Updated != nil && d.Updated.After(since) {
			since = *d.Updated
		}
	}
	return since
}

// lost describes a row that would be lost by being freed with another one: it is an instance's, or
// its status is not one of Nova's; "" if there is none.
func lost(with []Device) string {
	for _, d := range with {
		if d.taken() || d.Instance != nil || !known(d.Status) {
			return fmt.Sprintf("%s of the same card is %s, and Nova may free it too", d.Address, d.Status)
		}
	}
	return ""
}
