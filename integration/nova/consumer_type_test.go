package nova

import (
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	placementapi "github.com/gophercloud/gophercloud/v2/openstack/placement/v1/allocations"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/resourceproviders"

	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
)

// TestConsumerType: a migration whose allocations a repair has moved to its instance, and which
// undo gives them back, has the type that it had. Nova's own consumers have none, which stays so.
func TestConsumerType(t *testing.T) {
	session, err := lab.Client(t.Context())
	hosttest.NoError(t, err)
	api, err := openstack.NewPlacementV1(session, gophercloud.EndpointOpts{Region: Region})
	hosttest.NoError(t, err)
	api.Microversion = "1.28"
	provider, err := resourceproviders.Create(t.Context(), api, resourceproviders.CreateOpts{Name: "of-the-types"}).Extract()
	hosttest.NoError(t, err)
	hosttest.NoError(t, resourceproviders.UpdateInventories(t.Context(), api, provider.UUID, resourceproviders.UpdateInventoriesOpts{
		ResourceProviderGeneration: provider.Generation,
		Inventories:                map[string]resourceproviders.Inventory{"VGPU": {Total: 4, MinUnit: 1, MaxUnit: 4, StepSize: 1, AllocationRatio: 1}},
	}).Err)
	connected, err := cloud.Connect(t.Context(), cloud.Options{Service: cloud.NewService(map[string]string{
		"auth_url": lab.KeystoneURL, "username": "nova", "password": lab.ServicePassword, "project_name": "service", "user_domain_name": "Default", "project_domain_name": "Default", "region_name": Region,
	})})
	hosttest.NoError(t, err)
	placement, err := connected.Placement()
	hosttest.NoError(t, err)
	const instance, migration = "0c000001-0000-4000-8000-000000000000", "0c000002-0000-4000-8000-000000000000"
	read := func() map[string]cloud.Allocations {
		t.Helper()
		all := map[string]cloud.Allocations{}
		for _, uuid := range []string{instance, migration} {
			if all[uuid], err = placement.Allocations(t.Context(), uuid); err != nil {
				t.Fatal(err)
			}
		}
		return all
	}
	write := func(consumers map[string]cloud.Allocations) {
		t.Helper()
		hosttest.NoError(t, placement.SetAllocations(t.Context(), consumers))
	}
	// types are those in the database, "consumer TYPE" each.
	types := func() (lines []string) {
		t.Helper()
		for _, row := range rows(t, "SELECT c.uuid, COALESCE(t.name, 'none') FROM placement.consumers c LEFT JOIN placement.consumer_types t ON t.id = c.consumer_type_id WHERE c.uuid IN ('%s', '%s') ORDER BY 1", instance, migration) {
			lines = append(lines, strings.Join(row, " "))
		}
		return lines
	}
	holds := func(n int) map[string]map[string]int {
		if n == 0 {
			return map[string]map[string]int{}
		}
		return map[string]map[string]int{provider.UUID: {"VGPU": n}}
	}
	defer func() {
		for _, uuid := range []string{instance, migration} {
			placementapi.Delete(t.Context(), api, uuid) // 404 if it holds nothing
		}
		if err := resourceproviders.Delete(t.Context(), api, provider.UUID).ExtractErr(); err != nil {
			t.Error(err)
		}
	}()
	for _, test := range []struct {
		name, microversion  string // of the client that writes the allocations at first
		instance, migration string // the types that it writes
		want                []string
	}{
		{"as Nova leaves it", "1.28", "", "", []string{instance + " none", migration + " none"}},
		{"with types", "1.38", "INSTANCE", "MIGRATION", []string{instance + " INSTANCE", migration + " MIGRATION"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			of := func(n int, now cloud.Allocations) cloud.Allocations {
				now.Providers, now.Project, now.User = holds(n), "p", "u"
				return now
			}
			first := func(n int, kind string) placementapi.UpdateOpts {
				return placementapi.UpdateOpts{Allocations: map[string]placementapi.ProviderAllocationsOpts{provider.UUID: {Resources: map[string]int{"VGPU": n}}},
					ProjectID: "p", UserID: "u", ConsumerType: kind}
			}
			api.Microversion = test.microversion
			hosttest.NoError(t,
				placementapi.Manage(t.Context(), api, placementapi.ManageOpts{instance: first(1, test.instance), migration: first(2, test.migration)}).Err)
			if diff := cmp.Diff(test.want, types()); diff != "" {
				t.Fatalf("types at first (-want +got):\n%s", diff)
			}
			before := read()
			// The repair.
			after := maps.Clone(before)
			after[instance] = of(2, before[instance])
			after[migration] = of(0, before[migration])
			write(after)
			hosttest.EqualIn(t, "types after the repair", test.want[:1], types())
			// Undo.
			now := read()
			back := maps.Clone(before)
			for uuid, a := range back {
				a.Generation = now[uuid].Generation
				back[uuid] = a
			}
			write(back)
			hosttest.EqualIn(t, "types after undo", test.want, types())
			if got := read(); got[instance].Providers[provider.UUID]["VGPU"] != 1 || got[migration].Providers[provider.UUID]["VGPU"] != 2 {
				t.Errorf("after undo: %v", got)
			}
			now = read()
			write(map[string]cloud.Allocations{instance: of(0, now[instance]), migration: of(0, now[migration])})
		})
	}
}
