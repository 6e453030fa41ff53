package main

import (
	"regexp"
	"testing"

	"gpustack/cmd/gpustack/args"
)

// TestPathsHaveAKind: every flag of every command whose value is a file or folder says whether it
// is a file of the machine, below --root, or a document. --root itself is the only exception.
func TestPathsHaveAKind(t *testing.T) {
	isPath := regexp.MustCompile(`FILE|DIR|PATH|FOLDER`)
	a := newApp(testUI(t), []string{"gpustack"})
	seen := map[bool]int{}
	for path, c := range args.Commands(a.Commands) {
		for _, flag := range c.Flags {
			spelling, _ := args.DescribeFlag(flag)
			path := path + " " + spelling
			rules, ok := flag.(args.PathFlag)
			switch {
			case !ok && isPath.MatchString(spelling) && spelling != "--root DIR":
				t.Errorf("%s: make it a flag of args.Path or args.Paths", path)
			case ok && !isPath.MatchString(spelling):
				t.Errorf("%s: name its value FILE or DIR", path)
			case ok && rules.Rules().Below && args.FindFlag(c.Flags, "root") == nil:
				t.Errorf("%s: a file of the machine, but the command has no --root", path)
			case ok:
				seen[rules.Rules().Below]++
			}
		}
	}
	if seen[true] < 4 || seen[false] < 8 {
		t.Errorf("only %v were seen", seen)
	}
}
