package repair

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host"
)

// Repairer applies units, undoes them, and determines the outcome of interrupted ones.
type Repairer struct {
	Databases *novadb.Databases
	Options   find.Options // with which the findings were made; rows are judged again with them
	Placement Placement    // nil before SignIn was called, or if no unit changes allocations
	// SignIn connects to Placement. It is called when a unit changes allocations, until it
	// succeeds.
	SignIn func(context.Context) (Placement, error)
	// Record records the units as they are now. It is called before the first write of a unit and
	// after its end.
	Record func([]cleanup.Unit) error

	entry int // of the journal, for hints; 0 for a planned change
}

// ErrUnknown goes with a unit that was begun and whose outcome the database or Placement has not
// answered. Its entry in the journal stays open until Recover determines the outcome.
var ErrUnknown = host.WithHint(errors.New("the outcome of this repair is unknown"),
	host.Textf("%s determines it and completes or reverts the repair; --accept ENTRY closes the entry as it is",
		host.NewCommand("repair-migration").Flag("apply")))

// unknownBecause returns ErrUnknown with a reason. The hint of the reason comes first, if it has one.
func unknownBecause(reason error) error { return fmt.Errorf("%[2]w: %[1]w", reason, ErrUnknown) }

// errChanged goes with a unit whose evidence has changed since the unit was planned.
var errChanged = errors.New("changed since it was planned")

