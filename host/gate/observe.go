package gate

import (
	"errors"
	"maps"
	"os"
	"slices"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// ReadRunning returns what only the running machine shows beside its files, for the words of
// refusals: the ssh session that this process belongs to, and the addresses of interfaces. What
// cannot be read costs words only.
func ReadRunning(root host.Root) (running guard.Running) {
	running.Session, _ = guard.Connection(root, os.Getpid())
	running.Addresses, _ = guard.ReadAddresses()
	running.DefaultRoutes, _ = guard.ReadDefaultRoutes()
	return running
}

// Observe reads what determines whether functions may leave at this moment, for what is about to be
// carried out. A file that cannot be read is an error. What the host needs is read only if a
// function leaves that it may need: it must not keep functions from the host.
func Observe(root host.Root, devices pci.Devices, leaving []Leaving) (Host, machine.Uses, error) {
	var running guard.Running
	takes := slices.ContainsFunc(leaving, Leaving.takes)
	if root.IsMachine() && takes {
		running = ReadRunning(root)
	}
	h := Host{Devices: devices, Bonds: Bonds{}}
	var needsErr, mediatedErr, recordErr error
	if takes {
		h.Needs, needsErr = guard.Observe(root, devices, running)
		h.Mediated, mediatedErr = pci.ReadMediated(root, devices)
	}
	h.Recorded, h.Containers, recordErr = machine.ReadRecord(root)
	for _, l := range leaving {
		if l.Kind == Making {
			maps.Copy(h.Bonds, ReadBonds(root, l.Address))
		}
	}
	uses, usesErr := machine.ObserveUses(root, devices, root.IsMachine())
	// At the next boot these users are gone: that they are unknown is a warning of the plan.
	if !slices.ContainsFunc(leaving, func(l Leaving) bool { return l.Kind.now() }) {
		usesErr = nil
	}
	return h, uses, errors.Join(needsErr, mediatedErr, recordErr, usesErr)
}

// takes reports whether the host loses the function.
func (l Leaving) takes() bool { return l.Kind.takes() }
