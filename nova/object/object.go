// Package object makes, records, undoes and recovers the change of one object of a cloud, such as a
// flavor: a [Move] says how objects of its type are read, compared and changed, and what undoes that.
// [Kind] opens the changes that a journal records, and makes those that are planned.
//
// It does not know any type of object (nova/flavor, nova/image, nova/drain), or speak HTTP (nova/cloud).
package object

import (
	"context"
	"fmt"

	"gpustack/host/change"
	"gpustack/nova/cloud"
)

// Head is what the record of a change of an object begins with. It contains no credentials.
type Head struct {
	Type string `json:"type"` // the type of the object: "flavor", "image", "service" or "server"
	cloud.Scope
}

// ObjectType returns the type that the record names.
func (h Head) ObjectType() string { return h.Type }

// Move is a change of one object from one state to another, as the journal records it.
type Move[M any] interface {
	change.Object
	// Is reports whether the move is in a scope, and Expect returns an error unless it is.
	Is(cloud.Scope) bool
	Expect(cloud.Scope) error
	// With returns the planned move as it is recorded, which begins with a head.
	With(Head) M
	// Side returns the name of the object before or after the move, "" if there is none, and the
	// values that the move is about, a line each, for diffs.
	Side(after bool) (name, text string)
	// Check returns an error unless the object is as the move expects it.
	Check(context.Context, *cloud.Compute) error
	// Back returns the move that undoes this one, and the values that it leaves because they have
	// changed since, for messages. The error says what else has changed.
	Back(context.Context, *cloud.Compute) (back M, stays []string, err error)
	// Make makes the move, all of it or nothing.
	Make(context.Context, *cloud.Compute) (change.Outcome, error)
	// Recover determines from the cloud what an interrupted run has made, and returns the move as
	// far as it was made. An undo that has begun is completed.
	Recover(ctx context.Context, c *cloud.Compute, undoing bool) (M, change.Outcome, string, error)
}

// Kind is the kind of changes of one type of object, in one cloud.
type Kind[M Move[M]] struct {
	Compute *cloud.Compute
	Objects string // their type
	// OfCloud says that the objects belong to no project.
	OfCloud bool
}

// Name returns the name of the kind in the journal.
func (Kind[M]) Name() string { return change.KindObjects }

// Type returns the type of the objects of the kind.
func (k Kind[M]) Type() string { return k.Objects }

// scope returns the cloud, the region and the project of the kind.
func (k Kind[M]) scope() cloud.Scope {
	s := k.Compute.Scope()
	if k.OfCloud {
		s.Project = ""
	}
	return s
}

// Handles reports whether an entry belongs to the cloud, the region and the project of the kind.
// Others stay as they are.
func (k Kind[M]) Handles(e change.Entry) bool {
	m, err := change.ParseObject[M](e, k.Objects)
	return err == nil && m.Is(k.scope())
}

// New returns the change that makes a move.
func (k Kind[M]) New(m M) *Change[M] {
	return &Change[M]{Move: m.With(Head{k.Objects, k.scope()}), kind: k}
}

// Open returns the change that an entry records.
func (k Kind[M]) Open(_ context.Context, e change.Entry) (change.Change, error) {
	m, err := change.ParseObject[M](e, k.Objects)
	if err != nil {
		return nil, err
	}
	return &Change[M]{Move: m, kind: k, status: e.Status}, nil
}

// Change is a change of one object, planned or recorded.
type Change[M Move[M]] struct {
	Move   M
	kind   Kind[M]
	status change.Status // of the entry that it was opened from; "" for a planned change
	back   M
	stays  []string
}

// Kind returns the name of its kind.
func (*Change[M]) Kind() string { return change.KindObjects }

// Record writes the move into an entry.
func (c *Change[M]) Record(e *change.Entry) error { return e.SetDetail(c.Move) }

// Check returns an error if the credentials are for another cloud, or if the object is not as the
// change, or its undo, expects it. Of an entry that was interrupted, the object is not judged.
func (c *Change[M]) Check(ctx context.Context, p change.Purpose) (err error) {
	if p == change.ToLook {
		return nil
	}
	if err := c.Move.Expect(c.kind.scope()); err != nil {
		return err
	}
	switch p {
	case change.ToApply:
		return c.Move.Check(ctx, c.kind.Compute)
	case change.ToUndo:
		if c.back, c.stays, err = c.Move.Back(ctx, c.kind.Compute); c.status == change.Done {
			return err
		}
	case change.ToRecover, change.ToLook:
	}
	return nil
}

// Back returns what undo does, and the values that it leaves because they have changed since. It
// is known after Check.
func (c *Change[M]) Back() (back M, stays []string) { return c.back, c.stays }

// Make makes a change that is not recorded.
func (c *Change[M]) Make(ctx context.Context) error {
	if err := c.Check(ctx, change.ToApply); err != nil {
		return err
	}
	_, err := c.Move.Make(ctx, c.kind.Compute)
	return err
}

// Apply makes the change, all of it or nothing.
func (c *Change[M]) Apply(ctx context.Context, _ func() error) (change.Outcome, error) {
	if cause := context.Cause(ctx); cause != nil {
		return change.None, fmt.Errorf("%w, nothing was changed", cause)
	}
	return c.Move.Make(ctx, c.kind.Compute)
}

// Undo undoes the change as the object is now, all of it or nothing.
func (c *Change[M]) Undo(ctx context.Context, _ func() error) (change.Outcome, error) {
	if cause := context.Cause(ctx); cause != nil {
		return change.Stands, fmt.Errorf("%w, nothing was changed", cause)
	}
	outcome, err := Undo(ctx, c.kind.Compute, c.Move)
	return outcome.OfUndo(), err
}

// Undo makes the move that undoes another one, whose outcome it returns.
func Undo[M Move[M]](ctx context.Context, c *cloud.Compute, m M) (change.Outcome, error) {
	back, _, err := m.Back(ctx, c)
	if err != nil {
		return change.None, err
	}
	return back.Make(ctx, c)
}

// Recover determines from the cloud what an interrupted run has made. An undo that has begun is
// completed.
func (c *Change[M]) Recover(ctx context.Context, _ func() error) (outcome change.Outcome, text string, err error) {
	undoing := c.status == change.Undoing
	if c.Move, outcome, text, err = c.Move.Recover(context.WithoutCancel(ctx), c.kind.Compute, undoing); undoing && outcome == change.None {
		outcome = change.Reverted // nothing of the change is left
	}
	return outcome, text, err
}
