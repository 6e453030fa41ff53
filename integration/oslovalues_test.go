package integration

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/conf"
)

// asValues are the values that oslo.config reads from files.
type asValues struct {
	Error                     string
	Enabled, Available, Alias []string
}

func askValues(t *testing.T, peer *answerer, files ...string) (answer asValues) {
	t.Helper()
	texts, err := json.Marshal(files)
	hosttest.NoError(t, err)
	peer.ask(t, "values\t"+string(texts), &answer)
	return answer
}

// TestFiltersAgainstOslo: the filters of a nova-scheduler that reads several files, of which each
// may set the options by their older and their current names.
func TestFiltersAgainstOslo(t *testing.T) {
	peer := startAnswerer(t, "ask_oslo.py")
	random := rand.New(rand.NewPCG(34, 4))
	several := 0
	for range 1000 {
		var texts []string
		var side nova.Side
		value := 0
		for i := range 1 + random.IntN(3) {
			text := ""
			for _, name := range []string{"[filter_scheduler]\nenabled_filters", "[DEFAULT]\nscheduler_default_filters",
				"[filter_scheduler]\navailable_filters", "[DEFAULT]\nscheduler_available_filters"} {
				for range random.IntN(3) / 2 * (1 + random.IntN(2)) {
					value++
					text += fmt.Sprintf("%s = own.F%d, F0,\n", name, value)
				}
			}
			if random.IntN(4) == 0 {
				text += "[filter_scheduler]\nenabled_filters =\n"
			}
			file, err := conf.Parse([]byte(text))
			hosttest.NoError(t, err)
			texts, side.Files = append(texts, text), append(side.Files, conf.Source{Name: fmt.Sprint(i), File: file})
		}
		want, got := askValues(t, peer, texts...), side.Filters(nova.Wallaby)
		if want.Enabled == nil {
			want.Enabled = nova.Wallaby.DefaultFilters()
		} else {
			several++
		}
		slices.Sort(want.Available) // the order makes no difference
		slices.Sort(got.Available)
		if !slices.Equal(want.Enabled, got.Enabled) || !slices.Equal(want.Available, got.Available) {
			t.Fatalf("%q\noslo.config reads %q and %q\nwe read %q and %q", texts, want.Enabled, want.Available, got.Enabled, got.Available)
		}
	}
	if several < 300 {
		t.Errorf("only %d cases with enabled_filters", several)
	}
}

// TestReferencesAgainstOslo: a value refers to options where oslo.config looks for them, and else
// is read as oslo.config reads it.
func TestReferencesAgainstOslo(t *testing.T) {
	peer := startAnswerer(t, "ask_oslo.py")
	random := rand.New(rand.NewPCG(34, 2))
	refer, read := 0, 0
	for range 800 {
		var name strings.Builder
		for range random.IntN(9) {
			name.WriteString([]string{"$", "$", "$", "{", "}", "a", "a", "B", "1", ".", "-", `\$`, `\\`}[random.IntN(13)])
		}
		value := `{"name": "` + name.String() + `"}`
		want := askValues(t, peer, "[pci]\nalias = "+value+"\n")
		if names := conf.References(value); (len(names) > 0) != (want.Error != "") {
			t.Fatalf("%s refers to %q; oslo.config: %q", value, names, want.Error)
		}
		if want.Error != "" {
			refer++
			continue
		}
		var object map[string]any
		isObject := json.Unmarshal([]byte(want.Alias[0]), &object) == nil
		got := conf.ParseObjects(value)
		if isObject != (got != nil) || isObject && got[0]["name"] != object["name"] {
			t.Fatalf("%s is %v; oslo.config reads %s", value, got, want.Alias[0])
		}
		read++
	}
	if refer < 80 || read < 200 {
		t.Errorf("%d references, %d others", refer, read)
	}
}
