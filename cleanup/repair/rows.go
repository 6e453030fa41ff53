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
	var instance, power int64
	var extra sql.NullInt64
	var text sql.NullString
	err := novadb.QueryRow(ctx, tx, "instances", []any{&instance, &power, &extra, &text},
		"SELECT i.id, COALESCE(i.power_state, 0), x.id, x.migration_context "+
			"FROM instances i LEFT JOIN instance_extra x ON x.instance_uuid = i.uuid AND x.deleted = 0 WHERE i.uuid = ? AND i.deleted = 0", u.Instance)
	if err != nil {
		return nil, err
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
		// As after a confirmed resize: stopped if the guest was shut down meanwhile
		// (nova/compute/manager.py, _confirm_resize).
		const shutdown = 4 // nova/compute/power_state.py
		state := "active"
		if power == shutdown {
			state = "stopped"
		}
		guard.After["vm_state"] = &state
	}
	return append(rows, guard), err
}

// offlineRows returns the changes for all devices of a unit, and for other functions of their cards. It
// notes the report_count of each host: if the count has changed half a minute later, nova-compute was
// up.
func offlineRows(ctx context.Context, tx *sql.Tx, u *cleanup.Unit, at, locking string) (all []cleanup.Row, err error) {
	u.Reports = map[string]int64{}
	add := func(d cleanup.Device, after map[string]*string) error {
		row, err := read(ctx, tx, "pci_devices", d.ID, "status", "instance_uuid", "request_id", "deleted", "deleted_at", "updated_at")
		if err == nil {
			after["updated_at"] = &at
			all = append(all, row.With(after))
		}
		return err
	}
	for _, f := range u.Findings {
		if _, ok := u.Reports[f.Host]; !ok {
			if u.Reports[f.Host], err = reportCount(ctx, tx, f.Host, locking); err != nil {
				return nil, err
			}
		}
		if err := add(f.Device, deviceAfter(f, at)); err != nil {
			return nil, err
		}
	}
	free, unavailable := cleanup.StatusAvailable, cleanup.StatusUnavailable
	for _, d := range u.FreedWith {
		if d.Status == free {
			continue
		}
		if err := add(d, map[string]*string{"status": &free}); err != nil {
			return nil, err
		}
	}
	for _, d := range u.Blocks() {
		if err := add(d, map[string]*string{"status": &unavailable}); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// deviceAfter returns the columns that free a device, soft-delete its row or assign it to an
// instance, as PciDevice.claim and allocate do.
func deviceAfter(f cleanup.Finding, at string) map[string]*string {
	status := cleanup.StatusAvailable
	after := map[string]*string{"status": &status, "instance_uuid": nil, "request_id": nil}
	switch {
	case f.Claims != "":
		status, after["instance_uuid"] = cleanup.StatusAllocated, &f.Claims
		if f.Request != "" {
			after["request_id"] = &f.Request
		}
	case f.Case == cleanup.CaseNode:
		// Nova deletes a row by writing its own id into deleted (oslo.db, SoftDeleteMixin).
		id := fmt.Sprint(f.Device.ID)
		after["deleted"], after["deleted_at"] = &id, &at
	}
	return after
}

// read reads some columns of a row by its id, as text.
func read(ctx context.Context, q novadb.Querier, table string, id any, columns ...string) (cleanup.Row, error) {
	values := make([]sql.NullString, len(columns))
	var places []any
	var wanted []string
	for i, c := range columns {
		places = append(places, &values[i])
		wanted = append(wanted, "CAST("+c+" AS CHAR)")
	}
	row := cleanup.Row{Table: table, Key: fmt.Sprint(id), Before: map[string]*string{}, After: map[string]*string{}}
	if err := novadb.QueryRow(ctx, q, table, places, "SELECT "+strings.Join(wanted, ", ")+" FROM "+table+" WHERE id = ?", id); err != nil {
		return cleanup.Row{}, err
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
