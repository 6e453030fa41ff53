package db

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// Dump is a table in the order of its primary key, for a comparison of before and
// after: the columns given, or all. NULL is "NULL".
func (d Database) Dump(t testing.TB, table string, columns ...string) [][]string {
	t.Helper()
	var all, key []string
	for _, c := range d.db.columns[d.Name][table] {
		all = append(all, "`"+c.name+"`")
		if c.key {
			key = append(key, "`"+c.name+"`")
		}
	}
	if len(key) == 0 {
		t.Fatalf("%s.%s has no primary key", d.Name, table)
	}
	if len(columns) > 0 {
		all = columns
	}
	rows, err := d.db.rows(t.Context(), fmt.Sprintf("SELECT %s FROM %s.`%s` ORDER BY %s", strings.Join(all, ", "), d.Name, table, strings.Join(key, ", ")))
	hosttest.NoError(t, err)
	return rows
}

// rows is what a query gives, as text, where NULL is "NULL".
func (db *DB) rows(ctx context.Context, query string, args ...any) (all [][]string, err error) {
	rows, err := db.SQL.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	values, into := make([]sql.NullString, len(columns)), make([]any, len(columns))
	for i := range values {
		into[i] = &values[i]
	}
	for rows.Next() {
		if err := rows.Scan(into...); err != nil {
			return nil, err
		}
		row := make([]string, len(values))
		for i, value := range values {
			if row[i] = "NULL"; value.Valid {
				row[i] = value.String
			}
		}
		all = append(all, row)
	}
	return all, rows.Err()
}
