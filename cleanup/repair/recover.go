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
	"gpustack/nova/cloud"
)

// Standing is where an open unit was found.
type Standing struct {
	Rows        Side
	Allocations Side // "" for a unit that has nothing to do with Placement
}

// Stand reads where an open unit is, without changing anything: a transaction or a request
// that is still on its way may change it a moment later.
func (r *Repairer) Stand(ctx context.Context, u *cleanup.Unit) (s Standing, err error) {
	cell, err := r.cell(u)
	if err != nil {
		return s, err
	}
	if err := sameDatabase(ctx, cell.DB, u); err != nil {
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

// ErrOtherDatabase says that a unit was written in another database than the one that is
// looked at.
var ErrOtherDatabase = host.WithHint(errors.New("not the database of this repair"), "give the --database or --conf that the repair was made with")

// cell is the database that a unit was planned in.
func (r *Repairer) cell(u *cleanup.Unit) (novadb.Cell, error) {
	cell, err := r.Databases.Cell(u.Cell)
	if err != nil {
		return novadb.Cell{}, fmt.Errorf("cell %q (schema %q) is not among the given databases: %w", u.Cell, u.Database, ErrOtherDatabase)
	}
	return cell, nil
}

// sameDatabase is an error unless the unit's rows are those of this database: ids count from
// 1 in each.
func sameDatabase(ctx context.Context, q rowQuerier, u *cleanup.Unit) error {
	var name string
	if err := q.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&name); err != nil {
		return novadb.Explain("the database", err)
	}
	if u.Database != "" && u.Database != name {
		return fmt.Errorf("%s: %w, which was made in %s", name, ErrOtherDatabase, u.Database)
	}
	archived := true
	for _, d := range u.Devices {
		var node int64
		var address string
		err := q.QueryRowContext(ctx, "SELECT compute_node_id, address FROM pci_devices WHERE id = ?", d.ID).Scan(&node, &address)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			continue
		case err != nil:
			return novadb.Explain("pci_devices", err)
		case node != d.Node || address != d.Address:
			return fmt.Errorf("%s: %w: row %d of pci_devices is another device", name, ErrOtherDatabase, d.ID)
		}
		archived = false
	}
	if !archived {
		return nil
	}
	var host string
	err := q.QueryRowContext(ctx, "SELECT COALESCE(host, '') FROM compute_nodes WHERE id = ?", u.Devices[0].Node).Scan(&host)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && host != u.Devices[0].Host:
		return fmt.Errorf("%s: %w, or its rows are archived", name, ErrOtherDatabase)
	case err != nil:
		return novadb.Explain("compute_nodes", err)
	}
	return nil
}

// Recover determines what became of units that were begun by a run that was interrupted or
// got no answer, and brings Placement's allocations to the side of the rows: it completes
// or reverts the unit. Units that were never begun are skipped. undoing says that the run
// was an undo.
//
// Rows count as not written only when a transaction of its own has locked the same rows and
// changed one of them: then one that was begun before has either been committed, and is
// seen, or can no longer be.
//
// Errors: ErrUnknown where it still is unknown; then the unit stays open, and those after
// it are recovered all the same.
func (r *Repairer) Recover(ctx context.Context, units []cleanup.Unit, undoing bool) error {
	return r.each(units, func(u *cleanup.Unit) error {
		if undoing && (u.State == cleanup.Written || u.State == cleanup.Repaired) {
			// Releases before the state Begun did not mark a unit before they undid it.
			if s, err := r.Stand(ctx, u); err != nil || s.Rows == After && s.Allocations != Before {
				return err
			}
			u.State = cleanup.Begun
		}
		if !u.Open() {
			return nil
		}
		return r.recover(ctx, u, undoing)
	})
}

