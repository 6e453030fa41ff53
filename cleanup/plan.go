package cleanup

import (
	"cmp"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/nova/cloud"
)

// Unit is what is repaired together or not at all: the migration of an instance that is
// closed, or all rows of one instance that are written offline, or one row without an owner.
type Unit struct {
	Cell      string   `json:"cell"`
	Repair    Repair   `json:"repair"`
	Instance  string   `json:"instance_uuid"` // "" for a row without an owner
	Migration int64    `json:"migration_id"`  // 0 for offline repairs
	Closes    string   `json:"closes"`
	Devices   []Held   `json:"devices"` // that are free afterwards
	Placement *Booking `json:"placement"`
	Rows      []Row    `json:"rows"` // as they are written; filled in when that is done
	// Reports has the report_count of nova-compute of each host whose rows were written
	// offline, as it was then.
	Reports  map[string]int64 `json:"report_counts"`
	Database string           `json:"database"` // the schema that the rows are in; "" for one that is not recorded
	State    State            `json:"state"`
	Note     string           `json:"note"` // why it was skipped or is unknown, or what else there is to say

	findings []Finding
}

// UnmarshalJSON reads a unit from a journal. Releases that wrote one row per unit recorded
// the report_count of its only host as a number.
func (u *Unit) UnmarshalJSON(text []byte) error {
	type unit Unit
	recorded := struct {
		*unit
		Count int64 `json:"report_count"`
	}{unit: (*unit)(u)}
	if err := json.Unmarshal(text, &recorded); err != nil {
		return err
	}
	if u.Reports == nil && u.Repair == Offline && len(u.Devices) > 0 {
		u.Reports = map[string]int64{u.Devices[0].Host: recorded.Count}
	}
	return nil
}

// Booking is a change of Placement's allocations.
type Booking struct {
	Consumer string `json:"migration"` // the migration's uuid
	Before   Books  `json:"before"`
	After    Books  `json:"after"`
}

// Row is a change of a row: what was in some of its columns, and what is.
type Row struct {
	Table  string             `json:"table"`
	Key    string             `json:"key"` // its column id
	Before map[string]*string `json:"before"`
	After  map[string]*string `json:"after"`
}

// State is how far a unit has come.
type State string

// States of a unit.
const (
	Planned   State = "planned"
	Written   State = "written"  // committed; nova-compute has not freed the devices yet
	Repaired  State = "repaired" // and the devices are free
	Skipped   State = "skipped"  // nothing was written
	Begun     State = "unknown"  // begun; whether it was written is not determined
	TakenBack State = "taken back"
)

// Bookkeeper is what a repair needs of Placement. SetAllocations makes one request and
// never repeats it: after an error other than a refusal it may have been applied, or may
// still be.
type Bookkeeper interface {
	Allocations(ctx context.Context, consumer string) (cloud.Allocations, error)
	Tree(ctx context.Context, name string) ([]string, error)
	SetAllocations(ctx context.Context, consumers map[string]cloud.Allocations) error
}

// Errors of planning.
var (
	ErrTooMany     = errors.New("more repairs than are allowed at once")
	ErrImplausible = errors.New("the database cannot be that of a cloud at work")
)

// NewPlan makes units of the findings that are stale and proved. A finding that lacks
// something is left out; the finding says what. Of several migrations of one instance the
// first is closed: what the others need is only known when that is done.
func NewPlan(findings []Finding) []Unit {
	type key struct {
		cell      string
		repair    Repair
		instance  string
		migration int64
		device    int64 // of a row without an owner
	}
	units := map[key]*Unit{}
	for _, f := range findings {
		if f.Verdict != Stale || f.Needs != "" || f.Repair != Online && f.Repair != Offline {
			continue
		}
		instance := f.Claims
		if f.Device.Instance != nil {
			instance = *f.Device.Instance
		}
		k := key{cell: f.Cell, repair: f.Repair, instance: instance}
		switch {
		case f.Repair == Online:
			k.migration = *f.Migration
		case instance == "":
			k.device = f.Device.ID
		}
		u := units[k]
		if u == nil {
			u = &Unit{Cell: f.Cell, Repair: f.Repair, Instance: instance, Migration: k.migration, Closes: f.Closes, State: Planned, Rows: []Row{}, Reports: map[string]int64{}}
			units[k] = u
		}
		u.findings = append(u.findings, f)
		if f.Repair == Online {
			u.Devices = slices.Clone(f.Frees) // the same for each row that the migration keeps
		} else {
			u.Devices = append(u.Devices, Held{Device: f.Device, Host: f.Host, NodeName: f.Node})
		}
	}
	var list []Unit
	for _, u := range units {
		slices.SortFunc(u.Devices, func(a, b Held) int { return cmp.Compare(a.ID, b.ID) })
		slices.SortFunc(u.findings, func(a, b Finding) int { return cmp.Compare(a.Device.ID, b.Device.ID) })
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b Unit) int {
		return cmp.Or(strings.Compare(a.Cell, b.Cell), cmp.Compare(a.Migration, b.Migration), cmp.Compare(a.Devices[0].ID, b.Devices[0].ID))
	})
	closed := map[string]int64{}
	for i := range list {
		u := &list[i]
		if u.Repair != Online {
			continue
		}
		if first, ok := closed[u.Cell+" "+u.Instance]; ok {
			u.State, u.Note = Skipped, fmt.Sprintf("migration %d of the same instance is closed first: run the command again afterwards", first)
			continue
		}
		closed[u.Cell+" "+u.Instance] = u.Migration
	}
	return list
}

