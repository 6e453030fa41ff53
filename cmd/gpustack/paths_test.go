package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpustack/cmd/gpustack/term"
)

// TestPathsHaveAKind: every flag of every command whose value is a file or folder says whether it
// is a file of the machine, below --root, or a document. --root itself is the only exception.
func TestPathsHaveAKind(t *testing.T) {
	isPath := regexp.MustCompile(`FILE|DIR|PATH|FOLDER`)
	a := newApp(testUI(t), []string{"gpustack"})
	seen := map[pathKind]int{}
	for path, c := range commands(a.Commands) {
		for _, flag := range c.Flags {
			spelling, _ := describeFlag(flag)
			path := path + " " + spelling
			rules, ok := flag.(pathFlag)
			switch {
			case !ok && isPath.MatchString(spelling) && spelling != "--root DIR":
				t.Errorf("%s: make it a onePath or manyPaths of the kind machineFile or handedOver", path)
			case ok && !isPath.MatchString(spelling):
				t.Errorf("%s: name its value FILE or DIR", path)
			case ok && !slices.Contains([]pathKind{machineFile, handedOver}, rules.paths().kind):
				t.Errorf("%s: unknown kind %q", path, rules.paths().kind)
			case ok && rules.paths().kind == machineFile && findFlag(c.Flags, "root") == nil:
				t.Errorf("%s: a file of the machine, but the command has no --root", path)
			case ok:
				seen[rules.paths().kind]++
			}
		}
	}
	if seen[machineFile] < 4 || seen[handedOver] < 8 {
		t.Errorf("only %v were seen", seen)
	}
}

// TestPathsAreDescribed: the manual and docs/paths.md have the table of paths.
func TestPathsAreDescribed(t *testing.T) {
	text, err := os.ReadFile("../../docs/paths.md")
	if err != nil {
		t.Fatal(err)
	}
	a := newApp(testUI(t), []string{"gpustack"})
	table := "| flag | kind | commands |\n|---|---|---|\n"
	for _, row := range pathTable(a.App) {
		table += fmt.Sprintf("| `%s` | %s | %s |\n", row.flags, row.kind, strings.Join(row.commands, ", "))
	}
	if !strings.Contains(string(text), "\n\n"+pathsText+"\n") {
		t.Errorf("docs/paths.md does not have this text:\n%s", pathsText)
	}
	if !strings.Contains(string(text), "\n\n"+table) {
		t.Errorf("docs/paths.md does not have this table:\n%s", table)
	}
	manual := strings.Join(strings.Fields(manual(a.App)), " ") // roff arranges its lines
	for _, row := range pathTable(a.App) {
		if !strings.Contains(manual, escape(string(row.kind)+": "+term.Listed(row.commands, "and"))) {
			t.Errorf("the manual does not have %v", row)
		}
	}
}
