package views

import (
	"strconv"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
)

// FileChange is a planned change of a file, with its unified diff.
type FileChange struct {
	File   string      `json:"file"`   // the path on the machine
	Action edit.Action `json:"action"` // what happens to the file
	Diff   string      `json:"diff"`   // a unified diff, secrets in its context masked

	brief   string // the diff of a short plan
	purpose string // of a file that gpustack generates
}

// FileChanges returns the changes of a plan that differ from the machine.
func FileChanges(plan edit.Changes) []FileChange {
	return host.Map(plan.Pending(), func(c edit.Change) FileChange {
		return FileChange{c.Name, c.Action(), c.Diff(), c.Brief(), c.Purpose}
	})
}

// isNamed reports whether a short plan has no diff of a change, but only names the file: it is
// removed, or a record of gpustack's own.
func (c FileChange) isNamed() bool {
	return c.Action == edit.Delete || strings.HasPrefix(c.File, change.Dir)
}

// printDiffs prints changes of files, as diffs with added and removed lines in colour. A new file
// that gpustack generates has one line with its purpose instead; a diff shows what changes in an
// existing one, because that may be an edit of the operator's. Removed files and gpustack's own
// records are only named. With --diff, all of them are diffs.
func printDiffs(u *term.UI, changes []FileChange) {
	var made [][]string
	for _, c := range changes {
		switch {
		case u.Full:
			u.Diff(c.Diff)
		case c.isNamed():
		case c.Action == edit.Create && c.purpose != "":
			lines := strings.Count(c.Diff, "\n+") - strings.Count(c.Diff, "\n+++ ") // of the header
			made = append(made, []string{c.File, strconv.Itoa(lines), c.purpose})
		default:
			u.Diff(c.brief)
		}
	}
	if made != nil {
		u.Printf("\n")
		u.Table([]string{"NEW FILE", "LINES", "PURPOSE"}, made)
		u.Printf("--diff shows the content of new files\n")
	}
	named := host.Filter(changes, func(c FileChange) bool { return !u.Full && c.isNamed() })
	if named != nil {
		u.Printf("\n")
	}
	printEach(u, "%s", host.Map(named, func(c FileChange) string {
		return either(c.Action == edit.Delete, "removes ", "records this in ") + c.File
	}))
}

// printSelection prints the table of the functions that a plan records, and what stands below it, or
// what the plan means without one. It returns whether the plan changes anything.
func printSelection(u *term.UI, changed bool, header []string, rows [][]string, below, nothing, noLonger string) bool {
	switch {
	case rows == nil && !changed:
		u.Printf("nothing to do: %s\n", nothing)
	case rows == nil:
		u.Printf("%s\n", noLonger)
	default:
		u.Table(header, rows)
		u.Printf("%s", below)
		if !changed {
			u.Printf("\nnothing to do: the files are as planned\n")
		}
	}
	return changed
}

// printPrograms prints the programs that run after a plan's changes.
func printPrograms(u *term.UI, run, left []string) {
	printEach(u, "then runs %s", run)
	printEach(u, "run on the target machine: %s", left)
}

// printNotes prints notes below a plan, each in a line of its own.
func printNotes(u *term.UI, notes ...string) {
	before := "\n"
	for _, note := range notes {
		if note != "" {
			u.Printf("%snote: %s\n", before, term.Printable(note))
			before = ""
		}
	}
}

// commandLines returns programs as text.
func commandLines(programs []host.Program) []string {
	return host.Map(programs, host.Program.String)
}
