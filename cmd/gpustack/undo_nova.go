package main

import (
	"strings"

	"gpustack/host"
	"gpustack/host/journal"
	"gpustack/nova"
)

// keepReporting returns the entry as it is to be undone: without report_in_placement,
// which Nova cannot switch off. The warnings name the files in which it stays.
func keepReporting(root host.Root, entries []journal.Entry, entry journal.Entry) (journal.Entry, []string, error) {
	rewritten, err := journal.Keeping(root, entries, entry.ID, keepReportingIn)
	if err != nil || len(rewritten) == 0 {
		return entry, nil, err
	}
	kept := rewritten[len(rewritten)-1]
	var warnings []string
	for i, f := range kept.Files {
		if f.Before != nil && (entry.Files[i].Before == nil || f.Before.Hash != entry.Files[i].Before.Hash) {
			warnings = append(warnings, f.Name+": report_in_placement stays set: Nova cannot switch it off, and nova-compute does not start without it once its devices are in Placement")
		}
	}
	return kept, warnings, nil
}

// keepReportingIn is a [journal.Keep].
func keepReportingIn(e journal.Entry, now, before []byte) ([]byte, error) {
	if !strings.HasPrefix(e.Command, commandConfigure) {
		return before, nil
	}
	return nova.KeepReporting(now, before)
}