// Apply makes the planned repairs one after the other, each in one transaction. A unit whose
// evidence has changed is skipped, with the reason. Each unit is recorded before its first write
// and after its end.
//
// When ctx ends, a unit that was begun is finished, the remaining units are skipped, and the error
// is the cause of ctx. A unit whose rows are locked by others for too long is skipped, and its
// error is returned at the end. After any other error the remaining units are skipped.
//
// Errors: ErrUnknown goes with a unit whose outcome is unknown, which has the state Begun.
func (r *Repairer) Apply(ctx context.Context, units []cleanup.Unit) error {
	var errs []error
	for i := range units {
		u := &units[i]
		if u.State != cleanup.Planned {
			continue
		}
		if context.Cause(ctx) != nil {
			err := interrupted(ctx, units)
			return errors.Join(append(errs, err, r.leave(units, "not begun: the run was interrupted"))...)
		}
		err := r.carry(ctx, units, u, After, func(ctx context.Context, tx *sql.Tx, cell novadb.Cell) ([]cleanup.Row, error) {
			return r.evidenceHolds(ctx, tx, cell, u)
		})
		switch {
		case err == nil:
			u.State = committed(u)
		case errors.Is(err, ErrUnknown):
			u.State, u.Note = cleanup.Begun, err.Error()
		default:
			u.State, u.Note, u.Rows = cleanup.Skipped, err.Error(), []cleanup.Row{}
		}
		if err != nil && (u.State == cleanup.Begun || !errors.Is(err, errChanged)) {
			errs = append(errs, fmt.Errorf("%s: %w", u.Name(), err))
			if !again(err) {
				return errors.Join(append(errs, r.leave(units, "not begun: the repair of "+u.Name()+" failed"))...)
			}
		}
		if err := r.Record(units); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	if !slices.ContainsFunc(units, touched) {
		errs = append(errs, interrupted(ctx, units))
	}
	return errors.Join(errs...)
}

// touched returns whether something of a unit was written, or may have been.
func touched(u cleanup.Unit) bool { return u.Written() || u.Open() }

// interrupted returns the cause of ctx, if it has ended, and says so if no unit was touched.
func interrupted(ctx context.Context, units []cleanup.Unit) error {
	cause := context.Cause(ctx)
	if cause != nil && !slices.ContainsFunc(units, touched) {
		return fmt.Errorf("%w, nothing was changed", cause)
	}
	return cause
}

// committed returns the state of a unit whose rows are committed: devices of a closed migration
// are still to be freed by nova-compute, rows written offline are free.
func committed(u *cleanup.Unit) cleanup.State {
	if u.Repair == cleanup.Offline || u.Repair == cleanup.Reopen {
		return cleanup.Repaired
	}
	return cleanup.Written
}

// leave marks the units that were not begun as skipped, and records that.
func (r *Repairer) leave(units []cleanup.Unit, why string) error {
	for i := range units {
		if u := &units[i]; u.State == cleanup.Planned {
			u.State, u.Note, u.Rows = cleanup.Skipped, why, []cleanup.Row{}
		}
	}
	return r.Record(units)
}

// Preview fills in the rows that the units would write now. It writes and locks nothing, and does
// not judge the findings' rows again: Apply does, under locks.
func (r *Repairer) Preview(ctx context.Context, units []cleanup.Unit) error {
	for i := range units {
		u := &units[i]
		if u.State != cleanup.Planned {
			continue
		}
		switch err := r.preview(ctx, u); {
		case errors.Is(err, errChanged):
			u.State, u.Note, u.Rows = cleanup.Skipped, err.Error(), []cleanup.Row{}
		case err != nil:
			return fmt.Errorf("%s: %w", u.Name(), err)
		}
	}
	return nil
}

func (r *Repairer) preview(ctx context.Context, u *cleanup.Unit) error {
	cell, err := r.cell(u)
	if err != nil {
		return err
	}
	tx, err := cell.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return novadb.Explain("cell "+cell.Name, err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	var now time.Time
	if err := novadb.QueryRow(ctx, tx, "cell "+cell.Name, []any{&u.Database, &now}, "SELECT DATABASE(), UTC_TIMESTAMP()"); err != nil {
		return err
	}
	if u.Rows, err = rowsOf(ctx, tx, now, u, ""); errors.Is(err, sql.ErrNoRows) {
		return fmt.Errorf("%s or its instance has %w: a row is gone", u.Name(), errChanged)
	}
	return err
}

// Wait waits until nova-compute has freed the devices of the written units, or until patience is
// over, and records which are free. It calls progress every second with the number of units left.
func (r *Repairer) Wait(ctx context.Context, units []cleanup.Unit, patience time.Duration, progress func(left int)) error {
	deadline := time.Now().Add(patience)
	for {
		left := 0
		for i := range units {
			u := &units[i]
			if u.State != cleanup.Written {
				continue
			}
			free, err := r.free(ctx, u)
			if err != nil {
				return err
			}
			if !free && u.Repair == cleanup.ClearContext {
				u.Note = "the instance has a migration context again"
				return errors.Join(fmt.Errorf("%s: %s: run gpustack repair-migration again", u.Name(), u.Note), r.Record(units))
			}
			if off := r.off(u); !free && off != "" {
				u.Note = "no nova-compute frees the devices while " + off + " is off: run the same command again, which frees them"
				continue
			}
			if !free {
				left++
				continue
			}
			u.State = cleanup.Repaired
			if err := r.Record(units); err != nil {
				return err
			}
		}
		if left == 0 || time.Now().After(deadline) {
			return nil
		}
		progress(left)
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(time.Second):
		}
	}
}

// off returns a host of a unit's devices that is declared off, "" if there is none.
func (r *Repairer) off(u *cleanup.Unit) string {
	for _, d := range u.Devices {
		if cmp.Or(r.Options.Proof, cleanup.NoProof()).Off(d.Host) {
			return d.Host
		}
	}
	return ""
}

// Settled returns an error for each host whose nova-compute has reported since rows of the host
// were written offline, and so may still use the old rows. Call it half a minute after Apply.
func (r *Repairer) Settled(ctx context.Context, units []cleanup.Unit) error {
	var errs []error
	said := map[string]bool{}
	for _, u := range units {
		if u.Repair != cleanup.Offline || u.State != cleanup.Repaired {
			continue
		}
		cell, err := r.cell(&u)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, host := range slices.Sorted(maps.Keys(u.Reports)) {
			n, err := reportCount(ctx, cell.DB, host, "")
			if err == nil && n != u.Reports[host] && !said[host] {
				said[host] = true
				err = fmt.Errorf("nova-compute on %s has started again: restart it now, so that it reads its devices again", host)
			}
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// free returns whether none of a unit's devices belongs to its instance any more, or whether the
// migration context that the unit clears is gone.
func (r *Repairer) free(ctx context.Context, u *cleanup.Unit) (bool, error) {
	cell, err := r.cell(u)
	if err != nil {
		return false, err
	}
	n, err := kept(ctx, cell.DB, u, "")
	return n == 0, err
}
