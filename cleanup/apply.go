package cleanup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/nova/cloud"
)

// Repairer carries units out and undoes them.
type Repairer struct {
	Databases *Databases
	Options   Options    // as the findings were made with; Proof judges again, by the clock of then
	Books     Bookkeeper // nil: no unit that has something to do with Placement
	Record    func([]Unit) error
}

// tries is how often a transaction is begun again after the database has given it up: for a
// deadlock, a lock that takes too long, or a certification that fails on a cluster.
const tries = 3

var (
	// ErrUnknown goes with a unit that was begun and whose outcome the database or Placement
	// has not answered. Its entry in the journal stays open until Recover determines it.
	ErrUnknown = errors.New("the outcome of this repair is unknown")

	// errChanged says that what a unit was planned from is no longer so.
	errChanged = errors.New("changed since it was planned")
)

// Apply carries the planned units out one after the other, each in one transaction. A
// unit whose evidence has changed is skipped, with the reason. Units are recorded before
// anything of them is written, and after.
//
// A unit that was begun is brought to its end even when ctx ends; none is begun after
// that: then the error is the cause of ctx, and the units that are left are skipped. A unit
// whose rows are locked by others for too long is skipped, and its error returned in the
// end. After any other error the units that are left are skipped.
//
// Errors: ErrUnknown goes with a unit whose outcome is unknown, which has the state Begun.
func (r *Repairer) Apply(ctx context.Context, units []Unit) error {
	var errs []error
	for i := range units {
		u := &units[i]
		if u.State != Planned {
			continue
		}
		if err := context.Cause(ctx); err != nil {
			return errors.Join(append(errs, err, r.leave(units, "not begun: the run was interrupted"))...)
		}
		err := r.carry(ctx, units, u, change{After, r.evidenceHolds})
		switch {
		case err == nil:
			u.State = committed(u)
		case errors.Is(err, ErrUnknown):
			u.State, u.Note = Begun, err.Error()
		default:
			u.State, u.Note, u.Rows = Skipped, err.Error(), []Row{}
		}
		if err != nil && (u.State == Begun || !errors.Is(err, errChanged)) {
			errs = append(errs, fmt.Errorf("%s: %w", u.Name(), err))
			if !again(err) {
				return errors.Join(append(errs, r.leave(units, "not begun: the repair of "+u.Name()+" failed"))...)
			}
		}
		if err := r.Record(units); err != nil {
			return errors.Join(append(errs, err)...)
		}
	}
	return errors.Join(errs...)
}

// committed is the state of a unit once its rows are committed: nova-compute frees the devices
// of a migration that was closed, rows written offline are free.
func committed(u *Unit) State {
	if u.Repair == Offline {
		return Repaired
	}
	return Written
}

// leave skips the units that were not begun, and records that.
func (r *Repairer) leave(units []Unit, why string) error {
	for i := range units {
		if u := &units[i]; u.State == Planned {
			u.State, u.Note, u.Rows = Skipped, why, []Row{}
		}
	}
	return r.Record(units)
}

// Name is what a unit is about: the migration that it closes, or its devices.
func (u Unit) Name() string {
	if u.Repair == Online {
		return fmt.Sprintf("migration %d", u.Migration)
	}
	var names []string
	for i, d := range u.Devices {
		name := d.Address
		if i == len(u.Devices)-1 || u.Devices[i+1].Host != d.Host {
			name += " of " + d.Host
		}
		names = append(names, name)
	}
	return strings.Join(names, ", ")
}

// change is one direction in which a unit is carried: After repairs, Before undoes.
type change struct {
	to Side
	// rows judges within the transaction whether the change may be made, and returns what
	// is to be written.
	rows func(ctx context.Context, tx *sql.Tx, cell Cell, u *Unit, locking string) ([]Row, error)
}

// errNotPosted goes with an answer of Placement other than that the allocations are written.
var errNotPosted = errors.New("Placement")

