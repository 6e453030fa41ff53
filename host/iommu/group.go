// Package iommu says how the IOMMU ties a machine's PCI functions together, and
// what keeps a group of them from being given to a guest.
//
// Does not: read drivers or functions itself (host/pci), or change what drives
// them (host/driver).
package iommu

import (
	"fmt"
	"maps"
	"slices"

	"gpustack/host/pci"
)

// Group is an IOMMU group: the functions that can reach each other's memory, and
// so can only be given to a guest together.
type Group struct {
	Number  int           `json:"number"`
	Members []pci.Address `json:"members"`
	// Viable tells whether VFIO would let a guest have the group as it is now.
	// It is nil where a member cannot be judged and no other one blocks.
	Viable   *bool     `json:"viable"`
	Blockers []Blocker `json:"blockers"`
}

// Blocker is a member that keeps its group from being given, or that cannot be
// judged, and why.
type Blocker struct {
	Address pci.Address `json:"address"`
	Reason  string      `json:"reason"`
}

// Groups returns the groups that devices are in, in order of number. Devices
// must be all of a machine's, or groups will lack members.
func Groups(devices []pci.Device) []Group {
	byNumber := map[int][]*pci.Device{}
	for i := range devices {
		if number := devices[i].IOMMUGroup; number != nil {
			byNumber[*number] = append(byNumber[*number], &devices[i])
		}
	}
	groups := make([]Group, 0, len(byNumber))
	for _, number := range slices.Sorted(maps.Keys(byNumber)) {
		groups = append(groups, judge(number, byNumber[number]))
	}
	return groups
}

// judge applies the kernel's rule (vfio_dev_viable in drivers/vfio/group.c; the
// same since 5.18 by driver_managed_dma): each member must be a bridge, have no
// driver, or have one that leaves the function alone.
func judge(number int, members []*pci.Device) Group {
	g := Group{Number: number, Members: members[0].GroupMembers, Blockers: []Blocker{}}
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
			g.block(d, fmt.Sprintf("held by %s, and its class is unknown: a bridge would not matter", *d.Driver))
		default:
			blocked = true
			reason := "held by " + *d.Driver
			if !besideGPU(d, members) {
				reason += ", and not part of a GPU's slot"
			}
			g.block(d, reason)
		}
	}
	if blocked || !unknown {
		viable := !blocked
		g.Viable = &viable
	}
	return g
}

func (g *Group) block(d *pci.Device, reason string) {
	g.Blockers = append(g.Blockers, Blocker{Address: d.Address, Reason: reason})
}

// besideGPU tells whether a function is in the slot of a GPU, or the group has no GPU.
func besideGPU(d *pci.Device, members []*pci.Device) bool {
	gpus := 0
	for _, m := range members {
		if m.IsGPU() {
			gpus++
			if m.Address.SameSlot(d.Address) {
				return true
			}
		}
	}
	return gpus == 0
}
