package change

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/edit"
	"gpustack/host/journal"
)

// Rewriting is a list of entries as they must be rewritten before one of them is undone, because
// its files are not as the change left them, or because part of the change is kept.
type Rewriting struct {
	Entries  []Entry  // oldest first; the last is the one to be undone
	Kept     []string // files of which undo keeps a part of the change
	ByValue  []string // files that were changed since, in which only gpustack's values are undone
	Replaced []string // files that were edited between changes that are undone, in which a later one has replaced the edit
	Beside   []string // files that got gpustack's values from others, in which they are undone too
}

// LaterChange is the error of files that a later entry changed, which must be undone first.
type LaterChange struct {
	Later Entry
	Files []string
}

func (e *LaterChange) Error() string {
	return fmt.Sprintf("entry %d (%s) changed %s later: undo entry %d first", e.Later.ID, e.Later.Command, strings.Join(e.Files, ", "), e.Later.ID)
}

// Refusal returns the code of the error: no option lifts it.
func (*LaterChange) Refusal() (code host.Code, allow string) { return host.CodeLaterEntry, "" }

// Hint returns the command that undoes the later entry.
func (e *LaterChange) Hint() string { return e.HintText().String() }

// HintText returns the hint with its command as a part.
func (e *LaterChange) HintText() host.Text {
	return host.NewCommand("undo").Arg(strconv.Itoa(e.Later.ID)).Text()
}

// Rewrite returns how entries must be rewritten before entry id is undone or recovered: so that the
// entry leads from what its files are now to what undo leaves in them. Then the undo is recorded
// before it is made, and can be completed or reverted like every other. The rewriting is empty if
// the files are as the change left them and Keep keeps nothing.
//
// A file that was changed since, and whose change is recorded by value, is undone by value; so are
// boot entries that have come since. With Keep, earlier entries that lead to the file are rewritten
// too, so that they can be undone afterwards. Where all changes are undone, an edit that a later
// change has replaced prevents nothing.
//
// Errors: of all files that prevent the undo, the last file first: *LaterChange, ErrEdited, and
// those of Revert.
func (k Files) Rewrite(entries []Entry, id int) (Rewriting, error) {
	at := slices.IndexFunc(entries, func(e Entry) bool { return e.ID == id })
	if at < 0 || entries[at].Changes != KindFiles {
		return Rewriting{}, nil
	}
	r := rewriting{Files: k, entries: entries, at: at, rewritten: map[int]Entry{}}
	entry := entries[at]
	for n, f := range slices.Backward(entry.Files) {
		r.fail(r.file(n, f))
	}
	r.fail(r.beside())
	if err := errors.Join(r.errs...); err != nil {
		return Rewriting{}, err
	}
	r.Entries = host.Map(slices.Sorted(maps.Keys(r.rewritten)), func(i int) Entry { return r.rewritten[i] })
	slices.Reverse(r.Kept)
	slices.Reverse(r.ByValue)
	return r.Rewriting, nil
}

// rewriting is the work of Rewrite.
type rewriting struct {
	Files
	Rewriting
	entries   []Entry
	at        int           // of the entry that is undone
	rewritten map[int]Entry // by their place in entries
	errs      []error
}

// fail notes an error. Files that the same later entry changed are in one error.
func (r *rewriting) fail(err error) {
	var later *LaterChange
	if !errors.As(err, &later) {
		r.errs = append(r.errs, err)
		return
	}
	for _, e := range r.errs {
		var same *LaterChange
		if errors.As(e, &same) && same.Later.ID == later.Later.ID {
			same.Files = append(later.Files, same.Files...)
			return
		}
	}
	r.errs = append(r.errs, later)
}

// replace replaces the record of a file in an entry, or adds one.
func (r *rewriting) replace(i, file int, f File) {
	e, again := r.rewritten[i]
	if !again {
		e = r.entries[i]
		e.Files = slices.Clone(e.Files)
	}
	if file == len(e.Files) {
		e.Files = append(e.Files, f)
	}
	e.Files[file] = f
	r.rewritten[i] = e
}

// file rewrites the record of a file of the entry, if necessary.
func (r *rewriting) file(n int, f File) error {
	now, err := r.ahead.read(r.Root, f.Name)
	if err != nil {
		return err
	}
	c, byValue, err := r.undo(f, now)
	// If a later entry has reverted the change, its undo would make it again.
	if s := r.entries[r.at].Status; byValue || s == Done || s == Rebuilding {
		if err := r.later(f.Name); err != nil {
			return err
		}
	}
	if err != nil || f.Before.Is(now) {
		return err
	}
	if after, ok := r.together(f, now, c.After); ok && !byValue {
		r.Replaced = append(r.Replaced, f.Name)
		r.replace(r.at, n, f.Between(now, after))
		return nil
	}
	if now == nil {
		return nil
	}
	kept := content(c.After)
	if r.Keep != nil && r.entries[r.at].Status != Applying { // what never took effect is not kept
		if kept, err = r.Keep(r.entries[r.at], now.Content, kept); err != nil {
			return err
		}
	}
	keeps := !bytes.Equal(kept, content(c.After))
	if !byValue && !keeps {
		return nil
	}
	if byValue && c.Action() != edit.None {
		r.ByValue = append(r.ByValue, f.Name)
	}
	after := c.After
	if keeps {
		r.Kept = append(r.Kept, f.Name)
		after = leaving(c.After, now.Meta, kept)
	}
	r.replace(r.at, n, f.Between(now, after))
	if !keeps {
		return nil
	}
	return r.earlier(f.Name, now, c.After, after)
}

