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
	"gpustack/cleanup/novadb"
	"gpustack/host"
)

// Standing has the sides at which an open unit was found.
type Standing struct {
	Rows        Side
	Allocations Side // "" for a unit without allocations
}

// Stand reads the sides of an open unit. It changes nothing, so a transaction or a request of the
// interrupted run that arrives late may change them afterwards.
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

// errOtherDatabase goes with a unit whose rows are in another database than the given ones.
var errOtherDatabase = host.WithHint(errors.New("not the database of this repair"), "give the --database or --conf that the repair was made with")

// cell returns the cell that a unit was planned in.
func (r *Repairer) cell(u *cleanup.Unit) (novadb.Cell, error) {
	cell, err := r.Databases.Cell(u.Cell)
	if err != nil {
		return novadb.Cell{}, fmt.Errorf("cell %q (schema %q) is not among the given databases: %w", u.Cell, u.Database, errOtherDatabase)
	}
	return cell, nil
}

// sameDatabase returns an error unless the unit's rows are in this database: ids count from 1 in
// each database, and clouds have the same names of databases and the same addresses.
func sameDatabase(ctx context.Context, q novadb.Querier, u *cleanup.Unit) error {
	var name string
	if err := novadb.QueryRow(ctx, q, "the database", []any{&name}, "SELECT DATABASE()"); err != nil {
		return err
	}
	if u.Database != "" && u.Database != name {
		return fmt.Errorf("%s: %w, which was made in %s", name, errOtherDatabase, u.Database)
	}
	archived := true
	for _, d := range u.Devices {
		var node int64
		var address, of string
		err := novadb.QueryRow(ctx, q, "pci_devices", []any{&node, &address, &of}, "SELECT compute_node_id, address, COALESCE(compute_nodes.host, ?) "+
			"FROM pci_devices LEFT JOIN compute_nodes ON compute_nodes.id = compute_node_id WHERE pci_devices.id = ?", d.Host, d.ID)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			continue
		case err != nil:
			return err
		case node != d.Node || address != d.Address || cleanup.KeyOf(of) != cleanup.KeyOf(d.Host):
			return fmt.Errorf("%s: %w: row %d of pci_devices is %s of %s", name, errOtherDatabase, d.ID, address, cmp.Or(of, "no host"))
		}
		archived = false
	}
	if !archived {
		return nil
	}
	var host string
	err := novadb.QueryRow(ctx, q, "compute_nodes", []any{&host}, "SELECT COALESCE(host, '') FROM compute_nodes WHERE id = ?", u.Devices[0].Node)
	switch {
	case errors.Is(err, sql.ErrNoRows), err == nil && cleanup.KeyOf(host) != cleanup.KeyOf(u.Devices[0].Host):
		return fmt.Errorf("%s: %w, or its rows are archived", name, errOtherDatabase)
	}
	return err
}

// Recover determines the outcome of units that were begun by a run which was interrupted or got no
// answer, and brings Placement's allocations to the side of the rows: it completes or reverts the
// unit. Units that were never begun are skipped. undoing says that the run was an undo.
//
// Rows count as not written only after a transaction of Recover has locked the same rows and
// changed one of them: an earlier transaction has then either been committed, and is seen, or can
// no longer be committed.
//
// Errors: ErrUnknown if an outcome cannot be determined. That unit stays open; later units are
// recovered nevertheless.
func (r *Repairer) Recover(ctx context.Context, units []cleanup.Unit, undoing bool) error {
	return r.each(units, func(u *cleanup.Unit) error {
		side, err := r.settle(ctx, u, undoing, true)
		if err == nil {
			closeUnit(u, side, undoing, "the run was interrupted")
		}
		return err
	})
}

