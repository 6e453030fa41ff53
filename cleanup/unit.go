package cleanup

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// Unit is a repair that is made as a whole or not at all: migrations of one instance are closed,
// or all rows of one instance are written offline, or its migration context is cleared, or one row
// without an owner is written.
type Unit struct {
	Cell     string `json:"cell"`          // the name of the cell
	Repair   Repair `json:"repair"`        // how it is repaired
	Instance string `json:"instance_uuid"` // the owner; "" for a row without one
	// the migrations that are closed, by id; empty for offline repairs
	Closings []Closing `json:"closings"`
	Applies  bool      `json:"applies_context"` // whether the instance's migration_context is applied
	// whether the migration is confirmed in place of nova-compute: the instance leaves state resized
	Confirms bool `json:"confirms"`
	// Devices are the devices that are free afterwards, or assigned to the instance (--claim).
	// Those of a context repair, and of a migration that is reopened, are the instance's, which keeps
	// them.
	Devices []Held `json:"devices"`
	// FreedWith is the rows of the same cards that Nova, or the repair, writes when it frees the
	// devices: their PF, VFs and vDPA devices.
	FreedWith []Device          `json:"freed_with"`
	Placement *AllocationChange `json:"placement"` // the change of allocations; nil for none
	// the changes of rows, filled in for a preview and when they are written
	Rows []Row `json:"rows"`
	// Reports is the report_count that nova-compute had when its rows were written offline, by
	// host.
	Reports map[string]int64 `json:"report_counts"`
	// the schema that the rows are in; "" if it is not recorded
	Database string `json:"database"`
	State    State  `json:"state"` // how far the repair got
	// why the unit was skipped or is unknown, or how it was accepted
	Note string `json:"note"`

	Findings []Finding `json:"-"` // from which the unit was planned
	Places   Places    `json:"-"` // of an instance whose migrations are closed
}

// AllocationChange is a change of Placement's allocations.
type AllocationChange struct {
	Before Allocations `json:"before"` // the allocations of all consumers before the repair
	After  Allocations `json:"after"`  // the allocations of all consumers after the repair
}

// Row is the change of a row: the values of some of its columns before and after it.
type Row struct {
	Table string `json:"table"` // the table
	Key   string `json:"key"`   // the value of the column id
	// the values of the changed columns before, as text or null
	Before map[string]*string `json:"before"`
	// the values of the changed columns after, as text or null
	After map[string]*string `json:"after"`
}

// State is the progress of a unit.
type State string

// States of a unit.
const (
	Planned  State = "planned"
	Written  State = "written"  // committed; nova-compute has not freed the devices yet
	Repaired State = "repaired" // committed, and the devices are free
	Skipped  State = "skipped"  // nothing was written
	Begun    State = "unknown"  // begun; whether the unit was written is not determined
	Undone   State = "undone"
)

// Known reports whether the state is one of this release's.
func (s State) Known() bool {
	return slices.Contains([]State{Planned, Written, Repaired, Skipped, Begun, Undone}, s)
}

// Name returns the migrations that a unit closes, the context that it clears, or else its devices.
func (u Unit) Name() string {
	switch u.Repair {
	case Online, Reopen:
		return migrationsText(u.Closings)
	case ClearContext:
		return "the migration context of instance " + u.Instance
	}
	var names []string
	for i, d := range u.Devices {
		name := d.Address
		if i == len(u.Devices)-1 || u.Devices[i+1].Host != d.Host {
			name += " of " + d.Host
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// migrationsText returns the ids of migrations as part of a sentence.
func migrationsText(closings []Closing) string {
	switch len(closings) {
	case 0:
		return "no migration"
	case 1:
		return fmt.Sprintf("migration %d", closings[0].Migration)
	}
	var ids []string
	for _, c := range closings {
		ids = append(ids, fmt.Sprint(c.Migration))
	}
	last := len(ids) - 1
	return "migrations " + strings.Join(ids[:last], ", ") + " and " + ids[last]
}

// Claimed returns the devices that were free, and that the unit assigns to its instance.
func (u Unit) Claimed() (devices []Held) {
	for _, d := range u.Devices {
		if u.Repair == Offline && u.Instance != "" && d.Instance == nil {
			devices = append(devices, d)
		}
	}
	return devices
}

// Blocks returns the free functions of the same cards that Nova cannot assign beside claimed devices, as
// PciDevice.claim marks them (nova/objects/pci_device.py), in the order of their ids.
func (u Unit) Blocks() (blocked []Device) {
	for _, h := range u.Claimed() {
		for _, k := range h.related(h.Card) {
			if k.Status == StatusAvailable {
				blocked = append(blocked, k)
			}
		}
	}
	slices.SortFunc(blocked, func(a, b Device) int { return cmp.Compare(a.ID, b.ID) })
	return slices.CompactFunc(blocked, func(a, b Device) bool { return a.ID == b.ID })
}

// Same returns whether two units, of rows that were judged twice, are the same repair for the same
// cases of rows that have not changed.
func (u Unit) Same(v Unit) bool {
	return u.Repair == v.Repair && u.Instance == v.Instance && slices.Equal(u.Closings, v.Closings) && u.Applies == v.Applies && u.Confirms == v.Confirms &&
		slices.EqualFunc(u.Devices, v.Devices, func(a, b Held) bool { return reflect.DeepEqual(a.Device, b.Device) }) &&
		slices.EqualFunc(u.Findings, v.Findings, func(a, b Finding) bool {
			return a.Case == b.Case && a.Claims == b.Claims && a.Request == b.Request && reflect.DeepEqual(a.Device, b.Device)
		})
}

// Keeps returns whether the unit leaves its devices to the instance.
func (u Unit) Keeps() bool { return u.Repair == ClearContext || u.Repair == Reopen }

// Closes returns whether the unit closes a migration.
func (u Unit) Closes(migration int64) bool {
	return slices.ContainsFunc(u.Closings, func(c Closing) bool { return c.Migration == migration })
}

// Back returns the changes that undo those of a unit's rows, the last first.
func (u Unit) Back() []Row {
	var back []Row
	for _, row := range slices.Backward(u.Rows) {
		back = append(back, row.back())
	}
	return back
}

// Written returns whether a unit's rows are committed, and not undone.
func (u Unit) Written() bool {
	return u.State == Written || u.State == Repaired
}

// Open returns whether a unit was begun and its outcome is not determined.
func (u Unit) Open() bool {
	return u.State == Begun
}

// With returns the change of the row, as it was read into Before, to other values of some columns.
func (r Row) With(after map[string]*string) Row {
	r.After = maps.Clone(r.Before)
	maps.Copy(r.After, after)
	return r
}

// back returns the change that undoes this one.
func (r Row) back() Row {
	r.Before, r.After = r.After, r.Before
	return r
}
