package driver

import (
	"fmt"
	"path"

	"gpustack/host"
	"gpustack/host/pci"
)

// Change is the change of one function's driver.
type Change struct {
	Address pci.Address `json:"address"`     // the function
	Group   *int        `json:"iommu_group"` // its IOMMU group; null for none
	Before  State       `json:"before"`      // the driver before the change
	After   State       `json:"after"`       // the driver after the change
	// whether any host driver may bind the function; afterwards after has the driver that did
	Any bool `json:"any"`
}

// Write is one write to sysfs.
type Write struct {
	File  string `json:"file"`  // the attribute
	Value string `json:"value"` // what is written
}

// step is a write, with the state that it leads to.
type step struct {
	Write
	does string // for people
	to   State
	any  bool // to.Driver is unknown beforehand
}

// Writes returns the writes that make the change, in their order.
func (c Change) Writes() []Write {
	return append([]Write{}, host.Map(c.steps(c.Before), func(s step) Write { return s.Write })...)
}

// Addresses returns the functions of changes.
func Addresses(changes []Change) []pci.Address {
	return host.Map(changes, func(c Change) pci.Address { return c.Address })
}

// steps returns the steps that make the change, from the state that the function is in.
func (c Change) steps(from State) []step {
	return steps(c.Address, from, c.After, c.Any)
}

// steps returns the steps from one state to another. driver_override is set before the function is
// unbound, so that no other driver can claim it in between: neither one with its ids nor one that
// udev loads.
func steps(a pci.Address, from, to State, whichever bool) []step {
	var list []step
	at := from
	add := func(file, value, does string) {
		list = append(list, step{Write{file, value}, does, at, false})
	}
	override := func(n Name) {
		if at.Override == n {
			return
		}
		at.Override = n
		file := path.Join(devicesDir, a.String(), "driver_override")
		if n == "" {
			add(file, "\n", "clear driver_override") // an empty write has no effect (Linux, driver_set_override)
		} else {
			add(file, string(n), fmt.Sprintf("set driver_override to %s", n))
		}
	}
	if from.Driver == to.Driver && !whichever {
		override(to.Override)
		return list
	}
	switch {
	case whichever:
		override(to.Override)
	case to.Driver != "":
		override(to.Driver)
	}
	if from.Driver != "" {
		at.Driver = ""
		add(path.Join(driversDir, string(from.Driver), "unbind"), a.String(), fmt.Sprintf("unbind from %s", from.Driver))
	}
	if whichever || to.Driver != "" {
		at.Driver = to.Driver
		add(probeFile, a.String(), "probe")
		list[len(list)-1].any = whichever
	}
	override(to.Override)
	return list
}

// inverse returns the change that undoes this one.
func (c Change) inverse() Change {
	return Change{Address: c.Address, Group: c.Group, Before: c.After, After: c.Before}
}

// reached reports whether a state is the one that the change leads to.
func (c Change) reached(s State) bool {
	if c.Any && c.After.Driver == "" {
		return s.Driver != "" && !pci.LeavesAlone(string(s.Driver)) && s.Override == c.After.Override
	}
	return s == c.After
}