// carry brings the rows and the allocations of a unit to one side, or leaves both at the
// other. Placement comes first, within the transaction that has locked the evidence: its
// consumer generations make it refuse what was planned from something else. A transaction
// that has begun is not ended by ctx; none is begun again after it.
//
// Errors: without ErrUnknown nothing was changed.
func (r *Repairer) carry(ctx context.Context, units []Unit, u *Unit, c change) error {
	post := u.Placement != nil
	whole := context.WithoutCancel(ctx)
	var err error
	for range tries {
		var posted bool
		posted, err = r.transact(whole, units, u, c, post)
		post = post && !posted
		if errors.Is(err, errNotPosted) {
			// The transaction is over, and with it every lock. The request may have been
			// applied, or may still be.
			side, bookErr := r.book(whole, u, "")
			if bookErr != nil {
				return errors.Join(err, bookErr)
			}
			if side != c.to {
				return err
			}
			post = false
			continue // the rows follow
		}
		if !again(err) || ctx.Err() != nil {
			break
		}
	}
	if err == nil || errors.Is(err, ErrUnknown) || u.Placement == nil || post {
		return err
	}
	_, bookErr := r.book(whole, u, c.to.other())
	return errors.Join(err, bookErr)
}

// again reports whether a transaction that failed may succeed when it is begun again.
func again(err error) bool {
	if errors.Is(err, ErrUnknown) {
		return false
	}
	switch errorNumber(err) {
	case errorLockWait, errorDeadlock, errorNotReady:
		return true
	}
	return errors.Is(err, errHeld)
}

// transact carries a unit in one transaction. The unit is recorded as begun before anything
// of it is written.
//
// Errors: errNotPosted where Placement has not said that it is done; ErrUnknown where
// COMMIT was sent and its outcome is unknown. After others nothing is in the rows.
func (r *Repairer) transact(ctx context.Context, units []Unit, u *Unit, c change, post bool) (posted bool, err error) {
	state := u.State
	err = r.locked(ctx, u, func(ctx context.Context, tx *sql.Tx, cell Cell) error {
		early, cancel := beforeLast(ctx)
		defer cancel()
		rows, err := c.rows(early, tx, cell, u, forUpdate)
		if err != nil {
			return err
		}
		if c.to == After {
			u.Rows = rows
		}
		u.State = Begun
		if err := r.Record(units); err != nil {
			return err
		}
		if post {
			err := r.post(ctx, u, c.to)
			if errors.Is(err, cloud.ErrConflict) {
				return fmt.Errorf("%w: the allocations have %w", errNotPosted, errChanged)
			}
			if err != nil {
				return fmt.Errorf("%w: %w", errNotPosted, err)
			}
			posted = true
		}
		return write(ctx, tx, rows)
	})
	if err != nil {
		u.State = state
	}
	return posted, err
}

// Limits of a transaction that locks Nova's rows. Nova's own saves wait for a lock for 50 s
// (innodb_lock_wait_timeout) and then fail. No lock is held for longer than holdLimit, apart
// from a COMMIT that is running: a statement that the context ends goes on in the server for as
// long as it waits for a lock, so none that may wait is begun in the last second.
const (
	holdLimit = 5500 * time.Millisecond
	postLimit = 5 * time.Second // for Placement's answer within it
	nextLock  = 1               // seconds to wait for each lock but the first (lockWait), when one is held
	idleLimit = 6               // seconds after which the server ends a transaction whose client is frozen

	forUpdate = " FOR UPDATE"
)

// beforeLast is the context of statements that may wait for a lock.
func beforeLast(ctx context.Context) (context.Context, context.CancelFunc) {
	deadline, _ := ctx.Deadline()
	return context.WithDeadlineCause(ctx, deadline.Add(-nextLock*time.Second), errHeld)
}

// locked has act read and write in a transaction that has locked the rows that the unit's
// evidence lies in, and commits it. The context of act ends when the locks must go.
//
// Errors: ErrUnknown where COMMIT was sent and its outcome is unknown. After others the
// transaction is rolled back, and no lock is held any more.
func (r *Repairer) locked(ctx context.Context, u *Unit, act func(context.Context, *sql.Tx, Cell) error) error {
	cell, err := r.cell(u)
	if err != nil {
		return err
	}
	conn, err := cell.DB.Conn(ctx)
	if err != nil {
		return explain("cell "+cell.Name, err)
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d, SESSION wait_timeout = %d", lockWait, idleLimit)); err != nil {
		return explain("cell "+cell.Name, err)
	}
	// Where the connection is lost, its variables are too.
	defer conn.ExecContext(context.WithoutCancel(ctx), "SET SESSION wait_timeout = DEFAULT") //nolint:errcheck // as above
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return explain("cell "+cell.Name, err)
	}
	defer tx.Rollback() //nolint:errcheck // of no effect once it is committed
	limited, cancel, err := lock(ctx, tx, u)
	defer cancel()
	if err == nil {
		err = act(limited, tx, cell)
	}
	if err != nil {
		if cause := context.Cause(limited); cause != nil && errors.Is(err, context.DeadlineExceeded) {
			return fmt.Errorf("%w: %w", cause, err)
		}
		return err
	}
	if err = tx.Commit(); errors.Is(err, ErrCommitUnknown) {
		return fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	return err // the server says that it has rolled back
}

