package rows

import (
	"cmp"
	"slices"
	"strings"

	"gpustack/cleanup"
	"gpustack/host/metrics"
)

// HostRows is a number of rows of one host with one verdict.
type HostRows struct {
	Cell, Host string
	Verdict    cleanup.Verdict
	Rows       int
}

// sortedHosts returns the hosts with their numbers of rows, sorted.
func sortedHosts(count map[HostRows]int) (hosts []HostRows) {
	for h, rows := range count {
		h.Rows = rows
		hosts = append(hosts, h)
	}
	slices.SortFunc(hosts, func(a, b HostRows) int {
		return cmp.Or(strings.Compare(a.Cell, b.Cell), strings.Compare(a.Host, b.Host), strings.Compare(string(a.Verdict), string(b.Verdict)))
	})
	return hosts
}

var (
	pciRows = metrics.Family{Name: "gpustack_pci_rows", Type: metrics.Gauge,
		Help: "Number of judged rows of nova.pci_devices with a verdict.", Labels: []string{"cell", "verdict"}}
	hostRows = metrics.Family{Name: "gpustack_pci_host_rows", Type: metrics.Gauge,
		Help: "Number of rows of nova.pci_devices of a host with a verdict other than legitimate.", Labels: []string{"cell", "host", "verdict"}}
	busyLong = metrics.Family{Name: "gpustack_pci_rows_busy_long", Type: metrics.Gauge,
		Help: "Number of those busy rows whose instance has been busy for longer than --busy-after.", Labels: []string{"cell"}}
	poolFindings = metrics.Family{Name: "gpustack_pci_pool_findings", Type: metrics.Gauge,
		Help: "Number of compute nodes whose pci_stats does not match their rows."}
	allocationFindings = metrics.Family{Name: "gpustack_placement_allocation_findings", Type: metrics.Gauge,
		Help: "Number of allocations on PCI devices in Placement that do not match instances and migrations."}
)

// Metrics returns the samples of rows, pools and allocations. Pools and allocations that were not
// judged have none.
func (o Observed) Metrics() (samples []metrics.Sample) {
	for _, c := range byName(o.Cells) {
		for _, v := range []struct {
			verdict cleanup.Verdict
			rows    int
		}{{cleanup.Stale, c.Stale}, {cleanup.Suspicious, c.Suspicious}, {cleanup.Unknown, c.Unknown}, {cleanup.Busy, c.Busy}, {cleanup.Legitimate, c.Legitimate}} {
			samples = append(samples, pciRows.Of(float64(v.rows), c.Cell, string(v.verdict)))
		}
		samples = append(samples, busyLong.Of(float64(c.BusyLong), c.Cell))
	}
	for _, h := range o.Hosts {
		samples = append(samples, hostRows.Of(float64(h.Rows), h.Cell, h.Host, string(h.Verdict)))
	}
	if o.Pools.Judged {
		samples = append(samples, poolFindings.Of(float64(o.Pools.Suspicious)))
	}
	if o.Allocations.Judged {
		samples = append(samples, allocationFindings.Of(float64(len(o.Allocations.Findings))))
	}
	return samples
}

// byName adds up cells of one name: nova_api permits several.
func byName(cells []cleanup.CellSummary) (named []cleanup.CellSummary) {
	for _, c := range cells {
		i := slices.IndexFunc(named, func(n cleanup.CellSummary) bool { return n.Cell == c.Cell })
		if i < 0 {
			named = append(named, c)
			continue
		}
		named[i].Summary = cleanup.Total([]cleanup.CellSummary{named[i], c})
	}
	return named
}
