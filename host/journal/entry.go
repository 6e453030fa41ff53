package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/host/edit"
)

// Dir is where everything that gpustack remembers of a machine lies.
const Dir = "/var/lib/gpustack"

const entriesDir = Dir + "/journal"

// Status tells how far an entry has come.
type Status string

// The statuses of an entry, in the order in which it goes through them. A run
// that was killed leaves one of those that end in -ing.
const (
	Applying   Status = "applying"   // files are being changed
	Rebuilding Status = "rebuilding" // files are changed, programs are to make what derives from them
	Done       Status = "done"
	Undoing    Status = "undoing" // files are being put back
	Unbuilding Status = "unbuilding"
	Undone     Status = "undone"
)

// Entry is one change of a machine.
type Entry struct {
	Schema   int        `json:"schema"`
	ID       int        `json:"id"`
	Kind     string     `json:"kind"`
	Command  string     `json:"command"`
	Status   Status     `json:"status"`
	Started  time.Time  `json:"started"`
	Ended    *time.Time `json:"ended"` // when the status became done or undone
	Files    []File     `json:"files"`
	Programs [][]string `json:"programs"` // run after files have changed, and after they are back
	Left     [][]string `json:"left"`     // programs that somebody else is to run then
	Restart  []string   `json:"restart"`  // services that read the files when they start

	Rows    json.RawMessage `json:"rows"`    // of KindRows: what it takes to take them back
	Drivers json.RawMessage `json:"drivers"` // of KindDrivers: the same
}

// Kinds of entries.
const (
	KindFiles   = "files"
	KindRows    = "rows"    // of a database, and what goes with them
	KindDrivers = "drivers" // of the running machine's functions
)

// File is what was done to one file, and how to get back.
type File struct {
	Name   string   `json:"name"`
	Before *State   `json:"before"` // null: was not there
	After  *State   `json:"after"`  // null: is gone
	Dirs   []string `json:"dirs"`   // made for it
	Back   []Piece  `json:"back"`   // from after to before
	Secret bool     `json:"secret"` // the rest of it may hold secrets, and is not to be shown
	// Transient files may go with what they belong to, and then need nothing.
	Transient bool `json:"transient"`
}

// State is what a file was, without its content.
type State struct {
	Hash string `json:"hash"`
	edit.Meta
}

// Piece is a part of a file that was different before: Length bytes from Offset
// in what it became give way to Text.
type Piece struct {
	Offset int    `json:"offset"`
	Length int    `json:"length"`
	Text   []byte `json:"text"`
}

// record tells how to take a change back.
func record(c edit.Change) File {
	f := File{Name: c.Name, Before: state(c.Before), After: state(c.After), Dirs: c.Dirs, Secret: c.Shown != nil, Transient: c.Transient}
	if c.Before == nil {
		return f // there is nothing to get back to
	}
	var after []byte
	if c.After != nil {
		after = c.After.Content
	}
	f.Back = pieces(after, c.Before.Content)
	return f
}

func state(f *edit.File) *State {
	if f == nil {
		return nil
	}
	return &State{f.Hash(), f.Meta}
}

// is tells whether the file is in that state.
func (s *State) is(f *edit.File) bool {
	if s == nil || f == nil {
		return s == nil && f == nil
	}
	return s.Hash == f.Hash() && s.Mode == f.Mode && s.UID == f.UID && s.GID == f.GID
}

// ErrEdited says that somebody has changed a file since, so that it cannot be put
// back without losing that.
var ErrEdited = errors.New("was changed by somebody else since")

// back is the change that puts the file back. It is a change of action none
// where that is done already.
func (f File) back(root host.Root) (edit.Change, error) {
	now, err := edit.Read(root, f.Name)
	if err != nil {
		return edit.Change{}, err
	}
	if f.Before.is(now) || f.Transient && now == nil {
		return edit.Change{Name: f.Name, Before: now, After: now}, nil
	}
	if !f.After.is(now) {
		return edit.Change{}, fmt.Errorf("%s: %w", f.Name, ErrEdited)
	}
	c := edit.Change{Name: f.Name, Before: now}
	if f.Before == nil {
		return c, nil
	}
	var content []byte
	if now != nil {
		content = now.Content
	}
	before := &edit.File{Content: f.assemble(content), Meta: f.Before.Meta}
	if !f.Before.is(before) {
		return edit.Change{}, fmt.Errorf("%s: the journal does not lead back to what it was", f.Name)
	}
	c.After = before
	return c, nil
}

