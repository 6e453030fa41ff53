package cleanup

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"gpustack/host"
	"gpustack/nova/cloud"
)

// errAllocations goes with allocations that a dead migration does not leave, so that nothing can be
// concluded from them.
var errAllocations = host.WithHint(errors.New("Placement's allocations do not match a dead migration"), //nolint:staticcheck // a name
	"openstack resource provider allocation show UUID shows the allocations of the instance and of its migration")

// Allocations are the allocations in Placement of an instance and of its migrations
// (nova/conductor/tasks/migrate.py, replace_allocation_with_migration): while an instance is
// moved, the migration holds the allocations on the source, and the instance those on the
// destination.
type Allocations struct {
	Instance cloud.Allocations `json:"instance"` // those of the instance
	// those of the closed migrations, by UUID, which is a migration's consumer in Placement
	Migrations map[string]cloud.Allocations `json:"migrations"`
}

// Sites are the resource providers of the compute nodes that Settle tells apart. A provider in
// none of the lists shares its resources (disks, addresses) with several hosts.
type Sites struct {
	Here []string // of the instance's own node
	// Nowhere says that the instance is on no node, after it was shelved and offloaded.
	Nowhere bool
	There   []string // of nodes that the instance is proved not to be on
	// Kept are those of other nodes that migrations which are not closed go to or from. What
	// such a migration needs there is not released.
	Kept []string
	// Moving says that a migration which is not closed holds the allocations on Here.
	Moving bool
}

// Same returns whether all consumers hold the same in both.
func (b Allocations) Same(other Allocations) bool {
	same := func(x, y cloud.Allocations) bool {
		return maps.EqualFunc(x.Providers, y.Providers, func(x, y map[string]int) bool { return maps.Equal(x, y) })
	}
	return same(b.Instance, other.Instance) && maps.EqualFunc(b.Migrations, other.Migrations, same)
}

// Settle returns the allocations as they must be once the migrations in b are closed: on its own
// host, if it has one, the instance holds its allocations there, or else those of one of the
// migrations; on nodes of There it holds nothing, and the migrations hold nothing at all. The
// instance's allocations on sharing providers stay, except resource classes that it takes over
// from a migration: those were for the migration's destination, perhaps on the sharing provider
// of another aggregate.
//
// Errors: errAllocations.
//
// An evacuation has no consumer of its own: the instance holds both hosts
// (nova/compute/api.py, evacuate; nova/scheduler/utils.py, claim_resources).
func (b Allocations) Settle(s Sites) (after Allocations, err error) {
	fail := func(why string) (Allocations, error) {
		return b, fmt.Errorf("%w: %s: %s", errAllocations, why, b.Text())
	}
	instance := split(b.Instance, s)
	third, held, kept := instance.third, false, instance.kept
	var holders []string // migrations with allocations on the instance's own host
	after = Allocations{Instance: b.Instance, Migrations: map[string]cloud.Allocations{}}
	for _, uuid := range slices.Sorted(maps.Keys(b.Migrations)) {
		a := b.Migrations[uuid]
		migration := split(a, s)
		third, held = third || migration.third, held || len(a.Providers) > 0
		kept = merge(migration.kept, kept)
		if len(migration.here) > 0 {
			holders = append(holders, uuid)
		}
		a.Providers = map[string]map[string]int{}
		after.Migrations[uuid] = a
	}
	switch {
	case len(s.Here) == 0 && !s.Nowhere:
		return fail("the instance's compute node is no resource provider")
	case third:
		return fail("they include a third compute node")
	case len(instance.here) > 0 && len(holders) > 0:
		return fail("both have allocations on the instance's own host")
	case len(holders) > 1, len(holders) == 1 && s.Moving:
		return fail("several migrations have allocations on the instance's own host")
	case len(instance.here) > 0 && len(instance.there) > 0 && held:
		return fail("the instance has allocations on both hosts, and a migration has some too")
	case len(holders) == 1:
		// It is where it was: what it had there is what the migration holds.
		migration := split(b.Migrations[holders[0]], s)
		after.Instance.Providers = merge(without(instance.foreign, b.Migrations[holders[0]]), migration.foreign, migration.here, kept)
	case len(instance.here) > 0, s.Moving, s.Nowhere:
		after.Instance.Providers = merge(instance.foreign, instance.here, kept)
	default:
		return fail("neither has allocations on the instance's own host")
	}
	return after, nil
}

// Text returns what each consumer holds.
func (b Allocations) Text() string {
	text := "the instance holds " + Providers(b.Instance)
	for _, uuid := range slices.Sorted(maps.Keys(b.Migrations)) {
		text += ", migration " + uuid + " " + Providers(b.Migrations[uuid])
	}
	return text
}

// allocated has the allocations of a consumer by the node of the provider.
type allocated struct {
	here, there, kept, foreign map[string]map[string]int
	third                      bool // resources that only compute nodes have are held on another provider
}

func split(a cloud.Allocations, s Sites) allocated {
	parts := allocated{here: map[string]map[string]int{}, there: map[string]map[string]int{}, kept: map[string]map[string]int{},
		foreign: map[string]map[string]int{}}
	for provider, held := range a.Providers {
		switch {
		case slices.Contains(s.Here, provider):
			parts.here[provider] = held
		case slices.Contains(s.Kept, provider):
			parts.kept[provider] = held
		case slices.Contains(s.There, provider):
			parts.there[provider] = held
		default:
			parts.foreign[provider] = held
			for class := range held {
				parts.third = parts.third || ofCompute(class)
			}
		}
	}
	return parts
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
	for _, uuid := range slices.Sorted(maps.Keys(b.Before.Migrations)) {
		if before, after := b.Before.Migrations[uuid], b.After.Migrations[uuid]; len(before.Providers)+len(after.Providers) > 0 {
			lines = append(lines, fmt.Sprintf("migration %s: %s -> %s", uuid, Providers(before), Providers(after)))
		}
	}
	return lines
}
