package flavor_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hardware"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/flavor"
)

// fitNode is a NUMA node with two threads on each core, and usable memory in GiB.
func fitNode(id, cores int, usable int64, pools ...hardware.HugePages) hardware.Node {
	threads, bytes := 2*cores, usable<<30
	return hardware.Node{ID: id, Cores: &cores, Threads: &threads, Memory: hardware.Memory{Usable: &bytes, HugePages: append([]hardware.HugePages{}, pools...)}}
}

// fitHost is a host with GPUs of a product in NUMA nodes.
func fitHost(name string, alias pci.Alias, in []int, nodes ...hardware.Node) nova.Host {
	h := nova.Host{Name: name, Machine: &hardware.Facts{Nodes: nodes}}
	class, vendor, product, role := pci.Class(0x0302), pci.NVIDIA, pci.ID(0x20b0), pci.RoleNone
	for i, node := range in {
		h.Devices = append(h.Devices, pci.Device{
			Address: pci.Address{Bus: uint8(i + 1)}, Class: &class, VendorID: &vendor, ProductID: &product, AliasHint: &alias,
			NUMANode: &node, Candidate: true, SRIOV: pci.SRIOV{Role: &role},
		})
	}
	return h
}

func TestNewFit(t *testing.T) {
	gib := func(n int64) hardware.HugePages { return hardware.HugePages{Size: 1 << 30, Total: n, Free: n} }
	const a100 = "A100-SXM4-80GB"
	hgx := fitHost("hgx", a100, []int{0, 0, 0, 0, 1, 1, 1, 1}, fitNode(0, 64, 1000), fitNode(1, 64, 1000))
	other := fitHost("mixed", "T4", []int{0}, fitNode(0, 33, 208))
	mixed := fitHost("mixed", a100, []int{0, 0, 0}, fitNode(0, 33, 208))
	other.Devices[0].Address.Bus = 9
	mixed.Devices = append(mixed.Devices, other.Devices...)
	nps4 := fitHost("nps4", a100, []int{1, 1, 3, 3, 5, 5, 7, 7}, fitNode(1, 16, 125), fitNode(3, 16, 125), fitNode(5, 16, 125), fitNode(7, 16, 125))
	apart, second := fitHost("apart", a100, []int{0}, fitNode(0, 64, 1000), fitNode(1, 64, 1000)), fitHost("apart", "T4", []int{1})
	second.Devices[0].Address.Bus = 9
	apart.Devices = append(apart.Devices, second.Devices...)
	prepared := fitHost("prepared", a100, []int{0, 0, 0, 0}, fitNode(0, 33, 208))
	prepared.Given, prepared.Containers = []pci.Address{{Bus: 1}, {Bus: 2}}, []pci.Address{{Bus: 3}}
	for _, c := range []struct {
		name    string
		request string
		hosts   []nova.Host
		vcpus   int
		ram     int // GiB
		want    []flavor.FitHost
	}{
		{"one host", "A100:2", []nova.Host{hgx}, 30, 248, // 63 cores and 992 GiB for four
			[]flavor.FitHost{{Host: "hgx", Devices: 8, Guests: 4, Within: 4, VCPUs: 30, RAM: 248 << 10}}},
		{"whole name", a100 + ":8", []nova.Host{hgx}, 30, 248,
			[]flavor.FitHost{{Host: "hgx", Devices: 8, Guests: 1, Nodes: 2, VCPUs: 30, RAM: 248 << 10}}},
		{"guests across nodes", "A100:3", []nova.Host{hgx}, 30, 248,
			[]flavor.FitHost{{Host: "hgx", Devices: 8, Guests: 2, Within: 2, VCPUs: 30, RAM: 248 << 10}}},
		{"the smallest host wins", "A100:2", []nova.Host{hgx, fitHost("small", a100, []int{1}, fitNode(0, 4, 64), fitNode(1, 4, 64)),
			fitHost("pair", a100, []int{0, 1}, fitNode(0, 9, 40), fitNode(1, 17, 72))}, 16, 32,
			[]flavor.FitHost{{Host: "hgx", Devices: 8, Guests: 4, Within: 4, VCPUs: 30, RAM: 248 << 10},
				{Host: "pair", Devices: 2, Guests: 1, Nodes: 2, VCPUs: 16, RAM: 32 << 10}, {Host: "small", Devices: 1}}},
		{"other GPUs get their share", "A100:1", []nova.Host{mixed}, 16, 50,
			[]flavor.FitHost{{Host: "mixed", Devices: 3, Guests: 3, Within: 3, VCPUs: 16, RAM: 50 << 10}}},
		{"what remains with the host and containers is not for guests", "A100:1", []nova.Host{prepared}, 16, 50,
			[]flavor.FitHost{{Host: "prepared", Devices: 2, Guests: 2, Within: 2, VCPUs: 16, RAM: 50 << 10}}},
		{"huge pages are the memory", "A100:1", []nova.Host{fitHost("huge", a100, []int{0, 0}, fitNode(0, 33, 500, gib(400)))}, 32, 200,
			[]flavor.FitHost{{Host: "huge", Devices: 2, Guests: 2, Within: 2, VCPUs: 32, RAM: 200 << 10, HugePages: true}}},
		{"small huge pages are not", "A100:1", []nova.Host{fitHost("small pages", a100, []int{0}, fitNode(0, 33, 108, hardware.HugePages{Size: 2 << 20, Total: 10 << 9}))}, 64, 90,
			[]flavor.FitHost{{Host: "small pages", Devices: 1, Guests: 1, Within: 1, VCPUs: 64, RAM: 90 << 10}}},
		{"four nodes for a guest", "A100:8", []nova.Host{nps4}, 14, 58,
			[]flavor.FitHost{{Host: "nps4", Devices: 8, Guests: 1, Nodes: 4, VCPUs: 14, RAM: 58 << 10}}},
		{"two products apart", a100 + ":1,T4:1", []nova.Host{apart}, 126, 992,
			[]flavor.FitHost{{Host: "apart", Devices: 2, Guests: 1, Nodes: 2, VCPUs: 126, RAM: 992 << 10}}},
		{"a node that is all reserve", "A100:1", []nova.Host{hgx, fitHost("tiny", a100, []int{0}, fitNode(0, 1, 64))}, 30, 248,
			[]flavor.FitHost{{Host: "hgx", Devices: 8, Guests: 8, Within: 8, VCPUs: 30, RAM: 248 << 10}, {Host: "tiny", Devices: 1, Full: true}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			request, err := nova.ParseRequest(c.request)
			hosttest.NoError(t, err)
			fit, err := flavor.NewFit(request, c.hosts, nil, flavor.DefaultReserve())
			hosttest.NoError(t, err)
			if fit.VCPUs != c.vcpus || fit.RAM != c.ram<<10 {
				t.Errorf("%d vCPUs, %d MiB", fit.VCPUs, fit.RAM)
			}
			hosttest.Equal(t, c.want, fit.Hosts)
			// What the guests of a host have is in its nodes, with the reserve.
			o := fit.Sizes(flavor.Options{Request: request})
			if n := request.Devices(); *o.VCPUs != n*c.vcpus || *o.RAM != n*c.ram<<10 {
				t.Errorf("%d vCPUs, %d MiB", *o.VCPUs, *o.RAM)
			}
			given := 2
			if o := fit.Sizes(flavor.Options{Request: request, VCPUs: &given}); *o.VCPUs != 2 {
				t.Errorf("a given size is replaced by %d", *o.VCPUs)
			}
		})
	}
}

