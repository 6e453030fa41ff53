package views

import (
	"slices"
	"strconv"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/bind"
	"gpustack/host/driver"
	"gpustack/host/guard"
	"gpustack/host/pci"
)

// Drivers is the output of host bind and host release (docs/json.md).
type Drivers struct {
	Report
	DriversPlan
	// the CDI specs without the functions of of_containers; empty for host release
	Changes []FileChange `json:"changes"`
	// all selected functions and those that must change with them
	Functions []pci.Address `json:"functions"`
	Load      []string      `json:"load"` // drivers to load first with modprobe
	// IOMMU groups that must be viable in the end; empty for host release
	Groups []int `json:"iommu_groups"`
	// Holders are the processes that have the functions open and whose services are stopped; any
	// other process refuses the plan. Empty for host release.
	Holders []guard.Holder `json:"holders"`
}

// DriversPlan is how the drivers of functions change, as plans, history and undo show it.
type DriversPlan struct {
	Drivers []DriverChange `json:"drivers"` // the functions that change, in order
	// programs, as arguments, that are run first: they stop services and switch off persistence
	// mode
	Stop [][]string `json:"stop"`
	// programs that are run last: they start services, and switch on persistence mode of GPUs that
	// stay
	Start [][]string `json:"start"`
	// functions recorded for containers, which lose them, or are offered them again
	Containers []pci.Address `json:"of_containers"`
}

// newDriversPlan returns what documents have of a plan.
func newDriversPlan(p driver.Plan) DriversPlan {
	return DriversPlan{driverChanges(p), p.Services.Before(), p.Services.Afterwards(), p.Containers}
}

// DriverChange is a planned or recorded change of the driver of a function.
type DriverChange struct {
	driver.Change
	Writes []driver.Write `json:"writes"` // the writes to sysfs, in order
}

// driverChanges returns the changes of a plan of drivers.
func driverChanges(plan driver.Plan) []DriverChange {
	return host.Map(plan.Changes, func(c driver.Change) DriverChange { return DriverChange{c, c.Writes()} })
}

// NewDrivers returns the report of a plan. specs are the changes of spec files that come first.
func NewDrivers(head Report, plan bind.Plan, specs []FileChange) Drivers {
	return Drivers{
		Report: head, DriversPlan: newDriversPlan(plan.Plan), Changes: specs,
		Functions: plan.Functions, Load: plan.Load, Groups: plan.Groups, Holders: plan.Holders,
	}
}

// PrintDrivers prints a plan for people.
func PrintDrivers(u *term.UI, r Drivers, plan bind.Plan, devices pci.Devices) {
	u.Table([]string{"FUNCTION", "ID", "NAME", "GROUP", "NOW", "THEN"}, host.Map(r.Functions, func(a pci.Address) []string {
		d := devices.At(a)
		now := orDash(Text(d.Driver))
		then := now
		if i := slices.IndexFunc(r.Drivers, func(c DriverChange) bool { return c.Address == a }); i >= 0 {
			then = thenText(r.Drivers[i].Change)
		}
		return []string{a.String(), IDs(d), Name(d), Text(d.IOMMUGroup), now, then}
	}))
	if !r.Changed {
		u.Printf("\nnothing to do: the drivers are as planned\n")
		return
	}
	if len(plan.Holders) > 0 {
		u.Printf("\nopen now, by services that are stopped:\n")
	}
	printEach(u, "%s", plan.Holders)
	printDiffs(u, r.Changes)
	printDriverWrites(u, plan.Plan, u.Full)
}

// printDriverWrites prints the programs and writes of a plan, in their order. Unless full is true,
// what is done to several functions one after the other is one line.
func printDriverWrites(u *term.UI, plan driver.Plan, full bool) {
	u.Printf("\n")
	changes := driverChanges(plan)
	programs := func(list [][]string, services int, wait string) {
		for i, argv := range list {
			line := strings.Join(argv, " ")
			line += either(i < services, wait, "")
			u.Printf("%s\n", term.Printable(line))
		}
	}
	if !plan.Release {
		printEach(u, "take %s from the CDI specs of containers, and check that no process has it open", plan.Containers)
	}
	programs(plan.Services.Before(), len(plan.Services.Stop), ", and wait until it has stopped")
	if idle := plan.Idle(); len(idle) > 1 && !full {
		u.Printf("check that no process has one of %s open\n", host.Numbered(len(idle), "function"))
	} else {
		printEach(u, "check that no process has %s open", idle)
	}
	printEach(u, "modprobe %s", plan.Load)
	if full {
		for _, c := range changes {
			for _, w := range c.Writes {
				u.Printf("write %s to %s\n", strconv.Quote(w.Value), term.Printable(w.File))
			}
		}
	} else {
		printWritesByDriver(u, changes)
	}
	if len(plan.Groups) > 1 && !full {
		u.Printf("open IOMMU groups %s, to check that they are viable\n", host.Listed(host.Map(plan.Groups, strconv.Itoa), "and"))
	} else {
		printEach(u, "open IOMMU group %d, to check that it is viable", plan.Groups)
	}
	if plan.Release {
		printEach(u, "make the device nodes of %s, and add it to the CDI specs of containers", plan.Containers)
	}
	programs(plan.Services.Afterwards(), len(plan.Services.Start), ", and wait until it runs")
}

// thenText returns the driver that a function gets, as a cell of a table.
func thenText(c driver.Change) string {
	if c.Any && c.After.Driver == "" {
		return "(any that matches)"
	}
	return orDash(string(c.After.Driver))
}

// afterwards returns the driver that a function gets, "" for none.
func afterwards(c driver.Change) string {
	if c.Any {
		return "any driver of the host that matches"
	}
	return string(c.After.Driver)
}

// printWritesByDriver prints a line for the writes to sysfs with which functions change from one
// driver to another.
func printWritesByDriver(u *term.UI, changes []DriverChange) {
	moves := grouped(changes, func(c DriverChange) [2]string { return [2]string{string(c.Before.Driver), afterwards(c.Change)} })
	for i, same := range moves {
		writes, count := 0, host.Numbered(len(same), "function")
		for _, c := range same {
			writes += len(c.Writes)
		}
		from, to := string(same[0].Before.Driver), afterwards(same[0].Change)
		text := "rebind " + count + " from " + from + " to " + to
		switch {
		case to == "":
			text = "unbind " + count + " from " + from
		case from == to:
			text = "keep " + count + " bound to " + to
		case from == "":
			text = "bind " + count + " to " + to
		}
		text += ": " + host.Numbered(writes, "write") + " to sysfs"
		text += either(i == len(moves)-1, " (see --diff)", "")
		u.Printf("%s\n", term.Printable(text))
	}
}
