package repair

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"gpustack/cleanup"
	"gpustack/nova/cloud"
)

// Side is the state of rows or allocations: as before a repair, or as after it.
type Side string

// Sides.
const (
	Before  Side = "before"
	After   Side = "after"
	Neither Side = "neither" // something else has changed them
)

// sideOfAllocations returns the side of the allocations of all consumers.
func sideOfAllocations(b *cleanup.AllocationChange, now cleanup.Allocations) Side {
	switch {
	case now.Same(b.After):
		return After
	case now.Same(b.Before):
		return Before
	}
	return Neither
}

// unchanged returns whether the allocations of a unit are the same before and after it.
func unchanged(u *cleanup.Unit) bool {
	return u.Placement.Before.Same(u.Placement.After)
}

// stand reads a unit's allocations from Placement and returns their side.
func (r *Repairer) stand(ctx context.Context, u *cleanup.Unit) (now cleanup.Allocations, side Side, err error) {
	if r.Placement == nil {
		return now, "", errNoPlacement
	}
	now, err = r.allocations(ctx, u.Instance, slices.Sorted(maps.Keys(u.Placement.Before.Migrations)))
	if err != nil {
		return now, "", err
	}
	return now, sideOfAllocations(u.Placement, now), nil
}

// allocations reads the allocations of an instance and of migrations, by their uuids.
func (r *Repairer) allocations(ctx context.Context, instance string, migrations []string) (now cleanup.Allocations, err error) {
	now.Migrations = map[string]cloud.Allocations{}
	if now.Instance, err = r.Placement.Allocations(ctx, instance); err != nil {
		return now, err
	}
	for _, uuid := range migrations {
		if uuid == "" { // before Newton, when migrations had none
			continue
		}
		if now.Migrations[uuid], err = r.Placement.Allocations(ctx, uuid); err != nil {
			return now, err
		}
	}
	return now, nil
}

// consumers returns the allocations of the instance and of its migrations at a side, those of seen for
// Neither, with the generations of seen.
func consumers(u *cleanup.Unit, to Side, seen cleanup.Allocations) map[string]cloud.Allocations {
	p := u.Placement
	target := map[Side]cleanup.Allocations{Before: p.Before, After: p.After, Neither: seen}[to]
	of := func(a, before, seen cloud.Allocations, kind string) cloud.Allocations {
		a.Generation = seen.Generation
		// Placement forgets a consumer that holds nothing, and its type.
		a.Type = cmp.Or(seen.Type, before.Type, kind)
		// Placement returns no project for a consumer without allocations.
		for _, known := range slices.Concat([]cloud.Allocations{p.Before.Instance}, slices.Collect(maps.Values(p.Before.Migrations))) {
			if a.Project == "" {
				a.Project, a.User = known.Project, known.User
			}
		}
		return a
	}
	all := map[string]cloud.Allocations{u.Instance: of(target.Instance, p.Before.Instance, seen.Instance, "INSTANCE")}
	for uuid, a := range target.Migrations {
		all[uuid] = of(a, p.Before.Migrations[uuid], seen.Migrations[uuid], "MIGRATION")
	}
	for name, a := range all {
		// Placement creates an unknown consumer even for an empty allocation, and from then on
		// refuses requests that call the consumer new
		// (placement/handlers/allocation.py, set_allocations; placement/handlers/util.py,
		// ensure_consumer).
		if len(a.Providers) == 0 && a.Generation == nil {
			delete(all, name)
		}
	}
	return all
}

// allocate brings the allocations of a unit to a side, or keeps them for Neither, while its rows are
// locked. It writes them wherever they are, with generations that it has just read: Placement then refuses an earlier
// request that arrives late. Only an answered write counts. asked is set before the first write.
//
// Errors: errNeither, before anything is written, if the allocations are at neither side.
func (r *Repairer) allocate(ctx context.Context, u *cleanup.Unit, to Side, asked *bool) error {
	var err error
	var refused map[string]cloud.Allocations
	const tries = 3
	for range tries {
		now, side, standErr := r.stand(ctx, u)
		switch {
		case standErr != nil:
			return errors.Join(err, standErr)
		case side == Neither && to != Neither:
			return errors.Join(err, neither(u, now))
		}
		wanted := consumers(u, to, now)
		if len(wanted) == 0 {
			return nil // a late request has generations of consumers that no longer exist
		}
		if (side == to || to == Neither || unchanged(u)) && reflect.DeepEqual(refused, wanted) && r.bump(ctx, wanted) {
			return nil
		}
		*asked = true
		if err = r.Placement.SetAllocations(ctx, wanted); err == nil {
			return nil
		}
		if ctx.Err() != nil {
			break // the locks are to be released
		}
		if errors.Is(err, cloud.ErrConflict) {
			refused = wanted
		}
	}
	return fmt.Errorf("Placement's allocations: %w", err) //nolint:staticcheck // a name
}

// bump writes one of several consumers unchanged, and returns whether Placement accepted one. On
// an overcommitted provider Placement refuses even unchanged allocations. The new generation of
// one consumer is enough: Placement then refuses a late request for all of them.
func (r *Repairer) bump(ctx context.Context, consumers map[string]cloud.Allocations) bool {
	for name, a := range consumers {
		if a.Generation != nil && r.Placement.SetAllocations(ctx, map[string]cloud.Allocations{name: a}) == nil {
			return true
		}
	}
	return false
}

// neither returns an error with the allocations of all consumers, and those before and after the
// repair.
func neither(u *cleanup.Unit, now cleanup.Allocations) error {
	return fmt.Errorf("%w: %s; before the repair %s; after it %s", errNeither, now.Text(), u.Placement.Before.Text(), u.Placement.After.Text())
}

// errNeither goes with allocations that something else has changed.
var errNeither = fmt.Errorf("Placement's allocations have %w", errChanged) //nolint:staticcheck // a name
