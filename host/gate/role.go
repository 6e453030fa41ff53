package gate

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// family returns the physical function that a function belongs to, itself unless it is a VF. A
// physical function and its VFs are one device: it has one role. VFs that are recorded need not
// exist yet.
func (r Records) family(devices pci.Devices, a pci.Address) pci.Address {
	if d := devices.At(a); d != nil && d.SRIOV.PF != nil {
		return *d.SRIOV.PF
	}
	if p := r.RDMA.Of(a); p != nil {
		return p.Address
	}
	return a
}

// Adapter returns the record of the adapter to whose family a function belongs, or nil.
func (r Records) Adapter(devices pci.Devices, a pci.Address) *rdma.Prepared {
	return r.RDMA.At(r.family(devices, a))
}

// ForGuests reports whether host prepare has recorded a function, its physical function, or one of
// its VFs.
func (r Records) ForGuests(devices pci.Devices, a pci.Address) bool {
	return r.any(devices, a, r.Guests.Addresses())
}

// forContainers reports whether container prepare has recorded a function, its physical function,
// or one of its VFs.
func (r Records) forContainers(devices pci.Devices, a pci.Address) bool {
	return r.any(devices, a, r.Containers.Addresses())
}

// any reports whether a function, its physical function or one of its VFs is among recorded ones.
// Two VFs of one function are different devices. It looks at what is recorded, of which there is
// less than of devices.
func (r Records) any(devices pci.Devices, a pci.Address, recorded []pci.Address) bool {
	family := r.family(devices, a)
	return slices.ContainsFunc(recorded, func(f pci.Address) bool { return f == a || f == family || r.family(devices, f) == a })
}

// Conflicts returns an error for each function that has two roles. Every command that changes a
// record asks it, and so does every undo.
func (r Records) Conflicts(devices pci.Devices) (errs []error) {
	errs = host.Map(host.Filter(r.Guests.Addresses(), func(a pci.Address) bool { return r.Adapter(devices, a) != nil }), ofGuests)
	for _, a := range r.Containers.Addresses() {
		if p := r.Adapter(devices, a); p != nil && p.Use == rdma.ForGuests || r.ForGuests(devices, a) {
			errs = append(errs, ofContainers(a, "is for containers"))
		}
	}
	return errs
}

// newConflicts returns the conflicts that a change of records brings. Others must not keep it from
// being made: it may be a step out of them.
func newConflicts(devices pci.Devices, before, after Records) []error {
	old := host.Set(host.Map(before.Conflicts(devices), error.Error))
	return slices.DeleteFunc(after.Conflicts(devices), func(err error) bool { return old[err.Error()] })
}

// Lost returns an error for each VF of containers that a change of records takes away: it would not
// be made any more.
func Lost(before, after Records) (errs []error) {
	for _, f := range after.Containers.All() {
		if p := before.RDMA.Of(f.Address); p != nil && p.Address != f.Address && after.RDMA.Of(f.Address) == nil {
			errs = append(errs, ofContainers(f.Address, fmt.Sprintf("is for containers, and a VF of %s that would not be made any more", p.Address)))
		}
	}
	return errs
}

func ofContainers(a pci.Address, why string) error {
	err := host.WithHint(errors.New(why), host.Textf("take it from containers first: %s", host.NewCommand("container prepare").Flag("remove", a.String())))
	return Refuse(a, host.WithCode(err, host.CodeRole, ""))
}

func ofGuests(a pci.Address) error {
	err := host.WithHint(errors.New("is recorded by host prepare, which assigns it to guests as a whole"),
		host.NewCommand("host prepare").Flag("remove", a.String()).Text())
	return Refuse(a, host.WithCode(err, host.CodeRecorded, ""))
}

// OfAdapter returns the refusal of a function that rdma prepare has recorded: an adapter, or one of
// its VFs, whether or not they exist. Its hint is the command that removes them, unless that would
// be refused.
func (h Host) OfAdapter(uses machine.Uses, a pci.Address, p *rdma.Prepared) *Refusal {
	hint := host.NewCommand("rdma prepare").Flag("remove", p.Address.String()).Text()
	if use := h.UseOfVFs(uses, p.Address); use != "" {
		hint = host.Plain(use)
	}
	return Refuse(a, host.WithCode(host.WithHint(errors.New("is recorded by rdma prepare"), hint), host.CodeRecorded, ""))
}

// UseOfVFs returns a hint that names a use of existing VFs of a function, by the host, a guest or a
// process, which prevents that they are removed, or "".
func (h Host) UseOfVFs(uses machine.Uses, pf pci.Address) string {
	leaving := host.Map(h.Devices.VFs()[pf], func(vf pci.Address) Leaving { return Leaving{Address: vf, Kind: Removed} })
	_, err := h.Leave(uses, Allowed{}, leaving...)
	if err == nil {
		return ""
	}
	var refusal *Refusal
	var held *Held
	var hinted interface{ Hint() string }
	switch first := host.Split(err)[0]; {
	case errors.As(first, &refusal):
		return "end this use first: " + refusal.Reason
	case errors.As(first, &held):
		return "end this use first: " + held.Error()
	case errors.As(first, &hinted):
		return hinted.Hint()
	default:
		return "what uses its VFs cannot be determined: " + first.Error()
	}
}
