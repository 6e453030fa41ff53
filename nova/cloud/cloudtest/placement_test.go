package cloudtest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestPlacement: the same requests get the answers of a real Placement (testdata/placement.jsonl:
// its release, the providers, and a line for each request).
func TestPlacement(t *testing.T) {
	lines := bytes.Split(bytes.TrimSpace(recorded), []byte("\n"))
	if len(lines) < 600 {
		t.Fatalf("%d lines", len(lines))
	}
	p := recordedPlacement(t, lines[1])
	for _, line := range lines[2:] {
		var want struct {
			Version, URL string
			Status       int
			Body         any
		}
		hosttest.NoError(t, json.Unmarshal(line, &want))
		t.Run(want.Version+want.URL, func(t *testing.T) {
			r := httptest.NewRequest("GET", "/placement"+want.URL, nil)
			r.Header.Set("OpenStack-API-Version", "placement "+want.Version)
			w := httptest.NewRecorder()
			if !p.serve(w, r) {
				t.Fatal("not served")
			}
			var got any
			hosttest.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
			hosttest.EqualIn(t, "HTTP", want.Status, w.Code)
			hosttest.EqualIn(t, "Placement and cloudtest", canonical(want.Body, ""), canonical(got, ""))
		})
	}
}

func recordedPlacement(t *testing.T, line []byte) *Placement {
	t.Helper()
	var scene struct {
		Providers []struct {
			UUID, Name, Parent string
			Traits, Aggregates []string
			Inventories        map[string]Inventory
			Held               map[string]map[string]int
		}
	}
	hosttest.NoError(t, json.Unmarshal(line, &scene))
	p := &Placement{Newest: 39, Classes: []string{"CUSTOM_UNUSED"}, Traits: []string{"CUSTOM_UNUSED"}}
	uuids := map[string]string{}
	for _, r := range scene.Providers {
		uuids[r.Name] = r.UUID
		p.Providers = append(p.Providers, &Provider{r.UUID, r.Name, uuids[r.Parent], r.Traits, r.Aggregates, r.Inventories, r.Held})
	}
	return p
}

// canonical sorts lists, which have no order, and leaves out what changes from run to run, as
// candidates.py does.
func canonical(value any, key string) any {
	switch value := value.(type) {
	case map[string]any:
		all := map[string]any{}
		for k, v := range value {
			if !slices.Contains([]string{"links", "request_id", "generation", "resource_provider_generation", "consumer_generation", "code"}, k) {
				all[k] = canonical(v, k)
			}
		}
		return all
	case []any:
		all := []any{}
		for _, v := range value {
			all = append(all, canonical(v, ""))
		}
		slices.SortFunc(all, func(a, b any) int {
			x, _ := json.Marshal(a)
			y, _ := json.Marshal(b)
			return cmp.Compare(string(x), string(y))
		})
		return all
	case string:
		if key == "detail" {
			return strings.Join(strings.Fields(value), " ")
		}
	}
	return value
}
