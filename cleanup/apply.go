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

	"github.com/go-sql-driver/mysql"

	"gpustack/nova/cloud"
)

// Repairer carries units out.
type Repairer struct {
	Databases *Databases
	Options   Options    // as the findings were made with; Proof judges again, by the clock of then
	Books     Bookkeeper // nil: no online repair
	Record    func([]Unit) error
}

// tries is how often a unit is begun anew when the database gives it up: for a
// deadlock, a lock that takes too long, or a certification that fails on a cluster.
const tries = 3

// errChanged says that what a unit was planned from is no longer so.
var errChanged = errors.New("changed since it was planned")

// Apply carries the planned units out one after the other, each in one transaction. A
// unit whose evidence has changed is skipped, and says so. Units are recorded before
// anything of them is written, and after.
func (r *Repairer) Apply(ctx context.Context, units []Unit) error {
	for i := range units {
		u := &units[i]
		if u.State != Planned {
			continue
		}
		var err error
		for range tries {
			if err = r.apply(ctx, units, u); !again(err) {
				break
			}
		}
		switch {
		case errors.Is(err, errChanged):
			u.State, u.Note, u.Rows = Skipped, err.Error(), []Row{}
		case err != nil:
			return errors.Join(fmt.Errorf("%s: %w", u.Name(), err), r.Record(units))
		default:
			u.State = Written
			if u.Repair == Offline {
				u.State = Repaired
			}
		}
		if err := r.Record(units); err != nil {
			return err
		}
	}
	return nil
}

// Name says what a unit is about.
func (u Unit) Name() string {
	if u.Repair == Online {
		return fmt.Sprintf("migration %d", u.Migration)
	}
	return fmt.Sprintf("%s of %s", u.Devices[0].Address, u.Devices[0].Host)
}

// again tells whether a transaction may go better the next time.
func again(err error) bool {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return false
	}
	switch server.Number {
	case 1205, 1213, 1047: // lock wait timeout, deadlock or failed certification, node not ready
		return true
	}
	return false
}

// apply is one transaction.
func (r *Repairer) apply(ctx context.Context, units []Unit, u *Unit) (err error) {
	cell, err := r.Databases.cell(u.Cell)
	if err != nil {
		return err
	}
	conn, err := cell.DB.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close() //nolint:errcheck // it goes back to the pool
	// On a cluster, what others have written must be here before it is read.
	if _, err := conn.ExecContext(ctx, "SET SESSION wsrep_sync_wait = 1"); err != nil && !isUnknownVariable(err) {
		return err
	}
	tx, err := conn.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // of no effect once it is committed
	if err := r.lock(ctx, tx, u); err != nil {
		return err
	}
	rd, err := r.check(ctx, tx, cell, u)
	if err != nil {
		return err
	}
	if u.Rows, err = r.rows(ctx, tx, rd, u); err != nil {
		return err
	}
	if err := r.Record(units); err != nil {
		return err
	}
	if u.Placement != nil {
		if err := r.book(ctx, u.Placement.Consumer, u.Instance, u.Placement.After); err != nil {
			if errors.Is(err, cloud.ErrConflict) {
				return fmt.Errorf("Placement's allocations have %w", errChanged) //nolint:staticcheck // a name
			}
			return err
		}
	}
	err = write(ctx, tx, u.Rows)
	if err == nil {
		if err = tx.Commit(); err == nil {
			return nil
		}
		// The connection may have been lost before the commit, or behind it.
		switch found := are(context.WithoutCancel(ctx), cell.DB, u.Rows, true); {
		case found == nil:
			return nil
		case !errors.Is(found, errChanged):
			return errors.Join(err, found) // the next run finds out
		}
	}
	if u.Placement != nil {
		err = errors.Join(err, r.unbook(context.WithoutCancel(ctx), u))
	}
	return err
}

func isUnknownVariable(err error) bool {
	var server *mysql.MySQLError
	return errors.As(err, &server) && server.Number == 1193
}

