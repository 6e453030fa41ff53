package rows

import (
	"context"
	"slices"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
)

// Observed is what rows, pools and allocations are judged to be.
type Observed struct {
	// how many rows have which verdict; free rows without a contradiction are not counted
	Summary cleanup.Summary       `json:"summary"`
	Cells   []cleanup.CellSummary // the same by cell
	Hosts   []HostRows            // rows that are not legitimate, by cell, host and verdict
	// Findings are the rows that are neither legitimate nor busy for no longer than --busy-after,
	// with --all those too, by cell, host and address; after --apply, what is left, unless the run
	// was interrupted.
	Findings []cleanup.Finding `json:"findings"`
	// the comparison of pci_stats of compute nodes with their rows
	Pools cleanup.PoolReport `json:"pools"`
	// the comparison of allocations on PCI devices in Placement with instances and migrations
	Allocations cleanup.AllocationReport `json:"allocations"`
	Unread      error                    // what Placement has not answered, nil for nothing
}

// Different reports whether a row, pool or allocation is not as it should be.
func (o Observed) Different() bool {
	return o.Summary.Different() || o.Pools.Suspicious+len(o.Allocations.Findings) > 0
}

// Observe judges all rows and pools, and the allocations in Placement, if there is one. It changes
// nothing. With an error of the databases it returns what was judged before: without allocations,
// whose findings are nil then, if the rows could not be read.
func (s *Session) Observe(ctx context.Context) (Observed, error) {
	o := Observed{Findings: []cleanup.Finding{}}
	var err error
	hosts := map[HostRows]int{}
	o.Cells, o.Pools, err = find.RowsAndPools(ctx, s.connections.databases, s.options.Find, func(f cleanup.Finding) {
		if f.Verdict != cleanup.Legitimate {
			hosts[HostRows{Cell: f.Cell, Host: f.HostTitle(), Verdict: f.Verdict}]++
		}
		if s.options.Find.All || f.Listed() {
			o.Findings = append(o.Findings, f)
		}
	})
	slices.SortStableFunc(o.Findings, func(a, b cleanup.Finding) int {
		return slices.Compare([]string{a.Cell, a.Host, a.Device.Address}, []string{b.Cell, b.Host, b.Device.Address})
	})
	o.Summary, o.Hosts = cleanup.Total(o.Cells), sortedHosts(hosts)
	if err != nil {
		return o, err
	}
	o.Allocations, o.Unread, err = s.connections.allocations(ctx, s.options.Find)
	return o, err
}

// allocations judges the allocations in Placement. unread is what Placement has not answered.
func (c *connections) allocations(ctx context.Context, o find.Options) (report cleanup.AllocationReport, unread, err error) {
	report.Findings = []cleanup.AllocationFinding{}
	if !c.hasPlacement() {
		report.Why = "no Placement is configured: nova.conf has no [placement] auth_url, and neither OS_CLOUD nor OS_AUTH_URL is set"
		return report, nil, nil
	}
	placement, err := c.signIn(ctx)
	if err != nil {
		report.Why = err.Error()
		return report, err, nil
	}
	return find.Allocations(ctx, c.databases, o, placement)
}
