package cleanup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// ErrTooLate says that Nova has gone on from a repair, so that taking it back would
// make what it believes wrong again.
var ErrTooLate = errors.New("Nova has gone on from there") //nolint:staticcheck // a name

// CheckUndo is an error unless each unit that was written can be taken back: an online
// repair until nova-compute has freed a device, an offline one until nova-compute of
// the host has reported again. All that stand in the way are in the error.
func (r *Repairer) CheckUndo(ctx context.Context, units []Unit) error {
	var errs []error
	for i := range units {
		u := &units[i]
		if u.State != Written && u.State != Repaired {
			continue
		}
		cell, err := r.Databases.cell(u.Cell)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		switch u.Repair {
		case Online:
			var kept int
			if kept, err = r.kept(ctx, u); err == nil && kept < len(u.Devices) {
				err = fmt.Errorf("%s: %w: nova-compute has freed the device", u.Name(), ErrTooLate)
			}
		case Offline:
			var reports int64
			reports, err = reportCount(ctx, cell.DB, u.Devices[0].Host)
			if err == nil && reports != u.Reports {
				err = fmt.Errorf("%s: %w: nova-compute has run since", u.Name(), ErrTooLate)
			}
		}
		if err == nil {
			err = are(ctx, cell.DB, u.Rows, true)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// Undo takes the units that were written back, the last first, each in a transaction,
// and records each.
func (r *Repairer) Undo(ctx context.Context, units []Unit) error {
	if err := r.CheckUndo(ctx, units); err != nil {
		return err
	}
	for i := range slices.Backward(units) {
		u := &units[i]
		if u.State != Written && u.State != Repaired {
			continue
		}
		if u.Placement != nil && r.Books == nil {
			return fmt.Errorf("%s: Placement's allocations go back too, and there is no Placement", u.Name())
		}
		cell, err := r.Databases.cell(u.Cell)
		if err != nil {
			return err
		}
		err = inTransaction(ctx, cell.DB, func(tx *sql.Tx) error {
			if err := write(ctx, tx, u.Back()); err != nil || u.Placement == nil {
				return err
			}
			return r.unbook(ctx, u)
		})
		if err != nil {
			return fmt.Errorf("%s: %w", u.Name(), err)
		}
		u.State = TakenBack
		if err := r.Record(units); err != nil {
			return err
		}
	}
	return nil
}

// Back are the changes that take a unit's rows back, the last first.
func (u Unit) Back() []Row {
	var back []Row
	for _, row := range slices.Backward(u.Rows) {
		back = append(back, row.back())
	}
	return back
}

// Reconcile finds out what became of units that a killed run had begun, and puts
// Placement's allocations back for those that it had not written.
func (r *Repairer) Reconcile(ctx context.Context, units []Unit) error {
	for i := range units {
		u := &units[i]
		if u.State != Planned {
			continue
		}
		cell, err := r.Databases.cell(u.Cell)
		if err != nil {
			return err
		}
		written := len(u.Rows) > 0
		if written {
			if err := are(ctx, cell.DB, u.Rows, true); errors.Is(err, errChanged) {
				written = false
			} else if err != nil {
				return err
			}
		}
		switch {
		case written && u.Repair == Offline:
			u.State = Repaired
		case written:
			u.State = Written
		default:
			u.State, u.Note = Skipped, "the run was cut off before this was written"
			if err := r.unbookHalf(ctx, u); err != nil {
				return err
			}
		}
		if err := r.Record(units); err != nil {
			return err
		}
	}
	return nil
}

// unbookHalf puts allocations back that were changed for a unit that was not written.
func (r *Repairer) unbookHalf(ctx context.Context, u *Unit) error {
	if u.Placement == nil || len(u.Rows) == 0 {
		return nil
	}
	if r.Books == nil {
		return fmt.Errorf("%s: Placement's allocations may have to go back, and there is no Placement", u.Name())
	}
	now, err := r.Books.Allocations(ctx, u.Placement.Consumer)
	if err != nil || len(now.Providers) == len(u.Placement.Before.Migration.Providers) {
		return err // they were not changed
	}
	return r.unbook(ctx, u)
}

// kept counts the devices of a unit that its instance still has.
func (r *Repairer) kept(ctx context.Context, u *Unit) (int, error) {
	cell, err := r.Databases.cell(u.Cell)
	if err != nil {
		return 0, err
	}
	var ids []any
	for _, d := range u.Devices {
		ids = append(ids, d.ID)
	}
	var n int
	err = cell.DB.QueryRowContext(ctx, "SELECT COUNT(*) FROM pci_devices WHERE deleted = 0 AND instance_uuid = ? AND id IN ("+places(len(ids))+")", append([]any{u.Instance}, ids...)...).Scan(&n)
	if err != nil {
		return 0, explain("pci_devices", err)
	}
	return n, nil
}

// are is errChanged unless rows are as they are after a change, or before it.
func are(ctx context.Context, db *sql.DB, rows []Row, after bool) error {
	for _, row := range rows {
		want := row.Before
		if after {
			want = row.After
		}
		var id int64
		if _, err := fmt.Sscan(row.Key, &id); err != nil {
			return fmt.Errorf("row %q of %s: %w", row.Key, row.Table, err)
		}
		if err := row.ours(); err != nil {
			return err
		}
		is, err := read(ctx, db, row.Table, id, slices.Sorted(maps.Keys(want))...)
		if err != nil {
			return err
		}
		if !maps.EqualFunc(is.Before, want, func(a, b *string) bool { return a == nil && b == nil || a != nil && b != nil && *a == *b }) {
			return fmt.Errorf("row %s of %s has %w", row.Key, row.Table, errChanged)
		}
	}
	return nil
}

// ours is an error unless the names of a row, which a journal has brought, are those
// of tables and columns that are repaired.
func (r Row) ours() error {
	known := map[string][]string{
		"pci_devices":    {"status", "instance_uuid", "request_id", "deleted", "deleted_at", "updated_at"},
		"migrations":     {"status", "updated_at"},
		"instances":      {"host", "node", "vm_state", "task_state", "updated_at"},
		"instance_extra": {"migration_context", "updated_at"},
	}
	for _, columns := range []map[string]*string{r.Before, r.After} {
		for c := range columns {
			if !slices.Contains(known[r.Table], c) {
				return fmt.Errorf("%s.%s is not repaired by gpustack", r.Table, c)
			}
		}
	}
	return nil
}

func reportCount(ctx context.Context, q rowQuerier, host string) (int64, error) {
	var n sql.NullInt64
	err := q.QueryRowContext(ctx, "SELECT MAX(report_count) FROM services WHERE deleted = 0 AND `binary` = 'nova-compute' AND host = ?", host).Scan(&n)
	if err != nil {
		return 0, explain("services", err)
	}
	return n.Int64, nil
}

type rowQuerier interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

func inTransaction(ctx context.Context, db *sql.DB, act func(*sql.Tx) error) error {
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // of no effect once it is committed
	if err := act(tx); err != nil {
		return err
	}
	return tx.Commit()
}
