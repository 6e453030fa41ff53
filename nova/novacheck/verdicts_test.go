package novacheck_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"gpustack/host"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
	"gpustack/nova/novacheck"
)

// verdicts are what Nova says of values of options, by its releases: integration/record_nova.py
// records them.
type verdicts struct {
	Novas   map[string]string
	Aliases []verdict // the values of alias; pci_in_placement
	Specs   []verdict // the value of device_spec; report_in_placement
	Matches []verdict // a device_spec; address, vendor, product and PF of a function
	Filters []verdict // enabled_filters, null if it is not set; values of available_filters
	Names   []verdict // class, trait or filter; the name
}

// verdict is what releases say of one case.
type verdict struct {
	Case []json.RawMessage
	Said map[nova.Release]json.RawMessage
}

// UnmarshalJSON reads [CASE, {"RELEASE RELEASE": WHAT THEY SAY}].
func (v *verdict) UnmarshalJSON(text []byte) error {
	said := map[string]json.RawMessage{}
	if err := json.Unmarshal(text, &[]any{&v.Case, &said}); err != nil {
		return err
	}
	v.Said = map[nova.Release]json.RawMessage{}
	for releases, what := range said {
		for _, name := range strings.Fields(releases) {
			r, err := nova.ParseRelease(name)
			if err != nil {
				return err
			}
			v.Said[r] = what
		}
	}
	return nil
}

// read reads a part of the case.
func (v verdict) read(t *testing.T, i int, into any) {
	t.Helper()
	if err := json.Unmarshal(v.Case[i], into); err != nil {
		t.Fatalf("%s: %v", v.Case[i], err)
	}
}

func (v verdict) String() string {
	text, err := json.Marshal(v.Case)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// failed is the error that Nova raises, "" if it accepts the value.
func failed(said json.RawMessage) string {
	var e struct{ Error string }
	if json.Unmarshal(said, &e) != nil {
		return ""
	}
	return e.Error
}

func readVerdicts(t *testing.T) (all verdicts) {
	t.Helper()
	text := hosttest.Read(t, "testdata/verdicts.json")
	hosttest.NoError(t, json.Unmarshal([]byte(text), &all))
	if len(all.Aliases) < 300 || len(all.Specs) < 300 || len(all.Matches) < 100 || len(all.Filters) < 30 || len(all.Names) < 300 {
		t.Fatalf("%d aliases, %d specs, %d matches, %d filters and %d names", len(all.Aliases), len(all.Specs), len(all.Matches), len(all.Filters), len(all.Names))
	}
	return all
}

// sideOf is a machine with these lines of nova.conf.
func sideOf(t *testing.T, role nova.Role, lines ...string) nova.Side {
	t.Helper()
	file, err := conf.Parse([]byte(strings.Join(lines, "\n") + "\n"))
	if err != nil {
		t.Fatalf("%q: %v", lines, err)
	}
	return nova.Side{Role: role, Files: []conf.Source{{Name: "nova.conf", File: file}}}
}

// failures returns the failures of a check, with their effects.
func failures(findings []host.Finding, check string) (list []string) {
	for _, f := range findings {
		if f.Check == check && f.Status == host.Fail {
			list = append(list, f.Seen+": "+f.Effect)
		}
	}
	return list
}

// TestVerdictsOnAliases: what Nova rejects fails with the effect that it has, and what it accepts
// is not called malformed.
func TestVerdictsOnAliases(t *testing.T) {
	for _, v := range readVerdicts(t).Aliases {
		var values []string
		var inPlacement bool
		v.read(t, 0, &values)
		v.read(t, 1, &inPlacement)
		lines := []string{"[filter_scheduler]", "enabled_filters = ComputeFilter,PciPassthroughFilter", fmt.Sprint("pci_in_placement = ", inPlacement), "[pci]"}
		for _, value := range values {
			lines = append(lines, "alias = "+strings.ReplaceAll(value, "$", "$$"))
		}
		for r, said := range v.Said {
			found := failures(novacheck.Run(r, []nova.Side{sideOf(t, nova.Controller, lines...)}, nil, nil), "alias")
			all := slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, "rejects every alias") })
			if all != (failed(said) != "") {
				t.Errorf("%s: %s\nNova: %q\ncheck: %q", r, v, failed(said), found)
			}
			var asked map[string]struct{ Error string }
			if failed(said) == "" && inPlacement && json.Unmarshal(said, &asked) == nil {
				for name, a := range asked {
					if one := slices.ContainsFunc(found, func(f string) bool { return strings.Contains(f, "rejects requests for this alias") }); one != (a.Error != "") {
						t.Errorf("%s: %s, a request for %s\nNova: %q\ncheck: %q", r, v, name, a.Error, found)
					}
				}
			}
		}
	}
}

// TestVerdictsOnMatches: a device_spec matches the functions that Nova says.
func TestVerdictsOnMatches(t *testing.T) {
	for _, v := range readVerdicts(t).Matches {
		var words [5]string
		for i := range words {
			v.read(t, i, &words[i])
		}
		var object map[string]any
		hosttest.NoError(t, json.Unmarshal([]byte(words[0]), &object))
		spec, faults := devspec.Parse(object)
		vendor, vendorErr := pci.ParseID(words[2])
		id, idErr := pci.ParseID(words[3])
		if vendorErr != nil || idErr != nil {
			continue // no function has such an id
		}
		d := pci.Device{Address: hosttest.Address(t, words[1]), VendorID: &vendor, ProductID: &id}
		if words[4] != "" {
			pf := hosttest.Address(t, words[4])
			d.SRIOV.PF = &pf
		}
		for r, said := range v.Said {
			wrong, want := failed(said) != "", string(said) == "true"
			if got := devspec.NewHardware(nil, nil).Matches(spec, &d); wrong != (len(faults) > 0) || got != want {
				t.Errorf("%s: %s: matches %v, errors %v; Nova: %s", r, v, got, faults, said)
			}
		}
	}
}