// errHeld says that a transaction was given up so that Nova does not have to wait.
var errHeld = fmt.Errorf("rows of Nova would have been locked for longer than %s", holdLimit)

// lock locks the rows that the evidence lies in, in the order in which Nova's
// instance_destroy does (nova/db/main/api.py). The index of migrations begins with
// deleted and instance_uuid, so that no new one can be added meanwhile. The context that it
// returns ends when the locks must go.
func lock(ctx context.Context, tx *sql.Tx, u *Unit) (limited context.Context, cancel context.CancelFunc, err error) {
	type statement struct {
		table, text string
		args        []any
	}
	var ids []any
	for _, d := range u.Devices {
		ids = append(ids, d.ID)
	}
	var statements []statement
	if u.Instance != "" {
		statements = []statement{
			{"instances", "SELECT id FROM instances WHERE uuid = ? FOR UPDATE", []any{u.Instance}},
			{"instance_extra", "SELECT id FROM instance_extra WHERE instance_uuid = ? FOR UPDATE", []any{u.Instance}},
			{"migrations", "SELECT id FROM migrations WHERE deleted = 0 AND instance_uuid = ? FOR UPDATE", []any{u.Instance}},
		}
	}
	statements = append(statements, statement{"pci_devices", "SELECT id FROM pci_devices WHERE id IN (" + places(len(ids)) + ") ORDER BY id FOR UPDATE", ids})
	limited, cancel = context.WithCancel(ctx)
	waiting := limited
	for i, s := range statements {
		if err := query(waiting, tx, s.table, func(*sql.Rows) error { return nil }, s.text, s.args...); err != nil {
			return limited, cancel, err
		}
		if i > 0 {
			continue
		}
		cancel()
		limited, cancel = context.WithTimeoutCause(ctx, holdLimit, errHeld)
		early, ended := beforeLast(limited)
		defer ended()
		waiting = early
		if _, err := tx.ExecContext(early, fmt.Sprintf("SET SESSION innodb_lock_wait_timeout = %d", nextLock)); err != nil {
			return limited, cancel, err
		}
	}
	return limited, cancel, nil
}

// evidenceHolds judges the unit's rows again, within the transaction, and returns the rows
// that repair it.
func (r *Repairer) evidenceHolds(ctx context.Context, tx *sql.Tx, cell Cell, u *Unit, locking string) ([]Row, error) {
	if err := tx.QueryRowContext(ctx, "SELECT DATABASE()").Scan(&u.Database); err != nil {
		return nil, explain("cell "+cell.Name, err)
	}
	rd, err := r.check(ctx, tx, cell, u)
	if err != nil {
		return nil, err
	}
	return r.rows(ctx, tx, rd, u, locking)
}

// Preview fills in the rows that the units would write now. It writes and locks nothing.
func (r *Repairer) Preview(ctx context.Context, units []Unit) error {
	for i := range units {
		if u := &units[i]; u.State == Planned {
			if err := ignoreChanged(u, r.preview(ctx, u)); err != nil {
				return fmt.Errorf("%s: %w", u.Name(), err)
			}
		}
	}
	return nil
}

func (r *Repairer) preview(ctx context.Context, u *Unit) error {
	cell, err := r.cell(u)
	if err != nil {
		return err
	}
	tx, err := cell.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return explain("cell "+cell.Name, err)
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	u.Rows, err = r.evidenceHolds(ctx, tx, cell, u, "")
	return err
}

// ignoreChanged skips a unit that is no longer what it was.
func ignoreChanged(u *Unit, err error) error {
	if errors.Is(err, errChanged) {
		u.State, u.Note, u.Rows = Skipped, err.Error(), []Row{}
		return nil
	}
	return err
}

