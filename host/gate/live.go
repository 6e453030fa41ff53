package gate

import (
	"fmt"

	"gpustack/host"
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

// User is a guest or a process that uses a function: a *machine.InUse or a guard.Holder.
type User interface {
	error
	Who() string
	Hint() string
}

// Users returns the guest and the processes that use a function now.
func Users(uses machine.Uses, a pci.Address) (found []User) {
	if guest := uses.ByGuests()[a]; guest != nil {
		found = append(found, guest)
	}
	for _, h := range uses.Holders {
		if h.Address == a && !h.IsClock() {
			found = append(found, h)
		}
	}
	return found
}

// HeldOf returns an error for each function that a guest or a process uses. It does not say whether
// all guests are known: see [machine.Uses.Unknown].
func HeldOf(uses machine.Uses, functions ...pci.Address) (held []*Held) {
	for _, a := range functions {
		if by := Users(uses, a); len(by) > 0 {
			held = append(held, &Held{Address: a, By: by[0].Who(), hint: by[0].Hint()})
		}
	}
	return held
}
