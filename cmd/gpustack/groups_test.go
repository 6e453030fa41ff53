package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/cmd/gpustack/args"
)

// TestHelpGroups: the list of all commands is in the order of an operator's tasks, each command
// below one heading.
func TestHelpGroups(t *testing.T) {
	a := newApp(testUI(t), []string{"gpustack"})
	want := []string{"On each compute node", "On controllers and compute nodes", "Flavors", "Images", "Many nodes", "Repair of Nova's database",
		groupRecord, groupShell}
	var headings, listed []string
	for _, g := range args.Groups(a.Commands) {
		headings = append(headings, g.Heading)
		for path := range args.Visible(g.Tree) {
			listed = append(listed, path)
		}
	}
	if diff := cmp.Diff(want, headings); diff != "" {
		t.Errorf("headings (-want +got):\n%s", diff)
	}
	var all []string
	for path := range args.Visible(a.Commands) {
		all = append(all, path)
	}
	if !slices.Equal(listed, all) {
		t.Errorf("listed %q, commands %q", listed, all)
	}
	help, at := args.AppHelp(a.App), 0
	for _, words := range []string{"\nON EACH COMPUTE NODE\n", "\n  host scan ", "\n  host prepare ", "\n  host check ", "\nON CONTROLLERS AND COMPUTE NODES\n",
		"\n  nova configure ", "\nFLAVORS\n", "\n  flavor create ", "\nREPAIR OF NOVA'S DATABASE\n", "\nRECORD OF CHANGES\n", "\n  history "} {
		i := strings.Index(help[at:], words)
		if i < 0 {
			t.Fatalf("%q is missing, or not in its place:\n%s", words, help)
		}
		at += i
	}
}
