package views

import (
	"fmt"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
)

// FileChange is a planned change of a file, with its unified diff.
type FileChange struct {
	File   string      `json:"file"`
	Action edit.Action `json:"action"`
	Diff   string      `json:"diff"`
}

// FileChanges returns the changes of a plan that differ from the machine.
func FileChanges(plan edit.Plan) []FileChange {
	var changes []FileChange
	for _, c := range plan.Pending() {
		changes = append(changes, FileChange{c.Name, c.Action(), c.Diff()})
	}
	return changes
}

// printDiffs prints changes of files with added and removed lines in colour. Removed files and
// gpustack's own records are only named: the other formats contain their content.
func printDiffs(u *term.UI, changes []FileChange) {
	for _, c := range changes {
		if c.Action != edit.Delete && !strings.HasPrefix(c.File, change.Dir) {
			u.Diff(c.Diff)
		}
	}
	var named strings.Builder
	for _, c := range changes {
		switch {
		case c.Action == edit.Delete:
			fmt.Fprintf(&named, "removes %s\n", term.Printable(c.File))
		case strings.HasPrefix(c.File, change.Dir):
			fmt.Fprintf(&named, "records this in %s\n", term.Printable(c.File))
		}
	}
	if named.Len() > 0 {
		u.Printf("\n%s", named.String())
	}
}

// printPrograms prints the programs that run after a plan's changes.
func printPrograms(u *term.UI, run, left []string) {
	for _, line := range run {
		u.Printf("then runs %s\n", line)
	}
	for _, line := range left {
		u.Printf("run on the target machine: %s\n", line)
	}
}

// commandLines returns programs as text.
func commandLines(programs []host.Program) []string {
	var lines []string
	for _, p := range programs {
		lines = append(lines, p.String())
	}
	return lines
}
