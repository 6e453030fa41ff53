package cleanup

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/nova/cloud"
)

// Unit is what is repaired together, or not at all: the migration of an instance that
// is closed, or a row that is written.
type Unit struct {
	Cell      string   `json:"cell"`
	Repair    Repair   `json:"repair"`
	Instance  string   `json:"instance_uuid"` // "" for a row without an owner
	Migration int64    `json:"migration_id"`  // 0 for offline repairs
	Closes    string   `json:"closes"`
	Devices   []Held   `json:"devices"` // that are free afterwards
	Placement *Booking `json:"placement"`
	Rows      []Row    `json:"rows"`         // as they are written; filled in when that is done
	Reports   int64    `json:"report_count"` // of the host's nova-compute, when the row was written offline
	State     State    `json:"state"`
	Note      string   `json:"note"` // why it was skipped, or what else there is to say

	findings []Finding
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
	TakenBack State = "taken back"
)

// Bookkeeper is what a repair needs of Placement.
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

// NewPlan makes units of what findings say is stale and proved. What lacks something
// is left out; its finding says what.
func NewPlan(findings []Finding) []Unit {
	type key struct {
		cell      string
		migration int64
		device    int64
	}
	units := map[key]*Unit{}
	for _, f := range findings {
		if f.Verdict != Stale || f.Needs != "" || f.Repair != Online && f.Repair != Offline {
			continue
		}
		k := key{f.Cell, 0, f.Device.ID}
		u := &Unit{Cell: f.Cell, Repair: f.Repair, Closes: f.Closes, State: Planned, Rows: []Row{}, Devices: []Held{{f.Device, f.Host, f.Node}}}
		if f.Device.Instance != nil {
			u.Instance = *f.Device.Instance
		} else {
			u.Instance = f.Claims
		}
		if f.Repair == Online {
			k = key{f.Cell, *f.Migration, 0}
			u.Migration, u.Devices = *f.Migration, f.Frees
		}
		if units[k] == nil {
			units[k] = u
		}
		units[k].findings = append(units[k].findings, f)
	}
	var list []Unit
	for _, u := range units {
		list = append(list, *u)
	}
	slices.SortFunc(list, func(a, b Unit) int {
		return cmp.Or(strings.Compare(a.Cell, b.Cell), cmp.Compare(a.Migration, b.Migration), cmp.Compare(a.Devices[0].ID, b.Devices[0].ID))
	})
	return list
}

// Book fills in what becomes of Placement's allocations when the units' migrations are
// closed.
func (d *Databases) Book(ctx context.Context, units []Unit, books Bookkeeper) error {
	for i := range units {
		u := &units[i]
		if u.Repair != Online {
			continue
		}
		var uuid, node string
		cell, err := d.cell(u.Cell)
		if err != nil {
			return err
		}
		err = cell.DB.QueryRowContext(ctx, "SELECT m.uuid, i.node FROM migrations m JOIN instances i ON i.uuid = m.instance_uuid WHERE m.id = ?", u.Migration).Scan(&uuid, &node)
		if err != nil {
			return explain(fmt.Sprintf("migration %d", u.Migration), err)
		}
		before := Books{}
		tree, err := books.Tree(ctx, node)
		if err == nil {
			before.Instance, err = books.Allocations(ctx, u.Instance)
		}
		if err == nil {
			before.Migration, err = books.Allocations(ctx, uuid)
		}
		if err != nil {
			return err
		}
		after, changed, err := before.settle(tree)
		if err != nil {
			u.State, u.Note = Skipped, err.Error()
			continue
		}
		if changed {
			u.Placement = &Booking{uuid, before, after}
		}
	}
	return nil
}

// Unbooked skips the units that need Placement, and says with each how it is repaired
// by hand.
func (d *Databases) Unbooked(ctx context.Context, units []Unit) error {
	for i := range units {
		u := &units[i]
		if u.Repair != Online {
			continue
		}
		cell, err := d.cell(u.Cell)
		if err != nil {
			return err
		}
		var uuid string
		if err := cell.DB.QueryRowContext(ctx, "SELECT uuid FROM migrations WHERE id = ?", u.Migration).Scan(&uuid); err != nil {
			return explain(fmt.Sprintf("migration %d", u.Migration), err)
		}
		u.State = Skipped
		u.Note = fmt.Sprintf("without Placement. By hand: openstack resource provider allocation show %s, and the same of %s; the instance must hold what it has on its own host, its migration nothing (openstack resource provider allocation set, unset); then run this again where Placement can be reached", u.Instance, uuid)
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
