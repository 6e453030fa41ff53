package views

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/prepare"
)

// Becomes returns how many functions get a driver, with their kinds: "16 functions → vfio-pci (8
// GPUs, 6 NVSwitches, 2 NICs)".
func Becomes(u *term.UI, functions []pci.Address, target string, devices pci.Devices) string {
	if len(functions) == 0 {
		return ""
	}
	arrow := either(u.Page.Unicode, "→", "->")
	kind := func(a pci.Address) string { return functionKind(devices.At(a)) }
	same := grouped(functions, kind)
	slices.SortStableFunc(same, func(a, b []pci.Address) int {
		return cmp.Or(cmp.Compare(kindRank(kind(a[0])), kindRank(kind(b[0]))), cmp.Compare(len(b), len(a)))
	})
	kinds := host.Map(same, func(of []pci.Address) string { return host.Numbered(len(of), kind(of[0])) })
	return fmt.Sprintf("%s %s %s (%s)", host.Numbered(len(functions), "function"), arrow, target, strings.Join(kinds, ", "))
}

// functionKind returns what an operator calls a function.
func functionKind(d *pci.Device) string {
	if d == nil {
		return "missing device"
	}
	kind := d.Kind()
	switch {
	case d.IsNVSwitch(), d.IsManagementConsole():
	case d.IsGPU():
		kind = "GPU"
	case kind == "audio":
		kind = "audio function"
	}
	kind += either(d.IsVF(), " VF", "")
	return kind
}

// kindRank orders kinds: GPUs first, then NVSwitches.
func kindRank(kind string) int {
	switch {
	case strings.HasPrefix(kind, "GPU"):
		return 0
	case kind == "NVSwitch":
		return 1
	}
	return 2
}

// becoming is a function that gets a driver.
type becoming struct {
	address pci.Address
	target  string
}

// allBecome returns the part of a summary about functions that get drivers.
func allBecome(u *term.UI, moves []becoming, devices pci.Devices) string {
	return strings.Join(host.Map(grouped(moves, func(b becoming) string { return b.target }), func(same []becoming) string {
		return Becomes(u, host.Map(same, func(b becoming) pci.Address { return b.address }), same[0].target, devices)
	}), ", ")
}

// toHost is the target of functions that return to the host.
const toHost = "host"

// PrepareSummary returns the summary of host prepare. all says that everything is regenerated, not
// only what has changed.
func PrepareSummary(u *term.UI, r Prepare, plan prepare.Plan, all bool, m machine.Machine) string {
	recorded := m.Contract.Value
	moved := host.Filter(plan.Functions, func(f machine.Function) bool {
		before := recorded.At(f.Address)
		return before == nil || before.Driver != f.Driver || !before.IsAt(m.Devices.Value)
	})
	moves := host.Map(moved, func(f machine.Function) becoming { return becoming{f.Address, f.Driver} })
	for _, a := range recorded.Addresses() {
		if !slices.ContainsFunc(plan.Functions, func(f machine.Function) bool { return f.Address == a }) {
			moves = append(moves, becoming{a, toHost})
		}
	}
	functions := allBecome(u, moves, m.Devices.Value)
	if functions == "" && len(plan.Functions) > 0 {
		functions = "the selection stays as it is: " + host.Numbered(len(plan.Functions), "function")
	}
	made := plan.Regenerated
	if all {
		made = plan.AllRegenerated
	}
	generated := after("initramfs of ", term.Some(made.Kernels, "kernel", ""))
	if made.Menu {
		generated = strings.TrimPrefix(generated+" and boot menu", " and ")
	}
	generated += either(generated != "" && len(r.Left) > 0, " left to regenerate on the target machine", "")
	return term.Sentence(functions, filesText(r.Changes, "changed", "new"), generated, r.rebootText())
}

// filesText returns the number of files with each action.
func filesText(changes []FileChange, updated, created string) string {
	counts := map[edit.Action]int{}
	for _, c := range changes {
		counts[c.Action]++
	}
	var parts []string
	for _, kind := range []struct {
		action edit.Action
		word   string
	}{{edit.Update, updated}, {edit.Create, created}, {edit.Delete, "removed"}} {
		switch n := counts[kind.action]; {
		case n == 0:
		case parts == nil && kind.word == "new":
			parts = append(parts, host.Numbered(n, "new file"))
		case parts == nil:
			parts = append(parts, host.Numbered(n, "file")+" "+kind.word)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, kind.word))
		}
	}
	return strings.Join(parts, ", ")
}

// DriversSummary returns the summary of host bind, host release and their undo.
func DriversSummary(u *term.UI, plan driver.Plan, devices pci.Devices) string {
	moves := host.Map(plan.Changes, func(c driver.Change) becoming { return becoming{c.Address, cmp.Or(afterwards(c), "no driver")} })
	stopped, started := term.Some(len(plan.Services.Stop), "service", " stopped"), term.Some(len(plan.Services.Start), "service", " started")
	persistence := ""
	switch {
	case len(plan.Services.On) > 0:
		persistence = "persistence mode switched on again"
	case len(plan.Services.Off) > 0:
		persistence = "persistence mode switched off"
	}
	containers := either(plan.Release, " returned to containers", " taken from containers")
	return term.Sentence(cmp.Or(allBecome(u, moves, devices), "the drivers stay as they are"), term.Some(len(plan.Containers), "function", containers),
		term.Some(len(plan.Load), "module", " loaded"), term.Join(", ", stopped, started, persistence))
}
