package gate

import (
	"errors"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/pci"
)

// Drivers returns the gate of host/driver, which is asked immediately before functions are unbound:
// of functions that leave the host, and of functions that return to it from guests. It returns what
// --allow lifts. allow are the functions whose refusals it lifts in addition to what is recorded.
func Drivers(root host.Root, allow []pci.Address) func([]driver.Change) ([]host.Lift, error) {
	return func(changes []driver.Change) ([]host.Lift, error) {
		var leaving []Leaving
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
		if len(leaving) == 0 {
			return nil, nil
		}
		devices, _, err := pci.Scan(root, pci.Options{})
		if err != nil {
			return nil, err
		}
		allowed, err := ReadAllowed(root)
		if err != nil {
			return nil, err
		}
		h, uses, err := Observe(root, devices, leaving)
		if err != nil {
			return nil, err
		}
		lifted, err := h.Leave(root, uses, allowed.And(Allowed{Functions: allow}), leaving...)
		return Lifts(lifted), err
	}
}
