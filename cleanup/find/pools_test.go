package find

import (
	"fmt"
	"testing"

	"gpustack/cleanup"
	"gpustack/host/hosttest"
)

// TestFreeRows: free rows are counted by node and by the keys of their pool. Those that have an
// owner are counted apart, because nova-compute may count them or not.
func TestFreeRows(t *testing.T) {
	f := newFreeRows()
	for _, row := range []struct {
		node int64
		text string
	}{
		{7, "10de/11b4/type-PCI/0/0"},
		{7, "10de/11b4/type-PCI/0/0"},
		{7, "10de/11b4/type-PCI/0/1"},
		{7, "10de/11b4/type-PCI//0"},
		{8, "10de/11b4/type-PCI/0/0"},
	} {
		hosttest.NoError(t, f.add(row.node, []byte(row.text)))
	}
	card := cleanup.Pool{Vendor: "10de", Product: "11b4", Type: "type-PCI"}
	near := card
	near.NUMA = "0"
	for node, want := range map[int64]map[cleanup.Pool]cleanup.Free{
		7: {near: {Count: 2, Owned: 1}, card: {Count: 1}},
		8: {near: {Count: 1}},
		9: {},
	} {
		hosttest.EqualIn(t, fmt.Sprintf("node %d", node), want, f.of(node))
	}
	for _, text := range []string{"10de/11b4/type/PCI/0/0", "10de/11b4/type-PCI/0", ""} {
		if f.add(7, []byte(text)) == nil {
			t.Errorf("%q is counted", text)
		}
	}
}

// TestSameFreeRows: nodes share a comparison of their pools only if their free rows are the same.
func TestSameFreeRows(t *testing.T) {
	f := newFreeRows()
	kinds := []string{"10de/11b4/type-PCI/0/0", "10de/11b4/type-PCI/0/1", "8086/56c0/type-PF/0/0"}
	nodes := [][]int{{}, {0}, {0, 0}, {1}, {2}, {0, 1}, {0, 2}, {0, 1, 2}}
	texts := map[string]int64{}
	for i, rows := range nodes {
		node := int64(i + 1)
		for _, kind := range rows {
			hosttest.NoError(t, f.add(node, []byte(kinds[kind])))
		}
	}
	for i := range nodes {
		node := int64(i + 1)
		text := string(f.appendText([]byte("stats"), node))
		if other, known := texts[text]; known {
			t.Errorf("nodes %d and %d: %q", other, node, text)
		}
		texts[text] = node
	}
}
