package rdmacheck

import (
	"fmt"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// linkRate is the rate of a port: "100 Gb/sec (4X EDR)" (Linux, drivers/infiniband/core/sysfs.c,
// rate_show).
type linkRate struct {
	gigabits float64
	lanes    int // 0 if not shown
}

func parseRate(text string) (linkRate, error) {
	number, rest, _ := strings.Cut(text, " ")
	gigabits, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return linkRate{}, fmt.Errorf("not a rate such as \"100 Gb/sec (4X EDR)\": %q", text)
	}
	r := linkRate{gigabits: gigabits}
	if _, width, ok := strings.Cut(rest, "("); ok {
		lanes, _, ok := strings.Cut(width, "X")
		if n, err := strconv.Atoi(lanes); ok && err == nil {
			r.lanes = n
		}
	}
	return r, nil
}

// sibling identifies ports that should have one rate: those of identical devices.
type sibling struct {
	vendor, product pci.ID
	layer           string
}

// rate finds ports that are slower or narrower than those of identical adapters.
func (v view) rate() []host.Finding {
	best := map[sibling]linkRate{}
	at := map[sibling]string{}
	compared := 0
	active := func(judge func(rdma.Adapter, rdma.Port, sibling, linkRate) []host.Finding) []host.Finding {
		return v.eachPort(func(a rdma.Adapter, p rdma.Port) []host.Finding {
			d := a.Function
			if p.State != "ACTIVE" || a.ManagesNVSwitches() || d == nil || d.VendorID == nil || d.ProductID == nil || p.Rate == "" {
				return nil
			}
			r, err := parseRate(p.Rate)
			if err != nil {
				return checklist.Unread(portFile(a, p, "rate"), err)
			}
			return judge(a, p, sibling{*d.VendorID, *d.ProductID, p.LinkLayer}, r)
		})
	}
	findings := active(func(a rdma.Adapter, p rdma.Port, s sibling, r linkRate) []host.Finding {
		compared++
		if r.gigabits > best[s].gigabits {
			best[s], at[s] = r, portTitle(a, p)+" has "+p.Rate
		}
		return nil
	})
	if findings != nil {
		return findings
	}
	findings = active(func(a rdma.Adapter, p rdma.Port, s sibling, r linkRate) []host.Finding {
		if r.gigabits >= best[s].gigabits {
			return nil
		}
		what := "slower"
		if r.lanes > 0 && r.lanes < best[s].lanes {
			what = "narrower"
		}
		return []host.Finding{{
			Status: host.Warn, File: portFile(a, p, "rate"),
			Seen:   fmt.Sprintf("%s is %s than a port of an identical adapter: %s; %s", portTitle(a, p), what, p.Rate, at[s]),
			Effect: "collective operations run at the rate of the slowest port",
			Remedy: host.Text("check cable and transceiver: mlxlink -d " + a.Title() + " -m, or ethtool -m " + interfaceOf(a) + "; and the speed of the switch port"),
		}}
	})
	if compared == 0 {
		return checklist.NA("no active port of a PCI adapter")
	}
	return checklist.OrPass(findings, "%s at the rate of identical adapters", host.Numbered(compared, "port"))
}
