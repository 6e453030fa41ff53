package cloud

import (
	"fmt"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/nova"
)

// recorded returns the functions of a machine that have a role, by its record.
func recorded(r gate.Records, devices pci.Devices) nova.Recorded {
	return nova.Recorded{
		Given: r.Guests.Addresses(), Selected: host.Value(r.Guests).Selected, Containers: r.Containers.Addresses(), VFs: r.RDMA.VFs(rdma.ForGuests, devices),
	}
}

// inferRole returns the role of the services that a machine runs: the one with which nova configure
// was run there, else the one that its units, files and record tell, and what tells it. place is
// where its configuration is.
func inferRole(root host.Root, place nova.Place, m machine.Machine) (role nova.Role, from string, err error) {
	if !place.Given {
		if role, from, err = configuredRole(root); err != nil || role != "" {
			return role, from, err
		}
	}
	return nova.InferRole(root, place, recorded(gate.Records{Guests: m.Contract.Value, Containers: m.Containers}, m.Devices.Value))
}

// configuredRole returns the role with which nova configure was run on the machine, and the entries
// of the journal that say so; "" if there is none.
func configuredRole(root host.Root) (role nova.Role, from string, err error) {
	entries, err := change.List(root)
	if err != nil {
		return "", "", err
	}
	ids := map[nova.Role]string{}
	for _, e := range entries {
		if about := e.Topic(); about.Subject == change.OfNova && e.Status == change.Done {
			ids[nova.Role(about.Role)] = fmt.Sprintf("entry %d (nova configure --role %s)", e.ID, about.Role)
		}
	}
	if controls, computes := ids[nova.Controller], ids[nova.Compute]; ids[nova.All] == "" && controls != "" && computes != "" {
		return nova.All, controls + " and " + computes + " are in the journal", nil
	}
	for _, role := range []nova.Role{nova.All, nova.Controller, nova.Compute} {
		if ids[role] != "" {
			return role, ids[role] + " is in the journal", nil
		}
	}
	return "", "", nil
}
