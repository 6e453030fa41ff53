package change

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/journal"
	"gpustack/host/pci"
)

// Files is the kind of changes of files.
type Files struct {
	Root host.Root
	// Masked, if not nil, returns the part of a file with secrets that a diff may show.
	Masked func(content []byte) []byte
	// Keep, if not nil, returns what undo keeps of files.
	Keep Keep
	// Reverts undo changes by value. Those of host/boot's grammars need not be among them.
	Reverts map[string]Revert
	// Permit, if not nil, returns an error that names everything on the machine that prevents files
	// from being changed as planned, whether a change is made or undone: what they configure may be in
	// use. It is asked before anything is changed. It also returns what --allow lifts.
	Permit func(plan edit.Changes) ([]pci.Identity, error)

	ahead ahead
	all   bool // every change is undone
}

// ahead are files as the undos leave them that are planned before another; nil means no file.
type ahead map[string]*edit.File

// read returns a file as these undos leave it.
func (a ahead) read(root host.Root, name string) (*edit.File, error) {
	if f, ok := a[name]; ok {
		return f, nil
	}
	return edit.Read(root, name)
}

// Revert returns the content of a file of a grammar in which the values of a change are as before
// it, or nil if the file is to be removed. Everything else remains. inherited means that the file
// got the values from another one.
//
// Errors: all values that were changed since, each an *edit.ChangedValue.
type Revert func(file string, m edit.Meaning, now []byte, inherited bool) ([]byte, error)

// Name returns the kind's name in the journal.
func (Files) Name() string { return KindFiles }

// New returns the change for a plan.
func (k Files) New(plan edit.Changes) *FileChange {
	c := &FileChange{root: k.Root, plan: plan.Pending(), permit: k.Permit}
	for _, p := range plan {
		if p.Action() == edit.None && p.Meaning != nil {
			c.unchanged = append(c.unchanged, journal.Unchanged{Name: p.Name, Meaning: *p.Meaning})
		}
	}
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
	return &FileChange{root: k.Root, files: e.Files, unchanged: e.Unchanged, status: e.Status, masked: k.Masked, permit: k.Permit, ahead: k.ahead}, nil
}

// FileChange is a change of files.
type FileChange struct {
	root  host.Root
	files []File
	// unchanged are files that are recorded although the change leaves them as they are.
	unchanged []journal.Unchanged
	plan      edit.Changes // carried out by Apply
	back      edit.Changes // carried out by Undo
	status    Status       // of the entry that it was opened from
	masked    func([]byte) []byte
	permit    func(edit.Changes) ([]pci.Identity, error)
	lifted    []pci.Identity // by the last Check
	ahead     ahead
}

// Kind returns the name of its kind.
func (*FileChange) Kind() string { return KindFiles }

// Record adds the files' records to an entry.
func (c *FileChange) Record(e *Entry) error {
	e.Files, e.Unchanged = append([]File{}, c.files...), c.unchanged
	return nil
}

// Check returns an error if a file was edited since, if a boot partition with boot entries of the
// change is not mounted (otherwise missing boot entries would count as those of removed kernels),
// or if Permit does not permit the change or its undo. Apply itself checks whether files have
// changed since they were planned.
func (c *FileChange) Check(_ context.Context, p Purpose) error {
	if p == ToApply {
		return c.permits(c.plan)
	}
	if err := mounted(c.root, c.files); err != nil || p != ToUndo {
		return err
	}
	back, err := c.Back()
	if err != nil {
		return err
	}
	for name, f := range c.ahead { // what the others leave recorded
		if !slices.ContainsFunc(back, func(b edit.Change) bool { return b.Name == name }) {
			back = append(back, edit.Change{Name: name, Before: f, After: f})
		}
	}
	return c.permits(back)
}

func (c *FileChange) permits(plan edit.Changes) (err error) {
	if c.permit != nil {
		c.lifted, err = c.permit(plan)
	}
	return err
}

// Lifted returns the refusals that --allow has lifted, as of the last Check.
func (c *FileChange) Lifted() []pci.Identity { return c.lifted }

// Back returns the plan that undoes the change, the last file first. Its error names every file
// that prevents the undo.
func (c *FileChange) Back() (edit.Changes, error) {
	var plan edit.Changes
	var errs []error
	for _, f := range slices.Backward(c.files) {
		now, err := c.ahead.read(c.root, f.Name)
		errs = append(errs, err)
		e, err := f.Undo(c.root, now)
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

// Undo restores all files or none, and removes folders that were created for the change.
func (c *FileChange) Undo(ctx context.Context, _ func() error) (Outcome, error) {
	var err error
	if c.back, err = c.Back(); err != nil {
		return Open, err
	}
	for _, f := range c.files {
		if err := edit.RemoveLeftover(c.root, f.Name); err != nil {
			return Stands, err
		}
	}
	if err := c.back.Apply(ctx, c.root); errors.Is(err, edit.ErrTorn) {
		return Open, err
	} else if err != nil {
		return Stands, err
	}
	for _, f := range slices.Backward(c.files) {
		if err := edit.RemoveDirs(c.root, f.Dirs); err != nil {
			return Open, err
		}
	}
	c.plan = nil // the plan that makes the change again
	for i, e := range slices.Backward(c.back) {
		e = e.Inverse()
		e.Dirs = c.files[len(c.files)-1-i].Dirs
		c.plan = append(c.plan, e)
	}
	return Reverted, nil
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
