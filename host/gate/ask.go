package gate

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Leaving is a function that leaves the host.
type Leaving struct {
	Address pci.Address
	Kind    Kind
	Guests  bool // by host prepare, which assigns NVSwitches with the GPUs of their board
}

// Allowed is what --allow lifts: every refusal of the functions that a command names, and of those
// of earlier commands what is recorded.
type Allowed struct {
	Functions []pci.Address // a physical function stands for its VFs
	Lifted    []host.Lift
	Unread    error // of files that may lift more; nil if there are none
}

// ErrLiftsUnread means that it is unknown what --allow has lifted of changes without a record.
var ErrLiftsUnread = host.WithHint(errors.New("cannot determine what --allow has lifted of changes that were interrupted or undone"),
	"end the use, or make that file readable")

// And returns what either lifts.
func (a Allowed) And(more Allowed) Allowed {
	return Allowed{slices.Concat(a.Functions, more.Functions), slices.Concat(a.Lifted, more.Lifted), errors.Join(a.Unread, more.Unread)}
}

// lifts reports whether a refusal is lifted.
func (a Allowed) lifts(devices pci.Devices, r *Refusal) bool {
	if r.Absolute {
		return false
	}
	function, use := r.function(), r.use()
	if slices.ContainsFunc(a.Lifted, func(l host.Lift) bool { return l.Function == function.String() && Use(l.Use).standsFor(use) }) {
		return true
	}
	d := devices.At(function)
	return slices.Contains(a.Functions, function) || d != nil && d.SRIOV.PF != nil && slices.Contains(a.Functions, *d.SRIOV.PF)
}

// Answer is what the gate says of functions that leave the host.
type Answer struct {
	Refused, Lifted []*Refusal
}

// add adds a refusal to those that are lifted, or to the others.
func (a *Answer) add(h Host, allowed Allowed, r *Refusal) {
	if allowed.lifts(h.Devices, r) {
		a.Lifted = append(a.Lifted, r)
	} else {
		a.Refused = append(a.Refused, r)
	}
}

// Err returns the refusals as an error, each a part of it, or nil.
func (a Answer) Err() error {
	var errs []error
	for _, r := range a.Refused {
		errs = append(errs, r)
	}
	return errors.Join(errs...)
}

// Lifts returns what is lifted in the form of records, each once.
func Lifts(lifted []*Refusal) []host.Lift {
	lifts := []host.Lift{}
	for _, r := range lifted {
		if l := (host.Lift{Function: r.function().String(), Use: string(r.use())}); !slices.Contains(lifts, l) {
			lifts = append(lifts, l)
		}
	}
	return lifts
}

// ofNeed returns the refusal of a function that leaves the host although the host needs it, or nil
// if the need goes on. before is put before the reason. A VF that goes is named as a part of its
// physical function, which --allow names.
func (h Host) ofNeed(l Leaving, need guard.Need, before string) *Refusal {
	verdict, _ := Rule(Use(need.Use), l.Kind)
	if verdict == Unaffected {
		return nil
	}
	r := &Refusal{Address: l.Address, Reason: before + need.Reason, Absolute: need.Absolute || verdict == Refused, Code: need.Code,
		Use: Use(need.Use), File: need.File}
	if d := h.Devices.At(l.Address); l.Kind == Removed && d != nil && d.SRIOV.PF != nil {
		r.Address, r.Function, r.Reason = *d.SRIOV.PF, &l.Address, fmt.Sprintf("its VF %s %s", l.Address, r.Reason)
	}
	return r
}

// Ask returns what the host's own uses say of functions that leave it: its disks, networks,
// consoles and subnet managers. before is put before each reason.
func (h Host) Ask(before string, allowed Allowed, leaving ...Leaving) (a Answer) {
	needs := map[pci.Address][]guard.Need{}
	for _, need := range h.Needs {
		needs[need.Address] = append(needs[need.Address], need)
	}
	for _, l := range leaving {
		for _, need := range needs[l.Address] {
			if r := h.ofNeed(l, need, before); r != nil {
				a.add(h, allowed, r)
			}
		}
	}
	return a
}

