package views

import (
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
	return term.Sentence(after("free ", term.Some(c.freed, "device", " on "+host.Shortened(c.hosts, 3))), c.text(), term.Some(c.skipped, "repair", " skipped"))
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
		parts = append(parts, term.Some(n, "repair", " "+part.text))
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
	return term.Sentence("revert "+host.Numbered(reverted, "repair"), after("restore ", term.Some(rows, "row", "")),
		after("restore allocations of ", term.Some(c.allocations, "instance", "")))
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
		c.hosts = host.Union(c.hosts, d.Host)
	}
}

// text returns the counts other than that of freed devices, with what is done to each.
func (c *repairCounts) text() string {
	return term.Sentence(after("assign ", term.Some(c.assigned, "device", "")), after("close ", term.Some(c.closed, "migration", "")),
		after("reopen ", term.Some(c.reopened, "migration", "")), after("clear ", term.Some(c.cleared, "migration context", "")),
		after("change allocations of ", term.Some(c.allocations, "instance", "")))
}
