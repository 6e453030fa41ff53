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
	isFreed := func(d Device) bool { return slices.ContainsFunc(freed, func(f Device) bool { return f.ID == d.ID }) }
	for _, d := range known {
		if isFreed(d) || slices.ContainsFunc(with, func(w Device) bool { return w.ID == d.ID }) {
			continue
		}
		childFreed := func(f Device) bool { return f.partOf(d) }
		blocks := func(k Device) bool { return k.partOf(d) && k.Status != StatusAvailable && !isFreed(k) }
		if slices.ContainsFunc(freed, d.partOf) || slices.ContainsFunc(freed, childFreed) && !slices.ContainsFunc(known, blocks) {
			with = append(with, d)
		}
	}
	slices.SortFunc(with, func(a, b Device) int { return int(a.ID - b.ID) })
	return with
}

// partOf returns whether the device is a VF or a vdpa device of a PF, as Nova relates their rows
// (nova/pci/manager.py, _build_device_tree).
func (d Device) partOf(pf Device) bool {
	return d.virtual() && pf.Type == TypePF && d.Node == pf.Node && strings.EqualFold(*d.Parent, pf.Address)
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
			return fmt.Sprintf("%s of the same card is %s, and Nova would free it too", d.Address, d.Status)
		}
	}
	return ""
}
