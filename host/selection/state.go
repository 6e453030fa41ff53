package selection

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/iommu"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// State is the current state of a function with regard to guests.
type State struct {
	Name   StateName `json:"name"`
	Guest  *string   `json:"guest"`  // its uuid, or else its name or process; nil unless in use
	Detail string    `json:"detail"` // for people, "" for none
	// Bound means that the function could be assigned to a guest if it were known that none has it.
	Bound bool `json:"-"`
}

// StateName is the name of a state.
type StateName string

// The states of functions. A function in state host may be one that the host needs: host prepare
// decides that.
const (
	OfHost     StateName = "host"        // available to the host
	GuestReady StateName = "guest-ready" // its whole group is bound to VFIO, and no guest has it
	Blocked    StateName = "blocked"     // detail says by what
	UsedBy     StateName = "in use"      // a guest uses it
	// not determined, as for a function bound to VFIO while it is unknown whether a guest has it.
	NotKnown StateName = "unknown"
)

// Details of functions in state host.
const (
	onConsole  = "console"  // console of the firmware or of the management controller
	isPrepared = "prepared" // recorded by host prepare but not bound, as before the next boot
)

// String returns the state as tables show it.
func (s State) String() string {
	switch {
	case s.Guest != nil:
		return string(s.Name) + " by " + *s.Guest
	case s.Bound:
		return s.Detail
	case s.Detail == "":
		return string(s.Name)
	case s.Name == Blocked || s.Name == NotKnown:
		return string(s.Name) + ": " + s.Detail
	}
	return string(s.Name) + " (" + s.Detail + ")"
}

// States returns the state of each function, in the same order, with nil for bridges, which cannot
// be assigned. The node must have all functions of the machine; its record is nil if nothing is
// recorded or the record cannot be read. groups are all IOMMU groups of the machine. on is whether
// the IOMMU is on.
func (n Node) States(groups []iommu.Group, on host.Bool, uses machine.Uses) []*State {
	byNumber := map[int]*iommu.Group{}
	for i := range groups {
		byNumber[groups[i].Number] = &groups[i]
	}
	obstacles := n.obstacles()
	blind, guests := uses.Unknown(), uses.ByGuests()
	states := make([]*State, len(n.Devices))
	for i := range n.Devices {
		d := &n.Devices[i]
		if d.IsBridge() {
			continue
		}
		s := State{Name: OfHost}
		var g *iommu.Group
		if d.IOMMUGroup != nil {
			g = byNumber[*d.IOMMUGroup]
		}
		used := guests[d.Address]
		free := pci.LeavesAlone(d.DriverName())
		obstacle, refused := obstacles[d.Address]
		switch {
		case used != nil:
			guest := cmp.Or(used.Guest, fmt.Sprintf("%s (pid %d)", used.Command, used.PID))
			s = State{Name: UsedBy, Guest: &guest}
		case d.DriverUnread():
			s = State{Name: NotKnown, Detail: "its driver cannot be read"}
		case !free && n.Recorded.At(d.Address) != nil:
			s.Detail = isPrepared
		case !free && refused:
			s = obstacle
		case !free && (d.IsConsole() || d.IsManagementConsole()):
			s.Detail = onConsole
		case !free:
		case g == nil && on.Known():
			s = State{Name: Blocked, Detail: "has no IOMMU group"}
		case g == nil:
			s = State{Name: NotKnown, Detail: "its IOMMU group is not shown"}
		case !g.Viable.Known():
			s = State{Name: NotKnown, Detail: fmt.Sprintf("%s: %s", g.Blockers[0].Address, g.Blockers[0].Reason)}
		case g.Viable == host.No:
			s = State{Name: Blocked, Detail: n.shares(g.Blockers[0].Address, len(g.Blockers)-1)}
		case blind == nil:
			s.Name = GuestReady
		case errors.Is(blind, fs.ErrPermission):
			s = State{Name: NotKnown, Detail: "on " + d.DriverName() + "; in use? permission denied", Bound: true}
		default:
			s = State{Name: NotKnown, Detail: "on " + d.DriverName() + "; in use? not visible here", Bound: true}
		}
		states[i] = &s
	}
	return states
}

