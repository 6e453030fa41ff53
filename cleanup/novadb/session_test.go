package novadb

import (
	"context"
	"database/sql/driver"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"

	"github.com/go-sql-driver/mysql"
)

// fakeServer accepts SET statements of variables that it has, and of an init_command.
type fakeServer struct {
	driver.Conn
	lacks   []string // variables that it does not have
	refuses string   // a variable that it has, and refuses to set
	session map[string]string
	order   []string // the variables and init_command, as they were set
}

func (f *fakeServer) Connect(context.Context) (driver.Conn, error) { return f, nil }

func (f *fakeServer) Driver() driver.Driver { return nil }

func (f *fakeServer) Close() error { return nil }

// ExecContext implements driver.ExecerContext. Like a real server it sets all variables of a
// statement or none.
func (f *fakeServer) ExecContext(_ context.Context, statement string, _ []driver.NamedValue) (driver.Result, error) {
	assignments, ok := strings.CutPrefix(statement, "SET SESSION ")
	if !ok {
		f.order = append(f.order, statement)
		return nil, nil
	}
	all := strings.Split(assignments, ", SESSION ")
	for _, a := range all {
		name, _, _ := strings.Cut(a, " = ")
		if slices.Contains(f.lacks, name) {
			return nil, &mysql.MySQLError{Number: errorUnknownVariable, Message: "Unknown system variable '" + name + "'"}
		}
		if name == f.refuses {
			return nil, &mysql.MySQLError{Number: 1227, Message: "Access denied; you need the SUPER privilege"}
		}
	}
	for _, a := range all {
		name, value, _ := strings.Cut(a, " = ")
		f.session[name] = value
		f.order = append(f.order, name)
	}
	return nil, nil
}

// TestSessionSettings: a server that lacks variables is accepted if other servers lack them too,
// and has all others set; any other error ends the connection.
func TestSessionSettings(t *testing.T) {
	mariadb := []string{"max_statement_time", "idle_transaction_timeout", "idle_readonly_transaction_timeout", "idle_write_transaction_timeout", "system_versioning_asof"}
	galera := []string{"wsrep_sync_wait", "wsrep_dirty_reads"}
	snapshot := []string{"innodb_snapshot_isolation"}
	before := []string{"tx_isolation", "tx_read_only"}
	since := []string{"transaction_isolation", "transaction_read_only"}
	of := func(lists ...[]string) []string { return slices.Concat(lists...) }
	for name, test := range map[string]struct {
		lacks   []string
		refuses string
		want    string // the error
	}{
		"MySQL 5.6":            {lacks: of(mariadb, galera, snapshot, since, []string{"max_execution_time"})},
		"MySQL 8.4":            {lacks: of(mariadb, galera, snapshot, before)},
		"Percona XtraDB 8.4":   {lacks: of(mariadb, snapshot, before)},
		"MariaDB 10.2":         {lacks: of(mariadb[1:], galera, snapshot, since, []string{"max_execution_time"})},
		"MariaDB 10.6.12":      {lacks: of(snapshot, since, []string{"max_execution_time"})},
		"MariaDB 10.11.19":     {lacks: of(since, []string{"max_execution_time"})},
		"MariaDB 11.8":         {lacks: []string{"max_execution_time"}},
		"one that all have":    {lacks: []string{"autocommit"}, want: "set the session's variables: Error 1193: Unknown system variable 'autocommit'"},
		"autocommit refused":   {refuses: "autocommit", want: "set the session's variables: Error 1227: Access denied; you need the SUPER privilege"},
		"an optional, refused": {refuses: "wsrep_sync_wait", want: "set the session's variables: Error 1227: Access denied; you need the SUPER privilege"},
	} {
		t.Run(name, func(t *testing.T) {
			server := &fakeServer{lacks: test.lacks, refuses: test.refuses, session: map[string]string{}}
			_, err := (&connector{server, time.Minute}).Connect(t.Context())
			if test.want != "" {
				hosttest.Equal(t, test.want, fmt.Sprint(err))
				return
			}
			hosttest.NoError(t, err)
			for _, s := range sessionSettings() {
				for _, v := range s.values {
					name, value, ok := strings.Cut(v, " = ")
					if !ok || !regexp.MustCompile(`^[a-z_]+$`).MatchString(name) {
						t.Errorf("not an assignment: %s", v)
					}
					if lacked := slices.Contains(test.lacks, name); !lacked && server.session[name] != value {
						t.Errorf("%s is %q, want %s", name, server.session[name], value)
					}
				}
			}
		})
	}
}
