package change

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/host/journal"
	"gpustack/host/pci"
)

// Engine makes and undoes changes, and records them in one store.
type Engine struct {
	Store Store
	// Kinds are the kinds that this engine can undo and recover.
	Kinds []Kind
	// Run runs a program on the machine that the files belong to.
	Run func(ctx context.Context, program host.Program) error
	// Current, if not nil, returns recorded programs adapted to the machine: programs that run once
	// for each kernel are run for the installed kernels.
	Current func(recorded []host.Program) ([]host.Program, error)
	// Origin is recorded in new entries.
	Origin Origin
	// All means that every change of files is undone, as [Engine.PlanUndoAll] has planned.
	All bool

	ahead ahead
}

// Work is a change with the programs that regenerate files after it. They are run, or left to the
// operator.
type Work struct {
	Command  string // the command line, for the journal
	About    *Topic // of changes of files
	Change   Change
	Programs []host.Program
	Left     []host.Program
	Restart  []string
}

// lifted returns the refusals of a change, or of its undo, that --allow has lifted. Its entry
// records them: what carries the change out honours them, and so does its recovery.
func lifted(c Change) []pci.Identity {
	if l, ok := c.(interface{ Lifted() []pci.Identity }); ok {
		return l.Lifted()
	}
	return nil
}

// running is a change that is being made, under the journal's lock.
type running struct {
	Engine
	journal *journal.Journal
	entry   Entry
	change  Change
}

// save writes the entry with what the change records.
func (r *running) save() error {
	if err := r.change.Record(&r.entry); err != nil {
		return err
	}
	return r.journal.Write(r.entry)
}

