package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpustack/cleanup"
	"gpustack/cmd/gpustack/term"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/nova/flavor"
	"gpustack/nova/servertest"
)

// This file words the summary that ends each plan, above the question: one sentence for each kind
// of change, from the values of the plan.

// becomes returns how many functions get a driver, with their kinds: "16 functions → vfio-pci (8
// GPUs, 6 NVSwitches, 2 NICs)".
func becomes(u *term.UI, functions []pci.Address, target string, devices pci.Devices) string {
	if len(functions) == 0 {
		return ""
	}
	arrow := "->"
	if u.Unicode {
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
		kinds[i] = term.Numbered(counts[kind], kind)
	}
	return fmt.Sprintf("%s %s %s (%s)", term.Numbered(len(functions), "function"), arrow, target, strings.Join(kinds, ", "))
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
		parts = append(parts, becomes(u, b.functions[name], name, devices))
	}
	return strings.Join(parts, ", ")
}

// toHost is the target of functions that return to the host.
const toHost = "host"

// prepareSummary returns the summary of host prepare. all says that everything is regenerated, not
// only what has changed.
func prepareSummary(u *term.UI, r prepareReport, plan prepare.Plan, all bool, m machine.Machine) string {
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
		functions = "the selection stays as it is: " + term.Numbered(len(plan.Functions), "function")
	}
	made := plan.Regenerated
	if all {
		made = plan.AllRegenerated
	}
	generated := ""
	if made.Kernels > 0 {
		generated = "initramfs of " + term.Numbered(made.Kernels, "kernel")
	}
	if made.Menu {
		generated = strings.TrimPrefix(generated+" and boot menu", " and ")
	}
	if generated != "" && len(r.Left) > 0 {
		generated += " left to regenerate on the target machine"
	}
	reboot := ""
	if r.nextBoot {
		reboot = "reboot needed"
	}
	return term.Sentence(functions, filesText(r.Changes, "changed", "new"), generated, reboot)
}

// filesText returns the number of files with each action.
func filesText(changes []fileChange, updated, created string) string {
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
			parts = append(parts, term.Numbered(n, "new file"))
		case parts == nil:
			parts = append(parts, term.Numbered(n, "file")+" "+kind.word)
		default:
			parts = append(parts, fmt.Sprintf("%d %s", n, kind.word))
		}
	}
	return strings.Join(parts, ", ")
}

// driversSummary returns the summary of host bind, host release and their undo.
func driversSummary(u *term.UI, plan driver.Plan, devices pci.Devices) string {
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
	load := ""
	if len(plan.Load) > 0 {
		load = term.Numbered(len(plan.Load), "module") + " loaded"
	}
	stopped, started := term.Some(len(plan.Services.Stop), "service"), term.Some(len(plan.Services.Start), "service")
	if stopped != "" {
		stopped += " stopped"
	}
	if started != "" {
		started += " started"
	}
	persistence := ""
	switch {
	case len(plan.Services.On) > 0:
		persistence = "persistence mode switched on again"
	case len(plan.Services.Off) > 0:
		persistence = "persistence mode switched off"
	}
	functions := moves.text(u, devices)
	if functions == "" {
		functions = "the drivers stay as they are"
	}
	containers := term.Some(len(plan.Containers), "function")
	switch {
	case containers != "" && plan.Release:
		containers += " returned to containers"
	case containers != "":
		containers += " taken from containers"
	}
	return term.Sentence(functions, containers, load, term.AndMore(stopped, started, persistence))
}

// novaSummary returns the summary of nova configure.
func novaSummary(r novaReport) string {
	restart := ""
	if len(r.Services) > 0 {
		var names []string
		for _, s := range r.Services {
			names = append(names, s.Names()...)
		}
		restart = "to restart: " + strings.Join(names, ", ")
	}
	removed := ""
	if len(r.Removed) > 0 {
		removed = term.Numbered(len(r.Removed), "line") + " removed"
	}
	specs := "" // of the files of this machine
	if r.Role.Computes() {
		specs = term.Some(len(r.Specs), "device spec")
	}
	return term.Sentence(
		term.AndMore(term.Some(len(r.Aliases), "alias"), specs), removed,
		filesText(r.Changes, "changed", "new"), restart)
}

// flavorSummary returns the summary of flavor create, flavor delete and their undo.
func flavorSummary(m flavor.Move) string {
	name, done := "", "changed"
	switch {
	case m.After == nil:
		name, done = m.Before.Name, "deleted"
	case m.Before == nil:
		name, done = m.After.Name, "created"
	default:
		name = m.After.Name
	}
	return term.Sentence("flavor "+name+" "+done, term.Numbered(len(m.Requests()), "request"))
}

