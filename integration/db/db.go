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
	"time"

	"github.com/go-sql-driver/mysql"

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
