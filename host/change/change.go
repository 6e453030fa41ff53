package change

import (
	"context"
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/journal"
)

// Types that the journal stores, for packages that must not import it.
type (
	// Entry is the record of one change.
	Entry = journal.Entry
	// File is the record of the change of one file.
	File = journal.File
	// State is what a file was before or after a change.
	State = journal.State
	// Topic is what a change of files is about.
	Topic = journal.Topic
	// Origin is who made a change, where and how.
	Origin = journal.Origin
	// Cloud is what an origin keeps of a cloud.
	Cloud = journal.Cloud
	// Status is the state of an entry.
	Status = journal.Status
	// Store is a folder that contains a journal.
	Store = journal.Store
	// Seen is what one look at a journal has found.
	Seen = journal.Seen
)

// The statuses of an entry, in their order.
const (
	Applying   = journal.Applying
	Rebuilding = journal.Rebuilding
	Done       = journal.Done
	Undoing    = journal.Undoing
	Unbuilding = journal.Unbuilding
	Undone     = journal.Undone
)

// Names of kinds.
const (
	KindFiles   = journal.KindFiles
	KindDrivers = journal.KindDrivers
	KindRows    = journal.KindRows
	KindObjects = journal.KindObjects
)

// Subjects of changes of files.
const (
	OfGuests     = journal.OfGuests
	OfAdapters   = journal.OfAdapters
	OfContainers = journal.OfContainers
	OfNova       = journal.OfNova
)

// Dir is the folder with everything that gpustack records about a machine.
const Dir = journal.MachineDir

// Machine returns the store of the machine below root.
func Machine(root host.Root) Store {
	return journal.Machine(root)
}

// Errors of recorded changes.
var (
	// ErrLocked means that another gpustack has locked the journal.
	ErrLocked = journal.ErrLocked
	// ErrNoEntry means that the journal has no such entry.
	ErrNoEntry = journal.ErrNoEntry
	// ErrUndone means that an entry is already undone.
	ErrUndone = journal.ErrUndone
	// ErrEdited means that a file was edited after the change.
	ErrEdited = journal.ErrEdited
	// ErrUnfinished is joined to the reason why an entry cannot be recovered.
	ErrUnfinished = errors.New("was interrupted, and cannot be recovered yet")
	// ErrNotRolledBack is joined to the reason why an entry could not be rolled back.
	ErrNotRolledBack = host.WithHint(errors.New("could not be rolled back"),
		host.Textf("'%s' shows the entry; the next command that changes this machine recovers it first", host.NewCommand("history")))
)

// Kind is one kind of change.
type Kind interface {
	// Name returns the kind's name in the journal.
	Name() string
	// Open returns the change that an entry of this kind records, in the state that the entry's
	// status implies. It changes nothing.
	Open(ctx context.Context, e Entry) (Change, error)
}

// Change is a change of one kind: planned, or recorded in an entry.
type Change interface {
	// Kind returns the name of its kind.
	Kind() string
	// Record adds to an entry what is needed to undo the change and to determine its state after a
	// crash.
	Record(e *Entry) error
	// Check returns an error that names everything that prevents the purpose. It changes nothing.
	Check(ctx context.Context, p Purpose) error
	// Apply makes the change, or the rest of it. save writes the entry with what Record then adds.
	Apply(ctx context.Context, save func() error) (Outcome, error)
	// Undo undoes the change. When ctx ends, an atomic change makes again what it has undone: the
	// outcome is Stands, and the error wraps the cause of ctx.
	Undo(ctx context.Context, save func() error) (Outcome, error)
	// Recover completes or reverts what a killed run has left half made or half undone, according to
	// the status of the entry that the change was opened from. The returned text, which may be empty,
	// describes the state that was found.
	Recover(ctx context.Context, save func() error) (Outcome, string, error)
}

// Purpose is the purpose of a Check.
type Purpose int

// Purposes of Check.
const (
	ToApply   Purpose = iota
	ToUndo            // also before the undo is shown
	ToRecover         // before it is asked for
	ToLook            // before a command reads or plans, and the change may be half made
)

// Outcome is the result of applying, undoing or recovering a change.
type Outcome int

// Outcomes. With an error, they describe the state after the error.
const (
	// Open: the change is half made or its state is unknown; a later run recovers it.
	Open Outcome = iota
	// Stands: the change is made, completely or in those parts that are independent of each other.
	Stands
	// None: nothing was changed, or everything was rolled back; the entry is removed.
	None
	// Reverted: the change is undone; the entry is kept with status undone.
	Reverted
	// Partly: some of the independent parts are undone, the others can be undone later; the entry is
	// kept with status done.
	Partly
)

// OfUndo returns the outcome of an undo whose move back had the outcome o.
func (o Outcome) OfUndo() Outcome {
	switch o {
	case Stands:
		return Reverted
	case None:
		return Stands
	case Open, Reverted, Partly:
	}
	return o
}

// OfRecoveredUndo returns the outcome of the recovery of an undo whose move back had the outcome o.
// The undo remains open if nothing was moved back: the next recovery tries again.
func (o Outcome) OfRecoveredUndo() Outcome {
	if o == None {
		return Open
	}
	return o.OfUndo()
}

// Step is a part of a change that is made completely or not at all.
type Step struct {
	Apply func(ctx context.Context) error
	// Undo reverts the step, whatever part of it was made. It is nil if there is nothing to revert.
	Undo func(ctx context.Context) error
}

// Rollback is the condition under which Run rolls back.
type Rollback int

// Conditions under which Run rolls back.
const (
	OnError     Rollback = iota // when a step fails, or ctx ends
	OnInterrupt                 // when ctx ends; after another error the outcome is Open
)

// ErrNotReverted is joined to the error of a step that could not be reverted.
var ErrNotReverted = host.WithHint(errors.New("could not be reverted"),
	host.Textf("the next gpustack command that changes this machine recovers the rest; '%s' shows the entry", host.NewCommand("history")))

// Run makes steps one after the other. The outcome is Stands if all are made. When ctx ends, the
// current step is completed first.
//
// If Run rolls back, the steps that were made are reverted, the last first, the failed one
// included: the outcome is None. It is Open if a step could not be reverted (ErrNotReverted), or
// if the kernel is stuck in a step (host.ErrStuck), which cannot be reverted then.
func Run(ctx context.Context, steps []Step, when Rollback) (Outcome, error) {
	made, err := run(ctx, steps)
	if err == nil {
		return Stands, nil
	}
	cause := context.Cause(ctx)
	if when == OnInterrupt && (cause == nil || !errors.Is(err, cause)) {
		return Open, err
	}
	ctx = context.WithoutCancel(ctx)
	var errs []error
	for i := made - 1; i >= 0; i-- {
		if undo := steps[i].Undo; undo != nil {
			if undoErr := undo(ctx); undoErr != nil {
				errs = append(errs, fmt.Errorf("%w: %w", ErrNotReverted, undoErr))
			}
		}
	}
	if len(errs) > 0 || errors.Is(err, host.ErrStuck) {
		return Open, errors.Join(append([]error{err}, errs...)...)
	}
	return None, err
}

// run returns the number of steps to revert after an error.
func run(ctx context.Context, steps []Step) (begun int, err error) {
	for i, s := range steps {
		if cause := context.Cause(ctx); cause != nil {
			return i, cause
		}
		switch err := s.Apply(ctx); {
		case errors.Is(err, host.ErrStuck):
			return i, err
		case err != nil:
			return i + 1, err
		}
	}
	return len(steps), context.Cause(ctx)
}
