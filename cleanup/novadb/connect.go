package novadb

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"syscall"
	"time"

	"gpustack/host"

	"github.com/go-sql-driver/mysql"
)

// Limits bound how long a database may take to answer. 0 stands for a field's default.
type Limits struct {
	// Connect bounds connecting, signing in and the first answer together, for each
	// database (default 1 minute).
	Connect time.Duration
	// Packet bounds each read and each write on a connection (default 30 seconds). It must
	// be longer than LockWait: a shorter one would end the connection of a transaction that
	// waits for a lock. A longer read_timeout or write_timeout of the URL replaces it.
	Packet time.Duration
	// Commit bounds the wait for the answer to COMMIT (default 60 seconds). It is longer
	// than Packet because the outcome of a COMMIT without an answer is unknown.
	Commit time.Duration
}

func (l Limits) withDefaults() Limits {
	return Limits{
		Connect: cmp.Or(l.Connect, time.Minute),
		Packet:  cmp.Or(l.Packet, 30*time.Second),
		Commit:  cmp.Or(l.Commit, 60*time.Second),
	}
}

// LockWait is the innodb_lock_wait_timeout of every connection: the number of seconds that
// a statement waits for a row that another transaction has locked. The server's default
// of 50 seconds is longer than Limits.Packet.
const LockWait = 10

// syncWait is the wsrep_sync_wait of every connection: before each read, UPDATE, DELETE,
// INSERT and REPLACE, a node of a Galera cluster applies what other nodes have committed
// (1 reads, 2 UPDATE and DELETE, 4 INSERT and REPLACE; mariadb.com/kb/en, "Galera Cluster
// System Variables").
const syncWait = 7

// ErrCommitUnknown means that a transaction may be committed, now or later, or not: the
// answer to COMMIT is missing, or is an error that leaves both open. Commit of every
// transaction on a connection of Databases returns it in place of the driver's error. The
// exceptions are a deadlock and a failed certification, which are returned as they are:
// the server has rolled back.
var ErrCommitUnknown = host.WithHint(errors.New("the outcome of COMMIT is unknown"),
	host.Textf("%s determines it and completes or reverts the repair", host.NewCommand("repair-migration").Flag("apply")))

// connect connects to a database and reads a first answer. Every connection of the pool
// has the limits and sessionSettings. Errors name the database and its address.
func connect(ctx context.Context, what string, target *Target, limits Limits) (*sql.DB, error) {
	limits = limits.withDefaults()
	db := sql.OpenDB(&connector{target, limits})
	err := within(ctx, limits.Connect, func(ctx context.Context) error {
		var one int
		return db.QueryRowContext(ctx, "SELECT 1").Scan(&one)
	})
	if err != nil {
		return nil, errors.Join(hinted(what, target, explained(what+" at "+target.Addr, err)), db.Close())
	}
	return db, nil
}

// within runs act with a context that ends after the limit, and returns act's error, or
// "no answer within LIMIT" if act failed because of the limit.
func within(ctx context.Context, limit time.Duration, act func(context.Context) error) error {
	limited, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	err := act(limited)
	// A dial can fail with DeadlineExceeded a moment before its context ends.
	if err != nil && ctx.Err() == nil && (limited.Err() != nil || errors.Is(err, context.DeadlineExceeded)) {
		return host.WithHint(fmt.Errorf("no answer within %s", limit),
			"check that the database runs and that no firewall drops connections to it; --timeout waits longer")
	}
	return err
}

// connector opens the connections of a pool.
type connector struct {
	target *Target
	limits Limits
}

// Driver implements driver.Connector.
func (c *connector) Driver() driver.Driver {
	return &mysql.MySQLDriver{}
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (conn driver.Conn, err error) {
	err = within(ctx, c.limits.Connect, func(ctx context.Context) error {
		conn, err = c.connect(ctx)
		return err
	})
	return conn, err
}

func (c *connector) connect(ctx context.Context) (driver.Conn, error) {
	var w *wire
	config := c.target.Clone()
	// The context bounds connecting; the wire bounds everything after it.
	config.Timeout, config.ReadTimeout, config.WriteTimeout = 0, 0, 0
	config.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := c.target.dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		w = &wire{Conn: conn}
		return w, nil
	}
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	conn, err := inner.Connect(ctx)
	if err != nil {
		return nil, err
	}
	all, ok := conn.(session)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the driver's %T lacks methods", conn), conn.Close())
	}
	if err := c.prepare(ctx, all); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	w.read, w.write = max(c.limits.Packet, c.target.ReadTimeout), max(c.limits.Packet, c.target.WriteTimeout)
	return &connection{all, w, max(c.limits.Commit, w.read)}, nil
}

// prepare sets the variables of a new connection.
func (c *connector) prepare(ctx context.Context, conn driver.ExecerContext) error {
	for _, s := range sessionSettings() {
		if err := s.set(ctx, conn); err != nil {
			return err
		}
	}
	return nil
}

// session has the methods of the driver's connections that database/sql calls.
type session interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ConnPrepareContext
	driver.ExecerContext
	driver.NamedValueChecker
	driver.Pinger
	driver.QueryerContext
	driver.SessionResetter
	driver.Validator
}

// connection is a connection whose transactions have a limit of their own for COMMIT.
type connection struct {
	session
	wire   *wire
	commit time.Duration
}

// BeginTx implements driver.ConnBeginTx.
func (c *connection) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.session.BeginTx(ctx, options)
	if err != nil {
		return nil, err
	}
	return &transaction{tx, c}, nil
}

type transaction struct {
	driver.Tx
	conn *connection
}

// Commit implements driver.Tx. The end of a context does not interrupt it.
func (t *transaction) Commit() error {
	w := t.conn.wire
	packet := w.read
	w.read = t.conn.commit
	err := t.Tx.Commit()
	w.read = packet
	switch errorNumber(err) {
	case errorDeadlock, errorGroupRollback:
		return err
	}
	if err != nil {
		// The transaction may still be open and hold locks until the connection ends.
		t.conn.Close() //nolint:errcheck // fails only where the connection is lost already
		// The driver's error is not wrapped: its number must not cause another try.
		return fmt.Errorf("%w: %s", ErrCommitUnknown, err.Error())
	}
	return nil
}

// wire limits each read and each write of a connection; 0 is no limit. Only one goroutine
// may use it at a time, which database/sql ensures.
type wire struct {
	net.Conn
	read, write time.Duration
}

func (w *wire) Read(b []byte) (int, error) {
	if err := w.SetReadDeadline(after(w.read)); err != nil {
		return 0, err
	}
	return w.Conn.Read(b)
}

func (w *wire) Write(b []byte) (int, error) {
	if err := w.SetWriteDeadline(after(w.write)); err != nil {
		return 0, err
	}
	return w.Conn.Write(b)
}

func after(limit time.Duration) time.Time {
	if limit == 0 {
		return time.Time{}
	}
	return time.Now().Add(limit)
}

// SyscallConn implements syscall.Conn, which the driver needs to detect that the server
// has closed an idle connection.
func (w *wire) SyscallConn() (syscall.RawConn, error) {
	conn, ok := w.Conn.(syscall.Conn)
	if !ok {
		return nil, fmt.Errorf("%T has no file descriptor", w.Conn)
	}
	return conn.SyscallConn()
}
