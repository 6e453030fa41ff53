package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"gpustack/cleanup"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
)

const (
	instance  = "00000001-0000-4000-8000-000000000000"
	migration = "00000002-0000-4000-8000-000000000000"
)

// holds are allocations of a device of each host, with a generation unless that is 0. Without hosts
// and generation they are those of a consumer that Placement does not have.
func holds(generation int, hosts ...string) cloud.Allocations {
	a := cloud.Allocations{Providers: map[string]map[string]int{}}
	for _, host := range hosts {
		a.Providers[host] = map[string]int{"CUSTOM_PCI_10DE_11B4": 1}
	}
	if generation != 0 {
		a.Generation, a.Project, a.User = &generation, "project", "user"
	}
	return a
}

func both(instance, other cloud.Allocations) cleanup.Allocations {
	return cleanup.Allocations{Instance: instance, Migrations: map[string]cloud.Allocations{migration: other}}
}

// theMove is a repair that gives an instance what its dead migration to gpu2 holds on gpu1.
func theMove() *cleanup.Unit {
	return &cleanup.Unit{Repair: cleanup.Online, Instance: instance, Placement: &cleanup.AllocationChange{
		Before: both(holds(3, "gpu2"), holds(7, "gpu1")), After: both(holds(0, "gpu1"), holds(0))}}
}

// TestConsumers: what is written of each consumer for a side, with the generations that were seen.
// A consumer that Placement does not have is written only if it is to hold something: Placement
// would create it, and then refuse requests that call it new.
func TestConsumers(t *testing.T) {
	for name, test := range map[string]struct {
		to   Side
		seen cleanup.Allocations
		want []string
	}{
		"the repair": {After, theMove().Placement.Before,
			[]string{"INSTANCE 3 of project: gpu1", "MIGRATION 7 of project: "}},
		"its undo, when Placement has forgotten the migration": {Before, both(holds(4, "gpu1"), holds(0)),
			[]string{"INSTANCE 4 of project: gpu2", "MIGRATION new of project: gpu1"}},
		"the repair again, when Placement has forgotten the migration": {After, both(holds(4, "gpu1"), holds(0)),
			[]string{"INSTANCE 4 of project: gpu1"}},
		"the instance holds nothing any more": {After, both(holds(0), holds(8, "gpu1")),
			[]string{"INSTANCE new of project: gpu1", "MIGRATION 8 of project: "}},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, a := range consumers(theMove(), test.to, test.seen) {
				generation := "new"
				if a.Generation != nil {
					generation = fmt.Sprint(*a.Generation)
				}
				got = append(got, fmt.Sprintf("%s %s of %s: %s", a.Type, generation, a.Project, strings.Join(slices.Sorted(maps.Keys(a.Providers)), " ")))
			}
			slices.Sort(got)
			hosttest.Equal(t, test.want, got)
		})
	}
}

// TestSideOfAllocations: allocations are at a side only if each consumer is.
func TestSideOfAllocations(t *testing.T) {
	for name, test := range map[string]struct {
		now  cleanup.Allocations
		want Side
	}{
		"before":                               {both(holds(3, "gpu2"), holds(7, "gpu1")), Before},
		"before, of other generations":         {both(holds(5, "gpu2"), holds(9, "gpu1")), Before},
		"after":                                {both(holds(4, "gpu1"), holds(0)), After},
		"only the instance is after":           {both(holds(4, "gpu1"), holds(7, "gpu1")), Neither},
		"only the migration is after":          {both(holds(3, "gpu2"), holds(0)), Neither},
		"the instance holds more":              {both(holds(4, "gpu1", "gpu2"), holds(0)), Neither},
		"nobody holds anything":                {both(holds(0), holds(0)), Neither},
		"the migration is another one":         {cleanup.Allocations{Instance: holds(4, "gpu1"), Migrations: map[string]cloud.Allocations{instance: holds(0)}}, Neither},
		"the migration was not read (nothing)": {cleanup.Allocations{Instance: holds(4, "gpu1")}, Neither},
	} {
		t.Run(name, func(t *testing.T) {
			hosttest.Equal(t, test.want, sideOfAllocations(theMove().Placement, test.now))
		})
	}
	more := both(holds(4, "gpu1"), holds(0))
	more.Instance.Providers["gpu1"]["VCPU"] = 8
	hosttest.EqualIn(t, "another amount", Neither, sideOfAllocations(theMove().Placement, more))
}

