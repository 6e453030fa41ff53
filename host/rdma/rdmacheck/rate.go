package rdmacheck

import (
	"fmt"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// sibling identifies ports that should have one rate: those of identical devices.
type sibling struct {
	vendor, product pci.ID
	layer           string
}

// rate finds ports that are slower than those of identical adapters.
func (v view) rate() []host.Finding {
	best, at := map[sibling]float64{}, map[sibling]string{}
	compared := 0
	active := func(judge func(rdma.Adapter, rdma.Port, sibling, float64) []host.Finding) []host.Finding {
		return v.eachPort(func(a rdma.Adapter, p rdma.Port) []host.Finding {
			d := a.Function
			if p.State != "ACTIVE" || a.ManagesNVSwitches() || d == nil || d.VendorID == nil || d.ProductID == nil || p.Rate == "" {
				return nil
			}
			gbps, _, ok := p.DataRate()
			if !ok {
				return checklist.Unread(portFile(a, p, "rate"), fmt.Errorf("not a rate such as \"100 Gb/sec (4X EDR)\": %q", p.Rate))
			}
			return judge(a, p, sibling{*d.VendorID, *d.ProductID, p.LinkLayer}, gbps)
		})
	}
	findings := active(func(a rdma.Adapter, p rdma.Port, s sibling, gbps float64) []host.Finding {
		compared++
		if gbps > best[s] {
			best[s], at[s] = gbps, portTitle(a, p)+" has "+p.Rate
		}
		return nil
	})
	if findings != nil {
		return findings
	}
	findings = active(func(a rdma.Adapter, p rdma.Port, s sibling, gbps float64) []host.Finding {
		if gbps >= best[s] {
			return nil
		}
		return []host.Finding{{
			Status: host.Warn, File: portFile(a, p, "rate"),
			Seen:   fmt.Sprintf("%s is slower than a port of an identical adapter: %s; %s", portTitle(a, p), p.Rate, at[s]),
			Effect: "collective operations run at the rate of the slowest port",
			Remedy: host.Text("check cable and transceiver: mlxlink -d " + a.Title() + " -m, or ethtool -m " + interfaceOf(a) + "; and the speed of the switch port"),
		}}
	})
	if compared == 0 {
		return checklist.NA("no active port of a PCI adapter")
	}
	return checklist.OrPass(findings, "%s at the rate of identical adapters", host.Numbered(compared, "port"))
}
