package check

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// view is a machine with what several checks ask of it.
type view struct {
	machine.Machine
	phase phase
	// Of the arguments that the kernel runs with: what is recorded and not there, what
	// stands against what the IOMMU needs, and whether they say gpustack=off.
	lacking []string
	against boot.Args
	off     bool
	// unsettled are recorded functions that are not what or where they were, or do not
	// answer: nothing more is asked of them.
	unsettled map[pci.Address]bool
	// moved are the addresses that recorded functions have now, by those they had.
	moved map[pci.Address]pci.Address
}

// phase is how far a machine has come.
type phase int

const (
	unseen     phase = iota // what is recorded could not be read
	unprepared              // nothing is
	pending                 // it is to be booted
	booted                  // it has been booted
)

// offArgument leaves every function to the host for one boot.
const offArgument = "gpustack=off"

func newView(m machine.Machine) view {
	m.Devices.Err = listError(m.Devices.Err)
	v := view{Machine: m, unsettled: map[pci.Address]bool{}, moved: map[pci.Address]pci.Address{}}
	if v.Running.Seen() {
		v.lacking = v.Running.Value.Lacking(v.wantedArguments())
		v.against = v.contradicting(v.Running.Value)
		v.off = slices.Contains(v.Running.Value, offArgument)
	}
	if v.Contract.Value != nil && m.Devices.Seen() {
		for _, f := range v.Contract.Value.Functions {
			v.findMoved(f)
			v.unsettled[f.Address] = len(v.identity(f)) > 0 || v.isLost(f.Address)
		}
	}
	v.phase = v.judgePhase()
	return v
}

func (v view) judgePhase() phase {
	switch {
	case !v.Contract.Seen():
		return unseen
	case v.Contract.Value == nil:
		return unprepared
	case v.off:
		return pending
	case len(v.lacking)+len(v.against) == 0 && !v.driversMissing():
		return booted
	}
	if v.Booted.Seen() && v.Prepared.Seen() && v.Prepared.Value != nil {
		if v.Booted.Value.After(*v.Prepared.Value) {
			return booted
		}
		return pending
	}
	// Nothing tells when. Arguments only a boot can bring, and what cannot be seen is not
	// held against the machine.
	if len(v.lacking)+len(v.against) > 0 || !v.Running.Seen() {
		return pending
	}
	return booted
}

// driversMissing tells whether a recorded function is not held as is recorded.
func (v view) driversMissing() bool {
	return slices.ContainsFunc(v.Contract.Value.Functions, func(f machine.Function) bool {
		d := v.Devices.Value.At(f.Address)
		return d != nil && !v.unsettled[f.Address] && !d.DriverUnread() && !f.IsHeldBy(d.DriverName()) && !f.MayBeBorrowed(d.DriverName())
	})
}

// isLost reports whether a function does not answer.
func (v view) isLost(a pci.Address) bool {
	const none = 0xffff // PCI Local Bus Specification 3.0, 6.2.1: no vendor has it
	if answers := v.Inspected[a].Answers; answers != nil && !*answers {
		return true
	}
	d := v.Devices.Value.At(a)
	return d != nil && d.IsVendor(none)
}

// hasMovedTo tells whether a recorded function is at an address now.
func (v view) hasMovedTo(a pci.Address) bool {
	for _, now := range v.moved {
		if now == a {
			return true
		}
	}
	return false
}

// findMoved looks for a recorded function that is not at its address: it is the one
// function that is the same, at an address that is not recorded.
func (v view) findMoved(f machine.Function) {
	same := func(d *pci.Device) bool {
		return d != nil && d.IsVendor(f.VendorID) && d.ProductID != nil && *d.ProductID == f.ProductID &&
			!machine.Differs(d.SubsystemVendorID, f.SubsystemVendorID) && !machine.Differs(d.SubsystemID, f.SubsystemID)
	}
	if same(v.Devices.Value.At(f.Address)) {
		return
	}
	var found []pci.Address
	for i := range v.Devices.Value {
		if d := &v.Devices.Value[i]; same(d) && d.Address.Function == f.Address.Function && v.Recorded(d.Address) == nil {
			found = append(found, d.Address)
		}
	}
	if len(found) == 1 {
		v.moved[f.Address] = found[0]
	}
}

// notComparable says why functions cannot be held against what is recorded.
func (v view) notComparable() []host.Finding {
	switch {
	case v.phase == unseen:
		return na("what is recorded is unknown")
	case v.phase == unprepared:
		return na("nothing is recorded")
	case !v.Devices.Seen():
		return unread(v.Devices)
	}
	return nil
}

// wantedArguments are those that are recorded.
func (v view) wantedArguments() []string {
	if v.Contract.Value == nil {
		return nil
	}
	return v.Contract.Value.Arguments
}

// contradicting returns the arguments that stand against what the machine's IOMMU needs.
func (v view) contradicting(args boot.Args) boot.Args {
	want, _ := boot.WantIOMMU(v.CPUVendor)
	against := want.Change(args).Drop
	// A word that is there twice is no contradiction, and no more is one that is
	// wanted in other words.
	return slices.DeleteFunc(against, func(arg string) bool {
		_, value, _ := strings.Cut(arg, "=")
		return !slices.ContainsFunc(strings.Split(strings.Trim(value, `"`), ","), func(w string) bool {
			return slices.Contains([]string{"off", "nopt", "soft", "0"}, w)
		})
	})
}

// listError returns why there is no list of functions, without the root's own path.
func listError(err error) error {
	if errors.Is(err, pci.ErrNoPCI) {
		return fs.ErrNotExist
	}
	return errors.Unwrap(err)
}

// kernel returns the release of the running kernel, or "".
func (v view) kernel() string {
	if v.Facts.Kernel == nil {
		return ""
	}
	return *v.Facts.Kernel
}