// earlier rewrites the records of a file in earlier entries, of which the entry keeps a part: where
// they led to before, they must lead to after.
func (r *rewriting) earlier(name string, now, before, after *edit.File) error {
	for i := r.at - 1; i >= 0; i-- {
		e := r.entries[i]
		m := slices.IndexFunc(e.Files, func(g File) bool { return g.Name == name })
		if e.Status == Undone || m < 0 {
			continue
		}
		g := e.Files[m]
		if !g.After.Is(before) {
			break // cannot be undone, or was rewritten by a run that was killed
		}
		first := g.Restore(before)
		kept, err := r.Keep(r.entries[r.at], now.Content, content(first))
		if err != nil {
			return err
		}
		left := leaving(first, after.Meta, kept)
		r.replace(i, m, g.Between(after, left))
		before, after = first, left
	}
	return nil
}

// undo returns the change that undoes the change of a file, and whether it does so by value.
func (r *rewriting) undo(f File, now *edit.File) (c edit.Change, byValue bool, err error) {
	if c, err = f.Undo(r.Root, now); errors.Is(err, ErrEdited) {
		c, err = r.byValue(f, now)
		return c, true, err
	}
	return c, false, err
}

// together returns what the undo of all changes leaves of a file where the change before f cannot be
// undone from before: the file was edited between both, and f has replaced the edit. What is now is
// as the change before f, or the machine before that, had it, or else of gpustack alone.
func (r *rewriting) together(f File, now, before *edit.File) (*edit.File, bool) {
	if !r.all {
		return nil, false
	}
	for _, e := range slices.Backward(r.entries[:r.at]) {
		i := slices.IndexFunc(e.Files, func(g File) bool { return g.Name == f.Name })
		if e.Status == Undone || i < 0 {
			continue
		}
		g := e.Files[i]
		if _, _, err := r.undo(g, before); err == nil {
			return nil, false
		}
		if _, err := g.Undo(r.Root, now); err == nil {
			return now, true
		}
		return nil, g.Before == nil && g.Meaning == nil
	}
	return nil, false
}

// byValue returns the change that undoes the change of a file by value.
func (r *rewriting) byValue(f File, now *edit.File) (edit.Change, error) {
	if f.Meaning == nil || now == nil {
		return edit.Change{}, fmt.Errorf("%s: %w", f.Name, ErrEdited)
	}
	return r.revert(f.Name, *f.Meaning, now, false)
}

// revert returns the change that undoes values in a file.
func (r *rewriting) revert(name string, m edit.Meaning, now *edit.File, inherited bool) (edit.Change, error) {
	revert := r.Reverts[m.Grammar]
	if revert == nil {
		revert = boot.Revert
	}
	left, err := revert(name, m, now.Content, inherited)
	c := edit.Change{Name: name, Before: now}
	if left != nil {
		c.After = now.With(left)
	}
	return c, err
}

// later returns an error if a later entry changed a file too.
func (r *rewriting) later(name string) error {
	for _, e := range slices.Backward(r.entries[r.at+1:]) {
		if e.Changes == KindFiles && e.Status != Undone && slices.ContainsFunc(e.Files, func(f File) bool { return f.Name == name }) {
			return &LaterChange{Later: e, Files: []string{name}}
		}
	}
	return nil
}

// beside adds records of files that the change did not change, but that got its values since: boot
// entries that refer to a variable, those of kernels that were installed since, and the arguments
// of later kernels.
func (r *rewriting) beside() error {
	entry := r.entries[r.at]
	inherited := slices.DeleteFunc(slices.Clone(entry.Unchanged), func(u journal.Unchanged) bool { return len(u.Meaning.Values) == 0 })
	known := host.Map(entry.Unchanged, func(u journal.Unchanged) boot.Known { return boot.Known(u) })
	known = append(known, host.Map(entry.Files, func(f File) boot.Known { return boot.Known{Name: f.Name, Meaning: host.Value(f.Meaning)} })...)
	since, err := boot.Since(r.Root, known)
	if err != nil {
		return err
	}
	inherited = append(inherited, host.Map(since, func(s boot.Known) journal.Unchanged { return journal.Unchanged(s) })...)
	var errs []error
	for _, u := range inherited {
		now, err := r.ahead.read(r.Root, u.Name)
		if err != nil || now == nil { // removed with its kernel
			errs = append(errs, err)
			continue
		}
		c, err := r.revert(u.Name, u.Meaning, now, true)
		if err == nil && c.Action() != edit.None {
			err = r.later(u.Name)
		}
		if err != nil || c.Action() == edit.None {
			errs = append(errs, err)
			continue
		}
		f := File{Name: u.Name, Transient: true, Meaning: &u.Meaning}
		files := entry.Files
		if e, ok := r.rewritten[r.at]; ok {
			files = e.Files
		}
		r.Beside = append(r.Beside, u.Name)
		r.replace(r.at, len(files), f.Between(now, c.After))
	}
	return errors.Join(errs...)
}

// mounted returns an error if files of an entry are on a boot partition that is not mounted:
// otherwise its boot entries would count as those of removed kernels.
func mounted(root host.Root, files []File) error {
	if slices.ContainsFunc(files, func(f File) bool { return f.Transient }) {
		return boot.Mounted(root)
	}
	return nil
}
