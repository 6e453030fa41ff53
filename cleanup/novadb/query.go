package novadb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"

	"github.com/go-sql-driver/mysql"

	"gpustack/host"
)

// Querier reads rows: a *sql.DB, *sql.Conn or *sql.Tx.
type Querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
}

// QueryRow runs a statement and scans its one row. Errors begin with what, as those of Query; that of a
// statement without a row is sql.ErrNoRows.
func QueryRow(ctx context.Context, q Querier, what string, into []any, statement string, args ...any) error {
	if err := q.QueryRowContext(ctx, statement, args...).Scan(into...); err != nil {
		return Explain(what, err)
	}
	return nil
}

// Query runs a statement and calls scan for each row. Errors begin with what, the name of the
// table or database that is read.
func Query(ctx context.Context, q Querier, what string, scan func(*sql.Rows) error, statement string, args ...any) error {
	rows, err := q.QueryContext(ctx, statement, args...)
	if err != nil {
		return Explain(what, err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err returns the error
	for rows.Next() {
		if err := scan(rows); err != nil {
			return Explain(what, err)
		}
	}
	if err := rows.Err(); err != nil {
		return Explain(what, err)
	}
	return nil
}

// Places returns n placeholders, separated by commas, for the list of an IN.
func Places(n int) string {
	return strings.TrimSuffix(strings.Repeat("?, ", n), ", ")
}

// Explain returns err with the database or table that it concerns, and with the hint that a silent
// connection has.
func Explain(what string, err error) error {
	if errors.Is(err, mysql.ErrInvalidConn) {
		return host.WithHint(explained(what, err), "check that the database runs and that no firewall drops connections to it; read_timeout in its URL waits longer")
	}
	return explained(what, err)
}

// explained is Explain without a hint. The driver reports a lost connection without a reason;
// explained adds the possible ones.
func explained(what string, err error) error {
	if errors.Is(err, mysql.ErrInvalidConn) {
		return fmt.Errorf("%s: the connection was lost, or the database did not answer in time: %w", what, err)
	}
	return fmt.Errorf("%s: %w", what, err)
}

// Numbers of errors of the server (mariadb.com/kb/en, "MariaDB Error Code Reference";
// dev.mysql.com/doc/mysql-errors/8.0/en, "Server Error Message Reference").
const (
	errorNotReady        = 1047 // ER_UNKNOWN_COM_ERROR; a node that is not part of its Galera cluster
	errorUnknownVariable = 1193 // ER_UNKNOWN_SYSTEM_VARIABLE
	errorLockWait        = 1205 // ER_LOCK_WAIT_TIMEOUT
	errorDeadlock        = 1213 // ER_LOCK_DEADLOCK; a failed certification in a Galera cluster
	errorCollations      = 1267 // ER_CANT_AGGREGATE_2COLLATIONS
	errorCollations3     = 1270 // ER_CANT_AGGREGATE_3COLLATIONS
	errorCollationsN     = 1271 // ER_CANT_AGGREGATE_NCOLLATIONS, of an IN
	errorInvalidText     = 1300 // ER_INVALID_CHARACTER_STRING
	errorCannotConvert   = 1977 // MariaDB: ER_CANNOT_CONVERT_CHARACTER
	errorGroupRollback   = 3101 // ER_TRANSACTION_ROLLBACK_DURING_COMMIT, of MySQL's Group Replication
	errorConversion      = 3854 // MySQL: ER_CANNOT_CONVERT_STRING
)

// errorNumber returns the number of an error that the server has sent, 0 for other errors.
func errorNumber(err error) uint16 {
	var server *mysql.MySQLError
	if !errors.As(err, &server) {
		return 0
	}
	return server.Number
}

// MayRetry returns whether a transaction that failed with err may succeed when it is begun
// again: after a deadlock, a failed certification, a lock timeout, or on a node of a cluster
// that is not ready.
func MayRetry(err error) bool {
	switch errorNumber(err) {
	case errorLockWait, errorDeadlock, errorNotReady:
		return true
	}
	return false
}

// IgnoreNoName returns nil if err is the server's answer to the comparison of a column with a
// name that the character set of the column cannot contain: such a name equals nothing in the
// column. It returns other errors as they are.
func IgnoreNoName(err error) error {
	switch errorNumber(err) {
	case errorCollations, errorCollations3, errorCollationsN, errorInvalidText, errorCannotConvert, errorConversion:
		return nil
	}
	return err
}
