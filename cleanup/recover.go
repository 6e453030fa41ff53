package cleanup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
)

// Open reports whether a unit was begun, and it is not known what became of it. Releases
// before the state Begun left those planned, with their rows.
func (u Unit) Open() bool {
	return u.State == Begun || u.State == Planned && len(u.Rows) > 0
}

// Standing is where a unit that is open was found.
type Standing struct {
	Rows        Side
	Allocations Side // "" for a unit that has nothing to do with Placement
}

// Stand reads where an open unit is, without changing anything: a transaction or a request
// that is still on its way may change it a moment later.
func (r *Repairer) Stand(ctx context.Context, u *Unit) (s Standing, err error) {
	cell, err := r.Databases.cell(u.Cell)
	if err != nil {
		return s, err
	}
	if s.Rows, err = sideOf(ctx, cell.DB, u.Rows); err != nil {
		return s, err
	}
	if u.Placement != nil {
		_, s.Allocations, err = r.stand(ctx, u)
	}
	return s, err
}

// Recover finds out what became of units that were begun by a run that was cut off or did
// not get an answer, and brings Placement's allocations to the side of the rows: it
// completes or reverts the unit. Units that were never begun are skipped.
//
// Rows count as not written only when a transaction of its own has locked the same rows and
// changed one of them: then one that was begun before has either been committed, and is
// seen, or can no longer be.
//
// Errors: ErrUnknown where it still is not known; then the unit stays open, and those after
// it are recovered all the same.
func (r *Repairer) Recover(ctx context.Context, units []Unit) error {
	var errs []error
	for i := range units {
		u := &units[i]
		switch {
		case u.State == Planned && !u.Open():
			u.State, u.Note = Skipped, "not begun: the run was interrupted"
		case u.Open():
			if err := r.recover(ctx, u); err != nil {
				u.State, u.Note = Begun, err.Error()
				errs = append(errs, fmt.Errorf("%s: %w", u.Name(), err))
			}
		default:
			continue
		}
		if err := r.Record(units); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

func (r *Repairer) recover(ctx context.Context, u *Unit) error {
	side, err := r.fence(ctx, u)
	if err != nil {
		if !errors.Is(err, ErrUnknown) {
			err = fmt.Errorf("%w: %w", ErrUnknown, err)
		}
		return err
	}
	if u.Placement != nil {
		if side == Neither {
			return fmt.Errorf("%w: its rows have been changed by something else", ErrUnknown)
		}
		if _, err := r.book(ctx, u, side); err != nil {
			return err
		}
	}
	switch side {
	case After:
		u.State, u.Note = committed(u), ""
	case Before:
		u.State, u.Note, u.Rows = Skipped, "the run was interrupted before this was written", []Row{}
	default:
		// Rows alone, and whatever has changed them has seen what they were then.
		u.State, u.Note, u.Rows = Skipped, "the run was interrupted, and the rows have been changed by something else since", []Row{}
	}
	return nil
}

// fenceTries is how often Recover waits for locks, a second or more each time.
const fenceTries = 10

// errStays ends a transaction that has nothing to write.
var errStays = errors.New("nothing to write")

// fence returns where a unit's rows are, such that this cannot change any more through a
// transaction that was begun before.
func (r *Repairer) fence(ctx context.Context, u *Unit) (side Side, err error) {
	var touched *Row
	// A transaction whose connection was lost holds its locks until it has ended.
	for range fenceTries {
		err = r.locked(ctx, u, func(ctx context.Context, tx *sql.Tx, _ Cell) (err error) {
			if side, err = sideOf(ctx, tx, u.Rows); err != nil {
				return err
			}
			if side == After {
				return errStays // committed, and seen
			}
			touched, err = touch(ctx, tx, u)
			return err
		})
		if !again(err) || ctx.Err() != nil {
			break
		}
	}
	if errors.Is(err, errStays) {
		err = nil
	}
	if err == nil && touched != nil {
		// So that the row is still known as the one of before.
		for _, recorded := range u.Rows {
			if recorded.Table == touched.Table && recorded.Key == touched.Key {
				maps.Copy(recorded.Before, touched.Before)
			}
		}
	}
	return side, err
}

// touch moves updated_at of the unit's instance, or of its first device where the instance
// has no row: on a cluster a transaction of another node that has changed the row fails its
// certification, or makes this one fail. It returns the column as it is then; nil where
// both rows are gone.
func touch(ctx context.Context, tx *sql.Tx, u *Unit) (*Row, error) {
	table, id := "pci_devices", u.Devices[0].ID
	err := tx.QueryRowContext(ctx, "SELECT id FROM instances WHERE uuid = ?", u.Instance).Scan(&id)
	switch {
	case err == nil:
		table = "instances"
	case !errors.Is(err, sql.ErrNoRows):
		return nil, explain("instances", err)
	}
	row, err := read(ctx, tx, table, id, "updated_at")
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// Later than before, and not what the repair itself has written or was to write.
	var written *string
	for _, recorded := range u.Rows {
		if recorded.Table == table && recorded.Key == row.Key {
			written = recorded.After["updated_at"]
		}
	}
	statement := later(table)
	result, err := tx.ExecContext(ctx, statement, written, id, row.Before["updated_at"])
	if err != nil {
		return nil, explain(table, err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return nil, errors.Join(fmt.Errorf("row %d of %s has %w", id, table, errChanged), err)
	}
	row, err = read(ctx, tx, table, id, "updated_at")
	return &row, err
}

// later is the statement that moves updated_at of a row of a table: later than it is, and
// than another time.
func later(table string) string {
	return "UPDATE " + table + ` SET updated_at = GREATEST(UTC_TIMESTAMP(),
		COALESCE(updated_at, UTC_TIMESTAMP()) + INTERVAL 1 SECOND, COALESCE(CAST(? AS DATETIME), UTC_TIMESTAMP()) + INTERVAL 1 SECOND)
		WHERE id = ? AND updated_at <=> ?`
}

// sideOf returns where the rows of one transaction are. All were written or none, so that one
// that is as before or after speaks for those that something else has changed since.
func sideOf(ctx context.Context, q rowQuerier, rows []Row) (Side, error) {
	found := map[Side]bool{}
	for _, row := range rows {
		var id int64
		if _, err := fmt.Sscan(row.Key, &id); err != nil {
			return "", fmt.Errorf("row %q of %s: %w", row.Key, row.Table, err)
		}
		if err := row.ours(); err != nil {
			return "", err
		}
		is, err := read(ctx, q, row.Table, id, slices.Sorted(maps.Keys(row.After))...)
		if errors.Is(err, sql.ErrNoRows) {
			continue // archived since
		}
		if err != nil {
			return "", err
		}
		found[After] = found[After] || sameColumns(is.Before, row.After)
		found[Before] = found[Before] || sameColumns(is.Before, row.Before)
	}
	switch {
	case found[After] && !found[Before]:
		return After, nil
	case found[Before] && !found[After]:
		return Before, nil
	}
	return Neither, nil
}

func sameColumns(a, b map[string]*string) bool {
	return maps.EqualFunc(a, b, func(x, y *string) bool { return x == nil && y == nil || x != nil && y != nil && *x == *y })
}
