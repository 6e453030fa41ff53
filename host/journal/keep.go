package journal

import (
	"bytes"
	"slices"

	udiff "github.com/aymanbagabas/go-udiff"

	"gpustack/host"
	"gpustack/host/edit"
)

// Keep returns what undo of an entry is to leave of a file of it: now is the file's
// content, before what undo would make of it, and nil is no file. It returns before where
// nothing is to be left.
type Keep func(e Entry, now, before []byte) ([]byte, error)

// Keeping returns the entries that have to be rewritten so that undoing entry id leaves
// what keep says, oldest first: the entry itself and those before it that lead up to its
// files, so that they can be undone after it. It is empty where keep leaves nothing.
func Keeping(root host.Root, entries []Entry, id int, keep Keep) ([]Entry, error) {
	at := slices.IndexFunc(entries, func(e Entry) bool { return e.ID == id })
	if at < 0 {
		return nil, nil
	}
	rewritten := map[int]Entry{}
	replace := func(i, file int, f File) {
		e, again := rewritten[i]
		if !again {
			e = entries[i]
			e.Files = slices.Clone(e.Files)
		}
		e.Files[file] = f
		rewritten[i] = e
	}
	for n, f := range entries[at].Files {
		now, err := edit.Read(root, f.Name)
		if err != nil {
			return nil, err
		}
		c, err := f.back(root)
		if err != nil || now == nil || f.Before.is(now) {
			continue // Back tells, or there is nothing to leave
		}
		kept, err := keep(entries[at], now.Content, content(c.After))
		if err != nil {
			return nil, err
		}
		if bytes.Equal(kept, content(c.After)) {
			continue
		}
		before, after := c.After, leaving(c.After, now.Meta, kept)
		replace(at, n, f.between(now, after))
		for i := at - 1; i >= 0; i-- {
			e := entries[i]
			m := slices.IndexFunc(e.Files, func(g File) bool { return g.Name == f.Name })
			if e.Status == Undone || m < 0 {
				continue
			}
			g := e.Files[m]
			if !g.After.is(before) {
				break // cannot be undone, or was rewritten by a run that was killed
			}
			var first *edit.File
			if g.Before != nil {
				first = &edit.File{Content: g.assemble(content(before)), Meta: g.Before.Meta}
			}
			kept, err := keep(entries[at], now.Content, content(first))
			if err != nil {
				return nil, err
			}
			left := leaving(first, after.Meta, kept)
			replace(i, m, g.between(after, left))
			before, after = first, left
		}
	}
	var all []Entry
	for i := range at + 1 {
		if e, ok := rewritten[i]; ok {
			all = append(all, e)
		}
	}
	return all, nil
}

// Keep rewrites the journal so that undoing entry id leaves what keep says.
func (j *Journal) Keep(id int, keep Keep) error {
	entries, err := List(j.root)
	if err != nil {
		return err
	}
	rewritten, err := Keeping(j.root, entries, id, keep)
	if err != nil {
		return err
	}
	// Oldest first: should this run be killed, the entry itself still leads to where the
	// next run begins.
	for _, e := range rewritten {
		if err := j.write(e); err != nil {
			return err
		}
	}
	return nil
}

func content(f *edit.File) []byte {
	if f == nil {
		return nil
	}
	return append([]byte{}, f.Content...) // an empty file is one
}

// leaving is a file with another content, or one that would not be there without it.
func leaving(f *edit.File, meta edit.Meta, content []byte) *edit.File {
	if f == nil {
		f = &edit.File{Meta: meta}
	}
	return f.With(content)
}

// between returns the record with other states: the file stays, and so do its folders.
func (f File) between(after, before *edit.File) File {
	f.After, f.Before, f.Dirs = state(after), state(before), nil
	f.Back = pieces(after.Content, before.Content)
	return f
}

// pieces lead from one content of a file to another.
func pieces(from, to []byte) []Piece {
	var all []Piece
	for _, e := range udiff.Lines(string(from), string(to)) {
		all = append(all, Piece{e.Start, e.End - e.Start, []byte(e.New)})
	}
	return all
}
