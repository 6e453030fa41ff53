// Package gate decides whether functions may leave the host. It is closed by default: a GPU that
// nothing holds leaves with the other functions of its card, any other function only if --allow
// names it, and what the root file system needs or the kernel calls claimed never does. Every path
// that takes a function from the host asks [Host.Leave]: the plans of all commands, and what carries
// them out.
//
// The rules, of which the first that fits decides, are in docs/refusals.md. Uses are found by
// host/guard and host/guest, and functions are selected by host/selection.
package gate

import (
	"gpustack/host/guard"
	"gpustack/host/iommu"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Host is the part of an observed machine that determines which functions may leave it.
type Host struct {
	Devices  pci.Devices
	Needs    guard.Needs
	Mediated map[pci.Address]int // number of mediated devices of each function
	Recorded *machine.Contract   // nil if nothing is recorded
	// Containers is nil if nothing is recorded for containers.
	Containers *machine.Containers
	Bonds      Bonds         // of functions whose VFs may be made
	Regions    iommu.Regions // of groups that guests cannot have
}

// New returns the Host of a machine.
func New(m machine.Machine) Host {
	return Host{Devices: m.Devices.Value, Needs: m.Needs.Value, Mediated: m.Mediated.Value, Recorded: m.Contract.Value, Containers: m.Containers,
		Regions: m.Regions.Value}
}
