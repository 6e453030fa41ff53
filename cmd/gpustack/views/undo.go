package views

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpustack/cleanup"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/machine"
	"gpustack/nova/cloud"
	"gpustack/operate/node"
	"gpustack/operate/rows"
)

// Undo is the output of undo (docs/json.md).
type Undo struct {
	Report
	Changes     []FileChange    `json:"changes"` // the files that are restored, in order
	DriversPlan                 // of an entry of "drivers"
	Repairs     []cleanup.Unit  `json:"repairs"`  // the repairs of an entry of "rows"
	Requests    []cloud.Request `json:"requests"` // the requests that undo an entry of "objects"
	Programs    []string        `json:"programs"` // programs that run afterwards
	// programs to run on the machine, which gpustack does not run
	Left []string `json:"left"`
}

// NewUndo returns the report of the undo of an entry, without what the undo changes. head is its
// common part.
func NewUndo(head Report, e change.Entry) Undo {
	r := Undo{Report: head}
	if e.ID != 0 {
		r.Entry = &e.ID
	}
	return r
}

// NewUndoFiles returns the report of the undo of files, without the services to restart.
func NewUndoFiles(head Report, plan node.FilesBack) Undo {
	r := NewUndo(head, plan.Entry)
	r.Warnings = append(append(r.Warnings, undoWarnings(plan.Rewriting)...), plan.Warnings...)
	r.Changes, r.Programs, r.Left = FileChanges(plan.Files), commandLines(plan.Programs), commandLines(plan.Left)
	for _, e := range plan.Remain {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%s remains: '%s' undoes it", EntryName(e), UndoCommand(e.ID)))
	}
	if r.atNextBoot(plan.Entry.NextBoot()); r.NextBoot {
		r.then(checkOrScan(slices.ContainsFunc(r.Changes, func(c FileChange) bool { return c.File == machine.ContractFile && c.Action == edit.Delete })))
	}
	return r
}

// NewUndoDrivers returns the report of the undo of drivers, and whether it changes any.
func NewUndoDrivers(head Report, e change.Entry, plan node.DriversPlan) (r Undo, changed bool) {
	r = NewUndo(head, e)
	r.DriversPlan, r.Changes = newDriversPlan(plan.Plan.Plan), FileChanges(plan.Specs)
	return r, len(plan.Changes)+len(plan.Containers)+len(r.Stop)+len(r.Start) > 0
}

// NewUndoRows returns the report of the undo of a repair.
func NewUndoRows(head Report, e change.Entry, plan rows.UndoPlan) Undo {
	r := NewUndo(head, e)
	r.Repairs = plan.Units
	for i, unit := range plan.Units {
		if unit.Open() {
			r.Warnings = append(r.Warnings, fmt.Sprintf("%s: the outcome is unknown: %s", unit.Name(), standingText(unit, plan.Standings[i])))
		}
	}
	return r
}

// PrintRows prints the plan of the undo of an entry of rows.
func (r Undo) PrintRows(u *term.UI, e change.Entry, plan rows.UndoPlan) {
	printUndone(u, e)
	for i, unit := range plan.Units {
		printUndoPlan(u, unit, plan.Standings[i])
	}
}

// PrintFiles prints the plan of the undo of entries of files.
func (r Undo) PrintFiles(u *term.UI, entries ...change.Entry) {
	printUndone(u, entries...)
	printDiffs(u, r.Changes)
	printPrograms(u, r.Programs, r.Left)
	if len(r.Restart) > 0 {
		u.Printf("\nrestart afterwards, in this order: %s\n", strings.Join(r.Restart, ", "))
	}
}

// PrintDrivers prints the plan of the undo of an entry of drivers, and whether it changes any.
func (r Undo) PrintDrivers(u *term.UI, e change.Entry, p driver.Plan, changed bool) {
	printUndone(u, e)
	printDiffs(u, r.Changes)
	if !changed {
		u.Printf("\nthe drivers are as before: only the entry changes\n")
		return
	}
	printDriverWrites(u, p, u.Full)
}

// printUndone prints which entry is undone.
func printUndone(u *term.UI, entries ...change.Entry) {
	printEach(u, "undoes %s", host.Map(entries, EntryName))
}

// undoWarnings names the files in which undo leaves report_in_placement set, and those that it
// undoes by value.
func undoWarnings(r change.Rewriting) (warnings []string) {
	for _, of := range []struct {
		files []string
		what  string
	}{
		{r.Kept, "report_in_placement stays set: Nova cannot switch it off, and nova-compute does not start without it once its devices are in Placement"},
		{r.ByValue, "was changed since: only the values that gpustack set are undone, the rest of the file remains"},
		{r.Replaced, "was edited between changes that are undone, and a later one replaced the edit: it is not restored"},
		{r.Beside, "got values of gpustack since from other files, as entries of new kernels do: they are undone too"},
	} {
		for _, name := range of.files {
			warnings = append(warnings, name+": "+of.what)
		}
	}
	return warnings
}

// UndoFilesSummary returns the summary of the undo of files.
func UndoFilesSummary(r Undo) string {
	return term.Sentence(cmp.Or(filesText(r.Changes, "restored", "created again"), "the files are as before"),
		term.Some(len(r.Programs), "program", " run"), term.Some(len(r.Left), "program", " left to run on the target machine"),
		r.rebootText(), after("to restart: ", strings.Join(r.Restart, ", ")))
}
