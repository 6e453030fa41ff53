package journal

import (
	"bytes"
	"errors"
	"fmt"
	"slices"

	udiff "github.com/aymanbagabas/go-udiff"

	"gpustack/host"
	"gpustack/host/edit"
)

// File is the record of the change of one file, with what is needed to restore it.
type File struct {
	Name   string   `json:"name"`
	Before *State   `json:"before"`           // null: the file did not exist
	After  *State   `json:"after"`            // null: the file was removed
	Dirs   []string `json:"dirs"`             // folders created for it
	Back   []Piece  `json:"back"`             // turns the content after the change into that before it
	Secret bool     `json:"secret,omitempty"` // the rest of the file may hold secrets and must not be shown
	// Transient files may be removed with what they belong to, and then need no undo.
	Transient bool `json:"transient,omitempty"`
	// Meaning is the change by its values, if other programs write the file too.
	Meaning *edit.Meaning `json:"meaning,omitempty"`
}

// Unchanged is a file that a change left as it was, but that gets or may get values of the change
// from other files: by a variable of the boot loader, or by a program that rewrites it.
type Unchanged struct {
	Name    string       `json:"name"`
	Meaning edit.Meaning `json:"meaning"`
}

// State is the state of a file without its content.
type State struct {
	Hash string `json:"hash"`
	edit.Meta
}

// Piece is a part of a file that differed before the change: Text replaces the Length bytes at
// Offset of the content after the change.
type Piece struct {
	Offset int    `json:"offset"`
	Length int    `json:"length"`
	Text   []byte `json:"text"`
}

// NewFile returns the record of a change of a file.
func NewFile(c edit.Change) File {
	f := File{Name: c.Name, Before: state(c.Before), After: state(c.After), Dirs: c.Dirs, Secret: c.Shown != nil, Transient: c.Transient}
	if c.After != nil {
		f.Meaning = c.Meaning
	}
	if c.Before == nil {
		return f // there is no content to start from
	}
	f.Back = pieces(host.Value(c.After).Content, c.Before.Content)
	return f
}

func state(f *edit.File) *State {
	if f == nil {
		return nil
	}
	return &State{f.Hash(), f.Meta}
}

// Is reports whether a file is in that state. A nil state means that no file exists.
func (s *State) Is(f *edit.File) bool {
	return s.holds(f) && (s == nil || s.Mode == f.Mode && s.UID == f.UID && s.GID == f.GID)
}

// holds reports whether a file has the content of that state.
func (s *State) holds(f *edit.File) bool {
	if s == nil || f == nil {
		return s == nil && f == nil
	}
	return s.Hash == f.Hash()
}

// ErrEdited means that a file was edited after gpustack had changed it: undo would lose that edit.
var ErrEdited = host.WithHint(host.WithCode(errors.New("was edited since"), host.CodeEdited, ""), host.Textf("revert that edit, then run %s again",
	host.NewCommand("undo")))

// Undo returns the change that restores the file, which is as now. Its action is none if the file
// is already restored. Permissions and an owner that it got since remain: they are no content.
//
// Errors: ErrEdited.
func (f File) Undo(root host.Root, now *edit.File) (edit.Change, error) {
	before, ok := f.Previous(now)
	switch {
	case f.Before.Is(now), !f.After.holds(now) && f.Before.holds(now), f.Transient && now == nil:
		return edit.Change{Name: f.Name, Before: now, After: now}, nil
	case !f.After.holds(now):
		return edit.Change{}, fmt.Errorf("%s: %w", f.Name, ErrEdited)
	case !ok:
		return edit.Change{}, fmt.Errorf("%s: the journal does not lead back to its former content", f.Name)
	case before == nil:
		return edit.Change{Name: f.Name, Before: now}, nil
	case !f.After.Is(now):
		before = now.With(before.Content)
	}
	c, err := edit.Put(root, f.Name, before.Content, before.Mode, true) // creates its folders if they were removed since
	c.Before, c.After, c.Purpose = now, before, "restored"              // gpustack removes no files of others
	return c, err
}

// Restore returns the file before the change, computed from the file after it, or nil if it did
// not exist. The hash shows whether the result is right.
func (f File) Restore(after *edit.File) *edit.File {
	if f.Before == nil {
		return nil
	}
	return &edit.File{Content: f.assemble(host.Value(after).Content), Meta: f.Before.Meta}
}

// Previous returns the file before the change, computed from the file after it. It returns false
// if after is not the file that the change left.
func (f File) Previous(after *edit.File) (*edit.File, bool) {
	if !f.After.holds(after) {
		return nil, false
	}
	before := f.Restore(after)
	return before, before == nil || before.Hash() == f.Before.Hash
}

// Then returns the file as the change left it: as it is now, or as it was before later changes of
// it, whose records are given oldest first. It returns false if that cannot be determined.
func (f File) Then(now *edit.File, later []File) (*edit.File, bool) {
	if f.After == nil {
		return nil, true
	}
	is := func(file *edit.File) bool { return file != nil && f.After.Hash == file.Hash() }
	for _, l := range slices.Backward(later) {
		if is(now) {
			break
		}
		if before, ok := l.Previous(now); ok {
			now = before
		}
	}
	return now, is(now)
}

// Replaced returns the lines of the file that the change replaced or removed, nil if it created
// the file.
func (f File) Replaced() []byte {
	if f.Before == nil {
		return nil
	}
	lines := []byte{}
	lines = append(lines, host.FlatMap(f.Back, func(p Piece) []byte { return p.Text })...)
	return lines
}

// assemble inserts the pieces at their offsets. If they do not fit, the hash of the result
// differs.
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

// Between returns the record with two other states of the file. If it exists in both, its folders
// remain.
func (f File) Between(after, before *edit.File) File {
	f.After, f.Before, f.Back = state(after), state(before), nil
	if before == nil {
		return f
	}
	f.Dirs = nil
	f.Back = pieces(host.Value(after).Content, before.Content)
	return f
}

// pieces returns the pieces that turn one content of a file into another.
func pieces(from, to []byte) []Piece {
	return host.Map(udiff.Lines(string(from), string(to)), func(e udiff.Edit) Piece { return Piece{e.Start, e.End - e.Start, []byte(e.New)} })
}
