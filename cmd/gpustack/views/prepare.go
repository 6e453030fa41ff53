package views

import (
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/change"
	"gpustack/host/machine"
	"gpustack/host/modprobe"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/host/selection"
)

// Prepare is the output of host prepare (docs/json.md).
type Prepare struct {
	Report
	Changes []FileChange `json:"changes"` // the files that change, in order
	// all functions to assign to guests, by address; empty with --none, and with --if-present
	// without such a device
	Devices   []preparedDevice `json:"devices"`
	Arguments boot.Change      `json:"arguments"` // changes of the kernel arguments
	Programs  []string         `json:"programs"`  // programs that run after the files have changed
	// programs to run on the machine, which gpustack does not run
	Left []string `json:"left"`

	others     []modprobe.Stated // see prepare.Plan
	blacklists []string          // the same
}

// preparedDevice is a function that is assigned to guests, as the contract records it.
type preparedDevice struct {
	machine.Function
	// Companion reports whether it only shares a card or an IOMMU group with a GPU, as an audio
	// function does: it is bound to VFIO, and not offered to Nova.
	Companion bool `json:"companion"`
}

// NewPrepare returns the report of a plan of host prepare. head is its common part.
func NewPrepare(head Report, m machine.Machine, plan prepare.Plan, work change.Work) Prepare {
	r := Prepare{
		Report:    head,
		Changes:   FileChanges(plan.Files),
		Arguments: plan.Arguments,
		Programs:  commandLines(work.Programs),
		Left:      commandLines(work.Left),
		others:    plan.Others, blacklists: plan.Blacklists,
	}
	r.Devices = host.Map(plan.Functions, func(f machine.Function) preparedDevice {
		return preparedDevice{f, selection.IsCompanion(m.Devices.Value.At(f.Address), m.Devices.Value)}
	})
	r.Changed = len(r.Changes)+len(work.Programs) > 0
	r.atNextBoot(plan.Menu || plan.Initramfs)
	r.then(checkOrScan(len(plan.Functions) == 0))
	return r
}

// checkOrScan returns the command that shows, after the boot, what a plan has made of the machine. A
// machine of which nothing is recorded any more has nothing to check.
func checkOrScan(nothing bool) host.Command {
	if nothing {
		return host.NewCommand("host scan")
	}
	return host.NewCommand("host check")
}

// PrintPrepare prints the plan as text.
func PrintPrepare(u *term.UI, r Prepare, devices pci.Devices) {
	rows := host.Map(r.Devices, func(f preparedDevice) []string {
		d := devices.At(f.Address)
		return []string{f.Address.String(), IDs(d), Name(d), Text(f.Group), orDash(Text(d.Driver)), f.Driver + " by " + string(f.By)}
	})
	if !printSelection(u, r.Changed, []string{"FUNCTION", "ID", "NAME", "GROUP", "NOW", "AT BOOT"}, rows, "",
		"this machine is not prepared", "no function is assigned to guests from the next boot on") {
		return
	}
	if len(r.Arguments.Drop) > 0 {
		what := either(rows == nil, "kernel arguments that are removed", "conflicting kernel arguments, to be removed")
		u.Printf("\n%s: %s\n", what, r.Arguments.Drop)
	}
	printDiffs(u, r.Changes)
	printPrograms(u, r.Programs, r.Left)
	companions := host.Filter(r.Devices, func(d preparedDevice) bool { return d.Companion })
	names := host.Map(companions, func(d preparedDevice) string { return d.Address.String() })
	printNotes(u, companionsText(names), r.atBoot(rows == nil))
}

// companionsText is what a plan says of companions, by their names.
func companionsText(names []string) string {
	return after("bound with a GPU, but not offered to Nova: ", strings.Join(names, ", "))
}

// atBoot returns when a plan takes effect, and which kernel argument disables it for a boot. none
// says that no function is selected.
func (r Prepare) atBoot(none bool) string {
	text := "takes effect at the next boot"
	switch {
	case !r.NextBoot:
		return ""
	case none:
		return text
	case len(r.others) > 0:
		return text + "; gpustack=off does not return functions that other settings bind (" + r.others[0].Place() + ")"
	}
	off := "gpustack=off"
	for _, arg := range r.Arguments.Add {
		if strings.Contains(arg, ".ids=") {
			off += " in place of " + arg
		}
	}
	text += ", unless booted with " + off
	return text + either(len(r.blacklists) > 0,
		"; GPUs have no driver then, because of settings outside gpustack ("+strings.Join(r.blacklists, ", ")+")", "")
}
