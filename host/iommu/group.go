// Package iommu determines a machine's IOMMU groups and what keeps a group from being assigned to
// a guest ([Groups]), and reads the state of the IOMMU and the firmware's tables about it
// ([ReadState]).
//
// It does not read PCI functions and their drivers (host/pci) or bind them (host/driver).
package iommu

import (
	"fmt"
	"maps"
	"slices"

	"gpustack/host"
	"gpustack/host/pci"
)

// Group is an IOMMU group: functions that can reach each other's memory, and so can only be
// assigned to the same guest.
type Group struct {
	Number  int           `json:"number"`  // the number in /sys/kernel/iommu_groups
	Members []pci.Address `json:"members"` // all functions in it, listed or not
	// Viable is whether VFIO would open the group in its present state; null if that is so for a
	// member and no other member blocks the group.
	Viable host.Bool `json:"viable"`
	// members that keep the group from being viable, or may do so
	Blockers []Blocker `json:"blockers"`
}

// Blocker is a member that keeps its group from being viable, or may do so, and why.
type Blocker struct {
	Address pci.Address `json:"address"` // the member
	Reason  string      `json:"reason"`  // how it blocks the group, for people
}

// Groups returns the groups of devices, ordered by number. devices must contain all devices of the
// machine; otherwise groups lack blockers.
func Groups(devices []pci.Device) []Group {
	byNumber := map[int][]*pci.Device{}
	for i := range devices {
		if number := devices[i].IOMMUGroup; number != nil {
			byNumber[*number] = append(byNumber[*number], &devices[i])
		}
	}
	groups := make([]Group, 0, len(byNumber))
	for _, number := range slices.Sorted(maps.Keys(byNumber)) {
		groups = append(groups, newGroup(number, byNumber[number]))
	}
	return groups
}

// newGroup returns a group with its blockers by the kernel's rule (vfio_dev_viable in
// drivers/vfio/group.c; since 5.18 driver_managed_dma, with the same effect): each member must be a
// bridge, have no driver, or be bound to a driver that does not use DMA on its own.
func newGroup(number int, members []*pci.Device) Group {
	g := Group{Number: number, Members: members[0].GroupMembers, Blockers: []Blocker{}}
	gpus := map[pci.Address]bool{} // slots
	for _, d := range members {
		if d.IsGPU() {
			gpus[d.Address.Card()] = true
		}
	}
	blocked, unknown := false, false
	for _, d := range members {
		switch {
		case d.IsBridge():
		case d.DriverUnread():
			unknown = true
			g.block(d, "its driver cannot be read")
		case d.Driver == nil || pci.LeavesAlone(*d.Driver):
		case d.Class == nil:
			unknown = true
			g.block(d, fmt.Sprintf("bound to %s, and its class is unknown: only a bridge would not block", *d.Driver))
		default:
			blocked = true
			reason := "bound to " + *d.Driver
			if len(gpus) > 0 && !gpus[d.Address.Card()] {
				reason += ", and not in a GPU's slot"
			}
			g.block(d, reason)
		}
	}
	if blocked || !unknown {
		g.Viable = host.BoolOf(!blocked)
	}
	return g
}

func (g *Group) block(d *pci.Device, reason string) {
	g.Blockers = append(g.Blockers, Blocker{Address: d.Address, Reason: reason})
}