// repairSummary returns the summary of repairs.
func repairSummary(units []cleanup.Unit) string {
	var c repairCounts
	for _, unit := range units {
		if unit.State == cleanup.Skipped {
			c.skipped++
			continue
		}
		c.add(unit)
	}
	freed := ""
	if c.freed > 0 {
		freed = term.Numbered(c.freed, "device") + " freed on " + firstOf(c.hosts)
	}
	skipped := ""
	if c.skipped > 0 {
		skipped = term.Numbered(c.skipped, "repair") + " skipped"
	}
	return term.Sentence(freed, c.text(), skipped)
}

// undoRowsSummary returns the summary of the undo of repairs.
func undoRowsSummary(units []cleanup.Unit) string {
	var c repairCounts
	reverted, rows := 0, 0
	for _, unit := range units {
		if unit.Written() || unit.Open() {
			reverted++
			rows += len(unit.Rows)
			c.add(unit)
		}
	}
	allocations := ""
	if c.allocations > 0 {
		allocations = "allocations of " + term.Numbered(c.allocations, "instance") + " restored"
	}
	restored := ""
	if rows > 0 {
		restored = term.Numbered(rows, "row") + " restored"
	}
	return term.Sentence(term.Numbered(reverted, "repair")+" reverted", restored, allocations)
}

// repairCounts counts what repairs change.
type repairCounts struct {
	freed, assigned, closed, cleared, allocations, skipped int
	hosts                                                  []string // where devices are freed
}

func (c *repairCounts) add(unit cleanup.Unit) {
	c.closed += len(unit.Closings)
	if unit.Placement != nil {
		c.allocations++
	}
	if unit.Repair == cleanup.ClearContext {
		c.cleared++ // its devices remain assigned to the instance
		return
	}
	for _, d := range unit.Devices {
		if d.Instance == nil && unit.Instance != "" {
			c.assigned++
			continue
		}
		c.freed++
		if !slices.Contains(c.hosts, d.Host) {
			c.hosts = append(c.hosts, d.Host)
		}
	}
}

// text returns the counts other than that of freed devices, with what happens to each.
func (c *repairCounts) text() string {
	var parts []string
	for _, part := range []struct {
		n          int
		noun, done string
	}{{c.assigned, "device", "assigned"}, {c.closed, "migration", "closed"}, {c.cleared, "migration context", "cleared"}} {
		if part.n > 0 {
			parts = append(parts, term.Numbered(part.n, part.noun)+" "+part.done)
		}
	}
	if c.allocations > 0 {
		parts = append(parts, "allocations of "+term.Numbered(c.allocations, "instance")+" changed")
	}
	return term.Sentence(parts...)
}

// recoverySummary returns the summary of the recovery of an interrupted entry, as far as the entry
// itself shows it: the recovery determines what was written.
func recoverySummary(e change.Entry) string {
	name, programs := entryName(e.ID, e.Command), ""
	if len(e.Programs) > 0 {
		programs = term.Numbered(len(e.Programs), "program") + " run"
	}
	files := ""
	if len(e.Files) > 0 {
		files = "at most " + term.Numbered(len(e.Files), "file") + " restored"
	}
	switch {
	case e.ObjectType() == servertest.Type:
		return name + " is reverted: Nova deletes the servers of the test that exist"
	case recoveredBySome(e):
		return name + " is completed or reverted, whichever its outcome shows"
	case e.Status == change.Rebuilding:
		return term.Sentence(name+" is completed", programs)
	case e.Status == change.Unbuilding:
		return term.Sentence("the undo of "+name+" is completed", programs)
	case e.Status == change.Undoing:
		return term.Sentence("the undo of "+name+" is completed", files, programs)
	}
	if e.Kind == change.KindDrivers {
		done := " is rolled back"
		if record, err := driver.ParseRecord(e); err == nil && record.Release { // functions never stay half released
			done = " is completed"
		}
		return name + done + " in each IOMMU group that is half changed: " + changed(e)
	}
	return term.Sentence(name+" is rolled back", files)
}

// undoFilesSummary returns the summary of the undo of files.
func undoFilesSummary(r undoReport) string {
	run, left, reboot, restart := "", "", "", ""
	if len(r.Programs) > 0 {
		run = term.Numbered(len(r.Programs), "program") + " run"
	}
	if len(r.Left) > 0 {
		left = term.Numbered(len(r.Left), "program") + " left to run on the target machine"
	}
	if r.nextBoot {
		reboot = "reboot needed"
	}
	if len(r.Restart) > 0 {
		restart = "to restart: " + strings.Join(r.Restart, ", ")
	}
	files := filesText(r.Changes, "restored", "created again")
	if files == "" {
		files = "the files are as before"
	}
	return term.Sentence(files, run, left, reboot, restart)
}
