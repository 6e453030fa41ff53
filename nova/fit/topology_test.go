package fit

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestParseTopology: what Nova 26.2.2 and 31.0.0 store (NUMATopology._to_json, after
// numa_usage_from_instance_numa for a guest with two pinned CPUs and pages of 2 MiB) is read as
// meant.
func TestParseTopology(t *testing.T) {
	socket := func(n int) *int { return &n }
	siblings := func(first int) (cores [][]int) {
		for cpu := first; cpu < first+8; cpu += 2 {
			cores = append(cores, []int{cpu, cpu + 1})
		}
		return cores
	}
	want := &Topology{Cells: []Cell{
		{ID: 0, Shared: []int{0, 1}, Dedicated: []int{2, 3, 4, 5, 6, 7}, Pinned: []int{2, 3}, Siblings: siblings(0), Memory: 2048, MemoryInUse: 512,
			Pages: []Pages{{4, 262144, 0, 0}, {2048, 512, 256, 16}}, Socket: socket(0)},
		{ID: 1, Shared: []int{8, 9}, Dedicated: []int{10, 11, 12, 13, 14, 15}, Pinned: []int{}, Siblings: siblings(8), Memory: 2048,
			Pages: []Pages{{4, 262144, 0, 0}, {2048, 512, 0, 16}}, Socket: socket(1)},
	}}
	files, err := filepath.Glob("testdata/topology-*.json")
	if err != nil || len(files) != 2 {
		t.Fatal(err, files)
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		read, err := ParseTopology(text)
		if err != nil {
			t.Fatal(name, err)
		}
		if diff := cmp.Diff(want, read); diff != "" {
			t.Errorf("%s (-want +read):\n%s", name, diff)
		}
	}
}

// TestParseTopologyOdd: absent, older and malformed texts are told apart.
func TestParseTopologyOdd(t *testing.T) {
	const none = `{"nova_object.name": "NUMATopology", "nova_object.data": {"cells": []}}`
	if read, err := ParseTopology([]byte(none)); read != nil || err != nil {
		t.Errorf("no cells: %+v, %v", read, err)
	}
	if _, err := ParseTopology([]byte(`{"cells": [{"id": 0, "cpus": "0-3", "mem": {"total": 512}}]}`)); !errors.Is(err, ErrLegacy) {
		t.Errorf("before Liberty: %v", err)
	}
	for _, text := range []string{"", "[]", "{", `{"nova_object.name": "NUMACell"}`} {
		if read, err := ParseTopology([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, read)
		}
	}
}
