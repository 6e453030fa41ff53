package change

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/edit"
	"gpustack/host/journal"
)

// Files is the kind of changes of files.
type Files struct {
	Root host.Root
	// Masked, if not nil, returns the part of a file with secrets that a diff may show.
	Masked func(content []byte) []byte
	// Keep, if not nil, returns what undo keeps of files.
	Keep Keep
}

// Name returns the kind's name in the journal.
func (Files) Name() string { return KindFiles }

// New returns the change for a plan.
func (k Files) New(plan edit.Plan) *FileChange {
	c := &FileChange{root: k.Root, plan: plan.Pending()}
	made := map[string]bool{}
	for _, p := range c.plan {
		f := journal.NewFile(p)
		f.Dirs = slices.DeleteFunc(slices.Clone(f.Dirs), func(d string) bool { return made[d] })
		for _, dir := range f.Dirs {
			made[dir] = true
		}
		c.files = append(c.files, f)
	}
	return c
}

// Open returns the change that an entry records.
func (k Files) Open(_ context.Context, e Entry) (Change, error) {
	return &FileChange{root: k.Root, files: e.Files, status: e.Status, masked: k.Masked}, nil
}

// FileChange is a change of files.
type FileChange struct {
	root   host.Root
	files  []File
	plan   edit.Plan // carried out by Apply
	back   edit.Plan // carried out by Undo
	status Status    // of the entry that it was opened from
	masked func([]byte) []byte
}

// Kind returns the name of its kind.
func (*FileChange) Kind() string { return KindFiles }

// Record adds the files' records to an entry.
func (c *FileChange) Record(e *Entry) error {
	e.Files = append([]File{}, c.files...)
	return nil
}

// Check returns an error if a file was edited since, or if a boot partition with boot entries of
// the change is not mounted: otherwise missing boot entries would count as those of removed
// kernels. Apply itself checks whether files have changed since they were planned.
func (c *FileChange) Check(_ context.Context, p Purpose) error {
	if p == ToApply {
		return nil
	}
	if slices.ContainsFunc(c.files, func(f File) bool { return f.Transient }) {
		if err := boot.Mounted(c.root); err != nil {
			return err
		}
	}
	if p != ToUndo {
		return nil
	}
	_, err := c.Back()
	return err
}

// Back returns the plan that undoes the change, the last file first. Its error names every file
// that prevents the undo.
func (c *FileChange) Back() (edit.Plan, error) {
	var plan edit.Plan
	var errs []error
	for _, f := range slices.Backward(c.files) {
		e, err := f.Undo(c.root)
		errs = append(errs, err)
		if f.Secret {
			e.Shown = c.masked
		}
		plan = append(plan, e)
	}
	return plan, errors.Join(errs...)
}

// Apply makes the change completely or not at all.
func (c *FileChange) Apply(ctx context.Context, _ func() error) (Outcome, error) {
	err := c.plan.Apply(ctx, c.root)
	switch {
	case err == nil:
		return Stands, nil
	case errors.Is(err, edit.ErrTorn):
		return Open, err
	case interrupted(ctx, err):
		return None, fmt.Errorf("%w, all files were rolled back", err)
	}
	return None, err
}

// Undo restores all files or none.
func (c *FileChange) Undo(ctx context.Context, _ func() error) (Outcome, error) {
	var err error
	if c.back, err = c.Back(); err != nil {
		return Open, err
	}
	err = c.restore(ctx)
	switch {
	case err == nil:
		c.plan = nil // the plan that makes the change again
		for i, e := range slices.Backward(c.back) {
			e = e.Inverse()
			e.Dirs = c.files[len(c.files)-1-i].Dirs
			c.plan = append(c.plan, e)
		}
		return Reverted, nil
	case interrupted(ctx, err):
		return Stands, err
	}
	return Open, err
}

// restore carries out the plan that undoes the change, and removes folders that were created for
// the change.
func (c *FileChange) restore(ctx context.Context) error {
	for _, f := range c.files {
		if err := edit.RemoveLeftover(c.root, f.Name); err != nil {
			return err
		}
	}
	if err := c.back.Apply(ctx, c.root); err != nil {
		return err
	}
	for _, f := range slices.Backward(c.files) {
		if err := edit.RemoveDirs(c.root, f.Dirs); err != nil {
			return err
		}
	}
	return nil
}

// Recover restores the files, whether their change or its undo was interrupted.
func (c *FileChange) Recover(ctx context.Context, save func() error) (Outcome, string, error) {
	switch outcome, err := c.Undo(ctx, save); {
	case err != nil:
		return Open, "", err
	case c.status == Applying:
		return None, "", nil
	default:
		return outcome, "", nil
	}
}

// interrupted reports whether an error means that ctx has ended and that nothing is half made.
func interrupted(ctx context.Context, err error) bool {
	cause := context.Cause(ctx)
	return cause != nil && errors.Is(err, cause) && !errors.Is(err, edit.ErrTorn)
}

// Keep returns the content that undo of an entry leaves in one of its files. now is the file's
// content, before is the content that undo would restore; nil means no file. It returns before if
// nothing is to be kept.
type Keep func(e Entry, now, before []byte) ([]byte, error)

// Rewrite returns the entries that must be rewritten so that undo of entry id keeps what Keep
// returns, oldest first: the entry itself and the earlier ones that lead to its files, so that
// they can be undone after it. It is empty if Keep keeps nothing.
func (k Files) Rewrite(entries []Entry, id int) ([]Entry, error) {
	at := slices.IndexFunc(entries, func(e Entry) bool { return e.ID == id })
	if k.Keep == nil || at < 0 {
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
		now, err := edit.Read(k.Root, f.Name)
		if err != nil {
			return nil, err
		}
		c, err := f.Undo(k.Root)
		if err != nil || now == nil || f.Before.Is(now) {
			continue // Check reports it, or there is nothing to keep
		}
		kept, err := k.Keep(entries[at], now.Content, content(c.After))
		if err != nil {
			return nil, err
		}
		if bytes.Equal(kept, content(c.After)) {
			continue
		}
		before, after := c.After, leaving(c.After, now.Meta, kept)
		replace(at, n, f.Between(now, after))
		for i := at - 1; i >= 0; i-- {
			e := entries[i]
			m := slices.IndexFunc(e.Files, func(g File) bool { return g.Name == f.Name })
			if e.Status == Undone || m < 0 {
				continue
			}
			g := e.Files[m]
			if !g.After.Is(before) {
				break // cannot be undone, or was rewritten by a run that was killed
			}
			first := g.Restore(before)
			kept, err := k.Keep(entries[at], now.Content, content(first))
			if err != nil {
				return nil, err
			}
			left := leaving(first, after.Meta, kept)
			replace(i, m, g.Between(after, left))
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

func content(f *edit.File) []byte {
	if f == nil {
		return nil
	}
	return append([]byte{}, f.Content...) // not nil: an empty file exists
}

// leaving returns a file with another content; meta is that of a file that would not exist
// otherwise.
func leaving(f *edit.File, meta edit.Meta, content []byte) *edit.File {
	if f == nil {
		f = &edit.File{Meta: meta}
	}
	return f.With(content)
}
