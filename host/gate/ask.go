package gate

import (
	"slices"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/pci"
)

// Leaving is a function that leaves the host.
type Leaving struct {
	Address pci.Address
	Kind    Kind
}

// Allowed is what --allow lifts. A VF may be named by its physical function.
type Allowed struct {
	Functions []pci.Address // whatever uses them
}

// lifts reports whether the refusal of a function because of a use is lifted.
func (a Allowed) lifts(devices pci.Devices, r *Refusal) bool {
	if r.Absolute {
		return false
	}
	d := devices.At(r.Address)
	return slices.Contains(a.Functions, r.Address) || d != nil && d.SRIOV.PF != nil && slices.Contains(a.Functions, *d.SRIOV.PF)
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

// OfNeed returns the refusal of a function that leaves the host although the host needs it, or nil
// if the need goes on. before is put before the reason.
func OfNeed(l Leaving, need guard.Need, before string) *Refusal {
	verdict, _ := Rule(need.Code, l.Kind)
	if verdict == Unaffected {
		return nil
	}
	return &Refusal{Address: l.Address, Reason: before + need.Reason, Absolute: need.Absolute || verdict == Refused, Code: need.Code}
}

// Ask returns what the host's own uses say of functions that leave it: its disks, networks,
// consoles and subnet managers. before is put before each reason. Of functions that go now, the
// processes that have them open are named by [HeldOf].
func (h Host) Ask(before string, allowed Allowed, leaving ...Leaving) (a Answer) {
	needs := map[pci.Address][]guard.Need{}
	for _, need := range h.Needs {
		needs[need.Address] = append(needs[need.Address], need)
	}
	for _, l := range leaving {
		for _, need := range needs[l.Address] {
			if need.Code == host.CodeInUse && l.Kind != AtBoot {
				continue
			}
			if r := OfNeed(l, need, before); r != nil {
				a.add(h, allowed, r)
			}
		}
	}
	return a
}
