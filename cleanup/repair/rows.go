package repair

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// rowsOf returns the changes that a unit makes, with the values that the rows have now. now is
// the time to write, by the database's clock.
func rowsOf(ctx context.Context, tx *sql.Tx, now time.Time, u *cleanup.Unit, locking string) ([]cleanup.Row, error) {
	at := now.UTC().Format(time.DateTime)
	if u.Repair == cleanup.Offline {
		return offlineRows(ctx, tx, u, at, locking)
	}
	var rows []cleanup.Row
	for _, c := range u.Closings {
		row, err := read(ctx, tx, "migrations", c.Migration, "status", "updated_at")
		if err != nil {
			return nil, err
		}
		rows = append(rows, row.With(map[string]*string{"status": &c.Status, "updated_at": &at}))
	}
	var instance int64
	var extra sql.NullInt64
	var text sql.NullString
	err := tx.QueryRowContext(ctx, "SELECT i.id, x.id, x.migration_context FROM instances i LEFT JOIN instance_extra x ON x.instance_uuid = i.uuid AND x.deleted = 0 WHERE i.uuid = ? AND i.deleted = 0",
		u.Instance).Scan(&instance, &extra, &text)
	if err != nil {
		return nil, novadb.Explain("instances", err)
	}
	clears := u.Repair == cleanup.ClearContext
	if clears && !text.Valid {
		return nil, fmt.Errorf("instance_extra of %s has %w: the instance has no migration context", u.Instance, errChanged)
	}
	if c, err := cleanup.ParseContext(text.String); clears || u.Repair == cleanup.Online && err == nil && u.Closes(c.Migration) {
		row, err := contextRow(ctx, tx, extra.Int64, text.String, u.Applies, at)
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	guard, err := guardRow(ctx, tx, instance, now)
	if err == nil && u.Confirms {
		err = confirmed(ctx, tx, instance, guard)
	}
	return append(rows, guard), err
}

// confirmed adds to the change of an instance's row the state after a confirmed resize: stopped if
// the guest was shut down meanwhile (nova/compute/manager.py, _confirm_resize).
func confirmed(ctx context.Context, tx *sql.Tx, instance int64, row cleanup.Row) error {
	const shutdown = 4 // nova/compute/power_state.py
	var power sql.NullInt64
	if err := tx.QueryRowContext(ctx, "SELECT power_state FROM instances WHERE id = ?", instance).Scan(&power); err != nil {
		return novadb.Explain("instances", err)
	}
	state := "active"
	if power.Int64 == shutdown {
		state = "stopped"
	}
	row.After["vm_state"] = &state
	return nil
}

// offlineRows returns the changes for all devices of a unit, each row once. It notes the
// report_count of each host: if the count has changed half a minute later, nova-compute was up.
func offlineRows(ctx context.Context, tx *sql.Tx, u *cleanup.Unit, at, locking string) ([]cleanup.Row, error) {
	var all []cleanup.Row
	u.Reports = map[string]int64{}
	for _, f := range u.Findings {
		if _, ok := u.Reports[f.Host]; !ok {
			n, err := reportCount(ctx, tx, f.Host, locking)
			if err != nil {
				return nil, err
			}
			u.Reports[f.Host] = n
		}
		rows, err := deviceRows(ctx, tx, f, at, locking)
		if err != nil {
			return nil, err
		}
		for _, row := range rows {
			if !slices.ContainsFunc(all, func(r cleanup.Row) bool { return r.Table == row.Table && r.Key == row.Key }) {
				all = append(all, row) // two claimed VFs block one PF
			}
		}
	}
	free := cleanup.StatusAvailable
	for _, d := range u.FreedWith {
		row, err := read(ctx, tx, "pci_devices", d.ID, deviceColumns()...)
		if err != nil {
			return nil, err
		}
		if d.Status != free {
			all = append(all, row.With(map[string]*string{"status": &free, "updated_at": &at}))
		}
	}
	return all, nil
}

// deviceColumns returns the columns of pci_devices that repairs write.
func deviceColumns() []string {
	return []string{"status", "instance_uuid", "request_id", "deleted", "deleted_at", "updated_at"}
}

// deviceRows returns the changes that free a device, soft-delete its row or assign it to an
// instance.
func deviceRows(ctx context.Context, tx *sql.Tx, f cleanup.Finding, at, locking string) ([]cleanup.Row, error) {
	row, err := read(ctx, tx, "pci_devices", f.Device.ID, deviceColumns()...)
	if err != nil {
		return nil, err
	}
	if f.Claims != "" {
		return claimRows(ctx, tx, f, row, at, locking)
	}
	free := cleanup.StatusAvailable
	after := map[string]*string{"status": &free, "instance_uuid": nil, "request_id": nil, "updated_at": &at}
	if f.Case == cleanup.CaseNode {
		// Nova deletes a row by writing its own id into deleted (oslo.db, SoftDeleteMixin).
		id := fmt.Sprint(f.Device.ID)
		after["deleted"], after["deleted_at"] = &id, &at
	}
	return []cleanup.Row{row.With(after)}, nil
}

// claimRows returns the changes that assign a free device to an instance, as PciDevice.claim and
// allocate do: functions that the device blocks become unavailable.
func claimRows(ctx context.Context, tx *sql.Tx, f cleanup.Finding, row cleanup.Row, at, locking string) ([]cleanup.Row, error) {
	allocated, unavailable := cleanup.StatusAllocated, cleanup.StatusUnavailable
	after := map[string]*string{"status": &allocated, "instance_uuid": &f.Claims, "updated_at": &at}
	if f.Request != "" {
		after["request_id"] = &f.Request
	}
	rows := []cleanup.Row{row.With(after)}
	where, address := "parent_addr = ?", f.Device.Address
	if (f.Device.Type == cleanup.TypeVF || f.Device.Type == cleanup.TypeVDPA) && f.Device.Parent != nil {
		where, address = "address = ?", *f.Device.Parent
	} else if f.Device.Type != cleanup.TypePF {
		return rows, nil
	}
	var ids []int64
	err := novadb.Query(ctx, tx, "pci_devices", func(rows *sql.Rows) error {
		var id int64
		err := rows.Scan(&id)
		ids = append(ids, id)
		return err
	}, "SELECT id FROM pci_devices WHERE deleted = 0 AND compute_node_id = ? AND status = 'available' AND "+where+" ORDER BY id"+locking, f.Device.Node, address)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		blocked, err := read(ctx, tx, "pci_devices", id, deviceColumns()...)
		if err != nil {
			return nil, err
		}
		rows = append(rows, blocked.With(map[string]*string{"status": &unavailable, "updated_at": &at}))
	}
	return rows, nil
}

