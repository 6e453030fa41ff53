package drain

import (
	"context"
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/nova/cloud"
	"gpustack/nova/object"
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

// Kind returns the kind of changes of compute services, in one cloud.
func Kind(c *cloud.Compute) object.Kind[Move] {
	return object.Kind[Move]{Compute: c, Objects: Type, OfCloud: true}
}

// Change is a change of one service, planned or recorded.
type Change = object.Change[Move]

// ParseRecord returns the record of an entry of kind objects.
func ParseRecord(e change.Entry) (Move, error) { return change.ParseObject[Move](e, Type) }

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

// Valid returns an error unless the record disables or enables one service, or takes over a drain,
// for a reason of gpustack's.
func (m Move) Valid() error {
	if m.Host == "" || m.Before.same(m.After) {
		return errors.New("not a change of a service")
	}
	var err error
	for _, s := range []State{m.Before, m.After} {
		if _, ours := ParseReason(s.Reason); !s.Enabled && !ours {
			err = fmt.Errorf("not a reason of gpustack: %q", s.Reason)
		}
	}
	return err
}

// With returns the move as it is recorded.
func (m Move) With(h object.Head) Move {
	m.Head = h
	return m
}

// Requests returns the request that makes a move that was planned.
func (m Move) Requests(c *cloud.Compute) []cloud.Request {
	switch {
	case !m.Changed():
		return nil
	case m.After.Enabled:
		return []cloud.Request{c.EnableRequest(m.service)}
	}
	return []cloud.Request{c.DisableRequest(m.service, m.After.Reason)}
}

// Check returns an error unless the service is as the move expects it.
func (m Move) Check(ctx context.Context, c *cloud.Compute) error {
	is, err := Find(ctx, c, m.Host)
	if now := stateOf(is); err == nil && !now.same(m.Before) {
		err = changedError(m.Host, now)
	}
	return err
}

func changedError(name string, now State) error {
	return fmt.Errorf("the compute service of %s %w: it is %s", name, ErrChanged, now)
}

// Back returns the move that undoes this one: none if the service has that state already.
func (m Move) Back(ctx context.Context, c *cloud.Compute) (back Move, stays []string, err error) {
	is, err := Find(ctx, c, m.Host)
	now := stateOf(is)
	back = Move{m.Head, m.Host, now, m.Before, is}
	if back.Renames() {
		back.After = now
	}
	if err == nil && !now.same(m.Before) && !now.same(m.After) {
		err = changedError(m.Host, now)
	}
	return back, nil, err
}

// Make makes the move and reads the service back. Without the answer of the request its effect would
// be unknown, so an interrupt does not end it.
func (m Move) Make(ctx context.Context, c *cloud.Compute) (change.Outcome, error) {
	if !m.Changed() {
		return change.Stands, nil
	}
	ctx = context.WithoutCancel(ctx)
	is, err := Find(ctx, c, m.Host)
	if err != nil {
		return change.None, err
	}
	if m.After.Enabled {
		err = c.EnableService(ctx, is)
	} else {
		err = c.DisableService(ctx, is, m.After.Reason)
	}
	if cloud.IsRefused(err) {
		return change.None, fmt.Errorf("nothing was changed: %w", err)
	}
	is, readErr := Find(ctx, c, m.Host)
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
		return change.Stands, fmt.Errorf("the compute service of %s %w: it is %s", m.Host, ErrDrift, now)
	}
}

// Recover determines from the cloud what an interrupted run has made. An undo that has begun is
// completed.
func (m Move) Recover(ctx context.Context, c *cloud.Compute, undoing bool) (Move, change.Outcome, string, error) {
	is, err := Find(ctx, c, m.Host)
	switch {
	case errors.Is(err, ErrNoService):
		return m, change.None, "was interrupted, and the compute service of " + m.Host + " was deleted since", nil
	case err != nil:
		return m, change.Open, "", err
	}
	switch now := stateOf(is); {
	case now.same(m.Before):
		return m, change.None, "", nil
	case undoing:
		outcome, err := object.Undo(ctx, c, m)
		return m, outcome.OfRecoveredUndo(), "", err
	case now.same(m.After):
		return m, change.Stands, "", nil
	default:
		return m, change.None, "was interrupted, and the compute service of " + m.Host + " has changed since: it is " + now.String(), nil
	}
}