// Book fills in what becomes of Placement's allocations when the units' migrations are
// closed. A unit whose rows or allocations are not what a migration that died leaves is
// skipped, with the reason.
func (d *Databases) Book(ctx context.Context, units []Unit, books Bookkeeper) error {
	for i := range units {
		u := &units[i]
		if u.Repair != Online || u.State != Planned {
			continue
		}
		m, err := d.migrationOf(ctx, u)
		if err != nil {
			return err
		}
		if m == nil || m.node == "" {
			u.State, u.Note = Skipped, "the instance is on no compute node, so that it has no allocations of its own"
			if m == nil {
				u.Note = fmt.Sprintf("migration %d or its instance is gone", u.Migration)
			}
			continue
		}
		before := Books{Migration: cloud.Allocations{Providers: map[string]map[string]int{}}}
		here, err := books.Tree(ctx, m.node)
		// Besides the migration's own nodes, those of the devices that are freed: reports
		// prove that the instance is on none of their hosts.
		var there []string
		names := slices.Clone(m.nodes[:])
		for _, device := range u.Devices {
			names = append(names, device.NodeName)
		}
		slices.Sort(names)
		for _, name := range slices.Compact(names) {
			if err == nil && name != m.node && name != "" {
				var tree []string
				tree, err = books.Tree(ctx, name)
				there = append(there, tree...)
			}
		}
		if err == nil {
			before.Instance, err = books.Allocations(ctx, u.Instance)
		}
		if err == nil && m.uuid != "" {
			before.Migration, err = books.Allocations(ctx, m.uuid)
		}
		if err != nil {
			return err
		}
		after, changed, err := before.settle(here, there)
		if err != nil {
			u.State, u.Note = Skipped, err.Error()
			continue
		}
		if changed {
			u.Placement = &Booking{m.uuid, before, after}
		}
	}
	return nil
}

// migrated is what Placement's side of a unit needs of its rows.
type migrated struct {
	uuid  string    // of the migration; "" in clouds from before Newton, whose Placement has none
	node  string    // of the instance; "" for none
	nodes [2]string // between which it goes; "" for one that is not known
}

// migrationOf reads it; nil where there is no such row.
func (d *Databases) migrationOf(ctx context.Context, u *Unit) (*migrated, error) {
	cell, err := d.cell(u.Cell)
	if err != nil {
		return nil, err
	}
	var m migrated
	err = cell.DB.QueryRowContext(ctx, "SELECT COALESCE(m.uuid, ''), COALESCE(i.node, ''), COALESCE(m.source_node, ''), COALESCE(m.dest_node, '') FROM migrations m JOIN instances i ON i.uuid = m.instance_uuid WHERE m.id = ?", u.Migration).Scan(&m.uuid, &m.node, &m.nodes[0], &m.nodes[1])
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(fmt.Sprintf("migration %d", u.Migration), err)
	}
	return &m, nil
}

// Unbooked skips the units that need Placement, with the steps that repair each by hand.
func (d *Databases) Unbooked(ctx context.Context, units []Unit) error {
	for i := range units {
		u := &units[i]
		if u.Repair != Online || u.State != Planned {
			continue
		}
		m, err := d.migrationOf(ctx, u)
		if err != nil {
			return err
		}
		show := "openstack resource provider allocation show " + u.Instance
		if m != nil && m.uuid != "" {
			show += ", and the same of " + m.uuid
		}
		u.State = Skipped
		u.Note = "Placement is needed. By hand: " + show + "; the instance must hold what it has on its own host, its migration nothing (openstack resource provider allocation set, unset); then run this again where Placement can be reached"
	}
	return nil
}

func (d *Databases) cell(name string) (Cell, error) {
	for _, c := range d.Cells {
		if c.Name == name {
			return c, nil
		}
	}
	return Cell{}, fmt.Errorf("cell %s: %w", name, ErrNoCell)
}

// Plausible is an error where a cell has taken devices, and no instances or no
// nova-compute at all: then it is another database than it is believed to be, or a
// restored half of one.
func (d *Databases) Plausible(ctx context.Context, units []Unit) error {
	seen := map[string]bool{}
	for _, u := range units {
		if seen[u.Cell] {
			continue
		}
		seen[u.Cell] = true
		c, err := d.cell(u.Cell)
		if err != nil {
			return err
		}
		for what, statement := range map[string]string{
			"instances": "SELECT EXISTS(SELECT 1 FROM instances WHERE deleted = 0)",
			"services":  "SELECT EXISTS(SELECT 1 FROM services WHERE deleted = 0 AND `binary` = 'nova-compute')",
		} {
			var there bool
			if err := c.DB.QueryRowContext(ctx, statement).Scan(&there); err != nil && !errors.Is(err, sql.ErrNoRows) {
				return explain(what, err)
			}
			if !there {
				return fmt.Errorf("cell %s: %w: it has no %s", u.Cell, ErrImplausible, what)
			}
		}
	}
	return nil
}
