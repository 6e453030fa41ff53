package rdmacheck

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// reach returns why nothing can connect to a port by an IP address, or nil.
func (m Observed) reach(a rdma.Adapter, p rdma.Port) error {
	var addresses func(string) ([]netip.Addr, error)
	if m.Addresses != nil {
		addresses = func(netdev string) ([]netip.Addr, error) { return m.Addresses[netdev], nil }
	}
	_, err := a.Reach(p, addresses)
	return err
}

// Reachable reports whether others can connect to a port of the machine by an IP address, as rdma
// test does.
func (m Observed) Reachable() bool {
	return slices.ContainsFunc(m.Stack.Value.Adapters, func(a rdma.Adapter) bool {
		return a.Name != "" && slices.ContainsFunc(a.Ports, func(p rdma.Port) bool { return m.reach(a, p) == nil })
	})
}

// rdmaCM warns of active InfiniBand ports to which nothing can connect by an IP address: no IPoIB
// interface, none that is up and has joined its broadcast group, no address. RoCE has the check of
// GIDs. That is normal on a hypervisor whose VFs are for guests. An interface that cannot join is a
// failure where containers are offered the adapter with rdma_cm.
func (v view) rdmaCM() []host.Finding {
	ready := 0
	findings := v.eachPort(func(a rdma.Adapter, p rdma.Port) []host.Finding {
		err := v.reach(a, p)
		switch {
		case err == nil:
			ready++
			return nil
		case !p.IsInfiniBand(), errors.Is(err, rdma.ErrNotActive), errors.Is(err, rdma.ErrFabric), errors.Is(err, rdma.ErrBackup):
			return nil
		}
		f := host.Finding{
			Status: host.Warn, Seen: fmt.Sprintf("%s is ready for verbs, not for rdma_cm: the port %v", portTitle(a, p), err),
			Effect: "connections by address, such as those of rping or NFS over RDMA, do not use this port",
			Remedy: host.HintOf(err),
		}
		if v.forContainers(a) {
			if errors.Is(err, rdma.ErrNoCarrier) {
				f.Status = host.Fail
			}
			f.Effect = "containers are offered this adapter with rdma_cm, and cannot connect by address"
		}
		return []host.Finding{f}
	})
	if !v.Containers.Seen() {
		findings = append(findings, checklist.Unread(v.Containers.File, v.Containers.Err)...)
	}
	if findings == nil && ready == 0 {
		return checklist.NA("no port to which others can connect by an address")
	}
	return checklist.OrPass(findings, "%s with an interface for rdma_cm", host.Numbered(ready, "port"))
}

// forContainers reports whether an adapter is recorded for containers, which get rdma_cm with it.
func (v view) forContainers(a rdma.Adapter) bool {
	if a.Address == nil {
		return false
	}
	if f := v.Containers.Value.At(*a.Address); f != nil && f.HCA {
		return true
	}
	return v.Record.Value != nil && slices.ContainsFunc(v.Record.Value.Adapters, func(p rdma.Prepared) bool {
		return p.Use == rdma.ForContainers && (p.Whole && p.Address == *a.Address ||
			slices.ContainsFunc(p.VFs, func(f rdma.PreparedVF) bool { return f.Address == *a.Address }))
	})
}