func TestNewFitRefuses(t *testing.T) {
	const a100 = "A100-SXM4-80GB"
	node := fitNode(0, 64, 1000)
	without := fitHost("without", a100, []int{0}, node)
	without.Machine = nil
	gap := fitHost("gap", a100, []int{0}, hardware.Node{ID: 0})
	unplaced := fitHost("unplaced", a100, []int{0}, node, fitNode(1, 64, 1000))
	unplaced.Devices[0].NUMANode = nil
	noNodes := fitHost("no-nodes", a100, []int{0})
	request, err := nova.ParseRequest("A100:1,V100:1")
	hosttest.NoError(t, err)
	_, err = flavor.NewFit(request, []nova.Host{without, gap, unplaced, noNodes}, nil, flavor.DefaultReserve())
	for _, want := range []error{flavor.ErrNoMachine, flavor.ErrGap, flavor.ErrNoAlias} {
		if !errors.Is(err, want) {
			t.Errorf("%v, want %v", err, want)
		}
	}
	for _, word := range []string{"without:", "no-nodes: the list of NUMA nodes", "unplaced: the NUMA node of 0000:01:00.0", "alias V100:", "(they have A100-SXM4-80GB)"} {
		hosttest.Contains(t, word, err.Error())
	}
	one := request[:1]
	if _, err := flavor.NewFit(one, []nova.Host{gap}, nil, flavor.DefaultReserve()); !errors.Is(err, flavor.ErrGap) {
		t.Errorf("%v", err)
	}
	if _, err := flavor.NewFit(nova.Request{{Alias: "A100", Count: 2}}, []nova.Host{fitHost("one", a100, []int{0}, node)}, nil, flavor.DefaultReserve()); !errors.Is(err, flavor.ErrNoGuest) {
		t.Errorf("%v", err)
	}
	named := map[string]flavor.Product{"gpu": {Vendor: pci.NVIDIA, Product: 0x20b0}}
	fit, err := flavor.NewFit(nova.Request{{Alias: "gpu", Count: 1}}, []nova.Host{fitHost("one", a100, []int{0}, node)}, named, flavor.DefaultReserve())
	if err != nil || fit.VCPUs != 126 {
		t.Errorf("%v, %v", fit, err)
	}
	warnings := fit.Warnings(flavor.Options{})
	if slices.ContainsFunc(warnings, func(w string) bool { return strings.Contains(w, "huge pages") }) {
		t.Errorf("%q", warnings)
	}
}

