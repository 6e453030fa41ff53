package gate

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"

	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Leaving is a function that leaves the host.
type Leaving struct {
	Address pci.Address
	Kind    Kind
	Guests  bool   // by host prepare, which assigns NVSwitches with the GPUs of their board
	Apart   bool   // not selected itself, but in the IOMMU group of a selected function
	Whole   bool   // an RDMA adapter that rdma prepare assigns to guests as a whole, or a VF that it did not make
	IDs     string // of its product, by which a driver binds it although it is not recorded
}

// Allowed are the functions that --allow names, of this command and of earlier ones. A physical
// function stands for its VFs.
type Allowed struct {
	Functions []pci.Address
	Recorded  []pci.Identity // by earlier commands: another device at the address is not allowed
	Unread    error          // of files that may allow more; nil if there are none
}

// ErrAllowUnread means that it is unknown what --allow has named for changes without a record.
var ErrAllowUnread = host.WithHint(errors.New("cannot determine which functions --allow named for changes that were interrupted or undone"),
	"name them with --allow again, or make that file readable")

// And returns what either allows.
func (a Allowed) And(more Allowed) Allowed {
	return Allowed{slices.Concat(a.Functions, more.Functions), slices.Concat(a.Recorded, more.Recorded), errors.Join(a.Unread, more.Unread)}
}

// names reports whether --allow names a function, or the physical function of a VF.
func (a Allowed) names(devices pci.Devices, function pci.Address) bool {
	of := []pci.Address{function}
	if d := devices.At(function); d != nil && d.SRIOV.PF != nil {
		of = append(of, *d.SRIOV.PF)
	}
	return slices.ContainsFunc(of, func(f pci.Address) bool {
		return slices.Contains(a.Functions, f) || slices.ContainsFunc(a.Recorded, func(r pci.Identity) bool {
			return r.Address == f && r.Compare(devices.Identity(f)) == pci.NoDifference
		})
	})
}

// Answer is what the gate says of functions that leave the host.
type Answer struct {
	Refused []*Refusal
	Lifted  []*Refusal // by --allow
	Notes   []string   // who loses a function that leaves all the same
}

// add adds a refusal to those that are lifted, or to the others.
func (a *Answer) add(h Host, allowed Allowed, r *Refusal) {
	if !r.Absolute && allowed.names(h.Devices, r.function()) {
		a.Lifted = append(a.Lifted, r)
	} else {
		a.Refused = append(a.Refused, r)
	}
}

// Err returns the refusals as an error, each a part of it, or nil.
func (a Answer) Err() error {
	return errors.Join(host.Map(a.Refused, func(r *Refusal) error { return r })...)
}

// Identities returns the functions whose refusals are lifted in the form of records, each once.
func (h Host) Identities(lifted []*Refusal) []pci.Identity {
	identities := []pci.Identity{}
	for _, r := range lifted {
		f := h.Devices.Identity(r.function())
		if f != nil && !slices.ContainsFunc(identities, func(i pci.Identity) bool { return i.Address == f.Address }) {
			identities = append(identities, *f)
		}
	}
	return identities
}

// Ask returns what the rules say of functions that leave the host, apart from who uses them now.
func (h Host) Ask(allowed Allowed, leaving ...Leaving) (a Answer) {
	for _, l := range leaving {
		if !l.Kind.takes() {
			continue
		}
		r := h.judge(l)
		if r == nil {
			continue
		}
		if d := h.Devices.At(l.Address); (l.Kind == Removed || l.Whole) && d.SRIOV.PF != nil { // --allow names the physical function
			r.Address, r.Function, r.Reason = *d.SRIOV.PF, &l.Address, fmt.Sprintf("its VF %s %s", l.Address, r.Reason)
		}
		a.add(h, allowed, r)
	}
	return a
}

// AskAtBoot is Ask with the guests and processes that lose a function at the next boot.
func (h Host) AskAtBoot(uses machine.Uses, allowed Allowed, leaving ...Leaving) Answer {
	answer := h.Ask(allowed, leaving...)
	h.addUsers(&answer, uses, allowed, leaving)
	return answer
}

// addUsers adds the guests and processes that lose a function at the next boot: programs whose only
// subject are GPUs, or that read a clock, are a note, any other user is a refusal that --allow lifts.
// A process that may use any GPU of NVIDIA's driver, by a node that serves all of them, counts only
// if none remains: until then it loses nothing if it uses another.
func (h Host) addUsers(answer *Answer, uses machine.Uses, allowed Allowed, leaving []Leaving) {
	at, guests := map[pci.Address]bool{}, uses.ByGuests()
	for _, l := range leaving {
		d := h.Devices.At(l.Address)
		switch {
		case l.Kind != AtBoot || d == nil:
		case !pci.LeavesAlone(d.DriverName()):
			at[l.Address] = true
		case guests[l.Address] != nil: // it has left already
			answer.Notes = append(answer.Notes, fmt.Sprintf("%s has left the host already: %s", l.Address, guests[l.Address].Who()))
		}
	}
	remains := slices.ContainsFunc(h.Devices, func(d pci.Device) bool { return d.DriverName() == "nvidia" && !at[d.Address] && h.IsNew(d.Address) })
	refuse := func(a pci.Address, who string) {
		if at[a] {
			answer.add(h, allowed, &Refusal{Address: a, Reason: "is in use: " + who, Code: host.CodeInUse})
			at[a] = false // the first user is enough
		}
	}
	for _, l := range leaving {
		if g := guests[l.Address]; g != nil {
			refuse(l.Address, g.Who())
		}
	}
	allGo := !slices.ContainsFunc(h.Devices, func(d pci.Device) bool { return d.IsBoardGPU() && !at[d.Address] && !pci.LeavesAlone(d.DriverName()) })
	programs := map[string][]pci.Address{}
	for _, holder := range uses.Holders {
		switch {
		case holder.Shared && remains, holder.PID == 0, guests[holder.Address] != nil, !at[holder.Address]:
		case holder.IsClock(), isGPUProgram(holder, allGo):
			programs[holder.Command] = append(programs[holder.Command], holder.Address)
		default:
			refuse(holder.Address, holder.Who())
		}
	}
	for _, name := range slices.Sorted(maps.Keys(programs)) {
		answer.Notes = append(answer.Notes, fmt.Sprintf("%s has %s open, and loses them at the next boot", name, Shortened(pci.Unique(programs[name]))))
	}
}

