package drain

import (
	"context"
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/nova/cloud"
)

// Errors of changes of services.
var (
	// ErrChanged says that a service has changed since the plan was made, or since the change that is
	// undone.
	ErrChanged = host.WithHint(host.WithCode(errors.New("has changed since"), host.CodeEdited, ""),
		"'openstack compute service list --long' shows the services and the reasons")
	// ErrDrift says that Nova has stored another state than was requested.
	ErrDrift = host.WithHint(errors.New("is not as requested"), "see the log of nova-api; another program may have changed the service")
)

// Type is the type of compute services in the journal.
const Type = "service"

// Record is what the journal stores of a change of a service, in the field objects of its entry.
type Record struct {
	Type string `json:"type"` // "service"
	cloud.Scope
	Move
}

// ParseRecord returns the record of an entry of kind objects.
func ParseRecord(e change.Entry) (Record, error) { return change.ParseObject[Record](e, Type) }

// Own returns the ids of the drains that entries of a journal record.
func Own(entries []change.Entry) (ids []string) {
	for _, e := range entries {
		if e.ObjectType() != Type {
			continue
		}
		if r, err := ParseRecord(e); err == nil {
			if reason, ours := ParseReason(r.After.Reason); ours {
				ids = append(ids, reason.ID)
			}
		}
	}
	return ids
}

// ObjectType returns the type that the record names.
func (r Record) ObjectType() string { return r.Type }

// Valid returns an error unless the record disables or enables one service, or takes over a drain,
// for a reason of gpustack's.
func (r Record) Valid() error {
	if r.Host == "" || r.Before.same(r.After) {
		return errors.New("not a change of a service")
	}
	var err error
	for _, s := range []State{r.Before, r.After} {
		if _, ours := ParseReason(s.Reason); !s.Enabled && !ours {
			err = fmt.Errorf("not a reason of gpustack: %q", s.Reason)
		}
	}
	return err
}

// scopeOf returns the cloud and the region. Services belong to no project.
func scopeOf(c *cloud.Compute) cloud.Scope {
	s := c.Scope()
	s.Project = ""
	return s
}

// Kind is the kind of changes of compute services, in one cloud.
type Kind struct {
	Compute *cloud.Compute
}

// Name is the name of the kind in the journal.
func (Kind) Name() string { return change.KindObjects }

// Type is the type of the objects of the kind.
func (Kind) Type() string { return Type }

// Handles reports whether an entry belongs to the cloud and the region of the kind.
func (k Kind) Handles(e change.Entry) bool {
	r, err := ParseRecord(e)
	return err == nil && r.Is(scopeOf(k.Compute))
}

// New returns the change that makes a move.
func (k Kind) New(m Move) *Change {
	return &Change{Move: m, scope: scopeOf(k.Compute), compute: k.Compute}
}

// Open returns the change that an entry records.
func (k Kind) Open(_ context.Context, e change.Entry) (change.Change, error) {
	r, err := ParseRecord(e)
	if err != nil {
		return nil, err
	}
	return &Change{Move: r.Move, scope: r.Scope, compute: k.Compute, status: e.Status}, nil
}

// Requests returns the request that makes a move of the service of the kind's cloud.
func Requests(c *cloud.Compute, s cloud.ComputeService, m Move) []cloud.Request {
	switch {
	case !m.Changed():
		return nil
	case m.After.Enabled:
		return []cloud.Request{c.EnableRequest(s)}
	}
	return []cloud.Request{c.DisableRequest(s, m.After.Reason)}
}

// Change is a change of one service, planned or recorded.
type Change struct {
	Move
	scope   cloud.Scope
	compute *cloud.Compute
	status  change.Status // of the entry that it was opened from; "" for a planned change
	is      cloud.ComputeService
}

// Kind is the name of its kind.
func (*Change) Kind() string { return change.KindObjects }

// Record writes the states into an entry.
func (c *Change) Record(e *change.Entry) error {
	return e.SetDetail(Record{Type: Type, Scope: c.scope, Move: c.Move})
}

// Check returns an error if the credentials are for another cloud, or if the service is neither as
// the change expects it nor as it leaves it.
func (c *Change) Check(ctx context.Context, p change.Purpose) error {
	if p == change.ToLook {
		return nil
	}
	if err := c.scope.Expect(scopeOf(c.compute)); err != nil {
		return err
	}
	if p == change.ToRecover || p == change.ToUndo && c.status != change.Done {
		return nil
	}
	is, err := Find(ctx, c.compute, c.Host)
	if err != nil {
		return err
	}
	c.is = is
	now := stateOf(is)
	if expected := now.same(c.Before); p == change.ToUndo && (expected || now.same(c.After)) || expected {
		return nil
	}
	return changedError(c.Host, now)
}