// TestFitWarnings: a warning says how many NUMA nodes a guest needs, and what a guest does not fit
// into.
func TestFitWarnings(t *testing.T) {
	const a100 = "A100-SXM4-80GB"
	request := nova.Request{{Alias: "A100", Count: 8}}
	four := fitHost("four", a100, []int{0, 0, 1, 1, 2, 2, 3, 3}, fitNode(0, 16, 125), fitNode(1, 16, 125), fitNode(2, 16, 125), fitNode(3, 16, 125))
	tiny := fitHost("tiny", a100, []int{0, 0, 0, 0, 0, 0, 0, 0}, fitNode(0, 1, 64))
	fit, err := flavor.NewFit(request, []nova.Host{four, tiny, fitHost("none", "T4", []int{0}, fitNode(0, 16, 125))}, nil, flavor.DefaultReserve())
	hosttest.NoError(t, err)
	const none, small = "none: no guest fits: it has none of the requested devices", "tiny: no guest fits: nothing of a NUMA node remains beside the reserve"
	for nodes, want := range map[string][]string{
		"":  {"four: devices of 1 of 1 guests are in 4 NUMA nodes: with a NUMA topology these need --property hw:numa_nodes=4", none, small},
		"2": {"four: devices of 1 of 1 guests are in 4 NUMA nodes: with a NUMA topology these need --property hw:numa_nodes=4", none, small},
		"4": {none, small},
	} {
		got := fit.Warnings(flavor.Options{Request: request, Properties: map[string]string{"hw:numa_nodes": nodes}})
		hosttest.EqualIn(t, nodes, want, got)
	}
}
