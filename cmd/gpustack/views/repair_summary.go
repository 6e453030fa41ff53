package views

import (
	"gpustack/cleanup"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
)

// RepairSummary returns the summary of planned repairs, before they are made.
func RepairSummary(units []cleanup.Unit) string {
	made := host.Filter(units, func(unit cleanup.Unit) bool { return unit.State != cleanup.Skipped })
	c, skipped := countRepairs(made), len(units)-len(made)
	return term.Sentence(after("free ", term.Some(c.freed, "device", " on "+host.Shortened(c.hosts, 3))),
		after("assign ", term.Some(c.assigned, "device", "")), after("close ", term.Some(c.closed, "migration", "")),
		after("reopen ", term.Some(c.reopened, "migration", "")), after("clear ", term.Some(c.cleared, "migration context", "")),
		after("change allocations of ", term.Some(c.allocations, "instance", "")), term.Some(skipped, "repair", " skipped"))
}

// RepairedSummary returns what became of repairs that were planned.
func RepairedSummary(units []cleanup.Unit) string {
	some := func(state cleanup.State, said string) string {
		of := host.Filter(units, func(unit cleanup.Unit) bool { return unit.State == state })
		return term.Some(len(of), "repair", said)
	}
	return term.Sentence(some(cleanup.Repaired, " made"), some(cleanup.Written, " written, whose devices are not free yet"),
		some(cleanup.Skipped, " skipped"), some(cleanup.Begun, " with an unknown outcome"))
}

// UndoRowsSummary returns the summary of the undo of repairs.
func UndoRowsSummary(units []cleanup.Unit) string {
	undone := host.Filter(units, func(unit cleanup.Unit) bool { return unit.Written() || unit.Open() })
	c := countRepairs(undone)
	return term.Sentence("revert "+host.Numbered(len(undone), "repair"), after("restore ", term.Some(c.rows, "row", "")),
		after("restore allocations of ", term.Some(c.allocations, "instance", "")))
}

// repairCounts counts what repairs change.
type repairCounts struct {
	rows, freed, assigned, closed, reopened, cleared, allocations int
	hosts                                                         []string // where devices are freed
}

func countRepairs(units []cleanup.Unit) (c repairCounts) {
	for _, unit := range units {
		c.rows += len(unit.Rows)
		if unit.Repair == cleanup.Reopen {
			c.reopened++
			continue
		}
		c.closed += len(unit.Closings)
		if unit.Placement != nil {
			c.allocations++
		}
		if unit.Repair == cleanup.ClearContext {
			c.cleared++ // its devices remain assigned to the instance
			continue
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
	return c
}
