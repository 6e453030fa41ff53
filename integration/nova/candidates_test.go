package nova

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestPlacement: what cloudtest answers with is what the Placement of the tests' tree answers. That
// of a later release than the recorded one knows more traits and classes, and answers otherwise
// only where a request names one of them.
func TestPlacement(t *testing.T) {
	compareRecorded(t, "python/candidates.py", "../../nova/cloud/cloudtest/testdata/placement.jsonl", func(recorded, now string) func(string, string) bool {
		names := func(line string) map[string]bool {
			var first struct {
				Known map[string][]string
			}
			hosttest.NoError(t, json.Unmarshal([]byte(line), &first))
			all := map[string]bool{}
			for _, name := range slices.Concat(slices.Collect(maps.Values(first.Known))...) {
				all[name] = true
			}
			return all
		}
		more := names(now)
		for name := range names(recorded) {
			if !more[name] {
				t.Errorf("%s is not known any more", name)
			}
			delete(more, name)
		}
		return func(recorded, now string) bool {
			var before, after struct{ URL, Version string }
			if json.Unmarshal([]byte(recorded), &before) != nil || json.Unmarshal([]byte(now), &after) != nil || before != after {
				return false
			}
			for name := range more {
				if strings.Contains(after.URL, name) {
					return true
				}
			}
			return false
		}
	})
}
