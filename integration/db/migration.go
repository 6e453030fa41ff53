package db

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Migration is a row of migrations, of an instance that has a row. Its id is the next
// one if 0 is given, and returned.
func (c *Cell) Migration(t testing.TB, id int64, instanceUUID, kind, status, source, dest string, columns ...Row) int64 {
	t.Helper()
	row := Row{
		"uuid": uuid.NewString(), "instance_uuid": instanceUUID, "migration_type": kind, "status": status,
		"source_compute": source, "source_node": source, "dest_compute": dest, "dest_node": dest, "dest_host": "127.0.0.1",
		"old_instance_type_id": 1, "new_instance_type_id": 1, "hidden": false, "cross_cell_move": false,
		"user_id": "user", "project_id": "project", "created_at": Ago(time.Hour), "updated_at": Ago(time.Hour),
	}
	if id != 0 {
		row["id"] = id
	}
	row = row.with(columns...)
	c.nameByID(t, row, "migrations", "dest_compute", "dest_node", "dest_compute_id")
	return c.Insert(t, "migrations", row)
}

// Context writes the migration context of an instance, from and to cards by their ids.
func (c *Cell) Context(t testing.TB, instanceUUID string, migration int64, from, to []int64) {
	t.Helper()
	var made struct {
		Context string `json:"migration_context"`
	}
	// Never nil, which would not be a list.
	from, to = append([]int64{}, from...), append([]int64{}, to...)
	c.db.compose(t, map[string]any{
		"ask": "context", "database": c.connection, "instance": instanceUUID, "migration": migration, "old": from, "new": to,
	}, &made)
	if _, err := c.db.SQL.ExecContext(t.Context(), fmt.Sprintf("UPDATE %s.instance_extra SET migration_context = ? WHERE instance_uuid = ?", c.Name), made.Context, instanceUUID); err != nil {
		t.Fatal(err)
	}
}
