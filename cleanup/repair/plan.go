package repair

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
	"gpustack/host"
	"gpustack/nova/cloud"
)

// Errors of planning.
var (
	ErrTooMany = host.WithHint(errors.New("more repairs than allowed at once"),
		"check that this is the intended cloud; raise --max, or repair fewer rows with --host or --instance")
	ErrImplausible = host.WithHint(errors.New("this does not look like the database of a running deployment"),
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
// Errors: ErrTooMany, ErrImplausible, and those of the databases.
func (r *Repairer) Plan(ctx context.Context, findings []cleanup.Finding, most int) (units []cleanup.Unit, placement, err error) {
	units = cleanup.NewPlan(findings)
	if len(units) > most {
		return nil, nil, fmt.Errorf("%d repairs: %w", len(units), ErrTooMany)
	}
	if err := r.Plausible(ctx, units); err != nil {
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
		if err := r.SkipAllocations(ctx, units); err != nil {
			return nil, placement, err
		}
	}
	return units, placement, r.Preview(ctx, units)
}

// PlanAllocations plans the change of Placement's allocations for each unit that closes a
// migration. A unit whose rows or allocations do not match a dead migration is skipped, with the
// reason.
func (r *Repairer) PlanAllocations(ctx context.Context, units []cleanup.Unit) error {
	for i := range units {
		u := &units[i]
		if u.Repair != cleanup.Online || u.State != cleanup.Planned {
			continue
		}
		m, err := r.migrationOf(ctx, u)
		if err != nil {
			return err
		}
		if m == nil || m.node == "" {
			u.State, u.Note = cleanup.Skipped, "the instance is on no compute node and so has no allocations of its own"
			if m == nil {
				u.Note = fmt.Sprintf("migration %d or its instance is gone", u.Migration)
			}
			continue
		}
		before, here, there, err := r.present(ctx, u, m)
		if err != nil {
			return err
		}
		after, changed, err := before.Settle(here, there)
		if err != nil {
			u.State, u.Note = cleanup.Skipped, err.Error()
			continue
		}
		if changed {
			u.Placement = &cleanup.AllocationChange{Consumer: m.uuid, Before: before, After: after}
		}
	}
	return nil
}

// present reads the present allocations of a unit from Placement, and the providers of the nodes
// that matter to Settle: here those of the instance's own node, there those of the other nodes of
// the migration and of the freed devices. Reports prove that the instance is on none of the latter.
func (r *Repairer) present(ctx context.Context, u *cleanup.Unit, m *migrated) (now cleanup.Allocations, here, there []string, err error) {
	now.Migration.Providers = map[string]map[string]int{}
	if here, err = r.Placement.Tree(ctx, m.node); err != nil {
		return now, nil, nil, err
	}
	names := slices.Clone(m.nodes[:])
	for _, device := range u.Devices {
		names = append(names, device.NodeName)
	}
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		if name == m.node || name == "" {
			continue
		}
		tree, err := r.Placement.Tree(ctx, name)
		if err != nil {
			return now, nil, nil, err
		}
		there = append(there, tree...)
	}
	if now.Instance, err = r.Placement.Allocations(ctx, u.Instance); err != nil {
		return now, nil, nil, err
	}
	if m.uuid != "" {
		now.Migration, err = r.Placement.Allocations(ctx, m.uuid)
	}
	return now, here, there, err
}

// migrated has the columns that PlanAllocations needs.
type migrated struct {
	uuid  string    // of the migration; "" before Newton, when migrations had no uuid
	node  string    // of the instance; "" for none
	nodes [2]string // source and destination; "" if unknown
}

// migrationOf reads the migration of a unit. It returns nil if there is no such row.
func (r *Repairer) migrationOf(ctx context.Context, u *cleanup.Unit) (*migrated, error) {
	cell, err := r.Databases.Cell(u.Cell)
	if err != nil {
		return nil, err
	}
	var m migrated
	err = cell.DB.QueryRowContext(ctx, "SELECT COALESCE(m.uuid, ''), COALESCE(i.node, ''), COALESCE(m.source_node, ''), COALESCE(m.dest_node, '') FROM migrations m JOIN instances i ON i.uuid = m.instance_uuid WHERE m.id = ?",
		u.Migration).Scan(&m.uuid, &m.node, &m.nodes[0], &m.nodes[1])
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, novadb.Explain(fmt.Sprintf("migration %d", u.Migration), err)
	}
	return &m, nil
}

// SkipAllocations marks the units that need Placement as skipped, with the steps to repair each by
// hand.
func (r *Repairer) SkipAllocations(ctx context.Context, units []cleanup.Unit) error {
	for i := range units {
		u := &units[i]
		if u.Repair != cleanup.Online || u.State != cleanup.Planned {
			continue
		}
		m, err := r.migrationOf(ctx, u)
		if err != nil {
			return err
		}
		show := "openstack resource provider allocation show " + u.Instance
		if m != nil && m.uuid != "" {
			show += ", and the same of " + m.uuid
		}
		u.State = cleanup.Skipped
		u.Note = "Placement is needed. By hand: " + show +
			"; the instance must hold what it has on its own host, its migration nothing (openstack resource provider allocation set, unset); then run this again where Placement can be reached"
	}
	return nil
}

// Plausible returns an error if the cell of a unit has no instances or no nova-compute at all: then
// it is not the intended database, or an incomplete copy.
//
// Errors: ErrImplausible.
func (r *Repairer) Plausible(ctx context.Context, units []cleanup.Unit) error {
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
		var lacks []string
		for _, table := range []struct{ name, statement string }{
			{"instances", "SELECT EXISTS(SELECT 1 FROM instances WHERE deleted = 0)"},
			{"services", "SELECT EXISTS(SELECT 1 FROM services WHERE deleted = 0 AND `binary` = 'nova-compute')"},
		} {
			var there bool
			if err := c.DB.QueryRowContext(ctx, table.statement).Scan(&there); err != nil && !errors.Is(err, sql.ErrNoRows) {
				return novadb.Explain(table.name, err)
			}
			if !there {
				lacks = append(lacks, "no "+table.name)
			}
		}
		if len(lacks) > 0 {
			return fmt.Errorf("cell %s: %w: it has %s", u.Cell, ErrImplausible, strings.Join(lacks, " and "))
		}
	}
	return nil
}
