package cleanup

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"gpustack/nova/cloud"
)

// ErrBooks says that Placement's allocations are not those of a migration that died,
// so that nothing is to be concluded from them.
var ErrBooks = errors.New("Placement's allocations are not those of a migration that died") //nolint:staticcheck // a name

// Books are the allocations of an instance and of its migration
// (nova/conductor/tasks/migrate.py, replace_allocation_with_migration): while an
// instance is moved, the migration holds what it has on the source, and the instance
// what it is to have on the destination.
type Books struct {
	Instance  cloud.Allocations `json:"instance"`
	Migration cloud.Allocations `json:"migration"`
}

// settle returns the books as they must be once the migration is closed: the instance
// holds what it has on its own host, and the migration nothing. tree are the providers
// of the instance's own compute node.
func (b Books) settle(tree []string) (after Books, changed bool, err error) {
	here := func(a cloud.Allocations) (all, some bool) {
		all = true
		for provider := range a.Providers {
			in := slices.Contains(tree, provider)
			all, some = all && in, some || in
		}
		return all && len(a.Providers) > 0, some
	}
	instanceHere, instanceSome := here(b.Instance)
	migrationHere, _ := here(b.Migration)
	after = Books{Instance: b.Instance, Migration: b.Migration}
	after.Migration.Providers = map[string]map[string]int{}
	switch {
	case len(tree) == 0:
		return b, false, fmt.Errorf("%w: the instance's compute node is no resource provider", ErrBooks)
	case len(b.Migration.Providers) == 0 && instanceHere:
		return b, false, nil
	case len(b.Migration.Providers) > 0 && instanceHere && !migrationHere:
		return after, true, nil // the instance is where it was going: what it had is let go
	case instanceHere && migrationHere, len(b.Migration.Providers) == 0 && !instanceHere, instanceSome:
		return b, false, fmt.Errorf("%w: the instance holds %s, its migration %s", ErrBooks, providers(b.Instance), providers(b.Migration))
	case migrationHere:
		after.Instance.Providers = maps.Clone(b.Migration.Providers) // it is still where it was
		return after, true, nil
	}
	return b, false, fmt.Errorf("%w: the instance holds %s, its migration %s", ErrBooks, providers(b.Instance), providers(b.Migration))
}

func providers(a cloud.Allocations) string {
	if len(a.Providers) == 0 {
		return "nothing"
	}
	return fmt.Sprint(slices.Sorted(maps.Keys(a.Providers)))
}

// Lines say what a booking changes, a consumer a line.
func (b Booking) Lines(instance string) []string {
	return []string{
		fmt.Sprintf("instance %s: %s -> %s", instance, providers(b.Before.Instance), providers(b.After.Instance)),
		fmt.Sprintf("migration %s: %s -> %s", b.Consumer, providers(b.Before.Migration), providers(b.After.Migration)),
	}
}
