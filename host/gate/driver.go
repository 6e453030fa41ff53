package gate

import (
	"errors"
	"slices"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/guard"
	"gpustack/host/pci"
)

// Claim opens a disk exclusively until release is called ([guard.Claim]).
type Claim func(disk string) (release func() error, err error)

// Drivers returns the gate of host/driver, which is asked immediately before functions are unbound:
// of functions that leave the host, and of functions that return to it from guests. It returns what
// --allow lifts. allow are the functions whose refusals it lifts in addition to what is recorded.
//
// claim, if not nil, is the second opinion on the disks of functions that leave: files do not show
// every use. They are held until the returned function is called, so that nothing uses them before
// they are gone. Disks of a function are not claimed if --allow lifts a use of it for which the
// kernel has claimed one: it would always refuse.
func Drivers(root host.Root, allow []pci.Address, claim Claim) func([]driver.Change) ([]host.Lift, func() error, error) {
	return func(changes []driver.Change) (_ []host.Lift, release func() error, err error) {
		release = func() error { return nil }
		leaving, err := unbound(root, changes)
		if err != nil || len(leaving) == 0 {
			return nil, release, err
		}
		devices, _, err := pci.Scan(root, pci.Options{})
		if err != nil {
			return nil, release, err
		}
		allowed, err := ReadAllowed(root, devices)
		if err != nil {
			return nil, release, err
		}
		h, uses, err := Observe(root, devices, leaving)
		if err != nil {
			return nil, release, err
		}
		lifted, err := h.Leave(uses, allowed.And(Allowed{Functions: allow}), leaving...)
		if err != nil || claim == nil {
			return Lifts(lifted), release, err
		}
		disks, err := guard.Disks(root, devices, claimable(leaving, lifted)...)
		if err != nil {
			return nil, release, err
		}
		release, err = claimed(claim, disks)
		return Lifts(lifted), release, err
	}
}

// unbound returns the functions that leave the host by these changes, and those that return to it
// from guests.
func unbound(root host.Root, changes []driver.Change) (leaving []Leaving, err error) {
	for _, c := range changes {
		now, err := driver.Read(root, c.Address)
		if err != nil && !errors.Is(err, driver.ErrGone) {
			return nil, err
		}
		switch {
		case now.Driver == "" || now.Driver == c.After.Driver && !c.Any:
		case pci.LeavesAlone(string(now.Driver)):
			leaving = append(leaving, Leaving{Address: c.Address, Kind: Returned})
		case pci.LeavesAlone(string(c.After.Driver)):
			leaving = append(leaving, Leaving{Address: c.Address, Kind: Now, Guests: true})
		}
	}
	return leaving, nil
}

// claimable returns the functions that leave the host now, whose disks the kernel has not claimed
// for a use that is lifted.
func claimable(leaving []Leaving, lifted []*Refusal) (idle []pci.Address) {
	for _, l := range leaving {
		if l.Kind == Now && !slices.ContainsFunc(lifted, func(r *Refusal) bool { return r.function() == l.Address && r.use().claims() }) {
			idle = append(idle, l.Address)
		}
	}
	return idle
}

// claimed claims disks, all or none. The returned function releases them.
func claimed(claim Claim, disks []string) (func() error, error) {
	var held []func() error
	release := func() error {
		var errs []error
		for _, r := range held {
			errs = append(errs, r())
		}
		held = nil
		return errors.Join(errs...)
	}
	for _, disk := range disks {
		r, err := claim(disk)
		if err != nil {
			return func() error { return nil }, errors.Join(err, release())
		}
		held = append(held, r)
	}
	return release, nil
}
