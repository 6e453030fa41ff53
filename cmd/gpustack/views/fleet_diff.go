package views

import (
	"gpustack/cmd/gpustack/term"
	"gpustack/fleet"
	"gpustack/host"
)

// FleetDiff is the output of fleet diff (docs/json.md).
type FleetDiff struct {
	Schema       int                `json:"schema"`
	OldNodeCount int                `json:"old_node_count"` // nodes of the earlier collection
	NodeCount    int                `json:"node_count"`     // nodes of the later collection
	Differences  []fleet.Difference `json:"differences"`    // the differences, by node
	// hosts with several documents of one kind; documents of other commands
	Warnings []string `json:"warnings"`
}

// NewFleetDiff returns the report of the differences between two collections.
func NewFleetDiff(earlier, later fleet.Fleet) FleetDiff {
	r := FleetDiff{
		Schema: 1, OldNodeCount: len(earlier.Nodes), NodeCount: len(later.Nodes),
		Differences: fleet.Diff(earlier, later)}
	r.Warnings = append(append(r.Warnings, earlier.Warnings...), later.Warnings...)
	return r
}

// Print prints a line for each difference.
func (r FleetDiff) Print(u *term.UI) {
	if len(r.Differences) == 0 {
		u.Printf("no differences: %s\n", host.Numbered(r.NodeCount, "node"))
		return
	}
	nodes := map[string]bool{}
	u.Table([]string{"NODE", "CHANGE", "WHAT", "FUNCTION", "BEFORE", "NOW"}, host.Map(r.Differences, func(d fleet.Difference) []string {
		return []string{unlessShown(nodes, d.Node), string(d.Change), d.What, Text(d.Address), Text(d.Old), Text(d.New)}
	}))
	u.Printf("\n%s on %s; before: %s, now: %s\n", host.Numbered(len(r.Differences), "difference"), host.Numbered(len(nodes), "node"),
		host.Numbered(r.OldNodeCount, "node"), host.Numbered(r.NodeCount, "node"))
}
