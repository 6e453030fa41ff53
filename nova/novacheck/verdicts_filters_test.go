package novacheck_test

import (
	"encoding/json"
	"strings"
	"testing"

	"gpustack/nova"
	"gpustack/nova/novacheck"
)

// TestVerdictsOnFilters: filters with which nova-scheduler does not start fail, and no others.
func TestVerdictsOnFilters(t *testing.T) {
	all := readVerdicts(t)
	for _, v := range all.Filters {
		lines := []string{"[filter_scheduler]"}
		for i := range v.Case {
			name := "available_filters"
			if i == 0 {
				name = "enabled_filters"
			}
			var value *string
			if v.read(t, i, &value); value != nil {
				lines = append(lines, name+" = "+*value)
			}
		}
		for r, said := range v.Said {
			checkFilters(t, r, failed(said), lines...)
		}
	}
	// Each filter of Nova's, by its name alone and by its path.
	releases := map[nova.Release]bool{}
	for _, v := range all.Names {
		for r := range v.Said {
			releases[r] = true
		}
	}
	for _, v := range all.Names {
		var kind, path string
		v.read(t, 0, &kind)
		if v.read(t, 1, &path); kind != "filter" {
			continue
		}
		enabled := "enabled_filters = " + path[strings.LastIndex(path, ".")+1:]
		for r := range releases {
			problem := ""
			if v.Said[r] == nil {
				problem = "no such filter"
			}
			checkFilters(t, r, problem, "[filter_scheduler]", enabled)
			checkFilters(t, r, problem, "[filter_scheduler]", enabled, "available_filters = "+path)
		}
	}
}

// checkFilters checks filters of which Nova says an error, or "".
func checkFilters(t *testing.T, r nova.Release, problem string, lines ...string) {
	t.Helper()
	var found []string
	for _, f := range failures(novacheck.Run(r, []nova.Side{sideOf(t, nova.Controller, lines...)}, nil, nil), "filters") {
		if strings.HasSuffix(f, "does not start nova-scheduler") {
			found = append(found, f)
		}
	}
	if (len(found) > 0) != (problem != "") {
		text, err := json.Marshal(lines)
		t.Errorf("%s: %s %v\nNova: %q\ncheck: %q", r, text, err, problem, found)
	}
}
