package db

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"
)

// A Row is columns of a row with their values. nil is NULL.
type Row map[string]any

// with is a copy in which other rows have the last word.
func (r Row) with(others ...Row) Row {
	all := maps.Clone(r)
	for _, other := range others {
		maps.Copy(all, other)
	}
	return all
}

// itsID is the value of a column that is to be the row's own id.
type itsID struct{}

// Deleted are the columns of a row that Nova has deleted a while ago: Nova leaves the
// row, with its own id in the column deleted.
func Deleted(ago time.Duration) Row {
	return Row{"deleted": itsID{}, "deleted_at": Ago(ago)}
}

// Ago is a time as Nova writes it: UTC, in whole seconds.
func Ago(ago time.Duration) time.Time {
	return time.Now().UTC().Add(-ago).Truncate(time.Second)
}

// UUID is one that can be told from others in what a test prints.
func UUID(n int) string {
	return fmt.Sprintf("%08d-0000-4000-8000-000000000000", n)
}

// orNull is nil for "".
func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// Insert inserts a row into a table and returns its id. Other columns than the given ones have the
// defaults of Nova's models, as far as the schema shows them: the current time for created_at, 0
// for deleted, NULL where that is allowed, otherwise zero or an empty text.
func (d Database) Insert(t testing.TB, table string, row Row) int64 {
	t.Helper()
	id, err := d.insert(t.Context(), table, row)
	if err != nil {
		t.Fatalf("insert into %s.%s: %v", d.Name, table, err)
	}
	return id
}

func (d Database) insert(ctx context.Context, table string, row Row) (int64, error) {
	columns, ok := d.db.columns[d.Name][table]
	if !ok {
		return 0, fmt.Errorf("no such table")
	}
	all := Row{}
	for _, c := range columns {
		if value, ok := c.value(); ok {
			all[c.name] = value
		}
	}
	all = all.with(row)
	deleted := all["deleted"] == itsID{}
	if deleted {
		all["deleted"] = 0
	}
	names := slices.Sorted(maps.Keys(all))
	values := make([]any, len(names))
	for i, name := range names {
		values[i] = all[name]
	}
	result, err := d.db.SQL.ExecContext(ctx, fmt.Sprintf("INSERT INTO %s.`%s` (`%s`) VALUES (?%s)", d.Name, table, strings.Join(names, "`, `"), strings.Repeat(", ?", len(names)-1)), values...)
	if err != nil {
		return 0, err
	}
	id, err := result.LastInsertId()
	if err != nil {
		return 0, err
	}
	if deleted {
		_, err = d.db.SQL.ExecContext(ctx, fmt.Sprintf("UPDATE %s.`%s` SET deleted = id WHERE id = ?", d.Name, table), id)
	}
	return id, err
}

// A column is what information_schema says of one.
type column struct {
	name, kind, full string // kind without a length: varchar; full with it, or with the values of an enum
	nullable         bool
	defaults         bool // has a default, or counts by itself
	key              bool // of the primary key
}

// value returns the default of a column; ok is false if the server has one.
func (c column) value() (value any, ok bool) {
	switch {
	case c.name == "created_at":
		return Ago(0), true
	case c.name == "deleted" && strings.HasSuffix(c.kind, "int"):
		// Nullable, and a row with NULL is one that Nova never sees.
		return 0, true
	case c.nullable || c.defaults:
		return nil, false
	case c.kind == "datetime":
		return Ago(0), true
	case c.kind == "enum":
		_, values, _ := strings.Cut(c.full, "('")
		first, _, _ := strings.Cut(values, "'")
		return first, true
	case strings.HasSuffix(c.kind, "char"), strings.HasSuffix(c.kind, "text"):
		return "", true
	}
	return 0, true
}

// readColumns learns what the tables are.
func (db *DB) readColumns(ctx context.Context) error {
	rows, err := db.rows(ctx, `SELECT table_schema, table_name, column_name, data_type, column_type, is_nullable, column_default IS NOT NULL OR extra LIKE '%auto_increment%', column_key
		FROM information_schema.columns WHERE table_schema IN (?, ?, ?) ORDER BY table_schema, table_name, ordinal_position`, apiDatabase, cell0Database, cell1Database)
	if err != nil {
		return err
	}
	db.columns = map[string]map[string][]column{}
	for _, r := range rows {
		tables := db.columns[r[0]]
		if tables == nil {
			tables = map[string][]column{}
			db.columns[r[0]] = tables
		}
		tables[r[1]] = append(tables[r[1]], column{name: r[2], kind: r[3], full: r[4], nullable: r[5] == "YES", defaults: r[6] == "1", key: r[7] == "PRI"})
	}
	return nil
}
