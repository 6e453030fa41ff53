package prepare

import (
	"slices"
	"strings"

	"gpustack/host/boot"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
)

// view is a machine with what several checks ask of it.
type view struct {
	Machine
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

func (m Machine) view() view {
	v := view{Machine: m, unsettled: map[pci.Address]bool{}, moved: map[pci.Address]pci.Address{}}
	if m.Running.seen() {
		v.lacking = lacking(m.Running.Value, m.wantedArguments())
		v.against = m.contradicting(m.Running.Value)
		v.off = slices.Contains(m.Running.Value, offArgument)
	}
	if m.Contract.Value != nil && m.Devices.seen() {
		for _, f := range m.Contract.Value.Functions {
			v.findMoved(f)
			v.unsettled[f.Address] = len(v.identity(f)) > 0 || v.lost(f.Address)
		}
	}
	v.phase = v.judgePhase()
	return v
}

func (v view) judgePhase() phase {
	switch {
	case !v.Contract.seen():
		return unseen
	case v.Contract.Value == nil:
		return unprepared
	case v.off:
		return pending
	case len(v.lacking)+len(v.against) == 0 && !v.driversMissing():
		return booted
	}
	if v.Booted.seen() && v.Prepared.seen() && v.Prepared.Value != nil {
		if v.Booted.Value.After(*v.Prepared.Value) {
			return booted
		}
		return pending
	}
	// Nothing tells when. Arguments only a boot can bring, and what cannot be seen is not
	// held against the machine.
	if len(v.lacking)+len(v.against) > 0 || !v.Running.seen() {
		return pending
	}
	return booted
}

// driversMissing tells whether a recorded function is not held as is recorded.
func (v view) driversMissing() bool {
	return slices.ContainsFunc(v.Contract.Value.Functions, func(f Function) bool {
		d := v.device(f.Address)
		return d != nil && !v.unsettled[f.Address] && !d.DriverUnread() && !sameDriver(text(d.Driver), f.Driver) && !mayBeBorrowed(f, *d)
	})
}

func sameDriver(a, b string) bool {
	return modprobe.Normal(a) == modprobe.Normal(b)
}

// mayBeBorrowed tells whether a function may have been brought from its driver to
// another of VFIO's for a guest: libvirt does so with managed devices, from pci-stub to
// vfio-pci, or to a variant of that (libvirt, src/hypervisor/virhostdev.c).
func mayBeBorrowed(f Function, d pci.Device) bool {
	driver := text(d.Driver)
	return !sameDriver(driver, f.Driver) && pci.LeavesAlone(driver) && !sameDriver(driver, Stub)
}

// lost tells whether a function does not answer.
func (m *Machine) lost(a pci.Address) bool {
	const none = 0xffff // PCI Local Bus Specification 3.0, 6.2.1: no vendor has it
	if answers := m.Inspected[a].Answers; answers != nil && !*answers {
		return true
	}
	d := m.device(a)
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

// wantedArguments are those that are recorded.
func (m *Machine) wantedArguments() []string {
	if m.Contract.Value == nil {
		return nil
	}
	return m.Contract.Value.Arguments
}

// contradicting returns the arguments that stand against what the machine's IOMMU needs.
func (m *Machine) contradicting(args boot.Args) boot.Args {
	want, _ := boot.WantIOMMU(m.CPUVendor)
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

// lacking returns the arguments that are wanted and not there. One counts as there if
// each word of its comma list is in one of the same name.
func lacking(args boot.Args, want []string) []string {
	var lacking []string
	for _, arg := range want {
		name, value, _ := strings.Cut(arg, "=")
		if !slices.ContainsFunc(args.Values(name), func(have string) bool {
			words := strings.Split(have, ",")
			return !slices.ContainsFunc(strings.Split(value, ","), func(w string) bool { return !slices.Contains(words, w) })
		}) {
			lacking = append(lacking, arg)
		}
	}
	return lacking
}
