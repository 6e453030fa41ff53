package gate

import (
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Held is the error of a function that is in use while it would have to go now.
type Held struct {
	Address pci.Address
	PF      *pci.Address // of a VF that goes with others, nil for another function
	By      string       // "assigned to guest …", "… has /dev/infiniband/uverbs3 open"
	hint    string
}

func (e *Held) Error() string {
	if e.PF != nil {
		return fmt.Sprintf("VF %s of %s is in use: %s", e.Address, *e.PF, e.By)
	}
	return fmt.Sprintf("%s is in use: %s", e.Address, e.By)
}

// Refusal returns the code of the error: no option lifts it.
func (*Held) Refusal() (code host.Code, allow string) { return host.CodeInUse, "" }

// Hint returns how to end the use.
func (e *Held) Hint() string { return e.hint }

// user is a guest or a process that uses a function.
type user interface {
	error
	Who() string
	Hint() string
}

// Users returns the guest and the processes that use a function now: a *machine.InUse, and a
// guard.Holder for each process.
func Users(uses machine.Uses, a pci.Address) []error {
	var errs []error
	for _, u := range users(uses, uses.ByGuests(), a) {
		errs = append(errs, u)
	}
	return errs
}

func users(uses machine.Uses, guests map[pci.Address]*machine.InUse, a pci.Address) (found []user) {
	if guest := guests[a]; guest != nil {
		found = append(found, guest)
	}
	for _, h := range uses.Holders {
		if h.Address == a {
			found = append(found, h)
		}
	}
	return found
}

// HeldOf returns an error for each function that is in use: by a guest, by a process, or by a
// network namespace that its interface was moved to. It does not say whether all guests are known:
// see [machine.Uses.Unknown]. The error is that of files that cannot be read.
func HeldOf(root host.Root, devices pci.Devices, uses machine.Uses, functions ...pci.Address) (held []*Held, err error) {
	return ReadAway(root, devices, functions...).heldOf(devices, uses, functions...)
}

// Away are functions as they were observed: true for one whose network interface is in another
// network namespace ([machine.Moved]).
type Away map[pci.Address]machine.Look[bool]

// ReadAway reads where the interfaces of functions are. An error is that of the functions it is
// about.
func ReadAway(root host.Root, devices pci.Devices, functions ...pci.Address) Away {
	away := Away{}
	for _, a := range functions {
		moved, err := machine.Moved(root, devices.At(a))
		away[a] = machine.Saw(machine.AttributeFile(a, "net"), moved, err)
	}
	return away
}

// of reports whether the interface of a function is in another network namespace.
func (w Away) of(a pci.Address) (bool, error) {
	look, ok := w[a]
	if !ok {
		return false, fmt.Errorf("%s: the network namespace of its interface was not observed", a)
	}
	return look.Value, look.Err
}

// heldOf is [HeldOf] of functions as they were observed.
func (w Away) heldOf(devices pci.Devices, uses machine.Uses, functions ...pci.Address) (held []*Held, err error) {
	guests := uses.ByGuests()
	var errs []error
	for _, a := range functions {
		if by := users(uses, guests, a); len(by) > 0 {
			held = append(held, &Held{Address: a, By: by[0].Who(), hint: by[0].Hint()})
			continue
		}
		away, err := w.of(a)
		errs = append(errs, err)
		if away {
			held = append(held, &Held{Address: a, By: "its network interface is in another network namespace",
				hint: "end the container that has it, or unbind it from " + devices.At(a).DriverName()})
		}
	}
	return held, errors.Join(errs...)
}

var _ user = guard.Holder{}