// Apply makes a change and runs its programs. It returns the entry, without a number if nothing
// was recorded or the entry was removed. If a program fails, the change remains and the entry has
// the status rebuilding: the next run continues from there, or the change is undone.
//
// When ctx ends, the current step is completed first. Then the change is rolled back, and programs
// that were started are run again. If that fails, the next run recovers the entry.
func (e Engine) Apply(ctx context.Context, w Work) (entry Entry, err error) {
	if cause := context.Cause(ctx); cause != nil {
		return Entry{}, fmt.Errorf("%w, nothing was changed", cause)
	}
	j, err := e.Store.Lock()
	if err != nil {
		return Entry{}, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	if err := w.Change.Check(ctx, ToApply); err != nil {
		return Entry{}, err
	}
	r := &running{e, j, Entry{
		Changes: w.Change.Kind(), Command: w.Command, About: w.About, Origin: e.Origin,
		Programs: w.Programs, Left: w.Left, Restart: w.Restart, Allowed: lifted(w.Change),
	}, w.Change}
	if err := w.Change.Record(&r.entry); err != nil {
		return Entry{}, err
	}
	if err := j.Begin(&r.entry); err != nil {
		return Entry{}, err
	}
	outcome, err := w.Change.Apply(ctx, r.save)
	if outcome != Stands || err != nil {
		return r.end(outcome, err)
	}
	begun, err := r.build(ctx, Done)
	switch {
	case context.Cause(ctx) != nil && len(w.Programs) > 0:
		return r.abandon(ctx, begun, err)
	case err != nil:
		return r.entry, err
	}
	return r.end(Stands, nil)
}

// end writes the status for an outcome.
func (r *running) end(outcome Outcome, err error) (Entry, error) {
	status := r.entry.Status
	switch outcome {
	case None:
		return Entry{}, errors.Join(err, r.journal.Forget(r.entry))
	case Stands, Partly:
		status = Done
	case Reverted:
		status = Undone
	case Open:
	}
	recordErr := r.change.Record(&r.entry)
	if recordErr == nil {
		recordErr = r.mark(status)
	}
	return r.entry, errors.Join(err, recordErr)
}

// mark writes a status of the entry when something is done. If that fails, as on a full disk, the
// entry keeps the status that says how to recover it.
func (r *running) mark(status Status) error {
	err := r.journal.SetStatus(&r.entry, status)
	if err == nil {
		return nil
	}
	left := Left{Entry: r.entry}
	return host.WithHint(fmt.Errorf("entry %d is left open, and %s: %w", r.entry.ID, left.Effect(), err), left.Remedy())
}

// abandon rolls back a change that is made, and runs the programs again that were started. failed
// is the error of a program, if one failed in addition to the end of ctx.
func (r *running) abandon(ctx context.Context, begun []host.Program, failed error) (Entry, error) {
	cause := context.Cause(ctx)
	ctx = context.WithoutCancel(ctx)
	if errors.Is(failed, cause) {
		failed = nil
	}
	outcome := "all files were rolled back"
	if len(begun) > 0 {
		outcome += ", and these programs were run again: " + commandLines(begun)
	}
	err := func() error {
		// If this run is killed now, the next one completes the rollback.
		if err := r.journal.SetStatus(&r.entry, Undoing); err != nil {
			return err
		}
		if _, err := r.change.Undo(ctx, r.save); err != nil {
			return err
		}
		if err := r.journal.SetStatus(&r.entry, Unbuilding); err != nil {
			return err
		}
		if err := r.runAll(ctx, begun); err != nil {
			return err
		}
		return r.journal.Forget(r.entry)
	}()
	if err != nil {
		return r.entry, errors.Join(failed, cause, fmt.Errorf("entry %d: %w: %w", r.entry.ID, ErrNotRolledBack, err))
	}
	return Entry{}, errors.Join(failed, fmt.Errorf("%w, %s", cause, outcome))
}

// build runs the programs of an entry, whose status is end when they have succeeded. It returns
// the programs that were started, a failed one included, and the cause of ctx if that prevented
// others from being started.
func (r *running) build(ctx context.Context, end Status) (begun []host.Program, err error) {
	if len(r.entry.Programs) == 0 {
		return nil, nil
	}
	if cause := context.Cause(ctx); cause != nil {
		return nil, cause
	}
	status := Rebuilding
	if end == Undone {
		status = Unbuilding
	}
	if err := r.mark(status); err != nil {
		return nil, err
	}
	programs := r.entry.Programs
	if r.Current != nil {
		if programs, err = r.Current(programs); err != nil {
			return nil, err
		}
	}
	for i, p := range programs {
		if cause := context.Cause(ctx); cause != nil {
			return programs[:i], cause
		}
		if err := r.Run(ctx, p); err != nil {
			return programs[:i+1], err
		}
	}
	return programs, nil
}

func (r *running) runAll(ctx context.Context, programs []host.Program) error {
	for _, p := range programs {
		if err := r.Run(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

func commandLines(programs []host.Program) string {
	return strings.Join(host.Map(programs, host.Program.String), ", ")
}

// UndoPlan is a planned undo: the entry, its change, and the programs to run or left to the
// operator, adapted to the machine.
type UndoPlan struct {
	Entry     Entry // as Rewriting has it
	Change    Change
	Files     edit.Changes // of a change of files
	Programs  []host.Program
	Left      []host.Program
	Rewriting Rewriting
	Remain    []Entry // of PlanUndoAll: entries of other kinds, which are not undone
}

// rewriter is a kind that rewrites entries before an entry is undone or recovered.
type rewriter interface {
	Rewrite(entries []Entry, id int) (Rewriting, error)
}

// rewrite returns how the kind of an entry rewrites entries before it is undone or recovered, and
// the entry as it is then.
func rewrite(kind Kind, entries []Entry, entry Entry) (Rewriting, Entry, error) {
	r, ok := kind.(rewriter)
	if !ok {
		return Rewriting{}, entry, nil
	}
	rewriting, err := r.Rewrite(entries, entry.ID)
	if n := len(rewriting.Entries); n > 0 {
		entry = rewriting.Entries[n-1]
	}
	return rewriting, entry, err
}

// write writes the entries of a rewriting, oldest first: if this run is killed in between, the
// entry itself is unchanged, and the next run starts again from it.
func (r Rewriting) write(j *journal.Journal) error {
	for _, entry := range r.Entries {
		if err := j.Write(entry); err != nil {
			return err
		}
	}
	return nil
}

// PlanUndo plans the undo of entry id, or of the latest that is not undone if id is 0. Its error
// names everything that prevents the undo.
func (e Engine) PlanUndo(ctx context.Context, id int) (UndoPlan, error) {
	entries, err := e.Store.List()
	if err != nil {
		return UndoPlan{}, err
	}
	entry, err := Pick(entries, id)
	if err != nil {
		return UndoPlan{}, err
	}
	return e.planUndo(ctx, entries, entry)
}

// PlanUndoAll plans the undo of all changes of files, the newest first: each from the files that the
// undos before it leave. It returns what they do together, and their entries. The error names every
// file that was edited.
func (e Engine) PlanUndoAll(ctx context.Context) (all UndoPlan, undone []Entry, err error) {
	entries, err := e.Store.List()
	errs := []error{err}
	e.ahead, e.All = ahead{}, true
	for i, entry := range slices.Backward(entries) {
		if entry.Status == Undone {
			continue
		}
		if entry.Changes != KindFiles {
			all.Remain = append(all.Remain, entry)
			continue
		}
		u, err := e.planUndo(ctx, entries, entry)
		if err != nil {
			// Files of later entries whose undo is refused are named already.
			isLater := func(err error) bool { return errors.As(err, new(*LaterChange)) }
			errs = append(errs, slices.DeleteFunc(host.Split(err), isLater)...)
			continue
		}
		for _, r := range u.Rewriting.Entries {
			entries[slices.IndexFunc(entries, func(e Entry) bool { return e.ID == r.ID })] = r
		}
		entries[i].Status = Undone
		undone = append(undone, entry)
		for _, c := range u.Files {
			e.ahead[c.Name] = c.After
		}
		all.add(u)
	}
	switch err = errors.Join(errs...); {
	case err != nil || undone != nil:
	case len(all.Remain) > 0: // the newest first
		err = host.WithHint(fmt.Errorf("no change of files is left: %w", ErrNothing), host.Textf("%s undoes entry %d (%s)",
			host.NewCommand("undo").Arg(strconv.Itoa(all.Remain[0].ID)), all.Remain[0].ID, all.Remain[0].Command))
	default:
		err = ErrNothing
	}
	return all, undone, err
}

// add adds what another undo does afterwards. Of the entry it keeps what tells whether that takes
// effect at the next boot, and the services to restart.
func (u *UndoPlan) add(other UndoPlan) {
	for _, c := range other.Files {
		if i := slices.IndexFunc(u.Files, func(f edit.Change) bool { return f.Name == c.Name }); i < 0 {
			u.Files = append(u.Files, c)
		} else {
			u.Files[i].After = c.After
		}
	}
	u.Programs, u.Left = union(u.Programs, other.Programs), union(u.Left, other.Left)
	u.Entry.Restart = union(u.Entry.Restart, other.Entry.Restart)
	if other.Entry.NextBoot() {
		u.Entry.Programs, u.Entry.Left = other.Entry.Programs, other.Entry.Left
	}
	r, o := &u.Rewriting, other.Rewriting
	r.Kept, r.ByValue, r.Beside, r.Replaced = union(r.Kept, o.Kept), union(r.ByValue, o.ByValue), union(r.Beside, o.Beside), union(r.Replaced, o.Replaced)
}

// union returns values with those of more that are not among them.
func union[T any](values, more []T) []T {
	for _, v := range more {
		if !slices.ContainsFunc(values, func(w T) bool { return reflect.DeepEqual(v, w) }) {
			values = append(values, v)
		}
	}
	return values
}

func (e Engine) planUndo(ctx context.Context, entries []Entry, entry Entry) (UndoPlan, error) {
	u := UndoPlan{Entry: entry}
	kind, err := e.kind(entry)
	if err != nil {
		return u, err
	}
	if files, ok := kind.(Files); ok {
		files.ahead, files.all = e.ahead, e.All
		kind = files
	}
	for _, earlier := range entries {
		// Commands that undo other kinds recover earlier entries first, and --dry-run warns of them.
		if entry.Changes == KindRows && earlier.Changes == KindRows && earlier.ID < entry.ID && earlier.IsOpen() {
			return u, &earlierOpen{Entry: entry, Earlier: earlier}
		}
	}
	if u.Change, err = kind.Open(ctx, entry); err != nil {
		return u, err
	}
	if _, ok := kind.(rewriter); ok {
		if err := u.Change.Check(ctx, ToRecover); err != nil {
			return u, err
		}
		if u.Rewriting, u.Entry, err = rewrite(kind, entries, entry); err != nil {
			return u, err
		}
		if u.Change, err = kind.Open(ctx, u.Entry); err != nil {
			return u, err
		}
	}
	if err = u.Change.Check(ctx, ToUndo); entry.Changes == KindFiles && err == nil {
		u.Files, err = u.Change.(*FileChange).Back()
	}
	u.Programs, u.Left = entry.Programs, entry.Left
	if e.Current != nil && err == nil {
		var leftErr error
		u.Programs, err = e.Current(entry.Programs)
		u.Left, leftErr = e.Current(entry.Left)
		err = errors.Join(err, leftErr)
	}
	return u, err
}

// earlierOpen is the error of an undo of rows that has to wait for an earlier entry of rows.
type earlierOpen struct {
	Entry, Earlier Entry
}

func (e *earlierOpen) Error() string {
	return fmt.Sprintf("entry %d: entry %d (%s), before it, was interrupted, and its outcome is unknown", e.Entry.ID, e.Earlier.ID, e.Earlier.Command)
}

// Hint returns how to complete the earlier entry.
func (e *earlierOpen) Hint() string { return e.HintText().String() }

// HintText returns the hint with its commands as parts.
func (e *earlierOpen) HintText() host.Text {
	return Left{Entry: e.Earlier}.Remedy()
}

// handles reports whether a kind handles an entry with its name. A kind with a method Handles does
// not handle entries that belong elsewhere, such as to another cloud.
func handles(k Kind, e Entry) bool {
	h, ok := k.(interface{ Handles(e Entry) bool })
	return !ok || h.Handles(e)
}

// Known returns an error unless the kind of an entry is one of the engine's.
func (e Engine) Known(entry Entry) error {
	_, err := e.kind(entry)
	return err
}

// kind returns the kind of an entry. Of the kinds of changes of objects, each has a method Type,
// and opens the entries of that type.
func (e Engine) kind(entry Entry) (Kind, error) {
	what := fmt.Sprintf("a change of kind %q", entry.Changes)
	object := entry.ObjectType()
	for _, k := range e.Kinds {
		if t, ok := k.(interface{ Type() string }); ok && object != "" && t.Type() != object {
			continue
		}
		if k.Name() == entry.Changes {
			return k, nil
		}
	}
	if object != "" {
		what = fmt.Sprintf("a change of an object of type %q", object)
	}
	err := fmt.Errorf("entry %d (%s): %s cannot be handled here", entry.ID, entry.Command, what)
	return nil, host.WithHint(err, "use the release of gpustack that made the change")
}

// Undo undoes entry id, which PlanUndo has planned. It checks everything again under the journal's
// lock. An entry that was interrupted is recovered first.
//
// When ctx ends, the current step is completed first. Then the change is made again, and programs
// that were started are run again: the entry is as it was, and the error wraps the cause of ctx.
func (e Engine) Undo(ctx context.Context, id int) (entry Entry, err error) {
	if cause := context.Cause(ctx); cause != nil {
		return Entry{}, fmt.Errorf("%w, nothing was changed", cause)
	}
	j, err := e.Store.Lock()
	if err != nil {
		return Entry{}, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	entries, err := j.List()
	if err != nil {
		return Entry{}, err
	}
	if entry, err = Pick(entries, id); err != nil {
		return Entry{}, err
	}
	u, err := e.planUndo(ctx, entries, entry)
	if err != nil {
		return entry, err
	}
	if err := u.Rewriting.write(j); err != nil {
		return entry, err
	}
	r := &running{e, j, u.Entry, u.Change}
	switch entry.Status {
	case Applying, Undoing:
		if entry.Changes == KindFiles {
			break // an undo starts from any state
		}
		outcome, _, err := u.Change.Recover(ctx, r.save)
		if ended, err := r.end(outcome, err); err != nil || outcome != Stands {
			return ended, err
		}
	case Rebuilding, Done, Unbuilding, Undone:
	}
	was := r.entry
	r.entry.Allowed = lifted(u.Change)
	if err := r.journal.SetStatus(&r.entry, Undoing); err != nil {
		return r.entry, err
	}
	outcome, err := u.Change.Undo(ctx, r.save)
	switch {
	case outcome == Stands:
		return was, errors.Join(fmt.Errorf("%w, entry %d stays as it was", err, was.ID), j.Write(was))
	case outcome != Reverted || err != nil:
		return r.end(outcome, err)
	}
	begun, err := r.build(ctx, Undone)
	switch {
	case context.Cause(ctx) != nil && len(r.entry.Programs) > 0:
		return r.redo(ctx, was, begun, err)
	case err != nil:
		return r.entry, err
	}
	return r.end(Reverted, nil)
}

// redo makes a change again that was undone, and runs the programs again that were started. failed
// is the error of a program, if one failed in addition to the end of ctx.
func (r *running) redo(ctx context.Context, was Entry, begun []host.Program, failed error) (Entry, error) {
	cause := context.Cause(ctx)
	ctx = context.WithoutCancel(ctx)
	if errors.Is(failed, cause) {
		failed = nil
	}
	outcome := fmt.Sprintf("entry %d stays as it was", was.ID)
	err := func() error {
		// If this run is killed now, the next one completes the undo.
		if err := r.journal.SetStatus(&r.entry, Undoing); err != nil {
			return err
		}
		if _, err := r.change.Apply(ctx, r.save); err != nil {
			return err
		}
		// An earlier, interrupted undo had not run them for these files.
		if was.Status == Done && len(begun) > 0 {
			outcome += ", and these programs were run again: " + commandLines(begun)
			if err := r.journal.SetStatus(&r.entry, Rebuilding); err != nil {
				return err
			}
			if err := r.runAll(ctx, begun); err != nil {
				return err
			}
		}
		return r.journal.Write(was)
	}()
	if err != nil {
		return r.entry, errors.Join(failed, cause, fmt.Errorf("entry %d: %w: %w", was.ID, ErrNotRolledBack, err))
	}
	return was, errors.Join(failed, fmt.Errorf("%w, %s", cause, outcome))
}

// ErrNothing means that there is no entry to undo.
var ErrNothing = errors.New("nothing to undo")
