package repair

import (
	"context"
	"database/sql"
	"maps"
	"slices"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// contextRow returns the change that removes a migration_context, and applies it before if the
// instance is on the migration's destination. The plan shows the context, and the journal keeps the
// whole of it as the value before: undo restores it as long as the column is still NULL and nothing
// has saved the instance since.
func contextRow(ctx context.Context, tx *sql.Tx, extra int64, text string, applies bool, at string) (cleanup.Row, error) {
	after := map[string]*string{}
	if applies {
		applied, err := cleanup.AppliedContext(text)
		if err != nil {
			return cleanup.Row{}, err
		}
		for column, value := range applied {
			there, err := hasColumn(ctx, tx, "instance_extra", column)
			if err != nil {
				return cleanup.Row{}, err
			}
			if there { // resources since Train
				after[column] = value
			}
		}
	}
	after["migration_context"], after["updated_at"] = nil, &at
	row, err := read(ctx, tx, "instance_extra", extra, slices.Sorted(maps.Keys(after))...)
	return row.With(after), err
}

// hasColumn returns whether the schema of the database has a column.
func hasColumn(ctx context.Context, q novadb.Querier, table, column string) (there bool, err error) {
	err = novadb.QueryRow(ctx, q, "columns", []any{&there}, "SELECT COUNT(*) > 0 FROM information_schema.columns "+
		"WHERE table_schema = DATABASE() AND table_name = ? AND column_name = ?", table, column)
	return there, err
}

// guardRow returns the change of updated_at in an instance's row. On a cluster, reading locks
// nothing on other nodes. Writing makes a concurrent change of the instance there fail, or this
// one.
func guardRow(ctx context.Context, tx *sql.Tx, instance int64, now time.Time) (cleanup.Row, error) {
	columns := []string{"host", "node", "vm_state", "task_state", "updated_at"}
	there, err := hasColumn(ctx, tx, "instances", "compute_id")
	if err != nil {
		return cleanup.Row{}, err
	}
	if there { // since 2023.2, with host and node
		columns = append(columns, "compute_id")
	}
	row, err := read(ctx, tx, "instances", instance, columns...)
	if err != nil {
		return row, err
	}
	changed := later(now, row.Before["updated_at"])
	return row.With(map[string]*string{"updated_at": &changed}), nil
}
