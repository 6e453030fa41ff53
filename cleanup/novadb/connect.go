package novadb

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"time"

	"gpustack/host"

	"github.com/go-sql-driver/mysql"
)

// Limits bound how long a database may take to answer. 0 stands for a field's default.
type Limits struct {
	// Connect bounds connecting, signing in and the first answer together, for each
	// database (default 1 minute).
	Connect time.Duration
	// Answer bounds each later read and each write on a connection (default 1 minute, or Connect if
	// that is longer). It must be longer than LockWait: a shorter one would end the connection of a
	// transaction that waits for a lock. It is long because the outcome of a COMMIT without an answer
	// is unknown. A longer read_timeout or write_timeout of the URL replaces it.
	Answer time.Duration
}

func (l Limits) withDefaults() Limits {
	l.Connect = cmp.Or(l.Connect, time.Minute)
	l.Answer = cmp.Or(l.Answer, max(time.Minute, l.Connect))
	return l
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
// answer to COMMIT is missing, or is an error that leaves both open.
var ErrCommitUnknown = host.WithHint(errors.New("the outcome of COMMIT is unknown"),
	host.Textf("%s determines it and completes or reverts the repair", host.NewCommand("repair-migration").Flag("apply")))

// connect connects to a database and reads a first answer. Every connection of the pool
// has the limits and sessionSettings. Errors name the database and its address.
func connect(ctx context.Context, what string, target *Target, limits Limits) (*sql.DB, error) {
	limits = limits.withDefaults()
	config := target.Clone()
	config.DialFunc = target.dial
	config.Timeout = 0 // a context bounds connecting
	config.ReadTimeout, config.WriteTimeout = max(limits.Answer, target.ReadTimeout), max(limits.Answer, target.WriteTimeout)
	inner, err := mysql.NewConnector(config)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", what, err)
	}
	db := sql.OpenDB(&connector{inner, limits.Connect})
	err = within(ctx, limits.Connect, func(ctx context.Context) error {
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
	driver.Connector
	limit time.Duration
}

// Connect implements driver.Connector.
func (c *connector) Connect(ctx context.Context) (conn driver.Conn, err error) {
	err = within(ctx, c.limit, func(ctx context.Context) error {
		if conn, err = c.Connector.Connect(ctx); err != nil {
			return err
		}
		for _, s := range sessionSettings() {
			if err := s.set(ctx, conn); err != nil {
				return errors.Join(err, conn.Close())
			}
		}
		return nil
	})
	return conn, err
}

// Commit commits a transaction, which no end of a context interrupts.
//
// Errors: ErrCommitUnknown. The exceptions are a deadlock and a failed certification, which are returned
// as they are: the server has rolled back.
func Commit(conn *sql.Conn, tx *sql.Tx) error {
	err := tx.Commit()
	if n := errorNumber(err); err == nil || n == errorDeadlock || n == errorGroupRollback {
		return err
	}
	// The transaction may still be open and hold locks until the connection ends.
	conn.Raw(func(any) error { return driver.ErrBadConn }) //nolint:errcheck // that is what it returns
	// The driver's error is not wrapped: its number must not cause another try.
	return fmt.Errorf("%w: %s", ErrCommitUnknown, err.Error())
}
