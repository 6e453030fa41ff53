package containerprepare_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/container/containerprepare"
	"gpustack/host/rdma"
)

// TestNetworks: what is printed for each kind of adapter, and what is said.
func TestNetworks(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	pf, exclusive := address(t, "0000:0c:00.0"), rdma.NetnsExclusive
	moved := func(plugin, isolation, next string) string {
		return `{"cniVersion":"0.3.1","name":"gpustack-0000-0c-00.1","plugins":[{"type":"` + plugin + `","deviceID":"` + hca + `"` + isolation +
			`,"ipam":{"subnet":"192.0.2.0/24","type":"host-local"}}` + next + `]}`
	}
	shared := func(plugin, mode string) string {
		return `{"cniVersion":"0.3.1","name":"gpustack-0000-0c-00.1-` + plugin + `","plugins":[{"type":"` + plugin + `","master":"ens1","mode":"` + mode +
			`","ipam":{"subnet":"192.0.2.0/24","type":"host-local"}}]}`
	}
	const mode, subnet = "CNI plugins move RDMA devices only in exclusive mode", "replace the subnet"
	for name, test := range map[string]struct {
		change func(a *rdma.Adapter, stack *rdma.Stack)
		want   []string
		notes  []string
	}{
		"InfiniBand VF": {func(a *rdma.Adapter, s *rdma.Stack) { a.PF, s.Netns = &pf, &exclusive },
			[]string{moved("ib-sriov", `,"rdmaIsolation":true`, "")}, []string{subnet}},
		"Ethernet VF": {func(a *rdma.Adapter, _ *rdma.Stack) { a.PF, a.Ports[0].LinkLayer = &pf, rdma.LinkEthernet },
			[]string{moved("sriov", "", `,{"type":"rdma","deviceID":"`+hca+`"}`)}, []string{mode, subnet}},
		"Ethernet": {func(a *rdma.Adapter, _ *rdma.Stack) {
			a.Netdevs, a.Ports[0].LinkLayer = []string{"ens1"}, rdma.LinkEthernet
		},
			[]string{shared("macvlan", "bridge"), shared("ipvlan", "l2")}, []string{"a shared adapter isolates nothing", subnet}},
		"without interface": {func(a *rdma.Adapter, _ *rdma.Stack) { a.Ports[0].LinkLayer = rdma.LinkEthernet }, nil, []string{"has no network interface"}},
		"InfiniBand":        {func(*rdma.Adapter, *rdma.Stack) {}, nil, []string{"no plugin shares an InfiniBand adapter"}},
		"without port":      {func(a *rdma.Adapter, _ *rdma.Stack) { a.Ports = nil }, nil, []string{"has no port"}},
		"gone":              {func(_ *rdma.Adapter, s *rdma.Stack) { s.Adapters = nil }, nil, []string{"has no port"}},
	} {
		a := n.stack.Adapters[1]
		a.Ports = []rdma.Port{{LinkLayer: rdma.LinkInfiniBand}}
		var stack rdma.Stack
		stack.Adapters = []rdma.Adapter{a}
		test.change(&stack.Adapters[0], &stack)
		networks, notes, err := containerprepare.Networks(n.record, stack)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range networks {
			if got = append(got, string(x.Config)); !json.Valid(x.Config) {
				t.Errorf("%s: %s", name, x.Config)
			}
		}
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
		for i, note := range test.notes {
			if len(notes) != len(test.notes) || !strings.Contains(notes[i], note) {
				t.Errorf("%s: %q, want %q", name, notes, test.notes)
				break
			}
		}
	}
}