// obstacles returns the states of the GPUs that host prepare would refuse, and of the other
// functions of their cards. It selects all GPUs of a vendor. Neither the choice that NVSwitches
// require nor what the host needs is considered: only drivers, classes and groups.
func (n Node) obstacles() map[pci.Address]State {
	n.Needs = guard.Needs{}
	byVendor := map[pci.ID][]pci.Address{}
	for i := range n.Devices {
		d := &n.Devices[i]
		if d.IsGPU() && !d.IsVF() && !d.IsManagementConsole() && d.VendorID != nil && !pci.LeavesAlone(d.DriverName()) && n.Recorded.At(d.Address) == nil {
			byVendor[*d.VendorID] = append(byVendor[*d.VendorID], d.Address)
		}
	}
	obstacles := map[pci.Address]State{}
	for _, vendor := range slices.Sorted(maps.Keys(byVendor)) {
		gpus := byVendor[vendor]
		bad := n.refusedOf(gpus)
		var addresses []pci.Address
		own := map[pci.Address]*gate.Refusal{}
		for _, r := range bad {
			addresses = append(addresses, r.Address)
			own[r.Address] = r
		}
		with := n.Devices.With(addresses)
		for _, gpu := range gpus {
			by := with(gpu)
			if len(by) == 0 {
				continue
			}
			first := bad[by[0]].Address
			if first == gpu && len(by) > 1 {
				first = bad[by[1]].Address
			}
			maps.Copy(obstacles, n.obstacle(gpu, own[gpu], first, len(by)))
		}
	}
	return obstacles
}

// refusedOf returns the refusals of functions that are added to what is recorded, one for each
// function. Recorded functions that the machine no longer has do not count.
func (n Node) refusedOf(added []pci.Address) (refused []*gate.Refusal) {
	s := gate.Selection{Selected: added, Kind: gate.AtBoot}
	if r := n.Recorded; r != nil {
		recorded := slices.DeleteFunc(slices.Clone(r.Selected), func(a pci.Address) bool {
			f := r.At(a)
			return f == nil || !f.IsAt(n.Devices)
		})
		s = gate.Selection{Selected: slices.Concat(recorded, added), NVSwitch: r.NVSwitch, Kind: gate.AtBoot, Allowed: gate.Records{Guests: r}.Allowed()}
	}
	s.All = n.members(s.Selected)
	refusals := n.Decide(s, machine.Uses{}, nil).Refused
	for _, a := range s.All {
		if d := n.Devices.At(a); d.VendorID == nil || d.ProductID == nil {
			refusals = append(refusals, gate.Refuse(a, ErrNoIDs))
		}
	}
	seen := map[pci.Address]bool{}
	for _, r := range refusals {
		if !seen[r.Address] {
			seen[r.Address] = true
			refused = append(refused, r)
		}
	}
	return refused
}

// obstacle returns the state of a GPU that is refused for itself, or else its state and those of
// the other functions of its card, for refusals of functions that must be assigned with it. own is
// its own refusal or nil, other the first function that is refused apart from it, and count the
// number of refusals.
func (n Node) obstacle(gpu pci.Address, own *gate.Refusal, other pci.Address, count int) map[pci.Address]State {
	if own != nil {
		switch {
		case own.Code == host.CodeConsole && count == 1:
			return map[pci.Address]State{gpu: {Name: OfHost, Detail: onConsole}}
		case own.Code == host.CodeConsole, own.Err == nil:
			count-- // the others matter
		case errors.Is(own, gate.ErrSRIOV), errors.Is(own, ErrNoIDs):
			return map[pci.Address]State{gpu: {Name: NotKnown, Detail: own.Err.Error()}}
		default:
			return map[pci.Address]State{gpu: {Name: Blocked, Detail: own.Err.Error()}}
		}
	}
	states := map[pci.Address]State{}
	slot := n.Devices.Slot(gpu)
	for i := range slot {
		if o := &slot[i]; o.Address == gpu || !o.IsGPU() && !o.IsBridge() && !o.IsVF() {
			states[o.Address] = State{Name: Blocked, Detail: n.shares(other, count-1)}
		}
	}
	return states
}

// shares returns a text that names the function in the same group or slot, and the number of
// further ones.
func (n Node) shares(with pci.Address, more int) string {
	other := n.Devices.At(with)
	detail := "shares its slot with " + other.Label()
	if other.IOMMUGroup != nil {
		detail = fmt.Sprintf("shares group %d with %s", *other.IOMMUGroup, other.Label())
	}
	if more > 0 {
		detail += fmt.Sprintf(" and %d more", more)
	}
	return detail
}

// Preparable reports whether host prepare can bind a GPU in this state, judging by drivers and
// groups only.
func (s State) Preparable() bool {
	return s.Name == OfHost && s.Detail == ""
}

// Prepared reports whether host prepare has recorded a function that is not bound yet.
func (s State) Prepared() bool {
	return s.Name == OfHost && s.Detail == isPrepared
}
