package gate

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Selection is a set of functions for guests: the selected ones, and in All also the other
// functions of their cards and groups.
type Selection struct {
	Selected, Allowed, All []pci.Address
	NVSwitch               machine.NVSwitch
	Kind                   Kind // AtBoot or Now
	// Lifting is what --allow lifts; Allowed also has what it has lifted before, of whatever use.
	Lifting Allowed
}

// forGuests is put before the host's uses of functions that go to guests.
const forGuests = "the host needs it: "

// leaving returns the functions of the selection.
func (s Selection) leaving() (all []Leaving) {
	for _, a := range s.All {
		all = append(all, Leaving{Address: a, Kind: s.Kind, Guests: true})
	}
	return all
}

// Joins returns a function that reports whether a function is an RDMA adapter that goes to guests
// with its IOMMU group, because a selected GPU is in it. A recorded one stays with its group after
// its driver, by which it is an adapter, is gone.
func (h Host) Joins(s Selection) func(*pci.Device) bool {
	groups := map[int]bool{}
	for _, a := range s.Selected {
		if gpu := h.Devices.At(a); gpu != nil && gpu.IsGPU() && gpu.IOMMUGroup != nil {
			groups[*gpu.IOMMUGroup] = true
		}
	}
	return func(d *pci.Device) bool {
		if d == nil || d.IOMMUGroup == nil || !groups[*d.IOMMUGroup] {
			return false
		}
		f := h.Recorded.At(d.Address)
		return h.Adapters[d.Address] != nil || f != nil && f.RDMA && f.IsAt(h.Devices)
	}
}

// AdapterUses returns the refusals of an RDMA adapter that leaves the host with its IOMMU group
// although the host uses it, or its uses cannot be determined. A recorded one is refused too, as
// for other needs: it is the host's until it is bound.
func (h Host) AdapterUses(l Leaving) (refusals []*Refusal) {
	a := l.Address
	adapter := h.Adapters[a]
	if adapter == nil {
		return nil
	}
	for _, need := range adapter.Needs {
		if r := h.ofNeed(l, need, forGuests); r != nil {
			refusals = append(refusals, r)
		}
	}
	if err := adapter.Unread; err != nil {
		reason := strings.ReplaceAll(err.Error(), "\n", "; ")
		refusals = append(refusals, &Refusal{Address: a, Err: err, Code: host.CodeGroup, Reason: fmt.Sprintf(
			"shares IOMMU group %d with a selected device, and cannot determine whether the host uses it: %s", *h.Devices.At(a).IOMMUGroup, reason)})
	}
	return refusals
}

// Virtualized returns an error if a function is shared by guests, through enabled virtual
// functions or through mediated devices. pfs maps each physical function to its number of virtual
// functions (see [pci.Devices.VFs]).
func (h Host) Virtualized(d *pci.Device, pfs map[pci.Address]int) error {
	vfs := pfs[d.Address]
	if d.SRIOV.NumVFs != nil {
		vfs = max(vfs, *d.SRIOV.NumVFs)
	}
	switch {
	case vfs > 0:
		return fmt.Errorf("%w (%d)", ErrVFs, vfs)
	case d.SRIOVUnread():
		return ErrSRIOV
	case h.Mediated[d.Address] > 0:
		return fmt.Errorf("%w (%d)", errMediated, h.Mediated[d.Address])
	}
	return nil
}

// Shared returns the refusals of functions that several guests share. Functions that are already
// bound to a driver for passthrough are exempt, because nothing is unbound. ofVFs returns the hint
// of a function whose VFs are in use ([Host.UseOfVFs]), or is nil where no hint is shown.
func (h Host) Shared(s Selection, ofVFs func(pf pci.Address) string) (refusals []error) {
	const vGPU = ": vGPU hosts are not prepared this way"
	pfs := h.Devices.VFs()
	for _, a := range s.All {
		d := h.Devices.At(a)
		if pci.LeavesAlone(d.DriverName()) {
			continue
		}
		err := h.Virtualized(d, pfs)
		if err == nil && d.IsVF() && d.IsNVIDIAGPU() {
			err = errVF
		}
		if err == nil {
			continue
		}
		if ofVFs != nil {
			if use := ofVFs(a); use != "" {
				err = host.WithHint(err, use)
			}
		}
		reason := err.Error() + ": unbinding its driver would remove them"
		switch {
		case errors.Is(err, ErrSRIOV):
			reason = err.Error()
		case d.IsGPU():
			reason = err.Error() + vGPU
		}
		refusals = append(refusals, &Refusal{Address: a, Reason: reason, Absolute: true, Err: err})
	}
	return refusals
}

