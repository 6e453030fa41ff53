// Package novadbtest imitates Nova's databases for tests of what is made of their answers: [Open].
// It is no server and speaks no SQL: what real servers answer is tested in integration/db.
package novadbtest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"io"
	"strconv"
	"strings"
	"testing"

	"gpustack/cleanup/novadb"
)

// Database is the database of a cell. It answers a query by the first of its Answers that is for
// it, and every other query with no row. A statement that writes rows fails the test.
type Database struct {
	Answers []Answer
	Begin   error // of every transaction
}

// Answer is the result of each query whose statement contains Part: rows, whose values are those of
// database/sql/driver, or an error.
type Answer struct {
	Part string
	Rows [][]any
	Err  error
}

// Open returns the databases of a deployment with these cells: cell1, cell2 and so on.
func Open(t *testing.T, cells ...*Database) *novadb.Databases {
	t.Helper()
	d := &novadb.Databases{}
	for i, cell := range cells {
		name := "cell" + strconv.Itoa(i+1)
		d.Cells = append(d.Cells, novadb.Cell{Name: name, UUID: name, DB: sql.OpenDB(&connection{t, cell})})
	}
	return d
}

// connection is a connection to a database, its transactions included.
type connection struct {
	t *testing.T
	*Database
}

func (c *connection) Connect(context.Context) (driver.Conn, error) { return c, nil }
func (c *connection) Driver() driver.Driver                        { return nil }
func (c *connection) Close() error                                 { return nil }
func (c *connection) Begin() (driver.Tx, error)                    { return c, c.Database.Begin }
func (c *connection) Commit() error                                { return nil }
func (c *connection) Rollback() error                              { return nil }

// BeginTx accepts every isolation.
func (c *connection) BeginTx(context.Context, driver.TxOptions) (driver.Tx, error) { return c.Begin() }

func (c *connection) Prepare(statement string) (driver.Stmt, error) {
	return nil, errors.New("a prepared statement: " + statement)
}

func (c *connection) ExecContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	if !strings.HasPrefix(statement, "SET SESSION ") {
		c.t.Errorf("a statement that writes: %s", statement)
	}
	return driver.ResultNoRows, nil
}

func (c *connection) QueryContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Rows, error) {
	for _, a := range c.Answers {
		if strings.Contains(statement, a.Part) {
			return &result{a.Rows, a.Rows}, a.Err
		}
	}
	return &result{}, nil
}

// result is the answer to one query.
type result struct{ all, left [][]any }

func (r *result) Close() error { return nil }

func (r *result) Columns() []string {
	if len(r.all) == 0 {
		return nil
	}
	return make([]string, len(r.all[0]))
}

func (r *result) Next(into []driver.Value) error {
	if len(r.left) == 0 {
		return io.EOF
	}
	for i, value := range r.left[0] {
		into[i] = value
	}
	r.left = r.left[1:]
	return nil
}