// check judges the unit's rows again, within the transaction, and compares the findings with
// those that the unit was planned from.
func (r *Repairer) check(ctx context.Context, tx *sql.Tx, cell Cell, u *Unit) (*reader, error) {
	rd := &reader{tx: tx, all: r.Databases, cell: cell, options: r.Options}
	if rd.options.Down == 0 {
		rd.options.Down = downTime
	}
	if err := rd.begin(ctx); err != nil {
		return nil, err
	}
	var ids []any
	for _, f := range u.findings {
		ids = append(ids, f.Device.ID)
	}
	var devices []Device
	err := rd.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		d, err := scanDevice(rows)
		devices = append(devices, d)
		return err
	}, "SELECT "+deviceColumns+" FROM pci_devices WHERE deleted = 0 AND id IN ("+places(len(ids))+") ORDER BY id", ids...)
	if err != nil {
		return nil, err
	}
	findings, err := rd.judge(ctx, devices)
	if err != nil {
		return nil, err
	}
	for _, was := range u.findings {
		i := slices.IndexFunc(findings, func(f Finding) bool { return f.Device.ID == was.Device.ID })
		if i < 0 {
			return nil, fmt.Errorf("%s of %s has %w: the row is gone", was.Device.Address, was.Host, errChanged)
		}
		is := findings[i]
		if is.Case != was.Case || is.Verdict != was.Verdict || is.Repair != was.Repair || is.Closes != was.Closes || is.Needs != was.Needs || is.Claims != was.Claims || is.Request != was.Request || !sameDevices(is.Frees, was.Frees) || !sameDevice(is.Device, was.Device) {
			return nil, fmt.Errorf("%s of %s has %w: %s", was.Device.Address, was.Host, errChanged, is.Reason)
		}
	}
	if u.Repair != Offline {
		return rd, nil
	}
	for _, d := range u.Devices {
		if err := r.down(rd, d.Host); err != nil {
			return nil, err
		}
	}
	return rd, nil
}

func sameDevices(a, b []Held) bool {
	return slices.EqualFunc(a, b, func(x, y Held) bool { return sameDevice(x.Device, y.Device) })
}

func sameDevice(a, b Device) bool {
	same := func(x, y *string) bool { return x == nil && y == nil || x != nil && y != nil && *x == *y }
	sameTime := a.Updated == nil && b.Updated == nil || a.Updated != nil && b.Updated != nil && a.Updated.Equal(*b.Updated)
	return a.ID == b.ID && a.Status == b.Status && same(a.Instance, b.Instance) && same(a.Request, b.Request) && sameTime
}

// down is an error unless nova-compute of a host cannot be running: it has not
// reported for long, which forced_down does not stop it from doing, and its host says
// that there is none, or the operator that the host is off.
func (r *Repairer) down(rd *reader, host string) error {
	s, ok := rd.services[host]
	if ok && s.LastSeen != nil && rd.now.Sub(*s.LastSeen) < silence(rd.options.Down) {
		return fmt.Errorf("nova-compute of %s has %w: it was seen %s ago", host, errChanged, age(rd.now.Sub(*s.LastSeen)))
	}
	return nil
}

// silence is how long nova-compute must not have reported to be taken for down.
func silence(down time.Duration) time.Duration {
	return max(5*time.Minute, 5*down)
}

// rows are the changes that a unit makes, with what is there now.
func (r *Repairer) rows(ctx context.Context, tx *sql.Tx, rd *reader, u *Unit, locking string) ([]Row, error) {
	at := rd.now.UTC().Format(time.DateTime)
	if u.Repair == Offline {
		return offlineRows(ctx, tx, u, at, locking)
	}
	migration, err := read(ctx, tx, "migrations", u.Migration, "status", "updated_at")
	if err != nil {
		return nil, err
	}
	rows := []Row{migration.with(map[string]*string{"status": &u.Closes, "updated_at": &at})}
	var instance int64
	var extra sql.NullInt64
	var text sql.NullString
	err = tx.QueryRowContext(ctx, "SELECT i.id, x.id, x.migration_context FROM instances i LEFT JOIN instance_extra x ON x.instance_uuid = i.uuid AND x.deleted = 0 WHERE i.uuid = ? AND i.deleted = 0", u.Instance).Scan(&instance, &extra, &text)
	if err != nil {
		return nil, explain("instances", err)
	}
	if text.Valid {
		if c, err := parseContext(text.String); err == nil && c.Migration == u.Migration {
			row, err := read(ctx, tx, "instance_extra", extra.Int64, "migration_context", "updated_at")
			if err != nil {
				return nil, err
			}
			rows = append(rows, row.with(map[string]*string{"migration_context": nil, "updated_at": &at}))
		}
	}
	// Reading locks nothing on the other nodes of a cluster. Writing does: a concurrent change
	// of the instance there is refused, or this one.
	row, err := read(ctx, tx, "instances", instance, "host", "node", "vm_state", "task_state", "updated_at")
	if err != nil {
		return nil, err
	}
	// In the second in which Nova has saved it, the row would be the same before and after.
	changed := at
	if before := row.Before["updated_at"]; before != nil && *before >= at {
		if t, err := time.Parse(time.DateTime, *before); err == nil {
			changed = t.Add(time.Second).Format(time.DateTime)
		}
	}
	return append(rows, row.with(map[string]*string{"updated_at": &changed})), nil
}

