package containerprepare_test

import (
	"os"
	"strings"
	"testing"

	"gpustack/host/container/containerprepare"
	"gpustack/host/hosttest"
	"gpustack/host/machine"
	"gpustack/host/rdma"
)

// TestNetworksWithoutRepresentors: an adapter in mode switchdev shares its physical port, not an
// interface that represents a VF and comes first by its name.
func TestNetworksWithoutRepresentors(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../../integration/testdata/shapes/switchdev.txtar")
	if err != nil {
		t.Fatal(err)
	}
	_, stack, err := rdma.Scan(hosttest.Lay(t, string(text)), rdma.Options{})
	if err != nil {
		t.Fatal(err)
	}
	record := machine.Containers{Functions: []machine.ContainerFunction{{Address: *stack.Adapters[0].Address, HCA: true}}}
	networks, _, err := containerprepare.Networks(record, stack)
	if err != nil || len(networks) != 2 {
		t.Fatalf("%v, %v", networks, err)
	}
	for _, n := range networks {
		if !strings.Contains(string(n.Config), `"master":"enp59s0f0np0"`) {
			t.Errorf("%s: %s", n.Name, n.Config)
		}
	}
}
