package main

import (
	"strings"
	"testing"

	"gpustack/cmd/gpustack/args"
)

// TestManualFits: only examples, whose lines can be copied, are not arranged: lists and paragraphs
// fit every terminal.
func TestManualFits(t *testing.T) {
	terms := 0
	for _, p := range args.ManualPages(newApp(testUI(t), []string{"gpustack"}).App, "") {
		section := ""
		for line := range strings.Lines(p.Text) {
			line = strings.TrimSuffix(line, "\n")
			switch {
			case strings.HasPrefix(line, ".SH "):
				section = line
			case line == ".nf" && section != `.SH "EXAMPLES"`:
				t.Errorf("%s: %s has lines that are not arranged", p.Name, section)
			case line == `\fBsuspicious\fR`, line == `\fBin use\fR`, line == `\fB130\fR`:
				terms++
			case section != `.SH "EXAMPLES"` && strings.Contains(line, "  "):
				t.Errorf("%s: %s: %q", p.Name, section, line)
			}
		}
	}
	if terms < 5 {
		t.Errorf("only %d terms are found", terms)
	}
}

// TestManualSeeAlso: a page refers to the pages of its group and of the commands that its text
// names.
func TestManualSeeAlso(t *testing.T) {
	for _, p := range args.ManualPages(newApp(testUI(t), []string{"gpustack"}).App, "") {
		_, also, _ := strings.Cut(p.Text, `.SH "SEE ALSO"`)
		also = strings.ReplaceAll(also, `\-`, "-")
		for page, want := range map[string][]string{
			"gpustack-repair-migration": {"gpustack", "gpustack-host-guests", "gpustack-undo"},
			"gpustack-nova-configure":   {"gpustack", "gpustack-nova-check", "gpustack-host-scan", "gpustack-undo"},
			"gpustack-undo":             {"gpustack", "gpustack-history", "gpustack-repair-migration", "gpustack-flavor-create"},
			"gpustack-completion":       {"gpustack"},
		} {
			for _, name := range want {
				if p.Name == page && !strings.Contains(also, "\n.BR "+name+" (8)") {
					t.Errorf("%s does not refer to %s(8):%s", page, name, also)
				}
			}
		}
		if strings.Contains(also, ".BR "+p.Name+" (8)") {
			t.Errorf("%s refers to itself", p.Name)
		}
	}
}
