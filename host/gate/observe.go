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

// ReadRunning returns what only the running machine shows beside its files: the ssh session that
// this process belongs to, the addresses of interfaces, and interfaces of other network namespaces.
// session is the error of the session alone, whose interface has an address; the other errors are
// those of [guard.Needs].
func ReadRunning(root host.Root) (running guard.Running, session error) {
	var addressesErr, linksErr error
	running.Session, session = guard.Connection(root, os.Getpid())
	running.Addresses, addressesErr = guard.ReadAddresses()
	running.Links, linksErr = guard.ReadLinks(root)
	running.Unread = errors.Join(addressesErr, linksErr)
	return running, session
}

// Observe reads what uses functions at this moment, for what is about to be carried out. A file
// that cannot be read is an error: it may hide a use. What the host needs is read only if a
// function leaves that it may need: it must not keep functions from the host.
func Observe(root host.Root, devices pci.Devices, leaving []Leaving) (Host, machine.Uses, error) {
	var running guard.Running
	if root.IsMachine() && mindsNeeds(leaving) {
		running, _ = ReadRunning(root) // the plan, also of an undo, has warned of a session that is unknown
	}
	return ObserveWith(root, devices, running, leaving)
}

// mindsNeeds reports whether what the host needs can prevent that functions leave.
func mindsNeeds(leaving []Leaving) bool {
	return slices.ContainsFunc(leaving, func(l Leaving) bool { return l.Kind.mindsNeeds() })
}

// ObserveWith is Observe with what only the running machine shows, of any other root the zero
// value.
func ObserveWith(root host.Root, devices pci.Devices, running guard.Running, leaving []Leaving) (Host, machine.Uses, error) {
	h := Host{Devices: devices}
	var needsErr, mediatedErr, recordErr error
	if mindsNeeds(leaving) {
		h.Needs, h.RDMA, needsErr = guard.AllNeeds(root, devices, running)
		h.Mediated, mediatedErr = pci.ReadMediated(root, devices)
	}
	h.Recorded, h.Containers, recordErr = machine.ReadRecord(root)
	h.Bonds, h.Away = Bonds{}, Away{}
	for _, l := range h.withVFs(leaving) {
		switch l.Kind {
		case Making:
			maps.Copy(h.Bonds, ReadBonds(root, l.Address))
		case Now, Removed, Returned:
			maps.Copy(h.Away, ReadAway(root, devices, l.Address))
		case AtBoot, Role:
		}
	}
	uses, usesErr := machine.ObserveUses(root, devices, root.IsMachine())
	// At the next boot these users are gone: that they are unknown is a warning of the plan.
	if !slices.ContainsFunc(leaving, func(l Leaving) bool { return l.Kind.now() }) {
		usesErr = nil
	}
	return h, uses, errors.Join(needsErr, mediatedErr, recordErr, usesErr)
}
