package change

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
)

// Left is an entry that an earlier run has left open.
type Left struct {
	Entry Entry
	// Here reports whether this run can recover its kind.
	Here bool
	// Obstacle, if not nil, is the reason why it cannot be recovered now.
	Obstacle error
	// Running means that a run has locked the journal, which may be the one that made the entry.
	Running bool
}

// Text returns a warning that names the open entry and the command that completes it.
func (l Left) Text() string {
	e := l.Entry
	if OnMachine(e) {
		return fmt.Sprintf("entry %d (%s) was interrupted while %s: %s", e.ID, e.Command, e.Status, l.Remedy())
	}
	return fmt.Sprintf("entry %d (%s) was interrupted, and its outcome is unknown: %s", e.ID, e.Command, l.Remedy())
}

// Recovery is what a run recovers before it changes anything, oldest first.
type Recovery struct {
	Entries  []Entry
	Warnings []string // of entries that every command recovers
}

// IDs returns the numbers of the entries.
func (r Recovery) IDs() []int {
	return host.Map(r.Entries, func(e Entry) int { return e.ID })
}

// PlanRecovery returns the entries that this engine can recover, but for entry except. The error
// names each obstacle; see [Engine.Interrupted].
func (e Engine) PlanRecovery(ctx context.Context, p Purpose, except int) (Recovery, error) {
	left, err := e.Interrupted(ctx, p)
	if err != nil {
		return Recovery{}, err
	}
	var r Recovery
	var obstacles []error
	for _, l := range left {
		if !l.Here || l.Entry.ID == except {
			continue
		}
		obstacles = append(obstacles, l.Obstacle)
		r.Entries = append(r.Entries, l.Entry)
		if OnMachine(l.Entry) {
			r.Warnings = append(r.Warnings, l.Text())
		}
	}
	return r, errors.Join(obstacles...)
}

// Interrupted returns the entries of every kind that earlier runs have left open, oldest first.
// Every command that changes something calls it first. With p ToRecover, entries that can be
// recovered here are checked for obstacles to recovery; with ToLook, for obstacles to reading.
//
// Errors: ErrLocked, together with the entries, if another run is working on one that could be
// recovered here.
func (e Engine) Interrupted(ctx context.Context, p Purpose) ([]Left, error) {
	return e.InterruptedIn(ctx, e.Store.Observe(), p)
}

// InterruptedIn returns what [Engine.Interrupted] does of a journal that the caller has read.
func (e Engine) InterruptedIn(ctx context.Context, seen Seen, p Purpose) ([]Left, error) {
	open, lockedErr := seen.Unfinished()
	if lockedErr != nil && !errors.Is(lockedErr, ErrLocked) {
		return nil, lockedErr
	}
	var left []Left
	for _, entry := range open {
		l := Left{Entry: entry, Running: lockedErr != nil}
		kind, kindErr := e.kind(entry)
		l.Here = kindErr == nil && handles(kind, entry)
		if l.Here && lockedErr != nil {
			return left, lockedErr
		}
		if l.Here {
			c, err := kind.Open(ctx, entry)
			if err == nil {
				err = c.Check(ctx, p)
			}
			if err != nil {
				l.Obstacle = fmt.Errorf("entry %d, which was interrupted: %w", entry.ID, err)
			}
		}
		left = append(left, l)
	}
	return left, nil
}

// Recovered is an entry that was recovered.
type Recovered struct {
	Entry   Entry // after the recovery
	Outcome Outcome
	Change  Change // nil where the entry could not be opened
	Text    string // what was found and done, "" after an error
}

// Recover recovers the entries with the given numbers, which earlier runs have left open. It
// continues with the next entry if one cannot be recovered, which then remains unchanged. When ctx
// ends, the current step is completed first, and the rest is left for the next run.
//
// Errors: ErrUnfinished, joined to the reason.
func (e Engine) Recover(ctx context.Context, ids []int) (recovered []Recovered, err error) {
	j, err := e.Store.Lock()
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, j.Close()) }()
	entries, err := j.List()
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, entry := range entries {
		if !entry.IsOpen() || !slices.Contains(ids, entry.ID) {
			continue
		}
		var done Recovered
		err := context.Cause(ctx)
		if err == nil {
			r := &running{e, j, entry, nil}
			done, err = r.recover(ctx, entries)
		}
		cause := context.Cause(ctx)
		switch {
		case err != nil && cause != nil && errors.Is(err, cause):
			return recovered, errors.Join(append(errs, fmt.Errorf("%w, the next run recovers entry %d", err, entry.ID))...)
		case err != nil:
			done.Text = "" // the error contains it
			errs = append(errs, errors.Join(fmt.Errorf("entry %d: %w", entry.ID, ErrUnfinished), err))
		}
		if err == nil || done.Change != nil {
			recovered = append(recovered, done)
		}
	}
	return recovered, errors.Join(errs...)
}

func (r *running) recover(ctx context.Context, entries []Entry) (Recovered, error) {
	kind, err := r.kind(r.entry)
	if err != nil {
		return Recovered{}, err
	}
	was := r.entry
	if r.change, err = kind.Open(ctx, was); err != nil {
		return Recovered{}, err
	}
	if err := r.change.Check(ctx, ToRecover); err != nil {
		return Recovered{}, err
	}
	if was.Status == Applying || was.Status == Undoing {
		// The machine may have been booted since, and then GRUB has written to its environment block.
		var rewriting Rewriting
		if rewriting, r.entry, err = rewrite(kind, entries, was); err != nil {
			return Recovered{}, err
		}
		if err := rewriting.write(r.journal); err != nil {
			return Recovered{}, err
		}
		if r.change, err = kind.Open(ctx, r.entry); err != nil {
			return Recovered{}, err
		}
	}
	done := Recovered{Change: r.change}
	switch was.Status {
	case Rebuilding:
		done.Outcome, done.Text = Stands, "was waiting for its programs: finished"
	case Unbuilding:
		done.Outcome, done.Text = Reverted, "was being undone: finished"
	case Applying, Undoing, Done, Undone:
		if done.Outcome, done.Text, err = r.change.Recover(ctx, r.save); err != nil {
			done.Entry, err = r.end(done.Outcome, err)
			return done, err
		}
	}
	if done.Text == "" {
		done.Text = map[Outcome]string{
			None: "was interrupted: rolled back", Reverted: "was being undone: finished",
			Stands: "was interrupted: what is complete stays", Open: "was interrupted: its outcome is still unknown",
		}[done.Outcome]
	}
	if done.Outcome == Stands || done.Outcome == Reverted {
		end := Done
		if done.Outcome == Reverted {
			end = Undone
		}
		if _, err := r.build(ctx, end); err != nil {
			done.Entry = r.entry
			return done, err
		}
	}
	entry, err := r.end(done.Outcome, nil)
	if done.Entry = entry; done.Outcome == None {
		done.Entry = was
	}
	return done, err
}

// List returns the entries of the machine below root, oldest first.
func List(root host.Root) ([]Entry, error) {
	return Machine(root).List()
}
