package main

import (
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/nova/flavor"
	"gpustack/nova/servertest"
)

// This file words the summary that ends each plan, above the question: one sentence for each kind
// of change, from the values of the plan.

// novaSummary returns the summary of nova configure.
func novaSummary(r novaReport) string {
	restart := ""
	if len(r.Services) > 0 {
		var names []string
		for _, s := range r.Services {
			names = append(names, s.Names()...)
		}
		restart = "to restart: " + strings.Join(names, ", ")
	}
	removed := ""
	if len(r.Removed) > 0 {
		removed = term.Numbered(len(r.Removed), "line") + " removed"
	}
	specs := "" // of the files of this machine
	if r.Role.Computes() {
		specs = term.Some(len(r.Specs), "device spec")
	}
	return term.Sentence(
		term.AndMore(term.Some(len(r.Aliases), "alias"), specs), removed,
		views.FilesText(r.Changes, "changed", "new"), restart)
}

// flavorSummary returns the summary of flavor create, flavor delete and their undo.
func flavorSummary(m flavor.Move) string {
	name, done := "", "changed"
	switch {
	case m.After == nil:
		name, done = m.Before.Name, "deleted"
	case m.Before == nil:
		name, done = m.After.Name, "created"
	default:
		name = m.After.Name
	}
	return term.Sentence("flavor "+name+" "+done, term.Numbered(len(m.Requests()), "request"))
}

// recoverySummary returns the summary of the recovery of an interrupted entry, as far as the entry
// itself shows it: the recovery determines what was written.
func recoverySummary(e change.Entry) string {
	name, programs := views.EntryName(e.ID, e.Command), ""
	if len(e.Programs) > 0 {
		programs = term.Numbered(len(e.Programs), "program") + " run"
	}
	files := ""
	if len(e.Files) > 0 {
		files = "at most " + term.Numbered(len(e.Files), "file") + " restored"
	}
	switch {
	case e.ObjectType() == servertest.Type:
		return name + " is reverted: Nova deletes the servers of the test that exist"
	case !change.OnMachine(e):
		return name + " is completed or reverted, whichever its outcome shows"
	case e.Status == change.Rebuilding:
		return term.Sentence(name+" is completed", programs)
	case e.Status == change.Unbuilding:
		return term.Sentence("the undo of "+name+" is completed", programs)
	case e.Status == change.Undoing:
		return term.Sentence("the undo of "+name+" is completed", files, programs)
	}
	if e.Kind == change.KindDrivers {
		done := " is rolled back"
		if record, err := driver.ParseRecord(e); err == nil && record.Release { // functions never stay half released
			done = " is completed"
		}
		return name + done + " in each IOMMU group that is half changed: " + changed(e)
	}
	return term.Sentence(name+" is rolled back", files)
}

// undoFilesSummary returns the summary of the undo of files.
func undoFilesSummary(r undoReport) string {
	run, left, reboot, restart := "", "", "", ""
	if len(r.Programs) > 0 {
		run = term.Numbered(len(r.Programs), "program") + " run"
	}
	if len(r.Left) > 0 {
		left = term.Numbered(len(r.Left), "program") + " left to run on the target machine"
	}
	if r.NextBoot {
		reboot = "reboot needed"
	}
	if len(r.Restart) > 0 {
		restart = "to restart: " + strings.Join(r.Restart, ", ")
	}
	files := views.FilesText(r.Changes, "restored", "created again")
	if files == "" {
		files = "the files are as before"
	}
	return term.Sentence(files, run, left, reboot, restart)
}
