package cleanup

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
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

	Findings []Finding `json:"-"` // that it was planned from
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

// Name is what a unit is about: the migration that it closes, or its devices.
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

// Back are the changes that take a unit's rows back, the last first.
func (u Unit) Back() []Row {
	var back []Row
	for _, row := range slices.Backward(u.Rows) {
		back = append(back, row.back())
	}
	return back
}

// Open reports whether a unit was begun, and it is not known what became of it. Releases
// before the state Begun left those planned, with their rows.
func (u Unit) Open() bool {
	return u.State == Begun || u.State == Planned && len(u.Rows) > 0
}

// With returns the row with some columns changed.
func (r Row) With(after map[string]*string) Row {
	r.After = maps.Clone(r.Before)
	maps.Copy(r.After, after)
	return r
}

// back is the change that undoes this one.
func (r Row) back() Row {
	r.Before, r.After = r.After, r.Before
	return r
}
