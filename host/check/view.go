package check

import (
	"errors"
	"io/fs"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/steps"
)

// view is an observed machine with values that several checks use.
type view struct {
	machine.Machine
	phase   phase
	refused []error     // the errors of host prepare on this machine
	boot    steps.State // of every boot
	mended  bool        // none of checks has failed
	undone  bool        // nothing is recorded any more, and the last boot was with what was
	// lacking are the recorded arguments that the running kernel does not have, against are its
	// arguments that conflict with the IOMMU's needs, and off is true if it has gpustack=off.
	lacking []string
	against boot.Args
	off     bool
	// unsettled are recorded functions that have changed, have moved or do not answer. Further checks
	// skip them.
	unsettled map[pci.Address]bool
	// moved maps the recorded address of each function that has moved to its current one, and movedTo
	// contains these current addresses.
	moved   map[pci.Address]pci.Address
	movedTo map[pci.Address]bool
}

// phase is the step between preparation and reboot that a machine has reached.
type phase int

const (
	unseen     phase = iota // the record cannot be read
	unprepared              // nothing is recorded
	pending                 // recorded, takes effect at the next boot
	booted                  // rebooted since it was recorded
)

// offArgument is the kernel argument with which every function remains with the host for one boot.
const offArgument = "gpustack=off"

func newView(m machine.Machine) view {
	m.Devices.Err = listError(m.Devices.Err)
	v := view{Machine: m, unsettled: map[pci.Address]bool{}, moved: map[pci.Address]pci.Address{}, movedTo: map[pci.Address]bool{}}
	if v.Running.Seen() {
		v.lacking = v.Running.Value.Lacking(v.wantedArguments())
		v.against = v.contradicting(v.Running.Value)
		v.off = slices.Contains(v.Running.Value, offArgument)
	}
	if v.Contract.Value != nil && m.Devices.Seen() {
		v.findMoved()
		for _, f := range v.Contract.Value.Functions {
			v.unsettled[f.Address] = len(v.identity(f)) > 0 || v.isLost(f.Address)
		}
	}
	v.phase = v.judgePhase()
	v.undone = v.phase == unprepared && v.Unbooted.Value
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
	// The time of the record or of the boot is unknown. Only a boot can bring missing arguments, so a
	// reboot is pending. What cannot be read is no reason for a failure.
	if len(v.lacking)+len(v.against) > 0 || !v.Running.Seen() {
		return pending
	}
	return booted
}

// driversMissing reports whether a recorded function is not bound to its recorded driver.
func (v view) driversMissing() bool {
	return slices.ContainsFunc(v.Contract.Value.Functions, func(f machine.Function) bool {
		d := v.Devices.Value.At(f.Address)
		return d != nil && !v.unsettled[f.Address] && !d.DriverUnread() && !f.IsHeldBy(d.DriverName()) && !f.MayBeBorrowed(d.DriverName())
	})
}

// isLost reports whether a function does not answer.
func (v view) isLost(a pci.Address) bool {
	const none = 0xffff // PCI Local Bus Specification 3.0, 6.2.1: no vendor has it
	if answers := v.Inspected[a].Answers; answers == host.No {
		return true
	}
	d := v.Devices.Value.At(a)
	return d != nil && d.IsVendor(none)
}

// findMoved records where functions have moved to that are no longer at their recorded addresses.
// Only another number of the bus shows it, of the same place below the recorded bridges: an identical
// device elsewhere may be one that remains with the host.
func (v view) findMoved() {
	devices := v.Devices.Value
	for _, f := range v.Contract.Value.Functions {
		id := f.Identity()
		if now := id.Compare(devices.Identity(f.Address)); len(f.Path) == 0 || now == pci.NoDifference || now == pci.OtherSlot {
			continue
		}
		for i := range devices {
			a := devices[i].Address
			if a.Slot == f.Address.Slot && a.Function == f.Address.Function && v.Recorded(a) == nil && id.Compare(devices.Identity(a)) == pci.NoDifference {
				v.moved[f.Address], v.movedTo[a] = a, true
			}
		}
	}
}

// notComparable returns a finding if functions cannot be compared with the record, else nil.
func (v view) notComparable() []host.Finding {
	switch {
	case v.phase == unseen:
		return checklist.NA("what is recorded is unknown")
	case v.phase == unprepared:
		return checklist.NA("nothing is recorded")
	case !v.Devices.Seen():
		return unread(v.Devices)
	}
	return nil
}

// wantedArguments returns the recorded kernel arguments.
func (v view) wantedArguments() []string {
	return host.Value(v.Contract.Value).Arguments
}

// contradicting returns the arguments that switch the machine's IOMMU off.
func (v view) contradicting(args boot.Args) boot.Args {
	want, _ := v.WantIOMMU()
	return want.Conflicting(args)
}

// listError returns why the list of functions cannot be read, without the path of the root.
func listError(err error) error {
	if errors.Is(err, pci.ErrNoPCI) {
		return fs.ErrNotExist
	}
	return errors.Unwrap(err)
}

// kernel returns the release of the running kernel, or "".
func (v view) kernel() string {
	return host.Value(v.Facts.Kernel)
}

// rebuilt returns how the boot menu or the initramfs is regenerated: by host prepare, and in a tree
// by what is to be run on the target machine.
func (v view) rebuilt(menu, images bool) host.Text {
	switch programs := v.programs(menu, images); {
	case !v.Elsewhere:
		return host.Textf("%s", host.NewCommand("host prepare").Flag("rebuild"))
	case programs == "": // the boot loader reads the files that host prepare writes
		return host.Textf("%s", host.NewCommand("host prepare"))
	default:
		return host.Plain("run on the target machine: " + programs)
	}
}

// programs returns the commands that regenerate the boot menu or the initramfs.
func (v view) programs(menu, images bool) string {
	var all []host.Program
	if images && v.Generator.Seen() {
		all = v.Generator.Value.Programs(v.Images.Value)
	}
	if v.Loader.Value != nil {
		all = append(all, v.Loader.Value.Programs(menu, images)...)
	}
	return strings.Join(host.Map(all, host.Program.String), "; ")
}