// Refusals returns the refusals of a selection, and those that --allow lifts.
func (h Host) Refusals(s Selection) (refusals []error, lifted []*Refusal) {
	allowed, needed := s.Lifting, h.Needed()
	answer := h.Ask(forGuests, allowed, s.leaving()...)
	add := func(r *Refusal) { answer.add(h, allowed, r) }
	ofCards, joins := h.Devices.Card(s.Selected), h.Joins(s)
	for _, a := range s.All {
		d := h.Devices.At(a)
		switch {
		case !ofCards(d) && joins(d):
			for _, r := range h.AdapterUses(Leaving{Address: a, Kind: s.Kind, Guests: true}) {
				add(r)
			}
		case !needed[a] && !ofCards(d):
			add(&Refusal{Address: a, Code: host.CodeGroup,
				Reason: fmt.Sprintf("shares IOMMU group %d with a selected device but is not part of it", *d.IOMMUGroup)})
		}
		if (Records{Containers: h.Containers}).forContainers(h.Devices, a) {
			add(Refuse(a, ErrForContainers))
		}
		switch {
		case s.NVSwitch == machine.SwitchesToHost && d.IsNVSwitch():
			add(Refuse(a, ErrSwitches))
		case d.VPDUnread():
			add(&Refusal{Address: a, Reason: errVPDUnread.Error(), Err: errVPDUnread})
		}
	}
	for _, r := range answer.Refused {
		refusals = append(refusals, r)
	}
	if separation := h.separation(s); separation != nil {
		refusals = append(refusals, separation)
	}
	return refusals, answer.Lifted
}

// separation returns an error if the selection contains only part of a board, or nil. GPUs for
// guests require a choice of the side that gets the NVSwitches. --allow for single functions
// replaces that choice.
func (h Host) separation(s Selection) *Separation {
	if s.NVSwitch == machine.SwitchesToHost {
		return nil
	}
	ofSelection, allowed := pci.Set(s.All), pci.Set(s.Allowed)
	var r, unknown Separation
	gpus, switches := false, false
	for i := range h.Devices {
		d := &h.Devices[i]
		selected := ofSelection[d.Address]
		gpus = gpus || selected && d.IsBoardGPU()
		switches = switches || selected && d.IsNVSwitch()
		switch {
		case selected && (d.IsBoardGPU() || d.IsNVSwitch()):
			r.Go = append(r.Go, d.Address)
		case selected || allowed[d.Address]:
		case d.VPDUnread():
			unknown.Remain = append(unknown.Remain, d.Address)
		case d.IsBoardGPU() || d.IsNVSwitch():
			r.Remain = append(r.Remain, d.Address)
		}
	}
	if !gpus && !switches {
		return nil
	}
	r.Remain = slices.DeleteFunc(r.Remain, func(a pci.Address) bool {
		isSwitch := h.Devices.At(a).IsNVSwitch()
		return isSwitch && !gpus || !isSwitch && !switches
	})
	switch {
	case len(r.Remain) > 0:
		return &r
	case gpus && len(unknown.Remain) > 0:
		unknown.unread = true
		return &unknown
	}
	return nil
}

// used returns how functions are in use. A process that may use any GPU, by a node that serves all
// of them, is not counted: it loses nothing if it uses another.
func used(uses machine.Uses) map[pci.Address]string {
	used := map[pci.Address]string{}
	for _, by := range slices.Backward(uses.Holders) { // the first one counts
		if !by.Shared && by.PID != 0 {
			used[by.Address] = by.Who()
		}
	}
	for a, guest := range uses.ByGuests() {
		used[a] = guest.Who()
	}
	return used
}

// IsNew reports whether a function is not recorded.
func (h Host) IsNew(a pci.Address) bool {
	return h.Recorded.At(a) == nil
}

// InUse returns the refusals of functions that are in use now and not recorded yet, which their
// users would lose at the next boot.
func (h Host) InUse(uses machine.Uses, s Selection) (refusals []error, lifted []*Refusal) {
	allowed, used, named := s.Lifting, used(uses), map[pci.Address]bool{}
	for _, need := range h.Needs {
		named[need.Address] = named[need.Address] || need.Use == guard.UseRDMAProcess // of the same process
	}
	var answer Answer
	for _, a := range s.All {
		if by := used[a]; by != "" && h.IsNew(a) && (!named[a] || s.Kind != AtBoot) {
			answer.add(h, allowed, &Refusal{Address: a, Reason: "is in use: " + by, Code: host.CodeInUse})
		}
	}
	for _, r := range answer.Refused {
		refusals = append(refusals, r)
	}
	return refusals, answer.Lifted
}

// Needed returns the functions that the host needs.
func (h Host) Needed() map[pci.Address]bool {
	needed := map[pci.Address]bool{}
	for _, need := range h.Needs {
		needed[need.Address] = true
	}
	return needed
}
