package main

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/offers"
)

// TestValuesAreCompleted: each value of each flag and argument has completions, is a path that the
// shell completes, or is listed as one that has none.
func TestValuesAreCompleted(t *testing.T) {
	// Only the operator or a service on the network knows these, or they are shorter to type than to choose.
	without := []string{"CELL", "CLASS", "COMMAND", "COMMAND…", "FLAVOR", "GUID", "HCA", "HOST", "IMAGE", "KEY=VALUE", "KIND", "NAME", "NETWORK",
		"NUMBER", "PROJECT", "REGION", "ROLE", "SIZE", "TEXT", "TIME", "TOKEN", "URL", "UUID", "VENDOR", "VERSION", "ZONE"}
	offered := slices.Collect(maps.Keys(offers.Values(t.Context(), nil)))
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
				t.Errorf("%s --%s: add %s to the names in package offers or to this test", path, flag.Names()[0], name)
			}
		}
		for argument := range strings.FieldsSeq(c.ArgsUsage) {
			name, _, _ := strings.Cut(strings.Trim(argument, "[].,"), "[")
			used[name] = true
			if name != strings.ToLower(name) && !known(name) {
				t.Errorf("%s %s: add %s to the names in package offers or to this test", path, argument, name)
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
