package gate

import (
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Selection is a set of functions for guests: the selected ones, and in All also the other
// functions of their cards and groups.
type Selection struct {
	Selected, All []pci.Address
	Allowed       Allowed
	NVSwitch      machine.NVSwitch
	Kind          Kind // AtBoot or Now
}

// Leaving returns the functions of the selection as they leave the host. A part of a card stands for
// its GPU, and leaves with it.
func (s Selection) Leaving(devices pci.Devices) (all []Leaving) {
	selected := host.Set(s.Selected)
	for _, a := range s.Selected {
		if gpu := devices.GPUOf(devices.At(a)); gpu != nil {
			selected[gpu.Address] = true
		}
	}
	for _, a := range s.All {
		gpu := devices.GPUOf(devices.At(a))
		all = append(all, Leaving{Address: a, Kind: s.Kind, Guests: true, Apart: !selected[a] && (gpu == nil || !selected[gpu.Address])})
	}
	return all
}

// Virtualized returns an error if a function is shared by guests, through enabled virtual
// functions or through mediated devices. pfs are those of [pci.Devices.VFs].
func (h Host) Virtualized(d *pci.Device, pfs map[pci.Address][]pci.Address) error {
	vfs := len(pfs[d.Address])
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
func (h Host) Shared(s Selection, ofVFs func(pf pci.Address) string) (refusals []*Refusal) {
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

// Decide returns what the rules say of a selection. Functions that are recorded already lose their
// users by what was planned then: uses has nothing of them.
func (h Host) Decide(s Selection, uses machine.Uses, ofVFs func(pf pci.Address) string) Answer {
	answer := h.Ask(s.Allowed, s.Leaving(h.Devices)...)
	mapped := map[int]bool{} // groups with a region that is reported
	for _, a := range s.All {
		d := h.Devices.At(a)
		if (Records{Containers: h.Containers}).forContainers(h.Devices, a) {
			answer.add(h, s.Allowed, Refuse(a, ErrForContainers))
		}
		if s.NVSwitch == machine.SwitchesToHost && d.IsNVSwitch() {
			answer.add(h, s.Allowed, Refuse(a, ErrSwitches))
		}
		switch region := h.Regions.Of(d); {
		case region == nil || mapped[region.Group]:
		case region.Refuses:
			mapped[region.Group] = true
			r := Refuse(a, ErrRegion)
			r.File = region.File()
			answer.add(h, s.Allowed, r)
		default:
			mapped[region.Group] = true
			answer.Notes = append(answer.Notes, fmt.Sprintf("%s is in IOMMU group %d, of which the firmware requires %s mapped 1:1: "+
				"kernels since 6.6 assign the group to no guest", a, region.Group, region.Memory))
		}
	}
	answer.Refused = append(answer.Refused, h.Shared(s, ofVFs)...)
	for _, a := range s.Allowed.Functions {
		allowed := Allowed{Functions: []pci.Address{a}}
		if !slices.ContainsFunc(s.All, func(f pci.Address) bool { return allowed.names(h.Devices, f) }) {
			answer.Refused = append(answer.Refused, Refuse(a, ErrStays))
		}
	}
	added := host.Filter(s.Leaving(h.Devices), func(l Leaving) bool { return h.IsNew(l.Address) })
	h.addUsers(&answer, uses, s.Allowed, added)
	return answer
}

// Separation returns an error if the selection contains only part of a board, or nil. GPUs for
// guests require a choice of the side that gets the NVSwitches.
func (h Host) Separation(s Selection) *Separation {
	if s.NVSwitch == machine.SwitchesToHost {
		return nil
	}
	ofSelection := host.Set(s.All)
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
		case selected:
		case d.VPDUnread():
			unknown.Remain = append(unknown.Remain, d.Address)
		case d.IsBoardGPU(), d.IsNVSwitch():
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
		unknown.Unread = true
		return &unknown
	}
	return nil
}

// IsNew reports whether a function is not recorded: the record may have another device at its address.
func (h Host) IsNew(a pci.Address) bool {
	f := h.Recorded.At(a)
	return f == nil || !f.IsAt(h.Devices)
}
