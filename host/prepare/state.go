package prepare

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"gpustack/host/iommu"
	"gpustack/host/pci"
)

// State is what a function is to guests at this moment.
type State struct {
	Name   StateName `json:"name"`
	Guest  *string   `json:"guest"`  // its uuid, else its name or process; nil unless in use
	Detail string    `json:"detail"` // for people; "" for none
}

// StateName is one of a few words.
type StateName string

// The states of functions. A function that the host keeps may have to: see host prepare.
const (
	OfHost     StateName = "host"
	GuestReady StateName = "guest-ready"
	Blocked    StateName = "blocked"
	UsedBy     StateName = "in use"
	NotKnown   StateName = "unknown"
)

// Details of functions of the host's.
const (
	onConsole  = "console"  // of the firmware or of the management controller
	isPrepared = "prepared" // recorded by host prepare, and not bound, as before the next boot
)

// String writes the state as tables show it.
func (s State) String() string {
	switch {
	case s.Guest != nil:
		return string(s.Name) + " by " + *s.Guest
	case s.Detail == "":
		return string(s.Name)
	case s.Name == Blocked || s.Name == NotKnown:
		return string(s.Name) + ": " + s.Detail
	}
	return string(s.Name) + " (" + s.Detail + ")"
}

// States returns the state of each function, in their order, and nil for bridges, which no
// guest gets. devices and groups are all of the machine's; on tells whether the IOMMU is,
// and is nil where that is unknown; recorded is nil where nothing is or it cannot be read.
func States(devices []pci.Device, groups []iommu.Group, on *bool, recorded *Contract, uses Uses) []*State {
	byNumber := map[int]*group{}
	for i := range groups {
		byNumber[groups[i].Number] = &group{Group: groups[i], cards: map[pci.Address]bool{}}
	}
	for i := range devices {
		d := &devices[i]
		if d.IOMMUGroup != nil && !d.IsBridge() {
			g := byNumber[*d.IOMMUGroup]
			g.endpoints = append(g.endpoints, d)
			if d.IsGPU() {
				g.cards[slot(d)] = true
			}
		}
	}
	blind := uses.blind()
	states := make([]*State, len(devices))
	for i := range devices {
		d := &devices[i]
		if d.IsBridge() {
			continue
		}
		s := State{Name: OfHost}
		var g *group
		if d.IOMMUGroup != nil {
			g = byNumber[*d.IOMMUGroup]
		}
		used := uses.guest(d.Address)
		free := d.Driver != nil && pci.LeavesAlone(*d.Driver)
		foreign := g.foreign(d, free)
		vfs := d.SRIOV.NumVFs
		switch {
		case used != nil:
			guest := used.Guest
			if guest == "" {
				guest = fmt.Sprintf("%s (pid %d)", used.Command, used.PID)
			}
			s = State{Name: UsedBy, Guest: &guest}
		case d.DriverUnread():
			s = State{Name: NotKnown, Detail: "its driver cannot be read"}
		case !free && recorded.has(d.Address):
			s.Detail = isPrepared
		case free && g != nil && g.Viable == nil:
			s = State{Name: NotKnown, Detail: fmt.Sprintf("%s: %s", g.Blockers[0].Address, g.Blockers[0].Reason)}
		case foreign != "":
			s = State{Name: Blocked, Detail: foreign}
		case d.IsGPU() && vfs != nil && *vfs > 0:
			s = State{Name: Blocked, Detail: fmt.Sprintf("has %d virtual functions enabled", *vfs)}
		case !free && (d.BootVGA != nil && *d.BootVGA || d.IsManagementConsole()):
			s.Detail = onConsole
		case !free:
		case g == nil && on != nil:
			s = State{Name: Blocked, Detail: "has no IOMMU group"}
		case g == nil:
			s = State{Name: NotKnown, Detail: "its IOMMU group is not shown"}
		case blind == "":
			s.Name = GuestReady
		case strings.Contains(blind, fs.ErrPermission.Error()):
			s = State{Name: GuestReady, Detail: "use unknown: run as root"}
		default:
			s = State{Name: GuestReady, Detail: "use unknown"}
		}
		states[i] = &s
	}
	return states
}

// Preparable tells whether host prepare can bind a GPU in this state, as far as drivers and
// groups show.
func (s State) Preparable() bool {
	return s.Name == OfHost && s.Detail == ""
}

// Prepared tells whether host prepare has recorded a function that the host still has.
func (s State) Prepared() bool {
	return s.Name == OfHost && s.Detail == isPrepared
}

// has tells whether a function is recorded. A nil contract has none.
func (c *Contract) has(a pci.Address) bool {
	return c != nil && slices.ContainsFunc(c.Functions, func(f Function) bool { return f.Address == a })
}

// group is an IOMMU group with its members that are no bridges.
type group struct {
	iommu.Group
	endpoints []*pci.Device
	cards     map[pci.Address]bool // the slots of GPUs
}

// foreign says which members keep a function from guests although they are no part of its
// card, or "". free tells whether the function itself is bound to VFIO: then its group is
// judged as the kernel does, and otherwise as host prepare will, which selects GPUs with
// their cards.
func (g *group) foreign(d *pci.Device, free bool) string {
	if g == nil || !free && !g.ofCard(d) {
		return ""
	}
	var first *pci.Device
	more := -1
	for _, m := range g.endpoints {
		bound := m.DriverUnread() || m.Driver != nil && !pci.LeavesAlone(*m.Driver)
		idle := m.Driver == nil && !m.DriverUnread()
		if m == d || !free && g.ofCard(m) || !bound && (free || !idle) {
			continue
		}
		if first == nil {
			first = m
		}
		more++
	}
	switch {
	case first == nil:
		return ""
	case more == 0:
		return fmt.Sprintf("shares group %d with %s", g.Number, first.Label())
	}
	return fmt.Sprintf("shares group %d with %s and %d more", g.Number, first.Label(), more)
}

// ofCard tells whether a member is a GPU or in the slot of one.
func (g *group) ofCard(d *pci.Device) bool {
	return g.cards[slot(d)]
}

// slot is the address that all functions of a card share.
func slot(d *pci.Device) pci.Address {
	a := d.Address
	a.Function = 0
	return a
}
