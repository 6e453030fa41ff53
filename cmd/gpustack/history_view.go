package main

import (
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/repair"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
	"gpustack/nova/image"
	"gpustack/operate/node"
)

// historyEntry is an entry of the journal in documents. The journal's own format, which also has
// what undo needs, is internal to gpustack.
type historyEntry struct {
	Journal  string               `json:"journal"` // the folder of the journal that contains the entry
	Entry    int                  `json:"entry"`
	Kind     string               `json:"kind"`
	Command  string               `json:"command"`
	Status   change.Status        `json:"status"`
	Started  time.Time            `json:"started"`
	Ended    *time.Time           `json:"ended"`
	Origin   *change.Origin       `json:"origin"` // null: an earlier commit has recorded the entry
	Files    []string             `json:"files"`
	Changes  []recordedChange     `json:"changes"`
	Drivers  []views.DriverChange `json:"drivers"`
	Stop     [][]string           `json:"stop"`
	Start    [][]string           `json:"start"`
	Repairs  []cleanup.Unit       `json:"repairs"`
	Flavor   *flavorChange        `json:"flavor"`
	Image    *imageChange         `json:"image_change"`
	Programs []string             `json:"programs"`
	Left     []string             `json:"left"`
	Restart  []string             `json:"restart"`
	Problem  *string              `json:"problem"` // why the drivers, repairs or flavor cannot be read
}

// imageChange is a change of an image in its cloud.
type imageChange struct {
	cloud.Scope
	image.Move
}

// flavorChange is a change of a flavor in its cloud.
type flavorChange struct {
	cloud.Scope
	Before *flavor.State `json:"before"` // null: the flavor was created
	After  *flavor.State `json:"after"`  // null: the flavor was deleted
}

// recordedChange is the change of one file, as the journal shows it.
type recordedChange struct {
	File   string      `json:"file"`
	Action edit.Action `json:"action"`
	Diff   string      `json:"diff"`
	Note   string      `json:"note"` // why the diff is not complete; "" if it is
}

// newHistoryEntry returns entry i of the entries of a store.
func newHistoryEntry(store change.Store, entries []change.Entry, i int) historyEntry {
	e := entries[i]
	h := historyEntry{
		Journal: store.Path(), Origin: e.Origin, Changes: []recordedChange{}, Entry: e.ID, Kind: e.Kind, Command: e.Command, Status: e.Status,
		Started: e.Started, Ended: e.Ended,
		Files: []string{}, Drivers: []views.DriverChange{}, Stop: [][]string{}, Start: [][]string{}, Repairs: []cleanup.Unit{},
		Programs: views.CommandLines(e.Programs), Left: views.CommandLines(e.Left), Restart: append([]string{}, e.Restart...),
	}
	for _, f := range e.Files {
		h.Files = append(h.Files, f.Name)
	}
	for _, p := range node.RecordedFiles(store.Root).Past(entries, i) {
		h.Changes = append(h.Changes, recordedChange{p.Name, p.Action, p.Diff, p.Note})
	}
	if err := h.addDetail(e); err != nil {
		text := inOneLine(err)
		h.Problem = &text
	}
	return h
}

// addDetail adds what the kind of an entry records beside files.
func (h *historyEntry) addDetail(e change.Entry) error {
	switch e.Kind {
	case change.KindDrivers:
		r, err := driver.ParseRecord(e)
		if err != nil {
			return err
		}
		h.Drivers = views.DriverChanges(driver.Plan{Changes: r.Functions})
		h.Stop, h.Start = r.Services.Before(), r.Services.Afterwards()
	case change.KindRows:
		units, err := repair.Units(e)
		if err != nil {
			return err
		}
		h.Repairs = units
	case change.KindObjects:
		if _, err := recordedObject(e); err != nil {
			return err
		}
		if e.ObjectType() == flavor.Type {
			r, err := flavor.ParseRecord(e)
			if err != nil {
				return err
			}
			h.Flavor = &flavorChange{r.Scope, r.Before, r.After}
		}
		if e.ObjectType() == image.Type {
			r, err := image.ParseRecord(e)
			if err != nil {
				return err
			}
			h.Image = &imageChange{r.Scope, r.Move}
		}
	}
	return nil
}
