package main

import (
	"slices"
	"strings"
	"testing"

	"gpustack/cmd/gpustack/args"
)

// TestValuesAreCompleted: each value of each flag and argument has completions, is a path that the
// shell completes, or is listed as one that has none.
func TestValuesAreCompleted(t *testing.T) {
	known := func(name string) bool {
		return valueOffers[name] != nil || strings.Contains(name, "FILE") || strings.Contains(name, "DIR") || slices.Contains(withoutOffers, name)
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
				t.Errorf("%s --%s: add %s to valueOffers or withoutOffers", path, flag.Names()[0], name)
			}
		}
		for argument := range strings.FieldsSeq(c.ArgsUsage) {
			name, _, _ := strings.Cut(strings.Trim(argument, "[].,"), "[")
			used[name] = true
			if name != strings.ToLower(name) && !known(name) {
				t.Errorf("%s %s: add %s to valueOffers or withoutOffers", path, argument, name)
			}
		}
	}
	for name := range valueOffers {
		if !used[name] {
			t.Errorf("valueOffers has %s, which no help has", name)
		}
	}
	for _, name := range withoutOffers {
		if !used[name] || valueOffers[name] != nil {
			t.Errorf("withoutOffers has %s, which no help has, or which has offers", name)
		}
	}
}
