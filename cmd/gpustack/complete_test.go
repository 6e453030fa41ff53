package main

import (
	"slices"
	"strings"
	"testing"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/offers"
)

// TestValuesAreCompleted: each value of each flag and argument has completions, is a path that the
// shell completes, or is listed as one that has none.
func TestValuesAreCompleted(t *testing.T) {
	offered, without := offers.Names()
	known := func(name string) bool {
		return slices.Contains(offered, name) || strings.Contains(name, "FILE") || strings.Contains(name, "DIR") || slices.Contains(without, name)
	}
	used := map[string]bool{}
	for path, c := range args.Commands(newApp(testUI(t), []string{"gpustack"}).Commands) {
		if c.Hidden {
			continue
		}
		for _, flag := range c.Flags {
			name := args.ValueName(flag)
			used[name], used[flag.Names()[0]] = true, true
			if _, choice := flag.(args.ChoiceFlag); !choice && args.TakesValue(flag) && !known(name) {
				t.Errorf("%s --%s: add %s to the names in package offers", path, flag.Names()[0], name)
			}
		}
		for argument := range strings.FieldsSeq(c.ArgsUsage) {
			name, _, _ := strings.Cut(strings.Trim(argument, "[].,"), "[")
			used[name] = true
			if name != strings.ToLower(name) && !known(name) {
				t.Errorf("%s %s: add %s to the names in package offers", path, argument, name)
			}
		}
	}
	for _, name := range offered {
		if !used[name] {
			t.Errorf("named has %s, which no help has", name)
		}
	}
	for _, name := range without {
		if !used[name] || slices.Contains(offered, name) {
			t.Errorf("none has %s, which no help has, or which has offers", name)
		}
	}
}