// Leave returns whether functions may leave the host: what --allow lifts, and an error that names
// each function that may not, and each that is in use now although it would have to go now.
func (h Host) Leave(uses machine.Uses, allowed Allowed, leaving ...Leaving) (lifted []*Refusal, err error) {
	leaving = h.withVFs(leaving)
	answer := h.AskAtBoot(uses, allowed, leaving...)
	var errs []error
	for _, l := range leaving {
		if r := OfSwitches(h.Devices, l); r != nil {
			answer.add(h, allowed, r)
		}
		if d := h.Devices.At(l.Address); l.destroysVFs() && d != nil {
			if err := h.Virtualized(d, h.Devices.VFs()); err != nil {
				answer.add(h, allowed, Refuse(l.Address, err))
			}
		}
		switch l.Kind {
		case Making:
			bonded, err := h.bonded(l.Address)
			errs = append(errs, err)
			if bonded != nil {
				answer.add(h, allowed, bonded)
			}
		case Now, Removed, Returned:
			for _, by := range HeldOf(uses, l.Address) {
				if d := h.Devices.At(l.Address); d != nil {
					by.PF = d.SRIOV.PF
				}
				errs = append(errs, by)
			}
		case AtBoot, Role:
		}
	}
	if slices.ContainsFunc(answer.Refused, func(r *Refusal) bool { return !r.Absolute }) {
		errs = append(errs, allowed.Unread)
	}
	return answer.Lifted, errors.Join(append([]error{answer.Err(), h.unknown(uses, leaving)}, errs...)...)
}

// destroysVFs reports whether the VFs of a function that leaves in this way are destroyed, and its
// mediated devices.
func (l Leaving) destroysVFs() bool { return l.Kind == AtBoot || l.Kind == Now }

// withVFs returns functions that leave with the VFs that are destroyed then, so that the users of
// each are named.
func (h Host) withVFs(leaving []Leaving) []Leaving {
	all, vfs := slices.Clone(leaving), h.Devices.VFs()
	for _, l := range leaving {
		if !l.destroysVFs() {
			continue
		}
		for _, vf := range vfs[l.Address] {
			if !slices.ContainsFunc(all, func(l Leaving) bool { return l.Address == vf }) {
				all = append(all, Leaving{Address: vf, Kind: Removed})
			}
		}
	}
	return all
}

// unknown returns an error if functions go now and it is unknown which guests use them.
func (h Host) unknown(uses machine.Uses, leaving []Leaving) error {
	why := uses.Unknown()
	if why == nil || !uses.Running {
		return nil
	}
	for _, l := range leaving {
		if l.Kind.now() {
			if d := h.Devices.At(l.Address); d != nil && d.SRIOV.PF != nil {
				return fmt.Errorf("%s: %w", *d.SRIOV.PF, GuestsUnknown("its VFs", why))
			}
			return fmt.Errorf("%s: %w", l.Address, GuestsUnknown("it", why))
		}
	}
	return nil
}

// GuestsUnknown returns the error of functions that guests may use. what names the functions, and
// why is what could not be read.
func GuestsUnknown(what string, why error) error {
	hint := host.Plain("run gpustack in the host's namespaces, with all processes visible")
	if errors.Is(why, fs.ErrPermission) {
		hint = host.AsRoot()
	}
	hint = host.Textf("%s; '%s' shows what cannot be read", hint, host.NewCommand("host guests"))
	return host.WithCode(host.WithHint(fmt.Errorf("cannot determine which guests use %s: %w", what, why), hint), host.CodeGuestsUnknown, "")
}

// OfSwitches returns the refusal of a function that manages NVSwitches, or may do so: the fabric
// manager of the host needs it, unless 'host prepare --nvswitch guest' assigns the whole board. It
// is nil for any other function.
func OfSwitches(devices pci.Devices, l Leaving) *Refusal {
	d := devices.At(l.Address)
	switch {
	case d == nil || l.Guests || !l.destroysVFs() && l.Kind != Role:
	case d.IsNVSwitch():
		return Refuse(l.Address, ErrSwitchManager)
	case d.VPDUnread():
		return &Refusal{Address: l.Address, Reason: errVPDUnread.Error(), Err: errVPDUnread, Absolute: l.Kind == Role}
	}
	return nil
}
