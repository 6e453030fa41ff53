package main

import (
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
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