// offlineRows are the changes of all devices of a unit, each row once. The report_count of
// each host is noted: should it have moved half a minute later, its nova-compute was up.
func offlineRows(ctx context.Context, tx *sql.Tx, u *Unit, at, locking string) ([]Row, error) {
	var all []Row
	var freed []any
	for _, f := range u.findings {
		if f.Claims == "" {
			freed = append(freed, f.Device.ID)
		}
	}
	u.Reports = map[string]int64{}
	for _, f := range u.findings {
		if _, ok := u.Reports[f.Host]; !ok {
			n, err := reportCount(ctx, tx, f.Host, locking)
			if err != nil {
				return nil, err
			}
			u.Reports[f.Host] = n
		}
		rows, err := deviceRows(ctx, tx, f, freed, at, locking)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if !slices.ContainsFunc(all, func(r Row) bool { return r.Table == row.Table && r.Key == row.Key }) {
				all = append(all, row)
			}
		}
	}
	return all, nil
}

// deviceRows frees a device as PciDevice.free does (nova/objects/pci_device.py), and
// what it blocks with it; freed are the devices that are freed together.
func deviceRows(ctx context.Context, tx *sql.Tx, f Finding, freed []any, at, locking string) ([]Row, error) {
	d := f.Device
	columns := []string{"status", "instance_uuid", "request_id", "deleted", "deleted_at", "updated_at"}
	row, err := read(ctx, tx, "pci_devices", d.ID, columns...)
	if err != nil {
		return nil, err
	}
	free := statusAvailable
	after := map[string]*string{"status": &free, "instance_uuid": nil, "request_id": nil, "updated_at": &at}
	if f.Case == CaseNode {
		// As Nova deletes a row: with its own id (oslo.db, SoftDeleteMixin).
		id := fmt.Sprint(d.ID)
		after["deleted"], after["deleted_at"] = &id, &at
		return []Row{row.with(after)}, nil
	}
	if f.Claims != "" {
		return claimRows(ctx, tx, f, row, at, columns, locking)
	}
	rows := []Row{row.with(after)}
	related := func(where string, args ...any) ([]int64, error) {
		var ids []int64
		err := query(ctx, tx, "pci_devices", func(rows *sql.Rows) error {
			var id int64
			err := rows.Scan(&id)
			ids = append(ids, id)
			return err
		}, "SELECT id FROM pci_devices WHERE deleted = 0 AND compute_node_id = ? AND instance_uuid IS NULL AND status IN ('unavailable', 'unclaimable') AND "+where+" ORDER BY id"+locking, append([]any{d.Node}, args...)...)
		return ids, err
	}
	var ids []int64
	switch {
	case d.Type == typePF:
		ids, err = related("parent_addr = ?", d.Address)
	case d.Type == typeVF && d.Parent != nil:
		var taken bool
		err = tx.QueryRowContext(ctx, "SELECT EXISTS(SELECT 1 FROM pci_devices WHERE deleted = 0 AND compute_node_id = ? AND parent_addr = ? AND status <> 'available' AND id NOT IN ("+places(len(freed))+"))", append([]any{d.Node, *d.Parent}, freed...)...).Scan(&taken)
		if err == nil && !taken {
			ids, err = related("address = ?", *d.Parent)
		}
	}
	if err != nil {
		return nil, explain("pci_devices", err)
	}
	for _, id := range ids {
		row, err := read(ctx, tx, "pci_devices", id, columns...)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row.with(map[string]*string{"status": &free, "updated_at": &at}))
	}
	return rows, nil
}

