package db

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"gpustack/cleanup/novadb"
	"gpustack/host/hosttest"
)

// TestServerVariables: whatever a server has set for its sessions, a connection has the
// same value of the variable as on a server with defaults, and a dry run, --apply and undo
// find, write and restore the same.
func TestServerVariables(t *testing.T) {
	server := globals(t)
	want := runWithVariable(t, server, "autocommit", "")
	if got := strings.Join(want.Repaired, " "); len(want.Repaired) != 3 || strings.Contains(got, "allocated") {
		t.Fatalf("with defaults, after --apply: %q", want.Repaired)
	}
	for _, v := range []struct{ name, value string }{
		{"autocommit", "OFF"},
		{"completion_type", "'CHAIN'"},
		{"completion_type", "'RELEASE'"},
		{"sql_mode", "'ANSI_QUOTES,PIPES_AS_CONCAT,NO_BACKSLASH_ESCAPES,ONLY_FULL_GROUP_BY,PAD_CHAR_TO_FULL_LENGTH'"},
		{"sql_mode", "'ORACLE'"},
		{"sql_mode", "'MAXDB,EMPTY_STRING_IS_NULL,HIGH_NOT_PRECEDENCE,NO_UNSIGNED_SUBTRACTION'"},
		{"sql_select_limit", "1"},
		{"sql_select_limit", "2"}, // there are two cells and three stale rows
		{"max_join_size", "1"},
		{"sql_big_selects", "OFF"},
		{"sql_safe_updates", "ON"},
		{"sql_auto_is_null", "ON"},
		{"foreign_key_checks", "OFF"},
		{"unique_checks", "OFF"},
		{"max_sort_length", "64"},
		{"time_zone", "'+05:00'"},
		{"character_set_client", "'latin1'"},
		{"character_set_results", "'ucs2'"},
		{"collation_connection", "'latin1_german2_ci'"},
		{"innodb_lock_wait_timeout", "1"},
		{"tx_isolation", "'READ-UNCOMMITTED'"},
		{"tx_isolation", "'SERIALIZABLE'"},
		{"tx_read_only", "ON"},
		{"max_statement_time", "0.00001"},
		{"idle_transaction_timeout", "1"},
		{"idle_readonly_transaction_timeout", "1"},
		{"idle_write_transaction_timeout", "1"},
		{"system_versioning_asof", "'2020-01-01 00:00:00'"},
		{"innodb_snapshot_isolation", "ON"},
		{"wsrep_sync_wait", "8"},
		{"wsrep_dirty_reads", "ON"},
		// The server runs it for each new connection of an account without SUPER.
		{"init_connect", "'SET autocommit = 0, sql_select_limit = 1, NAMES latin1'"},
	} {
		t.Run(v.name+"="+v.value, func(t *testing.T) {
			want := want
			want.Session = sessionVariable(t, v.name)
			hosttest.EqualIn(t, "defaults and this", want, runWithVariable(t, server, v.name, v.value))
		})
	}
}

// variableOutcome is what commands do while a variable of the server has a value.
type variableOutcome struct {
	Session              string   // the value of the variable on a connection
	Dry, Applied, Undone string   // what the commands print
	Status               []int    // their exit statuses
	Repaired             []string // the rows after --apply
}

// runWithVariable makes rows, of which three are stale, and runs the commands while a variable
// of the server has a value, unless value is "". The rows are read while it has its own again.
func runWithVariable(t *testing.T, server globalVariables, name, value string) (o variableOutcome) {
	t.Helper()
	cell, root := stale(t, 3), machine(t)
	before := cell.Dump(t, "pci_devices")
	with := func(command func() (text string, status int)) string {
		t.Helper()
		if was := server.get(t, name); value != "" {
			defer server.set(t, name, was)
			server.set(t, name, value)
		}
		text, status := command()
		o.Status = append(o.Status, status)
		return steady(text, root)
	}
	repair := func(args ...string) string {
		return with(func() (string, int) {
			stdout, stderr, status := repairMigration(t, root, append(args, "--host-is-off", "gpu1")...)
			return stdout + stderr, status
		})
	}
	o.Session = with(func() (string, int) {
		session := sessionVariable(t, name)
		if value != "" && session == strings.Trim(server.get(t, name), "'") {
			t.Fatalf("%s is %s for new sessions too", name, session)
		}
		return session, 0
	})
	o.Dry = repair()
	o.Applied = repair("--apply", "--yes", "--wait", "1s")
	o.Repaired = states(t, cell)
	o.Undone = with(func() (string, int) {
		cmd := exec.Command(gpustack, "undo", "--root", root, "--yes")
		var talk bytes.Buffer
		cmd.Stdout, cmd.Stderr = &talk, &talk
		var exit *exec.ExitError
		if err := cmd.Run(); err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return talk.String(), cmd.ProcessState.ExitCode()
	})
	hosttest.EqualIn(t, "undo", before, cell.Dump(t, "pci_devices"))
	return o
}

// steady returns output without what differs from run to run: the folder and times.
func steady(text, root string) string {
	text = strings.ReplaceAll(text, root, "ROOT")
	return regexp.MustCompile(`\d{4}-\d\d-\d\d[ T]\d\d:\d\d(:\d\d)?`).ReplaceAllString(text, "TIME")
}

// sessionVariable returns the value of a variable on a new connection of gpustack's, "" for
// init_connect, which only the server has.
func sessionVariable(t *testing.T, name string) (value string) {
	t.Helper()
	if name == "init_connect" {
		return ""
	}
	cell := open(t, database.URL(cell1Database), novadb.Limits{})
	defer cell.DB.Close()
	hosttest.NoError(t, cell.DB.QueryRowContext(t.Context(), "SELECT @@SESSION."+name).Scan(&value))
	return value
}

// globalVariables are the values of variables that new sessions of the server get.
type globalVariables struct{ conn *sql.Conn }

// globals returns the variables of the server. Its connection has the defaults itself.
func globals(t *testing.T) globalVariables {
	t.Helper()
	conn, err := database.SQL.Conn(t.Context())
	hosttest.NoError(t, err)
	t.Cleanup(func() { conn.Close() })
	return globalVariables{conn}
}

// get returns the value of a variable as a literal.
func (g globalVariables) get(t *testing.T, name string) (value string) {
	t.Helper()
	hosttest.NoError(t, g.conn.QueryRowContext(t.Context(), "SELECT QUOTE(@@GLOBAL."+name+")").Scan(&value))
	bare := strings.Trim(value, "'")
	if bare == "DEFAULT" || bare != "" && strings.Trim(bare, "0123456789.") == "" {
		return bare // a keyword or a number, which is refused in quotes
	}
	return value
}

// set sets a variable to a literal.
func (g globalVariables) set(t *testing.T, name, value string) {
	t.Helper()
	// The test may have ended when the variable gets its value back.
	if _, err := g.conn.ExecContext(context.WithoutCancel(t.Context()), "SET GLOBAL "+name+" = "+value); err != nil {
		t.Error(err)
	}
}