// AskAtBoot is Ask for recorded functions before the boot that takes them from the host. It also
// has the uses of RDMA adapters by RDMA, and the guests and processes that would lose a function.
func (h Host) AskAtBoot(before string, uses machine.Uses, allowed Allowed, leaving ...Leaving) Answer {
	for _, l := range leaving {
		if a := h.Adapters[l.Address]; a != nil {
			h.Needs = slices.Concat(h.Needs, a.Needs)
		}
	}
	answer := h.Ask(before, allowed, leaving...)
	h.addUsers(&answer, before, uses, allowed, leaving)
	return answer
}

// addUsers adds the guests and processes that lose a function at the next boot, unless the answer
// has them as uses of the function.
func (h Host) addUsers(answer *Answer, before string, uses machine.Uses, allowed Allowed, leaving []Leaving) {
	users := used(uses)
	for _, l := range leaving {
		by := users[l.Address]
		if l.Kind != AtBoot || by == "" {
			continue
		}
		named := slices.ContainsFunc(slices.Concat(answer.Refused, answer.Lifted), func(r *Refusal) bool { return r.Address == l.Address && r.Code == host.CodeInUse })
		if !named {
			answer.add(h, allowed, &Refusal{Address: l.Address, Reason: before + "is in use: " + by, Code: host.CodeInUse})
		}
	}
}

// Leave returns whether functions may leave the host: what is lifted, and an error that names each
// use of a function that is not, of the host, of guests and of processes.
func (h Host) Leave(uses machine.Uses, allowed Allowed, leaving ...Leaving) (lifted []*Refusal, err error) {
	leaving = h.withVFs(leaving)
	answer := h.Ask("", allowed, leaving...)
	h.addUsers(&answer, "", uses, allowed, leaving)
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
			for _, r := range bonded {
				answer.add(h, allowed, r)
			}
		case Now, Removed, Returned:
			errs = append(errs, h.held(uses, l)...)
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
func (l Leaving) destroysVFs() bool {
	verdict, _ := Rule(Use(host.CodeVirtualFunctions), l.Kind)
	return verdict != Unaffected
}

// withVFs returns functions that leave with the VFs that are destroyed then, so that the users of
// each are named.
func (h Host) withVFs(leaving []Leaving) []Leaving {
	all := slices.Clone(leaving)
	for _, l := range leaving {
		if !l.destroysVFs() {
			continue
		}
		for _, vf := range VFsOf(h.Devices, l.Address) {
			if !slices.ContainsFunc(all, func(l Leaving) bool { return l.Address == vf }) {
				all = append(all, Leaving{Address: vf, Kind: Removed})
			}
		}
	}
	return all
}

// held returns the errors of a function that is in use while it would go now.
func (h Host) held(uses machine.Uses, l Leaving) (errs []error) {
	found, err := h.Away.heldOf(h.Devices, uses, l.Address)
	for _, by := range found {
		if d := h.Devices.At(l.Address); d != nil && d.SRIOV.PF != nil {
			by.PF = d.SRIOV.PF
		}
		errs = append(errs, by)
	}
	if err != nil {
		errs = append(errs, err)
	}
	return errs
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
	hint := host.Text("run gpustack in the host's namespaces, with all processes visible")
	if errors.Is(why, fs.ErrPermission) {
		hint = host.AsRoot()
	}
	hint += host.Textf("; '%s' shows what cannot be read", host.NewCommand("host guests"))
	return host.WithCode(host.WithHint(fmt.Errorf("cannot determine which guests use %s: %w", what, why), hint), host.CodeGuestsUnknown, "")
}

// OfSwitches returns the refusal of a function that manages NVSwitches, or may do so: the fabric
// manager of the host needs it, unless 'host prepare --nvswitch guest' assigns the whole board. It
// is nil for any other function.
func OfSwitches(devices pci.Devices, l Leaving) *Refusal {
	d := devices.At(l.Address)
	verdict, _ := Rule(Use(host.CodeNVSwitch), l.Kind)
	switch {
	case d == nil || l.Guests || verdict == Unaffected:
	case d.IsNVSwitch():
		return Refuse(l.Address, ErrSwitchManager)
	case d.VPDUnread():
		return &Refusal{Address: l.Address, Reason: errVPDUnread.Error(), Err: errVPDUnread, Absolute: l.Kind == Role}
	}
	return nil
}