// Preview fills in the rows that the units would write now, and writes nothing.
func (r *Repairer) Preview(ctx context.Context, units []Unit) error {
	for i := range units {
		u := &units[i]
		if u.State != Planned {
			continue
		}
		cell, err := r.Databases.cell(u.Cell)
		if err != nil {
			return err
		}
		tx, err := cell.DB.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		var rd *reader
		if rd, err = r.check(ctx, tx, cell, u); err == nil {
			u.Rows, err = r.rows(ctx, tx, rd, u)
		}
		if err := errors.Join(ignoreChanged(u, err), tx.Rollback()); err != nil {
			return err
		}
	}
	return nil
}

// ignoreChanged skips a unit that is no longer what it was.
func ignoreChanged(u *Unit, err error) error {
	if errors.Is(err, errChanged) {
		u.State, u.Note = Skipped, err.Error()
		return nil
	}
	return err
}

// lock takes the rows that the evidence lies in, in the order in which Nova's
// instance_destroy does (nova/db/main/api.py). The index of migrations begins with
// deleted and instance_uuid, so that no new one can be added meanwhile.
func (r *Repairer) lock(ctx context.Context, tx *sql.Tx, u *Unit) error {
	discard := func(*sql.Rows) error { return nil }
	if u.Instance != "" {
		for _, l := range [][2]string{
			{"instances", "SELECT id FROM instances WHERE uuid = ? FOR UPDATE"},
			{"instance_extra", "SELECT id FROM instance_extra WHERE instance_uuid = ? FOR UPDATE"},
			{"migrations", "SELECT id FROM migrations WHERE deleted = 0 AND instance_uuid = ? FOR UPDATE"},
		} {
			if err := query(ctx, tx, l[0], discard, l[1], u.Instance); err != nil {
				return err
			}
		}
	}
	var ids []any
	for _, d := range u.Devices {
		ids = append(ids, d.ID)
	}
	slices.SortFunc(ids, func(a, b any) int { return int(a.(int64) - b.(int64)) })
	return query(ctx, tx, "pci_devices", discard, "SELECT id FROM pci_devices WHERE id IN ("+places(len(ids))+") ORDER BY id FOR UPDATE", ids...)
}