// each has act end each unit, and records it. A unit for which it returns an error stays or
// becomes open.
func (r *Repairer) each(units []cleanup.Unit, act func(*cleanup.Unit) error) error {
	var errs []error
	for i := range units {
		u := &units[i]
		if u.State == cleanup.Planned && !u.Open() {
			u.State, u.Note = cleanup.Skipped, "not begun: the run was interrupted"
		} else if err := act(u); err != nil {
			if !errors.Is(err, ErrUnknown) {
				err = unknownBecause(err)
			}
			u.State, u.Note = cleanup.Begun, err.Error()
			errs = append(errs, fmt.Errorf("%s: %w", u.Name(), err))
		}
		if err := r.Record(units); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

func (r *Repairer) recover(ctx context.Context, u *cleanup.Unit, undoing bool) error {
	side, err := r.fence(ctx, u, undoing)
	if err != nil {
		return err
	}
	if u.Placement != nil {
		now, _, err := r.stand(ctx, u)
		switch {
		case err != nil:
			return err
		case empty(now):
			// The instance is gone. A request that is still on its way names generations of
			// consumers that are no more, and is refused.
		case side == Neither:
			return errors.New("its rows have been changed by something else")
		default:
			if _, err := r.book(ctx, u, side); err != nil {
				return err
			}
		}
	}
	closeUnit(u, side, undoing, "the run was interrupted")
	return nil
}

// empty reports whether neither consumer holds anything.
func empty(b cleanup.Books) bool {
	return len(b.Instance.Providers)+len(b.Migration.Providers) == 0
}

// close ends an open unit whose rows are at a side.
func closeUnit(u *cleanup.Unit, side Side, undoing bool, why string) {
	switch {
	case side == After:
		u.State, u.Note = committed(u), ""
	case side == Before && undoing:
		u.State, u.Note = cleanup.Undone, ""
	case side == Before:
		u.State, u.Note, u.Rows = cleanup.Skipped, why+" before this was written", []cleanup.Row{}
	default:
		u.State, u.Note, u.Rows = cleanup.Skipped, why+", and the rows have been changed by something else since", []cleanup.Row{}
	}
}

// Accept closes open units as their rows and allocations are now, whatever that is, where
// Recover cannot: the operator has looked at them. Rows and allocations are written as they
// are, so that a transaction or a request of before can no longer change them.
//
// Errors: as of Recover.
func (r *Repairer) Accept(ctx context.Context, units []cleanup.Unit, undoing bool) error {
	return r.each(units, func(u *cleanup.Unit) error {
		if !u.Open() {
			return nil
		}
		side, err := r.fence(ctx, u, undoing)
		if err != nil {
			return err
		}
		note := "accepted as it was, with its rows " + side.Text()
		if u.Placement != nil {
			now, _, err := r.stand(ctx, u)
			if err != nil {
				return err
			}
			held := map[string]cloud.Allocations{}
			for name, a := range map[string]cloud.Allocations{u.Instance: now.Instance, u.Placement.Consumer: now.Migration} {
				if a.Generation != nil {
					held[name] = a
				}
			}
			if len(held) > 0 {
				err := r.Books.SetAllocations(ctx, held)
				if err != nil && !r.bump(ctx, held) {
					return err
				}
			}
			note += fmt.Sprintf("; the instance holds %s, its migration %s", cleanup.Providers(now.Instance), cleanup.Providers(now.Migration))
		}
		closeUnit(u, side, undoing, note)
		u.Note = note
		return nil
	})
}

// Text says where rows or allocations are, as part of a sentence about a repair.
func (s Side) Text() string {
	if s == Neither {
		return "neither as before nor as after it"
	}
	return "as " + string(s) + " it"
}

// fenceTries is how often Recover waits for locks, a second or more each time.
const fenceTries = 10

// errStays ends a transaction that has nothing to write.
var errStays = errors.New("nothing to write")

// fence returns where a unit's rows are, such that this cannot change any more through a
// transaction that was begun before.
func (r *Repairer) fence(ctx context.Context, u *cleanup.Unit, undoing bool) (side Side, err error) {
	done := After // the side that such a transaction leads to
	if undoing {
		done = Before
	}
	var touched *cleanup.Row
	// A transaction whose connection was lost holds its locks until it has ended.
	for range fenceTries {
		err = r.locked(ctx, u, func(ctx context.Context, tx *sql.Tx, _ novadb.Cell) (err error) {
			if err := sameDatabase(ctx, tx, u); err != nil {
				return err
			}
			if side, err = sideOf(ctx, tx, u.Rows); err != nil {
				return err
			}
			if side == done {
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
		// So that the row is still known as the one of that side.
		for _, recorded := range u.Rows {
			if recorded.Table == touched.Table && recorded.Key == touched.Key {
				columns := recorded.Before
				if side == After {
					columns = recorded.After
				}
				maps.Copy(columns, touched.Before)
			}
		}
	}
	return side, err
}

// touch moves updated_at of a row that the unit writes, of its instance where that is among
// them: on a cluster a transaction of another node that writes the row fails its
// certification, or makes this one fail. It returns the column as it is then; nil where
// the row is gone.
func touch(ctx context.Context, tx *sql.Tx, u *cleanup.Unit) (*cleanup.Row, error) {
	if len(u.Rows) == 0 {
		return nil, nil
	}
	target := u.Rows[0]
	for _, row := range u.Rows {
		if row.Table == "instances" {
			target = row
		}
	}
	var id int64
	if _, err := fmt.Sscan(target.Key, &id); err != nil {
		return nil, fmt.Errorf("row %q of %s: %w", target.Key, target.Table, err)
	}
	row, err := read(ctx, tx, target.Table, id, "updated_at")
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	// Later than before, and not what the repair itself has written or was to write.
	statement := later(target.Table)
	result, err := tx.ExecContext(ctx, statement, target.After["updated_at"], id, row.Before["updated_at"])
	if err != nil {
		return nil, novadb.Explain(target.Table, err)
	}
	if n, err := result.RowsAffected(); err != nil || n != 1 {
		return nil, errors.Join(fmt.Errorf("row %d of %s has %w", id, target.Table, errChanged), err)
	}
	row, err = read(ctx, tx, target.Table, id, "updated_at")
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
func sideOf(ctx context.Context, q rowQuerier, rows []cleanup.Row) (Side, error) {
	found := map[Side]bool{}
	for _, row := range rows {
		var id int64
		if _, err := fmt.Sscan(row.Key, &id); err != nil {
			return "", fmt.Errorf("row %q of %s: %w", row.Key, row.Table, err)
		}
		if err := checkOurs(row); err != nil {
			return "", err
		}
		if sameColumns(row.Before, row.After) {
			continue // says nothing
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
