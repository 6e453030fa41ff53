package check

import (
	"fmt"
	"time"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// RebootRequired reports whether the running kernel does not match the record: what is recorded, or
// the undo of what was, takes effect at the next boot only. It is Unknown, for one,
// in a tree that shows no running kernel. m was observed by [machine.ObserveRecord] or
// [machine.ObserveCheck].
func RebootRequired(m machine.Machine) host.Bool {
	v := newView(m)
	unmatched := len(v.lacking)+len(v.against) > 0
	required := v.phase == pending || v.phase == booted && unmatched || v.Unbooted.Value
	switch {
	case !v.Running.Seen(), v.phase == unseen, v.phase == unprepared && !v.Unbooted.Seen():
		return host.Unknown
	}
	return host.BoolOf(required)
}

// reboot checks whether the record takes effect only at the next boot.
func (v view) reboot() []host.Finding {
	f := host.Finding{Status: host.NA}
	reboot := host.Textf("reboot, then run %s again", host.NewCommand("host check"))
	if used := len(v.Uses.Value.ByGuests()); used > 0 {
		reboot = host.Textf("stop the guests (%s in use), then %s", host.Numbered(used, "function"), reboot)
	}
	switch {
	case v.phase == unseen:
		f.Seen = "what is recorded is unknown"
	case v.undone:
		f.Status, f.File, f.Seen = host.Fail, machine.ContractFile, "what was recorded at the last boot is undone"
		f.Effect = fmt.Sprintf("functions that are bound for guests until the next boot: %d", v.bound())
		f.Remedy = reboot
		if !v.mended {
			f.Remedy = host.Textf("follow the remedies above, %s", reboot)
		}
	case v.phase == unprepared:
		f.Seen = "nothing is recorded"
	case v.phase == booted && (!v.Running.Seen() || !v.Devices.Seen()):
		f.Seen = fmt.Sprintf("unknown without %s and %s", machine.CmdlineFile, machine.DevicesDir)
	case v.phase == booted && v.Unbooted.Value && v.mended:
		f.Status, f.File, f.Seen = host.Fail, machine.ContractFile, "the machine was booted with another selection than the recorded one"
		f.Effect = "until the next boot, functions stay as they were selected then"
		f.Remedy = reboot
	case v.phase == booted:
		f.Status, f.Seen = host.Pass, "no reboot is pending"
	case !v.mended:
		f.Seen = "skipped until the failures above are fixed"
	case v.off:
		f.Status, f.File, f.Seen = host.Fail, machine.CmdlineFile, "booted with "+offArgument
		f.Effect = "every function remains with the host until the next boot"
		f.Remedy = host.Textf("reboot without it; if the machine did not start before, run %s first", host.NewCommand("host prepare").Flag("none"))
	default:
		f.Status, f.File, f.Seen = host.Fail, machine.ContractFile, "what is recorded takes effect at the next boot"
		if v.Prepared.Value != nil {
			f.Seen = fmt.Sprintf("what was recorded at %s takes effect at the next boot", v.Prepared.Value.UTC().Format(time.RFC3339))
		}
		f.Effect = "until then all GPUs remain with the host"
		all, returning := len(v.Contract.Value.Functions), v.returning()
		if waiting := v.waiting(); len(waiting) < all || returning != nil {
			f.Effect = fmt.Sprintf("until then %d of %s for guests remain with the host: %s", len(waiting), host.Numbered(all, "function"), gate.Shortened(waiting))
		}
		if returning != nil {
			f.Effect += "; bound for guests, but not recorded: " + gate.Shortened(returning)
		}
		f.Remedy = reboot
	}
	return []host.Finding{f}
}

// bound returns the number of functions that are bound to a driver for passthrough.
func (v view) bound() int {
	return len(v.Devices.Value.Where(func(d *pci.Device) bool { return pci.LeavesAlone(d.DriverName()) }))
}

// returning returns the GPUs, with the functions of their cards, that are bound for guests and that
// the record leaves out: a guest may still have them.
func (v view) returning() []pci.Address {
	return v.Devices.Value.Where(func(d *pci.Device) bool {
		return pci.LeavesAlone(d.DriverName()) && v.Devices.Value.GPUOf(d) != nil && v.Recorded(d.Address) == nil
	})
}

// waiting returns the recorded functions that are not bound for guests yet.
func (v view) waiting() []pci.Address {
	return host.Filter(v.Contract.Value.Addresses(), func(a pci.Address) bool {
		d := v.Devices.Value.At(a)
		return d == nil || !v.Recorded(a).IsHeldBy(d.DriverName())
	})
}