func changedError(name string, now State) error {
	return fmt.Errorf("the compute service of %s %w: it is %s", name, ErrChanged, now)
}

// Back returns what undo does: nothing if the service has that state already. It is known after
// Check.
func (c *Change) Back() Move {
	back := Move{c.Host, stateOf(c.is), c.Before}
	if back.Renames() {
		back.After = back.Before
	}
	return back
}

// Requests returns the request that makes a move of the service of the change. It is known after
// Check.
func (c *Change) Requests(m Move) []cloud.Request { return Requests(c.compute, c.is, m) }

// Make makes a move that is not recorded, see [Move.Renames].
func (c *Change) Make(ctx context.Context) error {
	if err := c.Check(ctx, change.ToApply); err != nil {
		return err
	}
	_, err := c.make(ctx, c.Move)
	return err
}

// Apply makes the change.
func (c *Change) Apply(ctx context.Context, _ func() error) (change.Outcome, error) {
	if cause := context.Cause(ctx); cause != nil {
		return change.None, fmt.Errorf("%w, nothing was changed", cause)
	}
	return c.make(ctx, c.Move)
}

// Undo makes the change that undoes this one, unless the service has changed meanwhile.
func (c *Change) Undo(ctx context.Context, _ func() error) (change.Outcome, error) {
	if cause := context.Cause(ctx); cause != nil {
		return change.Stands, fmt.Errorf("%w, nothing was changed", cause)
	}
	outcome, err := c.back(ctx)
	return outcome.OfUndo(), err
}

func (c *Change) back(ctx context.Context) (change.Outcome, error) {
	is, err := Find(ctx, c.compute, c.Host)
	if err != nil {
		return change.None, err
	}
	c.is = is
	if now := stateOf(is); !now.same(c.Before) && !now.same(c.After) {
		return change.None, changedError(c.Host, now)
	}
	return c.make(ctx, c.Back())
}

// make makes a move and reads the service back. Without the answer of the request its effect would
// be unknown, so an interrupt does not end it.
func (c *Change) make(ctx context.Context, m Move) (change.Outcome, error) {
	if !m.Changed() {
		return change.Stands, nil
	}
	ctx = context.WithoutCancel(ctx)
	var err error
	if m.After.Enabled {
		err = c.compute.EnableService(ctx, c.is)
	} else {
		err = c.compute.DisableService(ctx, c.is, m.After.Reason)
	}
	if cloud.IsRefused(err) {
		return change.None, fmt.Errorf("nothing was changed: %w", err)
	}
	is, readErr := Find(ctx, c.compute, c.Host)
	if readErr != nil {
		return change.Open, errors.Join(err, readErr)
	}
	switch now := stateOf(is); {
	case now == m.After:
		return change.Stands, nil // also where the answer was lost
	case err != nil && now == m.Before:
		return change.None, fmt.Errorf("nothing was changed: %w", err)
	case err != nil:
		return change.Open, err
	default:
		return change.Stands, fmt.Errorf("the compute service of %s %w: it is %s", c.Host, ErrDrift, now)
	}
}

// Recover determines from the cloud what an interrupted run has made. An undo that has begun is
// completed.
func (c *Change) Recover(ctx context.Context, _ func() error) (change.Outcome, string, error) {
	ctx = context.WithoutCancel(ctx)
	undoing := c.status == change.Undoing
	is, err := Find(ctx, c.compute, c.Host)
	switch {
	case errors.Is(err, ErrNoService):
		gone := "was interrupted, and the compute service of " + c.Host + " was deleted since"
		return map[bool]change.Outcome{true: change.Reverted, false: change.None}[undoing], gone, nil
	case err != nil:
		return change.Open, "", err
	}
	c.is = is
	now := stateOf(is)
	switch {
	case undoing && now.same(c.Before):
		return change.Reverted, "", nil
	case undoing:
		outcome, err := c.back(ctx)
		return outcome.OfRecoveredUndo(), "", err
	case now.same(c.After):
		return change.Stands, "", nil
	case now.same(c.Before):
		return change.None, "", nil
	}
	return change.None, "was interrupted, and the compute service of " + c.Host + " has changed since: it is " + now.String(), nil
}
