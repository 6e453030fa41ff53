package cloud_test

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
)

// TestConsumerTypes: the allocations of an instance and of its migration are exchanged, as a repair
// does it, and written back, as undo does it. Each consumer then has the type that it had, in every
// microversion of Placement; a type is given for a consumer that held nothing.
func TestConsumerTypes(t *testing.T) {
	const instance, migration = "00000001-0000-4000-8000-000000000000", "00000002-0000-4000-8000-000000000000"
	there := map[string]map[string]int{"gpu2": {"CUSTOM_PCI_10DE_11B4": 1}}
	for name, test := range map[string]struct {
		newest              int    // microversion 1.N of Placement
		instance, migration string // types at first, "-" for a consumer that holds nothing
		given               map[string]string
		read                string   // the types that are read at first
		want                []string // the types at the end
	}{
		"as gpustack and other clients set them": {
			newest: 39, instance: "INSTANCE", migration: "MIGRATION",
			read: "INSTANCE MIGRATION", want: []string{instance + " INSTANCE", migration + " MIGRATION"},
		},
		"none, as Nova leaves it": {
			newest: 39, read: "unknown unknown", want: []string{instance, migration},
		},
		"none, and one is given for another consumer": {
			newest: 39, instance: "-", given: map[string]string{instance: "INSTANCE"}, read: " unknown", want: []string{migration},
		},
		"a consumer that held nothing": {
			newest: 39, instance: "-", migration: "MIGRATION", given: map[string]string{instance: "INSTANCE"},
			read: " MIGRATION", want: []string{migration + " MIGRATION"},
		},
		"a consumer that held nothing, without a type": {
			newest: 38, instance: "-", migration: "MIGRATION", read: " MIGRATION", want: []string{migration},
		},
		"the other one has none": {
			newest: 38, instance: "INSTANCE", read: "INSTANCE unknown", want: []string{instance + " INSTANCE", migration},
		},
		"a Placement without types": {
			newest: 37, given: map[string]string{instance: "INSTANCE", migration: "MIGRATION"}, read: " ", want: []string{instance, migration},
		},
		"Rocky": {
			newest: 28, read: " ", want: []string{instance, migration},
		},
	} {
		t.Run(name, func(t *testing.T) {
			fake, compute := signIn(t, 96)
			fake.Consumers = &cloudtest.Consumers{Newest: test.newest, Held: map[string]cloudtest.Consumer{}}
			for uuid, kind := range map[string]string{instance: test.instance, migration: test.migration} {
				if kind != "-" {
					fake.Consumers.Held[uuid] = cloudtest.Consumer{Providers: there, Type: kind, Generation: 3}
				}
			}
			placement, err := compute.Cloud().Placement()
			hosttest.NoError(t, err)
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
			// write writes what consumers held, with the generations of now, and with the
			// types of now, of before, or those that are given.
			write := func(target, now map[string]cloud.Allocations) {
				t.Helper()
				target = maps.Clone(target)
				for uuid, a := range target {
					a.Generation = now[uuid].Generation
					a.Project, a.User = "project", "user"
					for _, kind := range []string{now[uuid].Type, target[uuid].Type, test.given[uuid]} {
						if a.Type = kind; kind != "" {
							break
						}
					}
					target[uuid] = a
					if len(a.Providers) == 0 && a.Generation == nil {
						delete(target, uuid)
					}
				}
				hosttest.NoError(t, placement.SetAllocations(t.Context(), target))
			}
			before := read()
			hosttest.EqualIn(t, "read", test.read, before[instance].Type+" "+before[migration].Type)
			after := maps.Clone(before)
			taken, left := after[instance], after[migration]
			taken.Providers, left.Providers = there, map[string]map[string]int{}
			after[instance], after[migration] = taken, left
			write(after, before)
			if got := fake.Consumers.Types(); len(got) != 1 {
				t.Fatalf("the migration is to hold nothing: %q", got)
			}
			write(before, read())
			hosttest.EqualIn(t, "types", test.want, fake.Consumers.Types())
		})
	}
}

// TestConsumerTypesOnce: a Placement without types is asked for them once, and only a request that
// it has rejected for its microversion is made again.
func TestConsumerTypesOnce(t *testing.T) {
	const consumer = "00000001-0000-4000-8000-000000000000"
	for name, test := range map[string]struct {
		newest, reads int
		kind          string // that is written
		want          []string
	}{
		"with types":           {39, 2, "INSTANCE", []string{"GET 1.38", "GET 1.38", "POST 1.38"}},
		"with types, unknown":  {39, 2, "unknown", []string{"GET 1.38", "GET 1.38", "POST 1.28"}},
		"without":              {37, 2, "INSTANCE", []string{"GET 1.38", "GET 1.28", "GET 1.28", "POST 1.28"}},
		"without, not read":    {37, 0, "INSTANCE", []string{"POST 1.38", "POST 1.28"}},
		"without, no type":     {37, 0, "", []string{"POST 1.28"}},
		"with types, not read": {39, 0, "INSTANCE", []string{"POST 1.38"}},
	} {
		t.Run(name, func(t *testing.T) {
			fake, compute := signIn(t, 96)
			fake.Consumers = &cloudtest.Consumers{Newest: test.newest, Held: map[string]cloudtest.Consumer{consumer: {Type: "INSTANCE", Generation: 1}}}
			var got []string
			fake.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
				if strings.HasPrefix(r.URL.Path, "/placement/") {
					got = append(got, r.Method+" "+strings.TrimPrefix(r.Header.Get("OpenStack-API-Version"), "placement "))
				}
				return false
			}
			placement, err := compute.Cloud().Placement()
			hosttest.NoError(t, err)
			generation := 1
			for range test.reads {
				if _, err = placement.Allocations(t.Context(), consumer); err != nil {
					t.Fatal(err)
				}
			}
			a := cloud.Allocations{Project: "project", User: "user", Generation: &generation, Type: test.kind}
			hosttest.NoError(t, placement.SetAllocations(t.Context(), map[string]cloud.Allocations{consumer: a}))
			if !slices.Equal(got, test.want) {
				t.Errorf("%q, want %q", got, test.want)
			}
		})
	}
}
