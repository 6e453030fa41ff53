package change

import (
	"context"
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/journal"
)

// What the journal stores, for the packages above, which do not import it.
type (
	// Entry is one recorded change.
	Entry = journal.Entry
	// File is the record of what was done to one file.
	File = journal.File
	// Status is how far an entry has come.
	Status = journal.Status
	// Store is a folder with a journal in it.
	Store = journal.Store
)

// The statuses of an entry, in the order in which it goes through them.
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

// Dir is where everything that gpustack records about a machine lies.
const Dir = journal.MachineDir

// Machine returns the store of the machine below root.
func Machine(root host.Root) Store {
	return journal.Machine(root)
}

// Errors of recorded changes.
var (
	// ErrLocked says that another gpustack has locked the journal.
	ErrLocked = journal.ErrLocked
	// ErrNoEntry says that there is no such entry.
	ErrNoEntry = journal.ErrNoEntry
	// ErrUndone says that an entry is undone already.
	ErrUndone = journal.ErrUndone
	// ErrEdited says that a file was edited after the change.
	ErrEdited = journal.ErrEdited
	// ErrUnfinished goes with what prevents the recovery of an entry.
	ErrUnfinished = errors.New("was interrupted, and cannot be recovered yet")
	// ErrNotRolledBack goes with what prevents the rollback of an entry.
	ErrNotRolledBack = host.WithHint(errors.New("could not be rolled back"), "'gpustack history' shows the entry; the next command that changes this machine recovers it first")
)

// Kind is one kind of change.
type Kind interface {
	// Name is the kind's name in the journal.
	Name() string
	// Open returns the change that an entry of this kind records, as far as it has come by the
	// entry's status. It touches nothing.
	Open(ctx context.Context, e Entry) (Change, error)
}

// Change is a change of one kind: planned, or recorded in an entry.
type Change interface {
	// Kind is the name of its kind.
	Kind() string
	// Record writes into an entry what it takes to undo the change, and to tell after a crash
	// how far it came.
	Record(e *Entry) error
	// Check returns an error that names all that prevents the purpose. It touches nothing.
	Check(ctx context.Context, p Purpose) error
	// Apply makes the change, or what is left of it. save writes the entry as Record has it
	// then.
	Apply(ctx context.Context, save func() error) (Outcome, error)
	// Undo undoes the change. Where ctx ends, a change of which all or nothing is made makes again
	// what it has undone: the outcome is Stands, and the error wraps the cause of ctx.
	Undo(ctx context.Context, save func() error) (Outcome, error)
	// Recover ends what a killed run has left half made or half undone, by the status of the
	// entry that the change was opened from. Its text, which may be empty, says what was found.
	Recover(ctx context.Context, save func() error) (Outcome, string, error)
}

// Purpose is what a change is checked for.
type Purpose int

// Purposes of Check.
const (
	ToApply   Purpose = iota
	ToUndo            // also before the undo is shown
	ToRecover         // before it is asked for
	ToLook            // before a command reads or plans, and the change may be half made
)

// Outcome is what became of a change.
type Outcome int

// Outcomes. With an error, they tell what the error has left.
const (
	// Open: it is half made or not known; a later run recovers it.
	Open Outcome = iota
	// Stands: it is made, all of it or the parts that stand by themselves.
	Stands
	// None: nothing was changed, or all was rolled back; the entry goes.
	None
	// Reverted: it is undone; the entry stays, as undone.
	Reverted
	// Partly: some of the parts that stand by themselves are undone, the others can be undone
	// later; the entry stays, as done.
	Partly
)

// Step is one part of a change that is made all or not at all.
type Step struct {
	Apply func(ctx context.Context) error
	// Undo reverts the step from wherever it has come to. Nil where nothing is to be reverted.
	Undo func(ctx context.Context) error
}

// Rollback says when Run rolls back.
type Rollback int

// When Run rolls back.
const (
	OnError     Rollback = iota // when a step fails, or ctx ends
	OnInterrupt                 // when ctx ends; after another error the change is open
)

// ErrNotReverted goes with what could not be reverted.
var ErrNotReverted = host.WithHint(errors.New("could not be reverted"), "the next gpustack command that changes this machine recovers the rest; 'gpustack history' shows the entry")

// Run makes steps one after the other. The outcome is Stands when all are made. When ctx ends,
// the running step ends first.
//
// Where it rolls back, the steps that were made are reverted, the last first, the failed one
// included: the outcome is None. It is Open where a step could not be reverted (ErrNotReverted),
// or where the kernel is stuck in one (host.ErrStuck), which is out of reach then.
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

// run returns how many steps are to be reverted after an error.
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
