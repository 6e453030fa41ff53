package db

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"gpustack/cleanup/novadb"
	"gpustack/host/hosttest"

	"github.com/go-sql-driver/mysql"
)

// open connects to a cell by its URL, with limits.
func open(t *testing.T, url string, limits novadb.Limits) novadb.Cell {
	t.Helper()
	databases, err := novadb.Open(t.Context(), novadb.Where{Database: url, Limits: limits})
	hosttest.NoError(t, err)
	t.Cleanup(func() { databases.Close() })
	return databases.Cells[0]
}

// TestCommitLimit: where the answer to COMMIT takes too long, or the connection is lost, the outcome is
// unknown, also where the server commits; where the server has rolled back, its own error says so.
func TestCommitLimit(t *testing.T) {
	reset(t)
	database.Cell1.Card(t, database.Cell1.Compute(t, "gpu1"), first, "available", "")
	const limit = time.Second
	label := func() string { return database.Cell1.Dump(t, "pci_devices", "label")[0][0] }
	commit := func(cell novadb.Cell, text string) error {
		t.Helper()
		conn, err := cell.DB.Conn(t.Context())
		hosttest.NoError(t, err)
		defer conn.Close()
		tx, err := conn.BeginTx(t.Context(), nil)
		hosttest.NoError(t, err)
		defer tx.Rollback()
		if _, err := tx.ExecContext(t.Context(), "UPDATE pci_devices SET label = ?", text); err != nil {
			t.Fatal(err)
		}
		return novadb.Commit(conn, tx)
	}
	cell := open(t, at(proxy(t, delay("COMMIT", limit)), "nova_cell1"), novadb.Limits{Answer: 20 * limit})
	if err := commit(cell, "late"); err != nil || label() != "late" {
		t.Errorf("COMMIT answered after %s: %v, and the row has %s", limit, err, label())
	}
	cell = open(t, at(proxy(t, delay("COMMIT", 2*limit)), "nova_cell1"), novadb.Limits{Answer: limit})
	begin := time.Now()
	_, err := cell.DB.ExecContext(t.Context(), "SELECT SLEEP(10)")
	if took := time.Since(begin); !errors.Is(err, mysql.ErrInvalidConn) || took > 5*limit {
		t.Errorf("another statement: %v after %s", err, took)
	}
	if err := commit(cell, "too late"); !errors.Is(err, novadb.ErrCommitUnknown) {
		t.Errorf("COMMIT answered too late: %v", err)
	}
	until(t, func() bool { return label() == "too late" })
	cell = open(t, at(proxy(t, delay("COMMIT", cut)), "nova_cell1"), novadb.Limits{})
	if err := commit(cell, "lost"); !errors.Is(err, novadb.ErrCommitUnknown) {
		t.Errorf("the connection lost at COMMIT: %v", err)
	}
	// Behind the proxy the transaction is still open then, and has the row locked: the next
	// one can only write it if the connection of the first is closed.
	for _, number := range []uint16{1180, 1213} {
		unknown := number == 1180
		signal := fmt.Sprintf("SIGNAL SQLSTATE '40001' SET MYSQL_ERRNO = %d", number)
		cell := open(t, at(proxy(t, replace("COMMIT", signal)), "nova_cell1"), novadb.Limits{})
		err := commit(cell, "refused")
		if !unknown { // the server has not rolled back here
			cell.DB.Close()
		}
		var server *mysql.MySQLError
		if errors.Is(err, novadb.ErrCommitUnknown) != unknown || errors.As(err, &server) == unknown {
			t.Errorf("COMMIT answered with error %d: %v", number, err)
		}
	}
}

// TestSession: every connection gives a lock up after ten seconds, reads times in UTC,
// and waits for the other nodes of a cluster; a server that knows no cluster is accepted,
// and no other error is.
func TestSession(t *testing.T) {
	reset(t)
	cell := open(t, database.URL("nova_cell1"), novadb.Limits{})
	variables := func(cell novadb.Cell) (lock, wait int, zone string) {
		t.Helper()
		conn, err := cell.DB.Conn(t.Context())
		hosttest.NoError(t, err)
		defer conn.Close()
		err = conn.QueryRowContext(t.Context(), "SELECT @@innodb_lock_wait_timeout, @@wsrep_sync_wait, @@time_zone").Scan(&lock, &wait, &zone)
		hosttest.NoError(t, err)
		return lock, wait, zone
	}
	held, err := cell.DB.Conn(t.Context()) // so that the next one is new
	hosttest.NoError(t, err)
	for range 2 {
		if lock, wait, zone := variables(cell); lock != 10 || wait != 7 || zone != "+00:00" {
			t.Errorf("innodb_lock_wait_timeout %d, wsrep_sync_wait %d, time_zone %s", lock, wait, zone)
		}
		held.Close()
	}

	// This server is built with Galera's interface. One that is not answers as for a
	// variable that no server has.
	without := at(proxy(t, replace("wsrep_sync_wait =", "wsrep_none =")), "nova_cell1")
	if lock, wait, _ := variables(open(t, without, novadb.Limits{})); lock != 10 || wait != 0 {
		t.Errorf("without Galera: innodb_lock_wait_timeout %d, wsrep_sync_wait %d", lock, wait)
	}
	for from, want := range map[string]string{
		"wsrep_sync_wait = 7":           "set the session's variables: Error 1232",
		"innodb_lock_wait_timeout = 10": "set the session's variables: Error 1232",
	} {
		url := at(proxy(t, replace(from, strings.Fields(from)[0]+" = 'x'")), "nova_cell1")
		if _, err := novadb.Open(t.Context(), novadb.Where{Database: url}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