// check judges the unit's rows again, within the transaction, and holds the findings
// against those that were planned from.
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
	if u.Repair == Offline {
		return rd, r.down(rd, u.Devices[0].Host)
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
func (r *Repairer) rows(ctx context.Context, tx *sql.Tx, rd *reader, u *Unit) ([]Row, error) {
	at := rd.now.UTC().Format(time.DateTime)
	if u.Repair == Offline {
		// Read again half a minute after: should it have moved, somebody was up.
		err := tx.QueryRowContext(ctx, "SELECT COALESCE(MAX(report_count), 0) FROM services WHERE deleted = 0 AND `binary` = 'nova-compute' AND host = ? FOR UPDATE", u.Devices[0].Host).Scan(&u.Reports)
		if err != nil {
			return nil, explain("services", err)
		}
		return offlineRows(ctx, tx, u, at)
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
	// Reading locks nothing on the other nodes of a cluster: writing does, so that
	// whoever changes the instance there meanwhile is refused, or this is.
	row, err := read(ctx, tx, "instances", instance, "host", "node", "vm_state", "task_state", "updated_at")
	if err != nil {
		return nil, err
	}
	return append(rows, row.with(map[string]*string{"updated_at": &at})), nil
}

// offlineRows frees a device as PciDevice.free does (nova/objects/pci_device.py), and
// what it blocks with it.
func offlineRows(ctx context.Context, tx *sql.Tx, u *Unit, at string) ([]Row, error) {
	d := u.Devices[0]
	columns := []string{"status", "instance_uuid", "request_id", "deleted", "deleted_at", "updated_at"}
	row, err := read(ctx, tx, "pci_devices", d.ID, columns...)
	if err != nil {
		return nil, err
	}
	free := statusAvailable
	after := map[string]*string{"status": &free, "instance_uuid": nil, "request_id": nil, "updated_at": &at}
	if u.findings[0].Case == CaseNode {
		// As Nova deletes a row: with its own id (oslo.db, SoftDeleteMixin).
		id := fmt.Sprint(d.ID)
		after["deleted"], after["deleted_at"] = &id, &at
		return []Row{row.with(after)}, nil
	}
	if f := u.findings[0]; f.Claims != "" {
		return claimRows(ctx, tx, f, row, at, columns)
	}
	rows := []Row{row.with(after)}
	related := func(where string, args ...any) ([]int64, error) {
		var ids []int64
		err := query(ctx, tx, "pci_devices", func(rows *sql.Rows) error {
			var id int64
			err := rows.Scan(&id)
			ids = append(ids, id)
			return err
		}, "SELECT id FROM pci_devices WHERE deleted = 0 AND compute_node_id = ? AND instance_uuid IS NULL AND status IN ('unavailable', 'unclaimable') AND "+where+" ORDER BY id FOR UPDATE", append([]any{d.Node}, args...)...)
		return ids, err
	}
	var ids []int64
	switch {
	case d.Type == typePF:
		ids, err = related("parent_addr = ?", d.Address)
	case d.Type == typeVF && d.Parent != nil:
		var taken bool
		err = tx.QueryRowContext(ctx, "SELECT EXISTS(SELECT 1 FROM pci_devices WHERE deleted = 0 AND compute_node_id = ? AND parent_addr = ? AND id <> ? AND status <> 'available')", d.Node, *d.Parent, d.ID).Scan(&taken)
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
func claimRows(ctx context.Context, tx *sql.Tx, f Finding, row Row, at string, columns []string) ([]Row, error) {
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
	}, "SELECT id FROM pci_devices WHERE deleted = 0 AND compute_node_id = ? AND status = 'available' AND "+where+" ORDER BY id FOR UPDATE", f.Device.Node, address)
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

// back is the change that takes the row back.
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

// book sets the allocations of an instance and its migration.
func (r *Repairer) book(ctx context.Context, migration, instance string, b Books) error {
	// An empty consumer that was never there has no project to be named.
	consumers := map[string]cloud.Allocations{instance: b.Instance, migration: b.Migration}
	for consumer, a := range consumers {
		if a.Project == "" {
			a.Project, a.User = b.Migration.Project, b.Migration.User
			consumers[consumer] = a
		}
	}
	return r.Books.SetAllocations(ctx, consumers)
}

// unbook puts the allocations back as they were, by the generations that they have
// now, and notes those that they have then, for another try.
func (r *Repairer) unbook(ctx context.Context, u *Unit) error {
	p := u.Placement
	if err := r.generations(ctx, u); err != nil {
		return err
	}
	if err := r.book(ctx, p.Consumer, u.Instance, p.Before); err != nil {
		return err
	}
	return r.generations(ctx, u)
}

// generations reads them anew.
func (r *Repairer) generations(ctx context.Context, u *Unit) error {
	p := u.Placement
	for consumer, books := range map[string][]*cloud.Allocations{
		u.Instance: {&p.Before.Instance, &p.After.Instance}, p.Consumer: {&p.Before.Migration, &p.After.Migration},
	} {
		now, err := r.Books.Allocations(ctx, consumer)
		if err != nil {
			return err
		}
		for _, a := range books {
			a.Generation = now.Generation
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
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// Settled is an error for each host whose nova-compute has reported since rows of it
// were written, and so may not know of that: to be asked half a minute after.
func (r *Repairer) Settled(ctx context.Context, units []Unit) error {
	var errs []error
	for _, u := range units {
		if u.Repair != Offline || u.State != Repaired {
			continue
		}
		cell, err := r.Databases.cell(u.Cell)
		if err == nil {
			var n int64
			if n, err = reportCount(ctx, cell.DB, u.Devices[0].Host); err == nil && n != u.Reports {
				err = fmt.Errorf("nova-compute of %s has come back meanwhile: restart it now, so that it reads its devices anew", u.Devices[0].Host)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// free tells whether none of a unit's devices belongs to its instance any more.
func (r *Repairer) free(ctx context.Context, u *Unit) (bool, error) {
	kept, err := r.kept(ctx, u)
	return kept == 0, err
}
