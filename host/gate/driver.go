package gate

import (
	"errors"
	"io/fs"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/guard"
	"gpustack/host/pci"
)

// Claim opens a disk exclusively until release is called ([guard.Claim]).
type Claim func(disk string) (release func() error, err error)

// Drivers returns the gate of host/driver, which is asked immediately before functions are unbound:
// of functions that leave the host, and of functions that return to it from guests. It returns those
// that leave by --allow. allow are the functions that it names in addition to what is recorded.
//
// claim, if not nil, asks the kernel about the disks of functions that leave: files do not show
// every use. They are held until the returned function is called, so that nothing uses them before
// they are gone.
func Drivers(root host.Root, allow []pci.Address, claim Claim) func([]driver.Change) ([]pci.Identity, func() error, error) {
	return func(changes []driver.Change) (_ []pci.Identity, release func() error, err error) {
		release = func() error { return nil }
		leaving, err := unbound(root, changes)
		if err != nil || len(leaving) == 0 {
			return nil, release, err
		}
		lifted, err := Leave(root, root.IsMachine(), Allowed{Functions: allow}, leaving...)
		if err != nil || claim == nil {
			return lifted, release, err
		}
		now := host.Filter(leaving, func(l Leaving) bool { return l.Kind == Now })
		release, err = HoldDisks(root, claim, host.Map(now, func(l Leaving) pci.Address { return l.Address })...)
		return lifted, release, err
	}
}

// Leave asks [Host.Leave] of the machine as it is now, with what --allow has named on it too. running
// means that unknown uses are an error.
func Leave(root host.Root, running bool, allowed Allowed, leaving ...Leaving) ([]pci.Identity, error) {
	devices, _, err := pci.Scan(root, pci.Options{})
	if err != nil {
		return nil, err
	}
	recorded, err := ReadAllowed(root)
	if err != nil {
		return nil, err
	}
	h, uses, err := Observe(root, devices, leaving)
	if err != nil {
		return nil, err
	}
	uses.Running = running
	lifted, err := h.Leave(uses, recorded.And(allowed), leaving...)
	return h.Identities(lifted), err
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

// HoldDisks claims the disks of functions, all or none, so that nothing uses them before they are
// gone. The returned function releases them. Without claim it does nothing.
func HoldDisks(root host.Root, claim Claim, functions ...pci.Address) (release func() error, err error) {
	var held []func() error
	release = func() error {
		errs := host.Map(held, func(r func() error) error { return r() })
		held = nil
		return errors.Join(errs...)
	}
	if claim == nil || len(functions) == 0 {
		return release, nil
	}
	devices, _, err := pci.Scan(root, pci.Options{})
	if err != nil {
		return release, err
	}
	disks, err := guard.Disks(root, devices, functions...)
	if err != nil {
		return release, err
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

// AskKernel adds to what claims disks what the kernel says of the disks of functions that --allow
// names: each is opened exclusively and closed at once. A user who may not open disks gets a warning:
// it is asked when the change is carried out.
func AskKernel(root host.Root, needs *guard.Needs, claim Claim, allowed ...pci.Address) (warnings []string, err error) {
	if !root.IsMachine() {
		return nil, nil // files have said it
	}
	denied := false
	err = needs.Ask(func(disk string) error {
		release, err := claim(disk)
		switch {
		case errors.Is(err, fs.ErrPermission):
			denied = true
			return nil
		case err != nil:
			return err
		}
		return release()
	}, allowed...)
	if denied {
		warnings = append(warnings, "whether the kernel has claimed disks of functions that --allow names is not asked: "+
			"it is asked when the plan is applied, as root")
	}
	return warnings, err
}
