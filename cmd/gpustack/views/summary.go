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
	arrow := "->"
	if u.Page.Unicode {
		arrow = "→"
	}
	var kinds []string
	counts := map[string]int{}
	for _, a := range functions {
		kind := functionKind(devices.At(a))
		if counts[kind] == 0 {
			kinds = append(kinds, kind)
		}
		counts[kind]++
	}
	slices.SortStableFunc(kinds, func(a, b string) int {
		return cmp.Or(cmp.Compare(kindRank(a), kindRank(b)), cmp.Compare(counts[b], counts[a]))
	})
	for i, kind := range kinds {
		kinds[i] = host.Numbered(counts[kind], kind)
	}
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
	if d.IsVF() {
		kind += " VF"
	}
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

// byDriver returns the functions that get each driver, and the drivers in the order of their first
// functions.
type byDriver struct {
	drivers   []string
	functions map[string][]pci.Address
}

func (b *byDriver) add(name string, a pci.Address) {
	if b.functions == nil {
		b.functions = map[string][]pci.Address{}
	}
	if b.functions[name] == nil {
		b.drivers = append(b.drivers, name)
	}
	b.functions[name] = append(b.functions[name], a)
}

// text returns the part of a summary about functions and their drivers.
func (b *byDriver) text(u *term.UI, devices pci.Devices) string {
	var parts []string
	for _, name := range b.drivers {
		parts = append(parts, Becomes(u, b.functions[name], name, devices))
	}
	return strings.Join(parts, ", ")
}

// toHost is the target of functions that return to the host.
const toHost = "host"

// PrepareSummary returns the summary of host prepare. all says that everything is regenerated, not
// only what has changed.
func PrepareSummary(u *term.UI, r Prepare, plan prepare.Plan, all bool, m machine.Machine) string {
	var moves byDriver
	recorded := m.Contract.Value
	planned := map[pci.Address]bool{}
	for _, f := range plan.Functions {
		planned[f.Address] = true
		if before := recorded.At(f.Address); before == nil || before.Driver != f.Driver {
			moves.add(f.Driver, f.Address)
		}
	}
	if recorded != nil {
		for _, f := range recorded.Functions {
			if !planned[f.Address] {
				moves.add(toHost, f.Address)
			}
		}
	}
	functions := moves.text(u, m.Devices.Value)
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
	if generated != "" && len(r.Left) > 0 {
		generated += " left to regenerate on the target machine"
	}
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
	var moves byDriver
	for _, c := range plan.Changes {
		switch {
		case c.Any:
			moves.add("any driver of the host that matches", c.Address)
		case c.After.Driver == "":
			moves.add("no driver", c.Address)
		default:
			moves.add(string(c.After.Driver), c.Address)
		}
	}
	stopped, started := term.Some(len(plan.Services.Stop), "service", " stopped"), term.Some(len(plan.Services.Start), "service", " started")
	persistence := ""
	switch {
	case len(plan.Services.On) > 0:
		persistence = "persistence mode switched on again"
	case len(plan.Services.Off) > 0:
		persistence = "persistence mode switched off"
	}
	containers := " taken from containers"
	if plan.Release {
		containers = " returned to containers"
	}
	return term.Sentence(cmp.Or(moves.text(u, devices), "the drivers stay as they are"), term.Some(len(plan.Containers), "function", containers),
		term.Some(len(plan.Load), "module", " loaded"), term.AndMore(stopped, started, persistence))
}
