package repair

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
	"gpustack/host"
	"gpustack/nova/cloud"
)

// Errors of planning.
var (
	errTooMany = host.WithHint(host.WithCode(errors.New("more repairs than allowed at once"), host.CodeTooMany, "--max"),
		"check that this is the intended cloud; raise --max, or repair fewer rows with --host or --instance")
	errImplausible = host.WithHint(host.WithCode(errors.New("this does not look like the database of a running deployment"), host.CodeImplausible, ""),
		"check that --conf or --database names the complete database of this cloud")
)

// Placement reads and writes allocations in Placement. SetAllocations makes one request and never
// repeats it: after an error other than a refusal, the request may have been applied, or may still
// be applied later.
type Placement interface {
	Allocations(ctx context.Context, consumer string) (cloud.Allocations, error)
	Tree(ctx context.Context, name string) ([]string, error)
	SetAllocations(ctx context.Context, consumers map[string]cloud.Allocations) error
}

// Plan plans the repair of the stale findings, at most most units, with the changes of rows and
// allocations that each would make now. A unit that cannot be made is skipped, with the reason.
// Without Placement, units that change allocations are skipped, and placement is the reason.
//
// Errors: errTooMany, errImplausible, and those of the databases.
func (r *Repairer) Plan(ctx context.Context, findings []cleanup.Finding, most int) (units []cleanup.Unit, placement, err error) {
	units = cleanup.NewPlan(findings)
	if len(units) > most {
		return nil, nil, fmt.Errorf("%d repairs: %w", len(units), errTooMany)
	}
	if err := r.plausible(ctx, units); err != nil {
		return nil, nil, err
	}
	if slices.ContainsFunc(units, func(u cleanup.Unit) bool { return u.Repair == cleanup.Online }) {
		if placement = r.signIn(ctx); placement == nil {
			placement = r.PlanAllocations(ctx, units)
		}
	}
	if placement != nil {
		// Never repair a row without its allocations: the scheduler would still count the
		// device as used.
		for i := range units {
			if u := &units[i]; u.Repair == cleanup.Online && u.State == cleanup.Planned {
				u.State, u.Note = cleanup.Skipped, "Placement is needed: run this again where it can be reached"
			}
		}
	}
	return units, placement, r.Preview(ctx, units)
}

// PlanAllocations plans the change of Placement's allocations for each unit that closes
// migrations. A unit whose rows or allocations do not match dead migrations is skipped, with the
// reason: several of the migrations hold allocations on the instance's own host, or there are
// allocations on a further host which is neither that of a freed device nor proved to be without the
// guest.
func (r *Repairer) PlanAllocations(ctx context.Context, units []cleanup.Unit) error {
	for i := range units {
		u := &units[i]
		if u.Repair != cleanup.Online || u.State != cleanup.Planned {
			continue
		}
		if u.Places.Node == "" && !u.Places.Nowhere {
			u.State, u.Note = cleanup.Skipped, "the instance has a host but no compute node, so its allocations are not determined"
			continue
		}
		before, sites, err := r.present(ctx, u)
		if err != nil {
			return err
		}
		// Allocations that stay as they are are written too: Placement then refuses a request of
		// another run that arrives late.
		after, err := before.Settle(sites)
		if err != nil {
			u.State, u.Note = cleanup.Skipped, err.Error()
			continue
		}
		u.Placement = &cleanup.AllocationChange{Before: before, After: after}
	}
	return nil
}

// present reads the present allocations of a unit from Placement, and the providers of the nodes
// that matter to Settle.
func (r *Repairer) present(ctx context.Context, u *cleanup.Unit) (now cleanup.Allocations, s cleanup.Sites, err error) {
	at := u.Places
	if s.Nowhere = at.Nowhere; !s.Nowhere {
		if s.Here, err = r.Placement.Tree(ctx, at.Node); err != nil {
			return now, s, err
		}
	}
	if s.There, err = r.trees(ctx, at.Empty); err != nil {
		return now, s, err
	}
	if s.Kept, err = r.trees(ctx, at.Kept); err != nil {
		return now, s, err
	}
	if now, err = r.allocations(ctx, u.Instance, at.Closed); err != nil {
		return now, s, err
	}
	for _, uuid := range at.Open {
		if uuid == "" {
			continue
		}
		a, err := r.Placement.Allocations(ctx, uuid)
		if err != nil {
			return now, s, err
		}
		s.Moving = s.Moving || slices.ContainsFunc(s.Here, func(provider string) bool { return len(a.Providers[provider]) > 0 })
	}
	return now, s, nil
}

// trees returns the resource providers of nodes.
func (r *Repairer) trees(ctx context.Context, nodes []string) (all []string, err error) {
	for _, name := range nodes {
		tree, err := r.Placement.Tree(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, tree...)
	}
	return all, nil
}

// plausible returns an error if the cell of a unit has no instances or no nova-compute at all: then
// it is not the intended database, or an incomplete copy.
//
// Errors: errImplausible.
func (r *Repairer) plausible(ctx context.Context, units []cleanup.Unit) error {
	seen := map[string]bool{}
	for _, u := range units {
		if seen[u.Cell] {
			continue
		}
		seen[u.Cell] = true
		c, err := r.Databases.Cell(u.Cell)
		if err != nil {
			return err
		}
		var lacks string
		if err := novadb.QueryRow(ctx, c.DB, "cell "+u.Cell, []any{&lacks}, "SELECT CONCAT_WS(' and ', "+
			"IF(EXISTS(SELECT 1 FROM instances WHERE deleted = 0), NULL, 'no instances'), "+
			"IF(EXISTS(SELECT 1 FROM services WHERE deleted = 0 AND `binary` = 'nova-compute'), NULL, 'no services'))"); err != nil {
			return err
		}
		if lacks != "" {
			return fmt.Errorf("cell %s: %w: it has %s", u.Cell, errImplausible, lacks)
		}
	}
	return nil
}