// read reads some columns of a row, as text.
func read(ctx context.Context, q rowQuerier, table string, id int64, columns ...string) (cleanup.Row, error) {
	values := make([]sql.NullString, len(columns))
	var places []any
	var wanted []string
	for i, c := range columns {
		places = append(places, &values[i])
		wanted = append(wanted, "CAST("+c+" AS CHAR)")
	}
	row := cleanup.Row{Table: table, Key: fmt.Sprint(id), Before: map[string]*string{}, After: map[string]*string{}}
	err := q.QueryRowContext(ctx, "SELECT "+strings.Join(wanted, ", ")+" FROM "+table+" WHERE id = ?", id).Scan(places...)
	if err != nil {
		return cleanup.Row{}, novadb.Explain(table, err)
	}
	for i, c := range columns {
		row.Before[c] = nil
		if values[i].Valid {
			row.Before[c] = &values[i].String
		}
	}
	return row, nil
}

// Statement returns a change of a row as an UPDATE and its values. The statement changes nothing
// if a column no longer has the value of before.
func Statement(r cleanup.Row) (text string, args []any) {
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

// write writes the changes. It returns an error if a row no longer has the values of before.
func write(ctx context.Context, tx *sql.Tx, rows []cleanup.Row) error {
	for _, row := range rows {
		statement, args := Statement(row)
		result, err := tx.ExecContext(ctx, statement, args...)
		if err != nil {
			return novadb.Explain(row.Table, err)
		}
		if n, err := result.RowsAffected(); err != nil {
			return novadb.Explain(row.Table, err)
		} else if n != 1 {
			return fmt.Errorf("row %s of %s has %w", row.Key, row.Table, errChanged)
		}
	}
	return nil
}
