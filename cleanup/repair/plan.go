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
		if err := r.skipAllocations(ctx, units); err != nil {
			return nil, placement, err
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
		m, err := r.migrationsOf(ctx, u)
		if err != nil {
			return err
		}
		if len(m.closed) < len(u.Closings) {
			u.State, u.Note = cleanup.Skipped, u.Name()+" or the instance is gone"
			continue
		}
		if m.node == "" && !m.nowhere {
			u.State, u.Note = cleanup.Skipped, "the instance has a host but no compute node, so its allocations are not determined"
			continue
		}
		before, sites, err := r.present(ctx, u, m)
		if err != nil {
			return err
		}
		// Allocations that stay as they are are written too: the generations show that no other
		// run has changed them since.
		after, _, err := before.Settle(sites)
		if err != nil {
			u.State, u.Note = cleanup.Skipped, err.Error()
			continue
		}
		u.Placement = &cleanup.AllocationChange{Before: before, After: after}
	}
	return nil
}

// present reads the present allocations of a unit from Placement, and the providers of the nodes
// that matter to Settle. The instance is not on the other nodes of the closed migrations, nor, by
// the reports, on those of Vacated, as far as no other migration may still move it there.
func (r *Repairer) present(ctx context.Context, u *cleanup.Unit, m migrated) (now cleanup.Allocations, s cleanup.Sites, err error) {
	if s.Nowhere = m.nowhere; !s.Nowhere {
		if s.Here, err = r.Placement.Tree(ctx, m.node); err != nil {
			return now, s, err
		}
	}
	there := slices.Clone(u.Vacated)
	for _, closed := range m.closed {
		there = append(there, closed.nodes[:]...)
	}
	var kept, others []string
	for _, open := range m.open {
		kept = append(kept, open.nodes[:]...)
		if open.uuid != "" {
			others = append(others, open.uuid)
		}
	}
	if s.There, err = r.trees(ctx, m.node, there); err != nil {
		return now, s, err
	}
	if s.Kept, err = r.trees(ctx, m.node, kept); err != nil {
		return now, s, err
	}
	var uuids []string
	for _, closed := range m.closed {
		if closed.uuid != "" {
			uuids = append(uuids, closed.uuid)
		}
	}
	if now, err = r.allocations(ctx, u.Instance, uuids); err != nil {
		return now, s, err
	}
	for _, uuid := range others {
		a, err := r.Placement.Allocations(ctx, uuid)
		if err != nil {
			return now, s, err
		}
		s.Moving = s.Moving || slices.ContainsFunc(s.Here, func(provider string) bool { return len(a.Providers[provider]) > 0 })
	}
	return now, s, nil
}

// trees returns the resource providers of nodes, apart from one node.
func (r *Repairer) trees(ctx context.Context, but string, nodes []string) (all []string, err error) {
	nodes = slices.Clone(nodes)
	slices.Sort(nodes)
	for _, name := range slices.Compact(nodes) {
		if name == but || name == "" {
			continue
		}
		tree, err := r.Placement.Tree(ctx, name)
		if err != nil {
			return nil, err
		}
		all = append(all, tree...)
	}
	return all, nil
}

// migrated has what PlanAllocations needs of the rows of an instance.
type migrated struct {
	node    string  // of the instance; "" for none
	nowhere bool    // the instance has neither a host nor a node
	closed  []moved // the migrations that the unit closes
	open    []moved // other migrations that need the allocations of their nodes
}

// moved has the columns of a migration that PlanAllocations needs.
type moved struct {
	uuid  string    // "" before Newton, when migrations had no uuid
	nodes [2]string // source and destination; "" if unknown
}

// migrationsOf reads the migrations of a unit's instance. Those that are not over need the
// allocations of both their nodes. An evacuation that is done needs those of its source, which
// nova-compute releases when it starts there (nova/compute/manager.py,
// _destroy_evacuated_instances).
func (r *Repairer) migrationsOf(ctx context.Context, u *cleanup.Unit) (all migrated, err error) {
	cell, err := r.Databases.Cell(u.Cell)
	if err != nil {
		return all, err
	}
	err = novadb.Query(ctx, cell.DB, u.Name(), func(rows *sql.Rows) error {
		var id int64
		var m moved
		var open, evacuated bool
		err := rows.Scan(&id, &m.uuid, &all.node, &all.nowhere, &m.nodes[0], &m.nodes[1], &open, &evacuated)
		switch {
		case u.Closes(id):
			all.closed = append(all.closed, m)
		case open:
			all.open = append(all.open, m)
		case evacuated:
			all.open = append(all.open, moved{nodes: [2]string{m.nodes[0]}})
		}
		return err
	}, `SELECT m.id, COALESCE(m.uuid, ''), COALESCE(i.node, ''), i.host IS NULL AND i.node IS NULL, COALESCE(m.source_node, ''), COALESCE(m.dest_node, ''),
		m.status IS NULL OR m.status NOT IN ('confirmed', 'reverted', 'failed', 'completed', 'cancelled', 'done'),
			COALESCE(m.migration_type = 'evacuation' AND m.status = 'done', FALSE)
		FROM migrations m JOIN instances i ON i.uuid = m.instance_uuid WHERE m.deleted = 0 AND m.instance_uuid = ? ORDER BY m.id`, u.Instance)
	return all, err
}

// skipAllocations marks the units that need Placement as skipped, with the steps to repair each by
// hand.
func (r *Repairer) skipAllocations(ctx context.Context, units []cleanup.Unit) error {
	for i := range units {
		u := &units[i]
		if u.Repair != cleanup.Online || u.State != cleanup.Planned {
			continue
		}
		m, err := r.migrationsOf(ctx, u)
		if err != nil {
			return err
		}
		show, migrations := "openstack resource provider allocation show "+u.Instance, "its migration"
		if len(u.Closings) > 1 {
			migrations = "its migrations"
		}
		for _, closed := range m.closed {
			if closed.uuid != "" {
				show += ", and the same of " + closed.uuid
			}
		}
		u.State = cleanup.Skipped
		u.Note = "Placement is needed. By hand: " + show +
			"; the instance must hold what it has on its own host, " + migrations +
			" nothing (openstack resource provider allocation set, unset); then run this again where Placement can be reached"
	}
	return nil
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
			return fmt.Errorf("cell %s: %w: it has %s", u.Cell, errImplausible, strings.Join(lacks, " and "))
		}
	}
	return nil
}
