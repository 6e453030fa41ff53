package containerprepare_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host/cdi"
	"gpustack/host/container"
	"gpustack/host/container/containerprepare"
	"gpustack/host/edit"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// TestDockerRun: a container of docker gets the nodes, mounts and variables that the CDI specs give
// it for the same functions, and nothing else.
func TestDockerRun(t *testing.T) {
	t.Parallel()
	n := newNode(t)
	record := n.record
	record.Options.UMAD, record.Options.LibraryPath = true, true
	all := container.SpecOf(&record, n.driver, n.stack, n.devices)
	for name, spec := range map[string]*specs.Spec{container.GPUFile: all.GPU, container.HCAFile: all.HCA} {
		c, err := container.BootSpec(edit.Observe(n.root, container.SpecFiles()...), name, spec)
		if err == nil {
			err = edit.Plan{c}.Apply(context.Background(), n.root)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	folders, err := cdi.Read(n.root)
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		named []pci.Address
		umad  bool
		names []string
	}{
		"one GPU":        {[]pci.Address{address(t, gpu0)}, false, []string{"gpustack.local/gpu=" + gpu0}},
		"by UUID":        {[]pci.Address{address(t, gpu0)}, false, []string{"gpustack.local/gpu=" + uuid}},
		"both GPUs":      {[]pci.Address{address(t, gpu0), address(t, gpu1)}, false, []string{"gpustack.local/gpu=" + gpu0, "gpustack.local/gpu=" + gpu1}},
		"the adapter":    {[]pci.Address{address(t, hca)}, false, []string{"gpustack.local/hca=" + hca}},
		"with umad":      {[]pci.Address{address(t, hca)}, true, []string{"gpustack.local/hca=" + hca, "gpustack.local/hca=" + hca + "-umad"}},
		"all, unnamed":   {nil, false, []string{"gpustack.local/gpu=" + gpu0, "gpustack.local/gpu=" + gpu1, "gpustack.local/hca=" + hca}},
		"GPU and device": {[]pci.Address{address(t, gpu0), address(t, hca)}, false, []string{"gpustack.local/gpu=" + gpu0, "gpustack.local/hca=" + hca}},
	} {
		t.Run(name, func(t *testing.T) {
			var want []string
			for _, device := range test.names {
				edits, err := folders.Inject(device)
				if err != nil {
					t.Fatal(err)
				}
				for _, e := range edits.Env {
					want = append(want, "env="+e)
				}
				for _, d := range edits.DeviceNodes {
					want = append(want, "device="+d.Path)
				}
				for _, m := range edits.Mounts {
					want = append(want, "mount="+m.HostPath+":"+m.ContainerPath)
				}
				if strings.HasPrefix(device, cdi.DefaultHCAKind) {
					want = append(want, "ulimit=memlock=-1:-1")
				}
			}
			only := containerprepare.Only(record, test.named, test.umad)
			argv := containerprepare.DockerRun(container.SpecOf(&only, n.driver, n.stack, n.devices))
			if argv[0] != "docker" || argv[1] != "run" || argv[len(argv)-1] != "IMAGE" {
				t.Errorf("%q", argv)
			}
			var got []string
			for _, flag := range argv[2 : len(argv)-1] {
				flag = strings.TrimPrefix(flag, "--")
				switch key, value, _ := strings.Cut(flag, "="); key {
				case "device":
					path, rest, mapped := strings.Cut(value, ":")
					if mapped && rest != path+":rw" {
						t.Errorf("%s: wrong form", flag)
					}
					flag = "device=" + path
				case "mount":
					fields := strings.Split(value, ",")
					flag = "mount=" + strings.TrimPrefix(fields[1], "source=") + ":" + strings.TrimPrefix(fields[2], "target=")
				}
				got = append(got, flag)
			}
			slices.Sort(want)
			slices.Sort(got)
			if diff := cmp.Diff(slices.Compact(want), got); diff != "" {
				t.Errorf("(-CDI +docker):\n%s", diff)
			}
		})
	}
}

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
