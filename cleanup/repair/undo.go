package repair

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
	"gpustack/host"
)

// ErrTooLate says that Nova has gone on from a repair, so that taking it back would
// make what it believes wrong again.
var ErrTooLate = host.WithHint(errors.New("too late to undo"), "gpustack repair-migration shows the rows as they are now")

// CheckUndo is an error unless each unit that was written can be undone: an online repair
// until nova-compute has freed a device, an offline one until nova-compute of a host has
// reported again, either as long as rows and allocations are as they were written. All
// reasons are in the error.
func (r *Repairer) CheckUndo(ctx context.Context, units []cleanup.Unit) error {
	var errs []error
	for i := range units {
		u := &units[i]
		if u.State != cleanup.Written && u.State != cleanup.Repaired {
			continue
		}
		cell, err := r.cell(u)
		if err == nil {
			err = sameDatabase(ctx, cell.DB, u)
		}
		if err == nil {
			err = undoable(ctx, cell.DB, u, "")
		}
		if err == nil && u.Placement != nil {
			err = r.booked(ctx, u)
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", u.Name(), err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// undoable is an error unless a unit's rows are as they were written, and Nova has not gone
// on from them. locking is how the rows are read.
func undoable(ctx context.Context, q rowQuerier, u *cleanup.Unit, locking string) error {
	if u.Repair == cleanup.Online {
		kept, err := kept(ctx, q, u, locking)
		if err != nil {
			return err
		}
		if kept < len(u.Devices) {
			return fmt.Errorf("%w: nova-compute has freed the device", ErrTooLate)
		}
	}
	for _, host := range slices.Sorted(maps.Keys(u.Reports)) {
		reports, err := reportCount(ctx, q, host, locking)
		if err != nil {
			return err
		}
		if reports != u.Reports[host] {
			return fmt.Errorf("%w: nova-compute on %s has run since", ErrTooLate, host)
		}
	}
	for _, row := range u.Rows {
		if side, err := sideOf(ctx, q, []cleanup.Row{row}); err != nil || side != After {
			return errors.Join(err, fmt.Errorf("row %s of %s has been changed since", row.Key, row.Table))
		}
	}
	return nil
}

// booked is an error unless Placement's allocations are those that the repair wrote. It notes
// the generations that it has seen.
func (r *Repairer) booked(ctx context.Context, u *cleanup.Unit) error {
	now, side, err := r.stand(ctx, u)
	if err != nil {
		return err
	}
	if side != After {
		return neither(u, now)
	}
	p := u.Placement
	p.Before.Instance.Generation, p.Before.Migration.Generation = now.Instance.Generation, now.Migration.Generation
	return nil
}

// Undo undoes the units that were written, the last first, each in a transaction, and
// records each. One that has begun ends, none is begun after ctx.
//
// Errors: ErrUnknown goes with a unit whose outcome is not known, which has the state Begun.
func (r *Repairer) Undo(ctx context.Context, units []cleanup.Unit) error {
	if err := r.CheckUndo(ctx, units); err != nil {
		return err
	}
	for i := range slices.Backward(units) {
		u := &units[i]
		if u.State != cleanup.Written && u.State != cleanup.Repaired {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return err
		}
		err := r.carry(ctx, units, u, change{Before, func(ctx context.Context, tx *sql.Tx, _ novadb.Cell, u *cleanup.Unit, locking string) ([]cleanup.Row, error) {
			return u.Back(), undoable(ctx, tx, u, locking)
		}})
		switch {
		case err == nil:
			u.State = cleanup.Undone
		case errors.Is(err, ErrUnknown):
			u.State, u.Note = cleanup.Begun, err.Error()
		}
		recordErr := r.Record(units)
		if err != nil {
			err = fmt.Errorf("%s: %w", u.Name(), err)
		}
		if err := errors.Join(err, recordErr); err != nil {
			return err
		}
	}
	return nil
}

// kept counts the devices of a unit that its instance still has.
func kept(ctx context.Context, q rowQuerier, u *cleanup.Unit, locking string) (int, error) {
	var ids []any
	for _, d := range u.Devices {
		ids = append(ids, d.ID)
	}
	var n int
	err := q.QueryRowContext(ctx, "SELECT COUNT(*) FROM pci_devices WHERE deleted = 0 AND instance_uuid = ? AND id IN ("+novadb.Places(len(ids))+") "+locking, append([]any{u.Instance}, ids...)...).Scan(&n)
	if err != nil {
		return 0, novadb.Explain("pci_devices", err)
	}
	return n, nil
}

// ours is an error unless the names of a row, which a journal has brought, are those
// of tables and columns that are repaired.
func checkOurs(r cleanup.Row) error {
	known := map[string][]string{
		"pci_devices":    {"status", "instance_uuid", "request_id", "deleted", "deleted_at", "updated_at"},
		"migrations":     {"status", "updated_at"},
		"instances":      {"host", "node", "vm_state", "task_state", "updated_at"},
		"instance_extra": {"migration_context", "updated_at"},
	}
	for _, columns := range []map[string]*string{r.Before, r.After} {
		for c := range columns {
			if !slices.Contains(known[r.Table], c) {
				return fmt.Errorf("the journal names %s.%s, which gpustack does not repair", r.Table, c)
			}
		}
	}
	return nil
}

// reportCount is how often nova-compute of a host has reported; 0 where it has no service.
// locking is how the row is read: in a transaction, "FOR UPDATE" reads it as it is now.
func reportCount(ctx context.Context, q rowQuerier, host, locking string) (int64, error) {
	var n sql.NullInt64
	err := q.QueryRowContext(ctx, "SELECT MAX(report_count) FROM services WHERE deleted = 0 AND `binary` = 'nova-compute' AND host = ? "+locking, host).Scan(&n)
	if err = novadb.IgnoreNoName(err); err != nil {
		return 0, novadb.Explain("services", err)
	}
	return n.Int64, nil
}

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}
