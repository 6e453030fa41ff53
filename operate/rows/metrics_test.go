package rows

import (
	"strings"
	"testing"

	"gpustack/cleanup"
	"gpustack/host/hosttest"
	"gpustack/host/metrics"
)

// TestMetrics: each cell has every verdict, cells of one name are added up, hosts are sorted, and
// what was not judged has no sample.
func TestMetrics(t *testing.T) {
	o := Observed{
		Cells: []cleanup.CellSummary{
			{Cell: "cell1", Summary: cleanup.Summary{Stale: 1, Busy: 3, BusyLong: 2, Legitimate: 40}},
			{Cell: "cell2"},
			{Cell: "cell1", Summary: cleanup.Summary{Stale: 2, Unknown: 1}},
		},
		Hosts: sortedHosts(map[HostRows]int{
			{Cell: "cell1", Host: "gpu2", Verdict: cleanup.Stale}:   3,
			{Cell: "cell1", Host: "gpu1", Verdict: cleanup.Unknown}: 1,
			{Cell: "cell1", Host: "gpu1", Verdict: cleanup.Busy}:    3,
		}),
		Allocations: cleanup.AllocationReport{Judged: true},
	}
	text, err := metrics.Encode(o.Metrics())
	hosttest.NoError(t, err)
	var samples []string
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "#") {
			samples = append(samples, strings.TrimSpace(line))
		}
	}
	want := []string{
		`gpustack_pci_host_rows{cell="cell1",host="gpu1",verdict="busy"} 3`,
		`gpustack_pci_host_rows{cell="cell1",host="gpu1",verdict="unknown"} 1`,
		`gpustack_pci_host_rows{cell="cell1",host="gpu2",verdict="stale"} 3`,
		`gpustack_pci_rows{cell="cell1",verdict="stale"} 3`,
		`gpustack_pci_rows{cell="cell1",verdict="suspicious"} 0`,
		`gpustack_pci_rows{cell="cell1",verdict="unknown"} 1`,
		`gpustack_pci_rows{cell="cell1",verdict="busy"} 3`,
		`gpustack_pci_rows{cell="cell1",verdict="legitimate"} 40`,
		`gpustack_pci_rows{cell="cell2",verdict="stale"} 0`,
		`gpustack_pci_rows{cell="cell2",verdict="suspicious"} 0`,
		`gpustack_pci_rows{cell="cell2",verdict="unknown"} 0`,
		`gpustack_pci_rows{cell="cell2",verdict="busy"} 0`,
		`gpustack_pci_rows{cell="cell2",verdict="legitimate"} 0`,
		`gpustack_pci_rows_busy_long{cell="cell1"} 2`,
		`gpustack_pci_rows_busy_long{cell="cell2"} 0`,
		`gpustack_placement_allocation_findings 0`,
	}
	hosttest.Equal(t, want, samples)
}
