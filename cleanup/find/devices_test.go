package find

import (
	"fmt"
	"testing"

	"gpustack/host/hosttest"
)

// TestWhereAt: one condition for the addresses of several nodes.
func TestWhereAt(t *testing.T) {
	for name, test := range map[string]struct {
		wanted []nodeAddress
		want   string
	}{
		"one address":       {[]nodeAddress{{7, "a"}}, "(compute_node_id = ? AND address IN (?)) [7 a]"},
		"several of a node": {[]nodeAddress{{7, "a"}, {7, "b"}}, "(compute_node_id = ? AND address IN (?, ?)) [7 a b]"},
		"of several nodes": {[]nodeAddress{{7, "b"}, {8, "a"}, {8, "b"}, {9, "a"}},
			"(compute_node_id = ? AND address IN (?) OR compute_node_id = ? AND address IN (?, ?) OR compute_node_id = ? AND address IN (?)) [7 b 8 a b 9 a]"},
	} {
		t.Run(name, func(t *testing.T) {
			where, args := whereAt(ownAddress, test.wanted)
			hosttest.Equal(t, test.want, fmt.Sprint(where, " ", args))
		})
	}
}
