package views

import (
	"slices"

	"gpustack/cleanup"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
)

// RepairSummary returns the summary of planned repairs, before they are made.
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
		freed = "free " + host.Numbered(c.freed, "device") + " on " + firstOf(c.hosts)
	}
	skipped := ""
	if c.skipped > 0 {
		skipped = host.Numbered(c.skipped, "repair") + " skipped"
	}
	return term.Sentence(freed, c.text(), skipped)
}

// RepairedSummary returns what became of repairs that were planned.
func RepairedSummary(units []cleanup.Unit) string {
	var parts []string
	for _, part := range []struct {
		state cleanup.State
		text  string
	}{
		{cleanup.Repaired, "made"}, {cleanup.Written, "written, whose devices are not free yet"},
		{cleanup.Skipped, "skipped"}, {cleanup.Begun, "with an unknown outcome"},
	} {
		n := 0
		for _, unit := range units {
			if unit.State == part.state {
				n++
			}
		}
		if n > 0 {
			parts = append(parts, host.Numbered(n, "repair")+" "+part.text)
		}
	}
	return term.Sentence(parts...)
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
		allocations = "restore allocations of " + host.Numbered(c.allocations, "instance")
	}
	restored := ""
	if rows > 0 {
		restored = "restore " + host.Numbered(rows, "row")
	}
	return term.Sentence("revert "+host.Numbered(reverted, "repair"), restored, allocations)
}

// repairCounts counts what repairs change.
type repairCounts struct {
	freed, assigned, closed, reopened, cleared, allocations, skipped int
	hosts                                                            []string // where devices are freed
}

func (c *repairCounts) add(unit cleanup.Unit) {
	if unit.Repair == cleanup.Reopen {
		c.reopened++
		return
	}
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

// text returns the counts other than that of freed devices, with what is done to each.
func (c *repairCounts) text() string {
	var parts []string
	for _, part := range []struct {
		n          int
		verb, noun string
	}{{c.assigned, "assign", "device"}, {c.closed, "close", "migration"}, {c.reopened, "reopen", "migration"}, {c.cleared, "clear", "migration context"}} {
		if part.n > 0 {
			parts = append(parts, part.verb+" "+host.Numbered(part.n, part.noun))
		}
	}
	if c.allocations > 0 {
		parts = append(parts, "change allocations of "+host.Numbered(c.allocations, "instance"))
	}
	return term.Sentence(parts...)
}
