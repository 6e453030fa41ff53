// Package gate decides whether functions may leave the host: what uses a function, or what it is
// for, prevents that, unless --allow lifts it. Every path that takes a function from the host asks
// [Host.Leave] or [Host.Ask]: the plans of all commands, and what carries them out.
//
// It finds no uses (host/guard, host/guest) and selects no functions (host/selection).
package gate

import (
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Host is the part of an observed machine that determines which functions may leave it.
type Host struct {
	Devices  pci.Devices
	Needs    []guard.Need
	RDMA     []guard.Need        // those of Needs that are by RDMA
	Mediated map[pci.Address]int // number of mediated devices of each function
	Adapters map[pci.Address]*machine.Adapter
	Recorded *machine.Contract // nil if nothing is recorded
	// Containers is nil if nothing is recorded for containers.
	Containers *machine.Containers
	Bonds      Bonds // of functions whose VFs may be made
	Away       Away  // of functions that may go now
}

// New returns the Host of a machine.
func New(m machine.Machine) Host {
	return Host{Devices: m.Devices.Value, Needs: m.Needs.Value, Mediated: m.Mediated.Value, Adapters: m.Adapters,
		Recorded: m.Contract.Value, Containers: m.Containers}
}
