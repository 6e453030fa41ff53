package servertest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"gpustack/host/change"
	"gpustack/nova/probe"
)

// Create requests the servers of the plan and records them. It returns the servers also with an
// error, and an entry without an id if nothing stays recorded.
func (t Test) Create(ctx context.Context) (entry change.Entry, servers []Server, err error) {
	made := t.New(t.Plan)
	err = Unlocked(ctx, func() (err error) {
		entry, err = t.Engine.Apply(ctx, change.Work{Command: "flavor test " + t.Plan.Flavor.Name, Change: made})
		return err
	})
	return entry, made.Recorded().Servers, err
}

// End deletes the servers of a test at the same time, unless they are to be kept, closes its
// entry, and completes the outcomes: whether a server is deleted, and whether its devices are free.
// It does so also if ctx has ended, which is an interruption.
//
// The error joins what prevented the test and the deletion; errors of outcomes that only follow
// from an interruption are left out.
func (t Test) End(ctx context.Context, entry change.Entry, outcomes []Outcome) error {
	var errs []error
	if !t.Plan.Keep {
		errs = append(errs, t.delete(ctx, entry, outcomes))
	}
	cause := context.Cause(ctx)
	for _, o := range outcomes {
		if cause == nil {
			errs = append(errs, o.Err)
		}
	}
	switch {
	case cause == nil:
	case t.Plan.Keep:
		errs = append(errs, fmt.Errorf("%w, the servers of the test are kept", cause))
	default:
		left := slices.ContainsFunc(outcomes, func(o Outcome) bool { return !o.Deleted })
		errs = append(errs, interrupted(cause, !left))
	}
	return errors.Join(errs...)
}

// delete deletes all servers, and closes the entry if none is left.
func (t Test) delete(ctx context.Context, entry change.Entry, outcomes []Outcome) error {
	limited, cancel := ending(ctx)
	defer cancel()
	errs := make([]error, len(outcomes))
	var wait sync.WaitGroup
	for i := range outcomes {
		wait.Go(func() { errs[i] = t.remove(ctx, limited, &outcomes[i]) })
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// The servers no longer exist: that is recorded now.
	err := Unlocked(limited, func() error {
		_, err := t.Engine.Undo(limited, entry.ID)
		return err
	})
	if err != nil && !errors.Is(err, change.ErrUndone) && t.Warn != nil {
		t.Warn(fmt.Sprintf("the servers are deleted, but entry %d stays open: %v; 'gpustack undo %d' closes it", entry.ID, err, entry.ID))
	}
	return nil
}

// remove deletes a server and determines whether its devices are free. ctx ends with a signal,
// limited does not.
func (t Test) remove(ctx, limited context.Context, o *Outcome) error {
	var h held
	if context.Cause(ctx) == nil {
		h = t.Evidence.before(limited, o.ID)
	}
	begun := time.Now()
	if err := t.deleteAll(limited, []Server{o.Server}); err != nil {
		o.leave()
		return err
	}
	o.Deleted, o.Seconds.Delete = true, secondsSince(begun)
	o.settle(t.Evidence.after(ctx, o.ID, h, t.Pace))
	return nil
}

// Verdict returns the verdict of a test by the outcomes of its servers: fail if one fails, and
// otherwise unknown if one is unknown.
func Verdict(outcomes []Outcome) probe.Verdict {
	verdict := probe.Pass
	for _, o := range outcomes {
		verdict = probe.Worse(verdict, o.Verdict)
	}
	return verdict
}

// Unlocked calls act, which needs the journal's lock. Another gpustack may have it for a moment,
// such as one that requests servers.
func Unlocked(ctx context.Context, act func() error) error {
	const patience = 30 * time.Second
	for since := time.Now(); ; {
		err := act()
		if !errors.Is(err, change.ErrLocked) || time.Since(since) > patience {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}