// Previous returns the file as it was before the change, given the file as it was after it. It
// returns false if that is not what the change left.
func (f File) Previous(after *edit.File) (*edit.File, bool) {
	if f.After == nil != (after == nil) || after != nil && f.After.Hash != after.Hash() {
		return nil, false
	}
	if f.Before == nil {
		return nil, true
	}
	var content []byte
	if after != nil {
		content = after.Content
	}
	before := &edit.File{Content: f.assemble(content), Meta: f.Before.Meta}
	return before, before.Hash() == f.Before.Hash
}

// Replaced returns the lines of the file that the change replaced or removed, nil if it made the
// file.
func (f File) Replaced() []byte {
	if f.Before == nil {
		return nil
	}
	lines := []byte{}
	for _, p := range f.Back {
		lines = append(lines, p.Text...)
	}
	return lines
}

// assemble puts the pieces in their places; where they have none, the result has
// another hash.
func (f File) assemble(after []byte) []byte {
	var b bytes.Buffer
	at := 0
	for _, p := range f.Back {
		if p.Offset < at || p.Length < 0 || p.Offset > len(after) || p.Length > len(after)-p.Offset {
			return nil
		}
		b.Write(after[at:p.Offset])
		b.Write(p.Text)
		at = p.Offset + p.Length
	}
	b.Write(after[at:])
	return b.Bytes()
}

// List returns the entries, oldest first. It needs no lock.
func List(root host.Root) ([]Entry, error) {
	names, err := root.ReadDir(entriesDir)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", entriesDir, host.Cause(err))
	}
	var entries []Entry
	for _, name := range names {
		number, ok := strings.CutSuffix(name, ".json")
		id, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue // what a killed run left
		}
		data, err := root.ReadFile(path.Join(entriesDir, name))
		if err == nil {
			var e Entry
			if e, err = parseEntry(data, id); err == nil {
				entries = append(entries, e)
			}
		}
		if err != nil {
			return nil, fmt.Errorf("%s/%s: %w", entriesDir, name, host.Cause(err))
		}
	}
	slices.SortFunc(entries, func(a, b Entry) int { return a.ID - b.ID })
	return entries, nil
}

const schema = 1

func parseEntry(data []byte, id int) (Entry, error) {
	var e Entry
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&e); err != nil {
		return Entry{}, fmt.Errorf("not a journal entry: %w", err)
	}
	switch {
	case e.Schema != schema:
		return Entry{}, fmt.Errorf("schema %d was written by another release of gpustack", e.Schema)
	case e.ID != id:
		return Entry{}, fmt.Errorf("holds entry %d", e.ID)
	case !slices.Contains([]string{KindFiles, KindRows, KindDrivers}, e.Kind):
		return Entry{}, fmt.Errorf("unknown kind %q", e.Kind)
	case !slices.Contains([]Status{Applying, Rebuilding, Done, Undoing, Unbuilding, Undone}, e.Status):
		return Entry{}, fmt.Errorf("unknown status %q", e.Status)
	}
	return e, nil
}

// Interrupted returns the entry of files or drivers that a killed run left half done, or
// nil. With ErrLocked it returns the one that a run is at now. What became of rows only
// their database tells.
func Interrupted(root host.Root) (*Entry, error) {
	left, err := unfinished(root)
	if err != nil || left == nil {
		return nil, err
	}
	// A run that opens the journal in this very moment finds it locked, and says so.
	lock, err := lockDir(root, unix.LOCK_SH)
	if errors.Is(err, ErrLocked) {
		return left, fmt.Errorf("entry %d (%s): %w", left.ID, left.Command, ErrLocked)
	}
	if err != nil {
		return nil, err
	}
	defer lock.Close()      //nolint:errcheck // nothing was written
	return unfinished(root) // it may have come to its end in between
}

// OpenRows returns the entries of database rows whose run has not come to its end: only the
// database, and Placement, say what became of each. It returns ErrLocked while a run of
// gpustack may be working on them.
func OpenRows(root host.Root) ([]Entry, error) {
	open, err := openRows(root)
	if err != nil || len(open) == 0 {
		return nil, err
	}
	lock, err := lockDir(root, unix.LOCK_SH)
	if err != nil {
		return nil, err
	}
	defer lock.Close()    //nolint:errcheck // nothing was written
	return openRows(root) // it may have come to its end in between
}

func openRows(root host.Root) (open []Entry, err error) {
	entries, err := List(root)
	for _, e := range entries {
		if e.Kind == KindRows && e.Status != Done && e.Status != Undone {
			open = append(open, e)
		}
	}
	return open, err
}

func unfinished(root host.Root) (*Entry, error) {
	entries, err := List(root)
	for i := range entries {
		if s := entries[i].Status; s != Done && s != Undone && entries[i].Kind != KindRows {
			return &entries[i], err
		}
	}
	return nil, err
}

func (e Entry) name() string {
	return fmt.Sprintf("%s/%04d.json", entriesDir, e.ID)
}