// each calls act for each open unit, and records the units. A unit for which
// act returns an error stays open, or becomes so.
func (r *Repairer) each(units []cleanup.Unit, act func(*cleanup.Unit) error) error {
	var errs []error
	for i := range units {
		u := &units[i]
		switch {
		case u.State == cleanup.Planned:
			u.State, u.Note = cleanup.Skipped, "not begun: the run was interrupted"
		case u.Open():
			err := act(u)
			if err == nil {
				break
			}
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

// settle brings the allocations of a unit to the side of its rows, in a transaction that keeps the
// rows there, and returns that side. lost says that a transaction of the unit may have been
// committed: otherwise another run has written rows that are at the side to which the unit leads.
//
// Errors: ErrUnknown if the rows or the allocations are at neither side, if the allocations are not
// at the side of rows that something else has changed since, if Placement does not answer or
// refuses the write, or if the transaction is not committed.
func (r *Repairer) settle(ctx context.Context, u *cleanup.Unit, undoing, lost bool) (Side, error) {
	side, err := r.fence(ctx, u, undoing, func(is sides) (to Side, touches bool, err error) {
		if to = is.written; to == Neither {
			to = is.content
		}
		moves := is.held != to && is.held != Neither && !unchanged(u)
		switch {
		case empty(is.now) && is.gone:
			// Placement refuses a late request, which has generations of consumers that no longer
			// exist.
			return "", false, nil
		case to == Neither, moves && is.content != to:
			return "", false, errors.New("the rows have been changed by something else")
		case moves && is.stays && (!lost || is.written == Neither):
			// The other run may be undoing that on another node of a cluster.
			return "", false, errors.New("another run has written the rows, and the allocations are not at their side")
		}
		return to, moves, nil
	})
	if err != nil && !errors.Is(err, ErrUnknown) {
		err = unknownBecause(err)
	}
	return side, err
}

// empty returns whether no consumer has allocations.
func empty(b cleanup.Allocations) bool {
	for _, a := range b.Migrations {
		if len(a.Providers) > 0 {
			return false
		}
	}
	return len(b.Instance.Providers) == 0
}

// closeUnit sets the final state of an open unit whose rows are at a side.
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

// Accept closes open units that Recover cannot, with their rows and allocations as they are now;
// the operator has inspected them. It writes both unchanged, so that a late transaction or request
// of the interrupted run can no longer change them.
//
// Errors: like Recover.
func (r *Repairer) Accept(ctx context.Context, units []cleanup.Unit, undoing bool) error {
	return r.each(units, func(u *cleanup.Unit) error {
		note := ""
		side, err := r.fence(ctx, u, undoing, func(is sides) (Side, bool, error) {
			note = "; " + is.now.Text()
			return Neither, false, nil
		})
		if err != nil {
			return err
		}
		closeUnit(u, side, undoing, "")
		u.Note = "accepted as it was, with its rows " + side.Text() + note
		return nil
	})
}

// Text returns the side as part of a sentence about a repair.
func (s Side) Text() string {
	if s == Neither {
		return "neither as before nor as after it"
	}
	return "as " + string(s) + " it"
}

// sides are the sides of a unit's rows and of its allocations.
type sides struct {
	// written is the side to which a transaction of the unit has written the rows, by their times.
	written Side
	// content is the side that all rows are at, by whichever run.
	content Side
	// gone says that the instance is deleted, or its row purged.
	gone bool
	// stays says that the rows are at the side to which the unit leads.
	stays bool

	now  cleanup.Allocations
	held Side // of now
}

// fence returns the side of a unit's rows, and ensures that no earlier transaction can change it
// any more: it locks the rows, and unless they are where that transaction leads to, moves
// updated_at of one of them, because row locks are not replicated in a cluster. The undo of another run
// expects its own time in rows that stay. For a unit with allocations it asks decide, while the rows
// are locked, what becomes of the allocations, as a step returns it, and whether the time of rows that
// stay is moved nevertheless.
func (r *Repairer) fence(ctx context.Context, u *cleanup.Unit, undoing bool, decide func(sides) (to Side, touches bool, err error)) (Side, error) {
	leads := After // the side that an earlier transaction leads to
	if undoing {
		leads = Before
	}
	var is sides
	var touched []cleanup.Row
	// A transaction whose connection was lost holds its locks until it has ended, and what Placement
	// does with a late request is known once it has answered a later one.
	const tries = 10
	_, err := r.bring(ctx, u, tries, true, func(ctx context.Context, tx *sql.Tx, _ novadb.Cell) (_ []cleanup.Row, to Side, err error) {
		if err = sameDatabase(ctx, tx, u); err != nil {
			return nil, "", err
		}
		if is.written, is.content, err = sidesOf(ctx, tx, u.Rows); err != nil {
			return nil, "", err
		}
		if err = novadb.QueryRow(ctx, tx, "instances", []any{&is.gone},
			"SELECT NOT EXISTS(SELECT 1 FROM instances WHERE uuid = ? AND deleted = 0)", u.Instance); err != nil {
			return nil, "", err
		}
		is.stays = is.written == leads || is.content == leads
		touches := false
		if u.Placement != nil {
			if is.now, is.held, err = r.stand(ctx, u); err == nil {
				to, touches, err = decide(is)
			}
			if err != nil {
				return nil, "", unknownBecause(err)
			}
		}
		if touched = nil; touches || !is.stays {
			touched, err = touch(ctx, tx, u)
		}
		return touched, to, err
	})
	if err == nil {
		follow(u, is.written, touched)
	}
	return is.written, err
}

// follow writes the time of a touched row into the unit, so that the row still matches its side.
func follow(u *cleanup.Unit, side Side, touched []cleanup.Row) {
	for _, t := range touched {
		for _, row := range u.Rows {
			switch same := row.Table == t.Table && row.Key == t.Key; {
			case same && side == After:
				maps.Copy(row.After, t.After)
			case same:
				maps.Copy(row.Before, t.After)
			}
		}
	}
}

// touch returns the change of updated_at in a row that the unit writes, the instance's row if that is
// among them. On a cluster, a transaction of another node that writes the row then fails its
// certification, or makes this one fail. It returns none if the row is gone.
func touch(ctx context.Context, tx *sql.Tx, u *cleanup.Unit) ([]cleanup.Row, error) {
	if len(u.Rows) == 0 {
		return nil, nil
	}
	target := u.Rows[0]
	for _, row := range u.Rows {
		if row.Table == "instances" {
			target = row
		}
	}
	row, err := read(ctx, tx, target.Table, target.Key, "updated_at")
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	var now time.Time
	if err = errors.Join(err, novadb.QueryRow(ctx, tx, "the clock", []any{&now}, "SELECT UTC_TIMESTAMP()")); err != nil {
		return nil, err
	}
	at := later(now, row.Before["updated_at"], target.After["updated_at"])
	return []cleanup.Row{row.With(map[string]*string{"updated_at": &at})}, nil
}

// later returns a time that is not before now, and after all times of rows: a row that is saved
// twice in a second would be equal before and after.
func later(now time.Time, rows ...*string) string {
	for _, row := range rows {
		if row == nil {
			continue
		}
		if t, err := time.Parse(time.DateTime, *row); err == nil && !t.Before(now.Truncate(time.Second)) {
			now = t.Add(time.Second)
		}
	}
	return now.UTC().Format(time.DateTime)
}

// sideOf returns the side of the rows of one transaction, by what it has written.
func sideOf(ctx context.Context, q novadb.Querier, rows []cleanup.Row) (Side, error) {
	written, _, err := sidesOf(ctx, q, rows)
	return written, err
}

// sidesOf returns two sides of the rows of one transaction. written is by all that it writes: all rows
// were written or none, so one row at a side is enough if something else has changed the others
// since. content is the side that all rows are at, apart from updated_at: a repair that another run
// has made counts, as it writes the same but the time. Rows that are archived have no side.
func sidesOf(ctx context.Context, q novadb.Querier, rows []cleanup.Row) (written, content Side, err error) {
	one, all := map[Side]bool{}, map[Side]bool{Before: true, After: true}
	for _, row := range rows {
		if err := checkOurs(row); err != nil {
			return "", "", err
		}
		is, err := read(ctx, q, row.Table, row.Key, slices.Sorted(maps.Keys(row.After))...)
		if errors.Is(err, sql.ErrNoRows) {
			continue
		}
		if err != nil {
			return "", "", err
		}
		for side, columns := range map[Side]map[string]*string{Before: row.Before, After: row.After} {
			one[side] = one[side] || !sameColumns(row.Before, row.After) && sameColumns(is.Before, columns)
			all[side] = all[side] && sameColumns(contentOf(is.Before), contentOf(columns))
		}
	}
	return only(one), only(all), nil
}

// only returns the side of which alone something holds.
func only(holds map[Side]bool) Side {
	switch {
	case holds[After] && !holds[Before]:
		return After
	case holds[Before] && !holds[After]:
		return Before
	}
	return Neither
}

// contentOf returns the columns of a row without updated_at.
func contentOf(columns map[string]*string) map[string]*string {
	columns = maps.Clone(columns)
	delete(columns, "updated_at")
	return columns
}

func sameColumns(a, b map[string]*string) bool {
	return maps.EqualFunc(a, b, func(x, y *string) bool { return x == nil && y == nil || x != nil && y != nil && *x == *y })
}