// claimRows give a free device to an instance as PciDevice.claim and allocate do: what
// it blocks is unavailable from then on.
func claimRows(ctx context.Context, tx *sql.Tx, f Finding, row Row, at string, columns []string, locking string) ([]Row, error) {
	allocated, unavailable := statusAllocated, statusUnavailable
	after := map[string]*string{"status": &allocated, "instance_uuid": &f.Claims, "updated_at": &at}
	if f.Request != "" {
		after["request_id"] = &f.Request
	}
	rows := []Row{row.with(after)}
	where, address := "parent_addr = ?", f.Device.Address
	if f.Device.Type == typeVF && f.Device.Parent != nil {
		where, address = "address = ?", *f.Device.Parent
	} else if f.Device.Type != typePF {
		return rows, nil
	}
	var ids []int64
	err := query(ctx, tx, "pci_devices", func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	}, "SELECT id FROM pci_devices WHERE deleted = 0 AND compute_node_id = ? AND status = 'available' AND "+where+" ORDER BY id"+locking, f.Device.Node, address)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		blocked, err := read(ctx, tx, "pci_devices", id, columns...)
		if err != nil {
			return nil, err
		}
		rows = append(rows, blocked.with(map[string]*string{"status": &unavailable, "updated_at": &at}))
	}
	return rows, nil
}

// read reads some columns of a row, as text.
func read(ctx context.Context, q rowQuerier, table string, id int64, columns ...string) (Row, error) {
	values := make([]sql.NullString, len(columns))
	var places []any
	var wanted []string
	for i, c := range columns {
		places = append(places, &values[i])
		wanted = append(wanted, "CAST("+c+" AS CHAR)")
	}
	row := Row{Table: table, Key: fmt.Sprint(id), Before: map[string]*string{}, After: map[string]*string{}}
	err := q.QueryRowContext(ctx, "SELECT "+strings.Join(wanted, ", ")+" FROM "+table+" WHERE id = ?", id).Scan(places...)
	if err != nil {
		return Row{}, explain(table, err)
	}
	for i, c := range columns {
		row.Before[c] = nil
		if values[i].Valid {
			row.Before[c] = &values[i].String
		}
	}
	return row, nil
}

// with is the row with some columns changed.
func (r Row) with(after map[string]*string) Row {
	r.After = maps.Clone(r.Before)
	maps.Copy(r.After, after)
	return r
}

// back is the change that undoes this one.
func (r Row) back() Row {
	r.Before, r.After = r.After, r.Before
	return r
}

// Statement is the change as a statement and its values: it does nothing where any of
// the columns is not what was seen.
func (r Row) Statement() (text string, args []any) {
	columns := slices.Sorted(maps.Keys(r.After))
	var set, where []string
	for _, c := range columns {
		set = append(set, c+" = ?")
		args = append(args, r.After[c])
	}
	args = append(args, r.Key)
	for _, c := range columns {
		where = append(where, c+" <=> ?")
		args = append(args, r.Before[c])
	}
	return "UPDATE " + r.Table + " SET " + strings.Join(set, ", ") + " WHERE id = ? AND " + strings.Join(where, " AND "), args
}

// write makes the changes, each of which must meet what it has seen.
func write(ctx context.Context, tx *sql.Tx, rows []Row) error {
	for _, row := range rows {
		statement, args := row.Statement()
		result, err := tx.ExecContext(ctx, statement, args...)
		if err != nil {
			return explain(row.Table, err)
		}
		if n, err := result.RowsAffected(); err != nil {
			return explain(row.Table, err)
		} else if n != 1 {
			return fmt.Errorf("row %s of %s has %w", row.Key, row.Table, errChanged)
		}
	}
	return nil
}

// Wait waits until nova-compute has freed the devices of the units that were written,
// at most so long, and records what it finds.
func (r *Repairer) Wait(ctx context.Context, units []Unit, patience time.Duration, progress func(left int)) error {
	deadline := time.Now().Add(patience)
	for {
		left := 0
		for i := range units {
			u := &units[i]
			if u.State != Written {
				continue
			}
			free, err := r.free(ctx, u)
			if err != nil {
				return err
			}
			if !free {
				left++
				continue
			}
			u.State = Repaired
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

// Settled is an error for each host whose nova-compute has reported since rows of it
// were written, and so may not know of the change: to be asked half a minute after.
func (r *Repairer) Settled(ctx context.Context, units []Unit) error {
	var errs []error
	said := map[string]bool{}
	for _, u := range units {
		if u.Repair != Offline || u.State != Repaired {
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

// free reports whether none of a unit's devices belongs to its instance any more.
func (r *Repairer) free(ctx context.Context, u *Unit) (bool, error) {
	cell, err := r.cell(u)
	if err != nil {
		return false, err
	}
	n, err := kept(ctx, cell.DB, u, "")
	return n == 0, err
}
