package gate

import (
	"errors"
	"maps"
	"slices"

	"gpustack/host"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/pci"
)

// Observe reads what determines whether functions may leave at this moment, for what is about to be
// carried out. A file that cannot be read is an error. What the host needs is read only if a
// function leaves that it may need, or VFs of a bond are made: it must not keep functions from the
// host.
func Observe(root host.Root, devices pci.Devices, leaving []Leaving) (Host, machine.Uses, error) {
	h := Host{Devices: devices, Bonds: Bonds{}}
	var needsErr, mediatedErr, recordErr error
	for _, l := range leaving {
		if l.Kind == Making {
			maps.Copy(h.Bonds, ReadBonds(root, l.Address))
		}
	}
	if slices.ContainsFunc(leaving, func(l Leaving) bool { return l.Kind.takes() || h.Bonds[l.Address].Value != nil }) {
		h.Needs, needsErr = guard.Observe(root, devices)
		h.Mediated, mediatedErr = pci.ReadMediated(root, devices)
	}
	h.Recorded, h.Containers, recordErr = machine.ReadRecord(root)
	uses, usesErr := machine.ObserveUses(root, devices, root.IsMachine())
	// At the next boot these users are gone: that they are unknown is a warning of the plan.
	if !slices.ContainsFunc(leaving, func(l Leaving) bool { return l.Kind.now() }) {
		usesErr = nil
	}
	return h, uses, errors.Join(needsErr, mediatedErr, recordErr, usesErr)
}
