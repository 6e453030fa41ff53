package explaintest

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"iter"
	"strings"
)

// Kept is a case about which explain once said something else than Nova.
type Kept struct {
	Name string `json:"name"`
	Case Case   `json:"case"`
}

// keptText has one case a line. TestExplainHost of the integration tests prints a case that differs
// as it belongs here, with a name.
//
//go:embed kept.jsonl
var keptText string

// All returns the cases that are kept, and then a number of random ones of a seed.
//
// Errors: a line of kept.jsonl that is no case.
func All(seed, random uint64) (iter.Seq[Kept], error) {
	var kept []Kept
	for n, line := range strings.Split(strings.TrimSpace(keptText), "\n") {
		var k Kept
		if err := json.Unmarshal([]byte(line), &k); err != nil {
			return nil, fmt.Errorf("kept.jsonl:%d: %w", n+1, err)
		}
		kept = append(kept, k)
	}
	return func(yield func(Kept) bool) {
		for _, k := range kept {
			if !yield(k) {
				return
			}
		}
		for n := range random {
			if !yield(Kept{fmt.Sprintf("seed %d, case %d", seed, n), Random(seed, n)}) {
				return
			}
		}
	}, nil
}
