package cleanup

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Unit is a repair that is made as a whole or not at all: one migration of an instance is closed,
// or all rows of one instance are written offline, or one row without an owner is.
type Unit struct {
	Cell      string            `json:"cell"`
	Repair    Repair            `json:"repair"`
	Instance  string            `json:"instance_uuid"` // "" for a row without an owner
	Migration int64             `json:"migration_id"`  // 0 for offline repairs
	Closes    string            `json:"closes"`
	Devices   []Held            `json:"devices"` // free afterwards, or assigned to the instance
	Placement *AllocationChange `json:"placement"`
	Rows      []Row             `json:"rows"` // the changes of rows, filled in by Preview and when they are written
	// Reports has, for each host whose rows were written offline, the report_count that its
	// nova-compute had then.
	Reports  map[string]int64 `json:"report_counts"`
	Database string           `json:"database"` // the schema that the rows are in; "" if it is not recorded
	State    State            `json:"state"`
	Note     string           `json:"note"` // why the unit was skipped or is unknown, or how it was accepted

	Findings []Finding `json:"-"` // from which the unit was planned
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

// AllocationChange is a change of Placement's allocations.
type AllocationChange struct {
	Consumer string      `json:"migration"` // the migration's uuid
	Before   Allocations `json:"before"`
	After    Allocations `json:"after"`
}

// Row is the change of a row: the values of some of its columns before and after it.
type Row struct {
	Table  string             `json:"table"`
	Key    string             `json:"key"` // the value of the column id
	Before map[string]*string `json:"before"`
	After  map[string]*string `json:"after"`
}

// State is the progress of a unit.
type State string

// States of a unit.
const (
	Planned  State = "planned"
	Written  State = "written"    // committed; nova-compute has not freed the devices yet
	Repaired State = "repaired"   // committed, and the devices are free
	Skipped  State = "skipped"    // nothing was written
	Begun    State = "unknown"    // begun; whether the unit was written is not determined
	Undone   State = "taken back" // undone; the value is that of earlier releases
)

// Known reports whether the state is one of this release's.
func (s State) Known() bool {
	return slices.Contains([]State{Planned, Written, Repaired, Skipped, Begun, Undone}, s)
}

// Name returns the migration that a unit closes, or else its devices.
func (u Unit) Name() string {
	if u.Repair == Online {
		return fmt.Sprintf("migration %d", u.Migration)
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

// Open returns whether a unit was begun and its outcome is not determined. Earlier releases,
// which had no state Begun, left such units planned, with their rows.
func (u Unit) Open() bool {
	return u.State == Begun || u.State == Planned && len(u.Rows) > 0
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
