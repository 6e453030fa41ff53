package views

import (
	"slices"

	"gpustack/cleanup"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
)

// RepairSummary returns the summary of repairs.
func RepairSummary(units []cleanup.Unit) string {
	var c repairCounts
	for _, unit := range units {
		if unit.State == cleanup.Skipped {
			c.skipped++
			continue
		}
		c.add(unit)
	}
	freed := ""
	if c.freed > 0 {
		freed = host.Numbered(c.freed, "device") + " freed on " + firstOf(c.hosts)
	}
	skipped := ""
	if c.skipped > 0 {
		skipped = host.Numbered(c.skipped, "repair") + " skipped"
	}
	return term.Sentence(freed, c.text(), skipped)
}

// UndoRowsSummary returns the summary of the undo of repairs.
func UndoRowsSummary(units []cleanup.Unit) string {
	var c repairCounts
	reverted, rows := 0, 0
	for _, unit := range units {
		if unit.Written() || unit.Open() {
			reverted++
			rows += len(unit.Rows)
			c.add(unit)
		}
	}
	allocations := ""
	if c.allocations > 0 {
		allocations = "allocations of " + host.Numbered(c.allocations, "instance") + " restored"
	}
	restored := ""
	if rows > 0 {
		restored = host.Numbered(rows, "row") + " restored"
	}
	return term.Sentence(host.Numbered(reverted, "repair")+" reverted", restored, allocations)
}

// repairCounts counts what repairs change.
type repairCounts struct {
	freed, assigned, closed, cleared, allocations, skipped int
	hosts                                                  []string // where devices are freed
}

func (c *repairCounts) add(unit cleanup.Unit) {
	c.closed += len(unit.Closings)
	if unit.Placement != nil {
		c.allocations++
	}
	if unit.Repair == cleanup.ClearContext {
		c.cleared++ // its devices remain assigned to the instance
		return
	}
	for _, d := range unit.Devices {
		if d.Instance == nil && unit.Instance != "" {
			c.assigned++
			continue
		}
		c.freed++
		if !slices.Contains(c.hosts, d.Host) {
			c.hosts = append(c.hosts, d.Host)
		}
	}
}

// text returns the counts other than that of freed devices, with what happens to each.
func (c *repairCounts) text() string {
	var parts []string
	for _, part := range []struct {
		n          int
		noun, done string
	}{{c.assigned, "device", "assigned"}, {c.closed, "migration", "closed"}, {c.cleared, "migration context", "cleared"}} {
		if part.n > 0 {
			parts = append(parts, host.Numbered(part.n, part.noun)+" "+part.done)
		}
	}
	if c.allocations > 0 {
		parts = append(parts, "allocations of "+host.Numbered(c.allocations, "instance")+" changed")
	}
	return term.Sentence(parts...)
}