// placement is a Placement in which an instance and its migration hold allocations, with generation
// 5 each. Requests that change allocations are counted, from 1, and fault answers one if it returns
// true.
func placement(t *testing.T, fault func(change int, w http.ResponseWriter) bool, instanceHolds, migrationHolds string) (*Repairer, *cloudtest.Consumers) {
	t.Helper()
	fake := cloudtest.Start(t, 96)
	fake.Consumers = &cloudtest.Consumers{Newest: 39, Held: map[string]cloudtest.Consumer{}}
	for uuid, host := range map[string]string{instance: instanceHolds, migration: migrationHolds} {
		if host != "" {
			fake.Consumers.Held[uuid] = cloudtest.Consumer{Generation: 5, Providers: holds(0, host).Providers}
		}
	}
	changes := 0
	fake.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.URL.Path != "/placement/allocations" {
			return false
		}
		changes++
		return fault != nil && fault(changes, w)
	}
	service := cloud.NewService(map[string]string{"auth_url": fake.URL, "username": fake.User, "password": fake.Password, "project_name": fake.Project,
		"user_domain_name": "Default", "project_domain_name": "Default"})
	connected, err := cloud.Connect(t.Context(), cloud.Options{Service: service})
	hosttest.NoError(t, err)
	client, err := connected.Placement()
	hosttest.NoError(t, err)
	return &Repairer{Placement: client}, fake.Consumers
}

// TestAllocate: allocations are brought to a side, or kept, by a write that Placement has answered.
func TestAllocate(t *testing.T) {
	lost := func(int, http.ResponseWriter) bool { panic(http.ErrAbortHandler) }
	status := func(code int, which ...int) func(int, http.ResponseWriter) bool {
		return func(change int, w http.ResponseWriter) bool {
			if !slices.Contains(which, change) {
				return false
			}
			w.WriteHeader(code)
			return true
		}
	}
	for name, test := range map[string]struct {
		to                  Side
		instance, migration string // on which host each holds a device
		fault               func(int, http.ResponseWriter) bool
		want                Side // "" for an error
		end                 string
	}{
		"kept":                              {Before, "gpu2", "gpu1", nil, Before, "gpu2 6, gpu1 6"},
		"there already":                     {After, "gpu1", "", nil, After, "gpu1 6, "},
		"moved":                             {After, "gpu2", "gpu1", nil, After, "gpu1 6, "},
		"moved back":                        {Before, "gpu1", "", nil, Before, "gpu2 6, gpu1 1"},
		"changed by something else":         {After, "gpu1", "gpu2", nil, "", "gpu1 5, gpu2 5"},
		"the consumers are gone":            {Before, "", "", nil, "", ", "},
		"refused once":                      {After, "gpu2", "gpu1", status(409, 1), After, "gpu1 6, "},
		"refused twice":                     {After, "gpu2", "gpu1", status(409, 1, 2), After, "gpu1 6, "},
		"refused always":                    {After, "gpu2", "gpu1", status(409, 1, 2, 3), "", "gpu2 5, gpu1 5"},
		"not kept, each refused":            {After, "gpu1", "", status(409, 1, 2, 3, 4, 5), "", "gpu1 5, "},
		"not answered":                      {After, "gpu2", "gpu1", lost, "", "gpu2 5, gpu1 5"},
		"answered by a proxy, not applied":  {After, "gpu2", "gpu1", status(504, 1, 2, 3), "", "gpu2 5, gpu1 5"},
		"answered by a proxy only at first": {After, "gpu2", "gpu1", status(504, 1), After, "gpu1 6, "},
	} {
		t.Run(name, func(t *testing.T) {
			r, held := placement(t, test.fault, test.instance, test.migration)
			asked := false
			err := r.allocate(t.Context(), theMove(), test.to, &asked)
			if (err != nil) != (test.want == "") || !asked && !errors.Is(err, errNeither) {
				t.Errorf("asked %v, %v; want %q", asked, err, test.want)
			}
			if end := heldOn(held, instance) + ", " + heldOn(held, migration); end != test.end {
				t.Errorf("allocations %q, want %q", end, test.end)
			}
		})
	}
}

// TestAllocateOnFullProvider: Placement refuses even unchanged allocations of a provider that is
// overcommitted. Allocations are kept if it accepts those of one consumer, and not moved.
func TestAllocateOnFullProvider(t *testing.T) {
	for name, test := range map[string]struct {
		to   Side
		want Side // "" for an error
	}{
		"there already": {Before, Before},
		"to be moved":   {After, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r, held := placement(t, nil, "gpu2", "gpu1")
			r.Placement = full{r.Placement}
			if err := r.allocate(t.Context(), theMove(), test.to, new(bool)); (err != nil) != (test.want == "") {
				t.Errorf("%v; want %q", err, test.want)
			}
			if n := held.Held[instance].Generation + held.Held[migration].Generation; (n == 11) != (test.want != "") {
				t.Errorf("generations %+v: one is to move if the allocations are kept", held.Held)
			}
		})
	}
}

// full is a Placement that refuses changes of several consumers at once.
type full struct{ Placement }

func (f full) SetAllocations(ctx context.Context, consumers map[string]cloud.Allocations) error {
	if len(consumers) > 1 {
		return cloud.ErrConflict
	}
	return f.Placement.SetAllocations(ctx, consumers)
}

// heldOn is the host on which a consumer holds a device, and its generation.
func heldOn(c *cloudtest.Consumers, uuid string) string {
	var lines []string
	for host := range c.Held[uuid].Providers {
		lines = append(lines, fmt.Sprintf("%s %d", host, c.Held[uuid].Generation))
	}
	slices.Sort(lines)
	return strings.Join(lines, " ")
}
