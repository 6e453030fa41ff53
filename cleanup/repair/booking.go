package repair

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"

	"gpustack/cleanup"
	"gpustack/nova/cloud"
)

// Side is where rows or allocations are: as they were before a repair, or after it.
type Side string

// Sides.
const (
	Before  Side = "before"
	After   Side = "after"
	Neither Side = "neither" // something else has changed them
)

func (s Side) other() Side {
	if s == After {
		return Before
	}
	return After
}

// sideOfBooks returns where the allocations of both consumers are.
func sideOfBooks(b *cleanup.Booking, now cleanup.Books) Side {
	switch {
	case sameBooks(now, b.After):
		return After
	case sameBooks(now, b.Before):
		return Before
	}
	return Neither
}

// sameBooks returns whether both consumers hold the same in a and in b.
func sameBooks(a, b cleanup.Books) bool {
	return sameProviders(a.Instance, b.Instance) && sameProviders(a.Migration, b.Migration)
}

func sameProviders(a, b cloud.Allocations) bool {
	return maps.EqualFunc(a.Providers, b.Providers, func(x, y map[string]int) bool { return maps.Equal(x, y) })
}

// stand reads where Placement's allocations of a unit are now.
func (r *Repairer) stand(ctx context.Context, u *cleanup.Unit) (now cleanup.Books, side Side, err error) {
	p := u.Placement
	if r.Books == nil {
		return now, "", errors.New("Placement is required but not configured") //nolint:staticcheck // a name
	}
	if now.Instance, err = r.Books.Allocations(ctx, u.Instance); err != nil {
		return now, "", err
	}
	if p.Consumer != "" {
		if now.Migration, err = r.Books.Allocations(ctx, p.Consumer); err != nil {
			return now, "", err
		}
	}
	return now, sideOfBooks(p, now), nil
}

// post sends the allocations of a side, by the generations that are in the unit, in one
// request that is answered within postLimit.
func (r *Repairer) post(ctx context.Context, u *cleanup.Unit, to Side) error {
	if r.Books == nil {
		return errors.New("Placement is required but not configured") //nolint:staticcheck // a name
	}
	ctx, cancel := context.WithTimeoutCause(ctx, postLimit, fmt.Errorf("no answer within %s", postLimit))
	defer cancel()
	return r.Books.SetAllocations(ctx, consumers(u, to, u.Placement.Before))
}

// consumers are what the instance and its migration hold at a side, with the generations
// of seen.
func consumers(u *cleanup.Unit, to Side, seen cleanup.Books) map[string]cloud.Allocations {
	p := u.Placement
	target := p.Before
	if to == After {
		target = p.After
	}
	of := func(a, seen cloud.Allocations) cloud.Allocations {
		a.Generation = seen.Generation
		// A consumer that holds nothing has no project in Placement's answers.
		for _, known := range []cloud.Allocations{p.Before.Instance, p.Before.Migration} {
			if a.Project == "" {
				a.Project, a.User = known.Project, known.User
			}
		}
		return a
	}
	all := map[string]cloud.Allocations{u.Instance: of(target.Instance, seen.Instance), p.Consumer: of(target.Migration, seen.Migration)}
	for name, a := range all {
		// Placement makes a consumer of one that it does not know, even where that is to
		// hold nothing, and from then on refuses requests that say it is new
		// (placement/handlers/allocation.py, set_allocations; placement/handlers/util.py,
		// ensure_consumer).
		if len(a.Providers) == 0 && a.Generation == nil {
			delete(all, name)
		}
	}
	return all
}

// book brings the allocations of a unit to a side, or keeps the side at which they are
// where to is "". It writes them in either case, by the generations that it has just read:
// a request of before that is still on its way is refused from then on. Only an answered
// write counts. It returns the side.
//
// Errors: ErrUnknown where the allocations are at neither side, when nothing is written, or
// where Placement does not answer, or refuses.
func (r *Repairer) book(ctx context.Context, u *cleanup.Unit, to Side) (Side, error) {
	var err error
	var refused map[string]cloud.Allocations
	for range tries {
		now, side, standErr := r.stand(ctx, u)
		switch {
		case standErr != nil:
			return "", unknownBecause(standErr)
		case side == Neither:
			return "", unknownBecause(neither(u, now))
		}
		stays := to == "" || to == side
		if to != "" {
			side = to
		}
		wanted := consumers(u, side, now)
		if stays && reflect.DeepEqual(refused, wanted) && r.bump(ctx, wanted) {
			return side, nil
		}
		if err = r.Books.SetAllocations(ctx, wanted); err == nil {
			return side, nil
		}
		if errors.Is(err, cloud.ErrConflict) {
			refused = wanted
		}
	}
	return "", unknownBecause(fmt.Errorf("Placement's allocations: %w", err)) //nolint:staticcheck // a name
}

// bump writes one of several consumers as it is, and returns whether it could: Placement
// refuses what stays as it is, too, on a provider that has less to give than is allocated,
// though nothing else has changed the consumers. The generation of any one consumer makes it
// refuse a request for all of them.
func (r *Repairer) bump(ctx context.Context, consumers map[string]cloud.Allocations) bool {
	for name, a := range consumers {
		if a.Generation != nil && r.Books.SetAllocations(ctx, map[string]cloud.Allocations{name: a}) == nil {
			return true
		}
	}
	return false
}

// neither says what the consumers hold, and what they would have to hold.
func neither(u *cleanup.Unit, now cleanup.Books) error {
	p := u.Placement
	consumer := func(name string, is, before, after cloud.Allocations) string {
		return fmt.Sprintf("%s holds %s (before the repair %s, after it %s)", name, cleanup.Providers(is), cleanup.Providers(before), cleanup.Providers(after))
	}
	text := consumer("instance "+u.Instance, now.Instance, p.Before.Instance, p.After.Instance)
	if p.Consumer != "" {
		text += "; " + consumer("migration "+p.Consumer, now.Migration, p.Before.Migration, p.After.Migration)
	}
	return fmt.Errorf("Placement's allocations have changed since: %s", text) //nolint:staticcheck // a name
}
