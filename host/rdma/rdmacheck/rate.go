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
	type rated struct {
		adapter rdma.Adapter
		port    rdma.Port
		gbps    float64
	}
	var all []rated
	fastest := map[sibling]rated{}
	of := func(r rated) sibling {
		return sibling{*r.adapter.Function.VendorID, *r.adapter.Function.ProductID, r.port.LinkLayer}
	}
	findings := v.eachPort(func(a rdma.Adapter, p rdma.Port) []host.Finding {
		gbps, _, ok := p.DataRate()
		d, r := a.Function, rated{a, p, gbps}
		if ok && p.State == "ACTIVE" && !a.ManagesNVSwitches() && d != nil && d.VendorID != nil && d.ProductID != nil {
			all = append(all, r)
			if gbps > fastest[of(r)].gbps {
				fastest[of(r)] = r
			}
		}
		if !ok && p.Rate != "" {
			return checklist.Unread(portFile(a, p, "rate"), fmt.Errorf("not a rate such as \"100 Gb/sec (4X EDR)\": %q", p.Rate))
		}
		return nil
	})
	for _, r := range all {
		best := fastest[of(r)]
		if r.gbps == best.gbps {
			continue
		}
		findings = append(findings, host.Finding{
			Status: host.Warn, File: portFile(r.adapter, r.port, "rate"),
			Seen: fmt.Sprintf("%s is slower than a port of an identical adapter: %s; %s has %s", portTitle(r.adapter, r.port), r.port.Rate,
				portTitle(best.adapter, best.port), best.port.Rate),
			Effect: "collective operations run at the rate of the slowest port",
			Remedy: host.Plain("check cable and transceiver: mlxlink -d " + r.adapter.Title() + " -m, or ethtool -m " + interfaceOf(r.adapter) +
				"; and the speed of the switch port"),
		})
	}
	if findings == nil && len(all) == 0 {
		return checklist.NA("no active port of a PCI adapter")
	}
	return checklist.OrPass(findings, "%s at the rate of identical adapters", host.Numbered(len(all), "port"))
}
