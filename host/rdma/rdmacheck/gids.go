package rdmacheck

import (
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// gids checks that RoCE ports have a GID of RoCE v2 that can be routed.
func (v view) gids() []host.Finding {
	checked, switched := 0, 0
	findings := v.eachPort(func(a rdma.Adapter, p rdma.Port) []host.Finding {
		switch {
		case p.LinkLayer != rdma.LinkEthernet, a.NodeType == "RNIC": // iWARP has no GID table
			return nil
		case p.State != "" && p.State != "ACTIVE" && p.State != "ACTIVE_DEFER": // the check of ports says so
			return nil
		case a.Switchdev && len(p.GIDs) == 0: // RoCE is that of VFs and subfunctions then (Linux, mlx5_ib, ib_rep.c)
			switched++
			return nil
		}
		file := portFile(a, p, "gids")
		if p.GIDsErr != nil {
			f := checklist.Prevented(p.GIDsErr)
			f.File = file
			return []host.Finding{f}
		}
		checked++
		v2 := func(g rdma.GID) bool { return g.Type == "RoCE v2" }
		routed := func(g rdma.GID) bool { return v2(g) && !g.GID.IsLinkLocalUnicast() }
		switch {
		case !slices.ContainsFunc(p.GIDs, v2):
			return []host.Finding{{
				Status: host.Fail, File: file, Seen: portTitle(a, p) + " has no RoCE v2 GID",
				Effect: "no connection by address; GIDs follow the addresses of the network interface",
				Remedy: host.Plain("ip link set " + interfaceOf(a) + " up, and give it an address: ip addr add ADDRESS/PREFIX dev " + interfaceOf(a)),
			}}
		case !slices.ContainsFunc(p.GIDs, routed):
			return []host.Finding{{
				Status: host.Warn, File: file, Seen: portTitle(a, p) + " has only link-local RoCE v2 GIDs",
				Effect: "connections work within one Ethernet segment only",
				Remedy: host.Plain("give the network interface an address: ip addr add ADDRESS/PREFIX dev " + interfaceOf(a)),
			}}
		}
		return nil
	})
	if findings == nil && checked == 0 && switched > 0 {
		return checklist.NA("adapters in mode switchdev have no GIDs: their VFs and subfunctions have them")
	}
	if findings == nil && checked == 0 {
		return checklist.NA("no RoCE port on the host")
	}
	return checklist.OrPass(findings, "%s with a RoCE v2 GID", host.Numbered(checked, "port"))
}
