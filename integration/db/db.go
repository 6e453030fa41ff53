package db

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"gpustack/host/hosttest"
	"gpustack/integration/mariadb"
	"gpustack/integration/service"
)

//go:embed python
var pythonFiles embed.FS

// User is the account of Nova, which may do everything in its databases.
const User = "nova"

// A DB is a running server with Nova's databases.
type DB struct {
	// Password is that of User. Unless it is read as SQLAlchemy and oslo.config read
	// it, it is a wrong one.
	Password string

	Root       string // has etc/nova/nova.conf, with the server's address in it
	SocketRoot string // the same, with the server's socket

	API          Database // nova_api
	Cell0, Cell1 *Cell

	Server *mariadb.Server
	SQL    *sql.DB // as the server's administrator, with no database chosen

	dir     string
	oracle  *oracle
	columns map[string]map[string][]column // by database and table
}

// Start makes a server, its databases and the oracle below dir, whose name must be
// short: a socket lies in it.
func Start(ctx context.Context, dir string) (*DB, error) {
	db := &DB{
		// What an address keeps for itself, what oslo.config does, and a plus, which is
		// a blank in a query but not here.
		Password:   "p@ss/100%$:+" + rand.Text(),
		Root:       filepath.Join(dir, "root"),
		SocketRoot: filepath.Join(dir, "socketroot"),
		dir:        dir,
	}
	if err := db.start(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("start the databases: %w", err), db.Stop())
	}
	return db, nil
}

func (db *DB) start(ctx context.Context) error {
	for _, dir := range []string{"log", "tmp"} {
		if err := os.MkdirAll(filepath.Join(db.dir, dir), 0o700); err != nil {
			return err
		}
	}
	if err := errors.Join(os.CopyFS(db.dir, pythonFiles), service.WriteWSGI(filepath.Join(db.dir, "python"))); err != nil {
		return err
	}
	var err error
	if db.Server, err = mariadb.Start(ctx, filepath.Join(db.dir, "mysql"), db.log("mariadb")); err != nil {
		return err
	}
	if err := db.connect(); err != nil {
		return err
	}
	if err := db.writeConf(); err != nil {
		return err
	}
	return service.InTurn(db.makeDatabases, service.Together(db.makeSchemas, db.startOracle), db.findCells)(ctx)
}

// connect opens the way in for the harness itself. Times are UTC on both sides, as
// Nova has them.
func (db *DB) connect() error {
	config := mysql.NewConfig()
	config.User, config.Passwd = db.Server.User, db.Server.Password
	config.Net, config.Addr = "tcp", db.Server.Address
	config.Loc = time.UTC
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return err
	}
	db.SQL = sql.OpenDB(connector)
	return nil
}

// Stop ends all that runs. The files stay.
func (db *DB) Stop() error {
	var errs []error
	if db.oracle != nil {
		errs = append(errs, db.oracle.stop())
	}
	if db.SQL != nil {
		errs = append(errs, db.SQL.Close())
	}
	if db.Server != nil {
		errs = append(errs, db.Server.Stop())
	}
	return errors.Join(errs...)
}

// python is the command line of a program in Debian's Python, whatever python3 comes
// first in the PATH.
func (db *DB) python(script string, args ...string) []string {
	return append([]string{"/usr/bin/python3", filepath.Join(db.dir, "python", script)}, args...)
}

func (db *DB) environ() []string {
	return []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8", "HOME=" + db.dir, "TMPDIR=" + filepath.Join(db.dir, "tmp")}
}

func (db *DB) log(name string) string {
	return filepath.Join(db.dir, "log", name+".log")
}

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

// Reset takes all rows out of all databases but those that make them Nova's: the
// versions of the schemas, cell0 and cell1, which are enabled and where they were. Ids
// begin with 1 again. Cells that were
// added are no longer known; their databases stay, empty, for AddCell.
func (db *DB) Reset(ctx context.Context) error {
	conn, err := db.SQL.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	tables, err := db.used(ctx)
	if err != nil {
		return err
	}
	statements := []string{"SET foreign_key_checks = 0"}
	for _, table := range tables {
		statements = append(statements, "TRUNCATE TABLE "+table)
	}
	statements = append(statements,
		fmt.Sprintf("DELETE FROM nova_api.cell_mappings WHERE id NOT IN (%s, %s)", db.Cell0.id, db.Cell1.id),
		"SET foreign_key_checks = 1")
	for _, statement := range statements {
		if _, err := conn.ExecContext(ctx, statement); err != nil {
			return fmt.Errorf("%s: %w", statement, err)
		}
	}
	for _, cell := range []*Cell{db.Cell0, db.Cell1} {
		if _, err := conn.ExecContext(ctx, "UPDATE nova_api.cell_mappings SET database_connection = ?, disabled = 0 WHERE id = ?", cell.URL(), cell.id); err != nil {
			return err
		}
	}
	return nil
}

// used are the tables that have rows, or had: to empty all takes seconds.
func (db *DB) used(ctx context.Context) ([]string, error) {
	var questions []string
	for database, tables := range db.columns {
		for table := range tables {
			if !slices.Contains([]string{"alembic_version", "cell_mappings"}, table) {
				questions = append(questions, fmt.Sprintf("SELECT '%[1]s.`%[2]s`' FROM DUAL WHERE EXISTS (SELECT 1 FROM %[1]s.`%[2]s`)", database, table))
			}
		}
	}
	questions = append(questions, "SELECT concat(table_schema, '.`', table_name, '`') FROM information_schema.tables WHERE table_schema LIKE 'nova\\_%' AND table_name <> 'cell_mappings' AND auto_increment > 1")
	rows, err := db.rows(ctx, strings.Join(questions, " UNION "))
	if err != nil {
		return nil, err
	}
	var names []string
	for _, row := range rows {
		names = append(names, row[0])
	}
	return names, nil
}
