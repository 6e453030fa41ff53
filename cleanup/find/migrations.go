package find

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"time"

	"gpustack/cleanup"
)

// migrations reads records of migrations, deleted ones too. Their Changed is when they were changed
// or deleted last.
func (r *reader) migrations(ctx context.Context, where string, args ...any) (list []cleanup.ContextMigration, err error) {
	err = r.query(ctx, "migrations", func(rows *sql.Rows) error {
		m := cleanup.ContextMigration{Found: true}
		var changed, deleted sql.NullTime
		err := rows.Scan(&m.ID, &m.UUID, &m.Instance, &m.Type, &m.Status, &m.SourceHost, &m.SourceNode, &m.DestHost, &m.DestNode,
			&m.CrossCell, &m.Deleted, &changed, &deleted, &m.DestCompute, &m.Resizes)
		m.Changed = latest(changed, deleted)
		list = append(list, m)
		return err
	}, "SELECT id, COALESCE("+r.column("migrations", "uuid", "''")+", ''), COALESCE(instance_uuid, ''), COALESCE("+
		r.column("migrations", "migration_type", "'migration'")+", 'migration'), COALESCE(status, ''), COALESCE("+
		hostOf("m.source_compute")+", ''), COALESCE("+nodeOf("m.source_compute", "m.source_node")+", ''), COALESCE("+
		hostOf("m.dest_compute")+", ''), COALESCE("+nodeOf("m.dest_compute", "m.dest_node")+", ''), COALESCE("+
		r.column("migrations", "cross_cell_move", "0")+", 0) <> 0, COALESCE(deleted, 0) <> 0, COALESCE(updated_at, created_at), deleted_at, "+
		r.column("migrations", "dest_compute_id", "NULL")+", COALESCE(old_instance_type_id <> new_instance_type_id, 0) FROM migrations m WHERE "+
		where, args...)
	slices.SortFunc(list, func(a, b cleanup.ContextMigration) int { return cmp.Compare(a.ID, b.ID) })
	return list, err
}

// latest returns the latest of some times, zero if all are NULL.
func latest(times ...sql.NullTime) time.Time {
	return slices.MaxFunc(times, func(a, b sql.NullTime) int { return a.Time.Compare(b.Time) }).Time
}
