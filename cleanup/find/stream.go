package find

import (
	"cmp"
	"context"
	"database/sql"
	"fmt"
	"strconv"

	"gpustack/cleanup/novadb"
)

// rangeRows is how many rows a statement returns at most while a table is streamed. It bounds the
// time that a statement takes.
const rangeRows = 20_000

// source is a part of a large table: columns of its live rows.
type source struct {
	table   string
	owner   string // the column with the uuid of an instance
	columns string // further ones
	where   string // a further condition
}

// values are the columns of a row, valid until the next row is read. A value is nil for NULL.
type values = []sql.RawBytes

// stream reads all rows of a source in the order of the primary key, range by range, and calls row
// for each with its id, its owner and its columns. Neither it nor database/sql allocates memory
// for a row. The primary key is the one index whose order is that of the rows on disk, and is
// forced: of a table with many deleted rows the server might follow an index that begins with
// deleted, and fetch row by row.
func (r *reader) stream(ctx context.Context, s source, row func(values) error) error {
	id := "0"
	for n := rangeRows; n == rangeRows; {
		n = 0
		err := r.each(ctx, s, "FORCE INDEX (PRIMARY) WHERE id > ?", "ORDER BY id LIMIT "+strconv.Itoa(rangeRows), []any{id}, func(v values) error {
			if n++; n == rangeRows {
				id = string(v[0])
			}
			return row(v)
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// lookup reads the rows of a source that belong to instances, as stream does.
func (r *reader) lookup(ctx context.Context, s source, instances []any, row func(values) error) error {
	return r.each(ctx, s, "WHERE "+s.owner+" IN ("+novadb.Places(len(instances))+")", "", instances, row)
}

// each calls row for the rows of a source that a further condition selects.
func (r *reader) each(ctx context.Context, s source, where, order string, args []any, row func(values) error) error {
	var v values
	var into []any
	return r.query(ctx, s.table, func(rows *sql.Rows) error {
		if v == nil {
			names, err := rows.Columns()
			if err != nil {
				return err
			}
			v, into = make(values, len(names)), make([]any, len(names))
			for i := range v {
				into[i] = &v[i]
			}
		}
		if err := rows.Scan(into...); err != nil {
			return err
		}
		return row(v)
	}, "SELECT id, "+s.owner+s.columns+" FROM "+s.table+" "+where+" AND deleted = 0 AND "+cmp.Or(s.where, "TRUE")+" "+order, args...)
}

// number returns the value of an integer column.
func number(v sql.RawBytes) (int64, error) {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%q is not a number", v)
	}
	return n, nil
}

// span returns how many rows a table has at most, deleted ones included.
func (r *reader) span(ctx context.Context, table string) (n int64, err error) {
	err = r.query(ctx, table, func(rows *sql.Rows) error { return rows.Scan(&n) }, "SELECT COALESCE(MAX(id) - MIN(id) + 1, 0) FROM "+table)
	return n, err
}
