package novadb

import (
	"context"
	"database/sql/driver"
	"fmt"
	"strconv"
	"strings"
)

// settings are session variables that a server has either all of or none of, with the values that
// every connection sets.
type settings struct {
	of     string   // the servers that have the variables; "" means all
	values []string // variable = value
}

// sessionSettings returns the session variables that change which rows a statement finds, what it
// writes or when it ends. A new session takes each of them from the server's global value, which
// is the operator's choice for other clients. Each element is one statement of a new connection.
// sql_select_limit hides rows; max_join_size, sql_big_selects and sql_safe_updates refuse statements;
// sql_auto_is_null finds other rows; without foreign_key_checks and unique_checks a row is written that
// contradicts the schema; a longer innodb_lock_wait_timeout makes Nova wait too long for a lock.
//
// Only the lock timeouts of a transaction are set elsewhere (package repair). Not set are
// variables of memory and of the optimizer, which change how long a statement takes, and those of
// statements that gpustack does not use (mariadb.com/kb/en, "Server System Variables";
// dev.mysql.com/doc/refman, "Server System Variables").
func sessionSettings() []settings {
	return []settings{
		{"", []string{
			"autocommit = 1",
			// COMMIT begins no new transaction and does not close the connection.
			"completion_type = 'NO_CHAIN'",
			// As oslo.db sets it for Nova: a value that does not fit its column is an error. It has
			// none of the modes that change how a statement is read, such as ANSI_QUOTES and
			// PIPES_AS_CONCAT, or what it returns, such as EMPTY_STRING_IS_NULL.
			"sql_mode = 'TRADITIONAL'",
			// DEFAULT would be the global value.
			"sql_select_limit = 18446744073709551615",
			"max_join_size = 18446744073709551615", // before sql_big_selects, which it sets
			"sql_big_selects = 1",
			"sql_safe_updates = 0",
			"sql_auto_is_null = 0",
			"foreign_key_checks = 1",
			"unique_checks = 1",
			// GROUP BY and DISTINCT sort by this number of bytes of a name.
			"max_sort_length = 1024",
			// Nova stores times in UTC, whatever the zone of the server is.
			"time_zone = '+00:00'",
			// What the driver announces when it connects, which init_connect and
			// skip_character_set_client_handshake of the server override.
			"character_set_client = utf8mb4",
			"character_set_results = utf8mb4",
			"collation_connection = " + collation,
			"innodb_lock_wait_timeout = " + strconv.Itoa(LockWait),
		}},
		// Reads outside a transaction see what is committed.
		{"MariaDB, and MySQL before 8.0", []string{"tx_isolation = 'REPEATABLE-READ'", "tx_read_only = 0"}},
		{"MySQL since 5.7.20, and MariaDB since 11.1", []string{"transaction_isolation = 'REPEATABLE-READ'", "transaction_read_only = 0"}},
		// Limits of the server that end a statement or a transaction in its middle. Limits and
		// package repair have those that apply.
		{"MySQL", []string{"max_execution_time = 0"}},
		{"MariaDB", []string{"max_statement_time = 0"}},
		{"MariaDB since 10.3", []string{
			"idle_transaction_timeout = 0", "idle_readonly_transaction_timeout = 0", "idle_write_transaction_timeout = 0",
			// Tables with system versioning are read as they are now.
			"system_versioning_asof = DEFAULT",
		}},
		// A row that has changed since the snapshot of the transaction is locked and read as it is
		// now, as on all other servers, instead of error 1020. It is ON by default since 11.6.2.
		{"MariaDB since 10.6.18 and 10.11.8", []string{"innodb_snapshot_isolation = OFF"}},
		// wsrep_dirty_reads = 0 makes a node that has lost its cluster refuse to answer.
		{"MariaDB and MySQL with Galera", []string{"wsrep_sync_wait = " + strconv.Itoa(syncWait), "wsrep_dirty_reads = 0"}},
	}
}

// collation is that of literals and parameters, with the character set utf8mb4.
const collation = "utf8mb4_general_ci"

// set sets the variables of a session. Variables that the server does not have are skipped.
func (s settings) set(ctx context.Context, conn driver.Conn) error {
	execer, ok := conn.(driver.ExecerContext)
	if !ok {
		return fmt.Errorf("the driver's %T executes nothing", conn)
	}
	_, err := execer.ExecContext(ctx, "SET SESSION "+strings.Join(s.values, ", SESSION "), nil)
	if err == nil || s.of != "" && errorNumber(err) == errorUnknownVariable {
		return nil
	}
	return fmt.Errorf("set the session's variables: %w", err)
}
