package cloud_test

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
)

// TestCandidates: a host is a candidate by its root, wherever in its tree and by whichever provider
// that shares with it the resources and traits are.
func TestCandidates(t *testing.T) {
	const aggregate, class = "a", "CUSTOM_GPU"
	host := func(name string, disk int, traits ...string) *cloudtest.Provider {
		p := &cloudtest.Provider{UUID: name, Name: name, Traits: traits, Inventories: map[string]cloudtest.Inventory{"VCPU": cloudtest.Whole(8)}}
		if disk > 0 {
			p.Inventories["DISK_GB"] = cloudtest.Whole(disk)
		}
		return p
	}
	below := func(parent, name, class string, traits ...string) *cloudtest.Provider {
		return &cloudtest.Provider{UUID: name, Name: name, Parent: parent, Traits: traits, Inventories: map[string]cloudtest.Inventory{class: cloudtest.Whole(1)}}
	}
	nested, shared, full := host("nested", 10, "CUSTOM_A"), host("shared", 0), host("full", 10)
	shared.Aggregates = []string{aggregate}
	taken := below("full", "taken", class)
	taken.Held = map[string]map[string]int{"guest": {class: 1}}
	nfs := &cloudtest.Provider{UUID: "nfs", Name: "nfs", Traits: []string{cloudtest.Sharing}, Aggregates: []string{aggregate},
		Inventories: map[string]cloudtest.Inventory{"DISK_GB": cloudtest.Whole(1000)}}
	fake, compute := signIn(t, 96)
	fake.Placement = &cloudtest.Placement{Newest: 39, Providers: []*cloudtest.Provider{
		nested, below("nested", "numa", "PCPU"), below("numa", "gpu", class, "CUSTOM_B", "HW_PCI_ONE_TIME_USE"), shared, below("shared", "gpu2", class), nfs, full, taken,
	}}
	placement, err := compute.Cloud().Placement()
	hosttest.NoError(t, err)
	for _, test := range []struct {
		resources map[string]int
		traits    []string
		want      string
	}{
		{map[string]int{"VCPU": 1}, nil, "[full nested shared]"},
		{map[string]int{"VCPU": 1, "DISK_GB": 10}, nil, "[full nested nfs shared]"},
		{map[string]int{"VCPU": 1, "DISK_GB": 11}, nil, "[nfs shared]"},
		{map[string]int{"VCPU": 1, "PCPU": 1}, nil, "[nested]"},
		{map[string]int{"VCPU": 1, class: 1}, nil, "[nested shared]"},
		{map[string]int{"VCPU": 1, class: 1}, []string{"CUSTOM_A", "CUSTOM_B"}, "[nested]"},
		{map[string]int{"VCPU": 1}, []string{"CUSTOM_A", "CUSTOM_B"}, "[]"}, // nothing is taken from the device
		{map[string]int{"VCPU": 1, class: 1}, []string{"!CUSTOM_B"}, "[shared]"},
		{map[string]int{"VCPU": 1, class: 2}, nil, "[]"},
	} {
		roots, err := placement.Candidates(t.Context(), test.resources, test.traits)
		if got := fmt.Sprint(slices.Sorted(maps.Keys(roots))); err != nil || got != test.want {
			t.Errorf("%v %v: %s, %v, want %s", test.resources, test.traits, got, err, test.want)
		}
	}
	if _, err := placement.Candidates(t.Context(), map[string]int{"CUSTOM_OTHER": 1}, nil); !errors.Is(err, cloud.ErrUnknownName) {
		t.Error(err)
	}
	if _, err := placement.Candidates(t.Context(), map[string]int{"VCPU": 1}, []string{"CUSTOM_OTHER"}); !errors.Is(err, cloud.ErrUnknownName) {
		t.Error(err)
	}
	if free, err := placement.FreeDevices(t.Context(), class); err != nil || free == nil || *free != (cloud.Free{Devices: 2, Hosts: 2, OneTimeUse: true}) {
		t.Errorf("%+v, %v", free, err)
	}
	if free, err := placement.FreeDevices(t.Context(), "CUSTOM_OTHER"); free != nil || err != nil {
		t.Errorf("%+v, %v", free, err)
	}
}
