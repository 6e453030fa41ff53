package cleanup

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"gpustack/host"
	"gpustack/nova/cloud"
)

// ErrAllocations goes with allocations that a dead migration does not leave, so that nothing can be
// concluded from them.
var ErrAllocations = host.WithHint(errors.New("Placement's allocations do not match a dead migration"), //nolint:staticcheck // a name
	"openstack resource provider allocation show UUID shows the allocations of the instance and of its migration")

// Allocations are the allocations in Placement of an instance and of its migration
// (nova/conductor/tasks/migrate.py, replace_allocation_with_migration): while an instance is
// moved, the migration holds the allocations on the source, and the instance those on the
// destination.
type Allocations struct {
	Instance  cloud.Allocations `json:"instance"`
	Migration cloud.Allocations `json:"migration"`
}

// Settle returns the allocations as they must be once the migration is closed: on its own host the
// instance holds its allocations there, or else those of the migration; on other hosts it holds
// nothing, and the migration holds nothing at all. here are the providers of the instance's own
// compute node, there those of nodes that the instance is proved not to be on. A provider in
// neither list shares its resources (disks, addresses) with several hosts. The instance's
// allocations there stay, except resource classes that it takes over from the migration: those
// were for the migration's destination, perhaps on the sharing provider of another aggregate.
//
// Errors: ErrAllocations.
//
// An evacuation has no consumer of its own: the instance holds both hosts
// (nova/compute/api.py, evacuate; nova/scheduler/utils.py, claim_resources).
func (b Allocations) Settle(here, there []string) (after Allocations, changed bool, err error) {
	fail := func(why string) (Allocations, bool, error) {
		return b, false, fmt.Errorf("%w: %s: the instance holds %s, its migration %s", ErrAllocations, why, Providers(b.Instance), Providers(b.Migration))
	}
	instance, migration := split(b.Instance, here, there), split(b.Migration, here, there)
	after = b
	after.Migration.Providers = map[string]map[string]int{}
	switch {
	case len(here) == 0:
		return fail("the instance's compute node is no resource provider")
	case instance.third || migration.third:
		return fail("they include a third compute node")
	case len(instance.here) > 0 && len(migration.here) > 0:
		return fail("both have allocations on the instance's own host")
	case len(instance.here) > 0 && len(instance.there) > 0 && len(b.Migration.Providers) > 0:
		return fail("the instance has allocations on both hosts, and its migration has some too")
	case len(instance.here) > 0:
		after.Instance.Providers = merge(instance.foreign, instance.here)
	case len(migration.here) > 0:
		// It is where it was: what it had there is what the migration holds.
		after.Instance.Providers = merge(without(instance.foreign, b.Migration), migration.foreign, migration.here)
	default:
		return fail("neither has allocations on the instance's own host")
	}
	changed = len(b.Migration.Providers) > 0 || len(instance.there) > 0
	if !changed {
		return b, false, nil
	}
	return after, true, nil
}

// allocated has the allocations of a consumer by the node of the provider.
type allocated struct {
	here, there, foreign map[string]map[string]int
	third                bool // resources that only compute nodes have are held on another provider
}

func split(a cloud.Allocations, here, there []string) allocated {
	s := allocated{here: map[string]map[string]int{}, there: map[string]map[string]int{}, foreign: map[string]map[string]int{}}
	for provider, held := range a.Providers {
		switch {
		case slices.Contains(here, provider):
			s.here[provider] = held
		case slices.Contains(there, provider):
			s.there[provider] = held
		default:
			s.foreign[provider] = held
			for class := range held {
				s.third = s.third || ofCompute(class)
			}
		}
	}
	return s
}

// ofCompute returns whether only compute nodes have a resource class: sharing providers have
// only disks and addresses (nova/virt/libvirt/driver.py,
// update_provider_tree; neutron/services/segments/plugin.py).
func ofCompute(class string) bool {
	return class != "DISK_GB" && class != "IPV4_ADDRESS"
}

// without returns allocations less the resource classes that a consumer holds.
func without(all map[string]map[string]int, consumer cloud.Allocations) map[string]map[string]int {
	left := merge(all)
	for _, held := range consumer.Providers {
		for class := range held {
			for provider := range left {
				delete(left[provider], class)
			}
		}
	}
	maps.DeleteFunc(left, func(_ string, held map[string]int) bool { return len(held) == 0 })
	return left
}

// merge returns a copy of the allocations of several consumers. Where several hold a
// resource class of one provider, the last amount counts.
func merge(all ...map[string]map[string]int) map[string]map[string]int {
	merged := map[string]map[string]int{}
	for _, a := range all {
		for provider, held := range a {
			if merged[provider] == nil {
				merged[provider] = map[string]int{}
			}
			maps.Copy(merged[provider], held)
		}
	}
	return merged
}

// Providers returns the resource providers of which a consumer holds something, as text.
func Providers(a cloud.Allocations) string {
	if len(a.Providers) == 0 {
		return "nothing"
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(a.Providers)))
}

// Lines returns the change as text, one line for each consumer.
func (b AllocationChange) Lines(instance string) []string {
	lines := []string{fmt.Sprintf("instance %s: %s -> %s", instance, Providers(b.Before.Instance), Providers(b.After.Instance))}
	if len(b.Before.Migration.Providers) > 0 {
		lines = append(lines, fmt.Sprintf("migration %s: %s -> %s", b.Consumer, Providers(b.Before.Migration), Providers(b.After.Migration)))
	}
	return lines
}
