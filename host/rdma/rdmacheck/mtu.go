package rdmacheck

import (
	"fmt"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/rdma"
)

// mtu warns of RoCE ports whose MTU is smaller than what the MTU of their interface has room for.
func (v view) mtu() []host.Finding {
	checked := 0
	findings := v.eachPort(func(a rdma.Adapter, p rdma.Port) []host.Finding {
		if p.ActiveMTU == nil {
			return nil
		}
		checked++
		netdev, has, gives, needs, wasted := p.WastedMTU()
		if !wasted {
			return nil
		}
		return []host.Finding{{
			Status: host.Warn, File: "/sys/class/net/" + netdev + "/mtu",
			Seen:   fmt.Sprintf("%s has an active MTU of %d: %s has MTU %d, and RoCE needs room for its headers", portTitle(a, p), *p.ActiveMTU, netdev, has),
			Effect: fmt.Sprintf("packets carry %d bytes instead of %d", *p.ActiveMTU, gives),
			Remedy: host.Textf("ip link set %s mtu %d, on switches and peers too", netdev, needs),
		}}
	})
	if findings == nil && checked == 0 {
		return checklist.NA("no RoCE port whose MTU follows from its interface's")
	}
	return checklist.OrPass(findings, "%s with the MTU that the interface allows", host.Numbered(checked, "RoCE port"))
}
