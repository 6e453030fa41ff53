package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"gpustack/cmd/gpustack/args"
	"gpustack/host"
)

// TestPathsHaveAKind: every flag of every command whose value is a file or folder says whether it
// is a file of the machine, below --root, or a document. --root itself is the only exception.
func TestPathsHaveAKind(t *testing.T) {
	isPath := regexp.MustCompile(`FILE|DIR|PATH|FOLDER`)
	a := newApp(testUI(t), []string{"gpustack"})
	seen := map[args.PathKind]int{}
	for path, c := range args.Commands(a.Commands) {
		for _, flag := range c.Flags {
			spelling, _ := args.DescribeFlag(flag)
			path := path + " " + spelling
			rules, ok := flag.(args.PathFlag)
			switch {
			case !ok && isPath.MatchString(spelling) && spelling != "--root DIR":
				t.Errorf("%s: make it a flag of args.Path or args.Paths of the kind MachineFile, FileOrCopy or HandedOver", path)
			case ok && !isPath.MatchString(spelling):
				t.Errorf("%s: name its value FILE or DIR", path)
			case ok && !slices.Contains([]args.PathKind{args.MachineFile, args.FileOrCopy, args.HandedOver}, rules.Rules().Kind):
				t.Errorf("%s: unknown kind %q", path, rules.Rules().Kind)
			case ok && rules.Rules().Kind != args.HandedOver && args.FindFlag(c.Flags, "root") == nil:
				t.Errorf("%s: a file of the machine, but the command has no --root", path)
			case ok:
				seen[rules.Rules().Kind]++
			}
		}
	}
	if seen[args.MachineFile] < 4 || seen[args.HandedOver] < 8 {
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
	for _, row := range args.PathTable(a.App) {
		table += fmt.Sprintf("| `%s` | %s | %s |\n", row.Flags, row.Kind, strings.Join(row.Commands, ", "))
	}
	if !strings.Contains(string(text), "\n\n"+args.PathsText+"\n") {
		t.Errorf("docs/paths.md does not have this text:\n%s", args.PathsText)
	}
	if !strings.Contains(string(text), "\n\n"+table) {
		t.Errorf("docs/paths.md does not have this table:\n%s", table)
	}
	manual := strings.Join(strings.Fields(args.ManualPages(a.App, "")[0].Text), " ") // roff arranges its lines
	for _, row := range args.PathTable(a.App) {
		if !strings.Contains(manual, args.Escape(string(row.Kind)+": "+host.Listed(row.Commands, "and"))) {
			t.Errorf("the manual does not have %v", row)
		}
	}
}

// TestConfMeansOneThing: --conf names files below --root in every command, and its help says so in
// the same words.
func TestConfMeansOneThing(t *testing.T) {
	a := newApp(testUI(t), []string{"gpustack"})
	found := 0
	for path, c := range args.Commands(a.Commands) {
		flag := args.FindFlag(c.Flags, "conf")
		if flag == nil {
			continue
		}
		found++
		rules, ok := flag.(args.PathFlag)
		spelling, usage := args.DescribeFlag(flag)
		if !ok || rules.Rules().Kind == args.HandedOver || !strings.Contains(spelling, "FILE") || !regexp.MustCompile(`FILE(\[,FILE\])? below the root`).MatchString(usage) {
			t.Errorf("%s %s: %s", path, spelling, usage)
		}
	}
	if found < 8 {
		t.Errorf("only %d commands have --conf", found)
	}
}
