package db

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"gpustack/cleanup/novadb"
	"gpustack/host/hosttest"
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

// What a proxy does with a statement in place of passing it on after a time.
const (
	never = time.Duration(-1) // keeps it until the client or the test ends
	cut   = time.Duration(-2) // closes the client's connection
)

// proxy passes on to the server of the tests what clients send, packet by packet, until
// the test ends. Of each statement, executed or prepared, pass says what the server gets
// and after how long. There is no TLS between them.
func proxy(t *testing.T, pass func(statement string) (string, time.Duration)) (address string) {
	t.Helper()
	return listen(t, func(client net.Conn) {
		server, err := net.Dial("tcp", database.Server.Address)
		if err != nil {
			return
		}
		defer server.Close()
		go func() {
			io.Copy(client, server)
			client.Close()
		}()
		for {
			packet, err := readPacket(client)
			if err != nil {
				return
			}
			const query, prepare = 0x03, 0x16
			if command := packet[4]; packet[3] == 0 && (command == query || command == prepare) {
				statement, wait := pass(string(packet[5:]))
				switch wait {
				case never:
					io.Copy(io.Discard, client)
					return
				case cut:
					return
				}
				time.Sleep(wait)
				n := 1 + len(statement)
				packet = append([]byte{byte(n), byte(n >> 8), byte(n >> 16), 0, command}, statement...)
			}
			if _, err := server.Write(packet); err != nil {
				return
			}
		}
	})
}

// delay passes statements on that begin with a text after a time, and others at once.
func delay(text string, wait time.Duration) func(string) (string, time.Duration) {
	return func(statement string) (string, time.Duration) {
		if strings.HasPrefix(statement, text) {
			return statement, wait
		}
		return statement, 0
	}
}

// replace passes statements on in which one text stands for another.
func replace(from, to string) func(string) (string, time.Duration) {
	return func(statement string) (string, time.Duration) { return strings.Replace(statement, from, to, 1), 0 }
}

// readPacket reads a packet of the protocol of MySQL, with its header.
func readPacket(r io.Reader) ([]byte, error) {
	header := make([]byte, 4)
	if _, err := io.ReadFull(r, header); err != nil {
		return nil, err
	}
	packet := append(header, make([]byte, int(header[0])|int(header[1])<<8|int(header[2])<<16)...)
	_, err := io.ReadFull(r, packet[4:])
	return packet, err
}

// listen serves connections on a port of the loopback device until the test ends.
func listen(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	hosttest.NoError(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { conn.Close() })
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// at is the address of a database at another server, with the password.
func at(address, name string) string {
	return strings.Replace(database.URL(name), database.Server.Address, address, 1)
}

// signed is a server's certificate and the authority that has signed it.
type signed struct {
	tls.Certificate
	authority []byte
}

// sign returns a certificate for 127.0.0.1, or for another name.
func sign(t *testing.T, name string) signed {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	hosttest.NoError(t, err)
	ca := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority of " + t.Name()}, NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign}
	server := &x509.Certificate{SerialNumber: big.NewInt(2), NotAfter: time.Now().Add(time.Hour), DNSNames: []string{name}}
	if ip := net.ParseIP(name); ip != nil {
		server.DNSNames, server.IPAddresses = nil, []net.IP{ip}
	}
	authority, err := x509.CreateCertificate(rand.Reader, ca, ca, &key.PublicKey, key)
	hosttest.NoError(t, err)
	leaf, err := x509.CreateCertificate(rand.Reader, server, ca, &key.PublicKey, key)
	hosttest.NoError(t, err)
	return signed{tls.Certificate{Certificate: [][]byte{leaf}, PrivateKey: key}, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: authority})}
}

// clientSSL is CLIENT_SSL of the protocol's capabilities.
const clientSSL = 0x0800

// offerTLS adds CLIENT_SSL to the capabilities of a server's greeting.
func offerTLS(greeting []byte) {
	// The version ends with a zero; the thread and the salt come before the capabilities.
	greeting[5+bytes.IndexByte(greeting[5:], 0)+1+4+8+1+1] |= clientSSL >> 8
}

// overTLS stands before the server of the tests and speaks TLS with its clients, from the
// packet on with which the protocol asks for it.
func overTLS(t *testing.T, certificate tls.Certificate) (address string) {
	t.Helper()
	return listen(t, func(client net.Conn) {
		server, err := net.Dial("tcp", database.Server.Address)
		if err != nil {
			return
		}
		defer server.Close()
		greeting, err := readPacket(server)
		if err != nil {
			return
		}
		offerTLS(greeting)
		client.Write(greeting)
		if request, err := readPacket(client); err != nil || request[5]&(clientSSL>>8) == 0 {
			return
		}
		secure := tls.Server(client, &tls.Config{Certificates: []tls.Certificate{certificate}})
		// The server has not seen the request for TLS: the numbers of packets differ by one.
		for signedIn := false; !signedIn; {
			packet, err := readPacket(secure)
			if err != nil {
				return
			}
			if packet[3]--; packet[3] == 1 {
				packet[5] &^= clientSSL >> 8
			}
			server.Write(packet)
			if packet, err = readPacket(server); err != nil {
				return
			}
			packet[3]++
			secure.Write(packet)
			signedIn = packet[4] == 0
		}
		go func() {
			io.Copy(secure, server)
			client.Close()
		}()
		io.Copy(server, secure)
	})
}

// TestTLS: the server's certificate is verified as the URL says, with the authority below
// the root, and what is read and written goes through.
func TestTLS(t *testing.T) {
	reset(t)
	right, other, wrong := sign(t, "127.0.0.1"), sign(t, "db.example"), sign(t, "127.0.0.1")
	dir := t.TempDir()
	option := "[tripleo]\nssl=1\nssl-ca=/etc/ca.pem\n"
	hosttest.NoError(t, errors.Join(
		os.Mkdir(filepath.Join(dir, "etc"), 0o755),
		os.WriteFile(filepath.Join(dir, "etc/ca.pem"), append(right.authority, other.authority...), 0o600),
		os.WriteFile(filepath.Join(dir, "etc/tripleo.cnf"), []byte(option), 0o600)))
	root := hosttest.Root(t, dir)
	addresses := map[string]string{"right": overTLS(t, right.Certificate), "other name": overTLS(t, other.Certificate), "wrong": overTLS(t, wrong.Certificate), "none": database.Server.Address}
	const file = "&read_default_file=/etc/tripleo.cnf&read_default_group=tripleo"
	for _, test := range []struct{ server, arguments, want string }{
		{"right", "&ssl_ca=/etc/ca.pem", ""},
		{"right", file, ""},
		{"right", "&ssl_mode=VERIFY_IDENTITY&ssl_ca=/etc/ca.pem", ""},
		{"wrong", "&ssl_mode=REQUIRED", ""},
		{"wrong", "&ssl_ca=/etc/ca.pem", "certificate signed by unknown authority"},
		{"wrong", file, "certificate signed by unknown authority"},
		{"wrong", "&ssl_mode=VERIFY_CA&ssl_ca=/etc/ca.pem", "certificate signed by unknown authority"},
		{"other name", "&ssl_ca=/etc/ca.pem", "cannot validate certificate for 127.0.0.1"},
		{"other name", "&ssl_ca=/etc/ca.pem&ssl_verify_cert=true", ""},
		{"none", "&ssl_ca=/etc/ca.pem", "server does not support TLS"},
		{"none", "&ssl_mode=REQUIRED", "server does not support TLS"},
	} {
		databases, err := novadb.Open(t.Context(), novadb.Where{Root: root, Database: at(addresses[test.server], "nova_cell1") + test.arguments})
		if test.want != "" || err != nil {
			if err == nil || test.want == "" || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s%s: %v, want %s", test.server, test.arguments, err, test.want)
			}
			continue
		}
		tx, err := databases.Cells[0].DB.BeginTx(t.Context(), nil)
		if err == nil {
			_, err = tx.ExecContext(t.Context(), "UPDATE services SET report_count = report_count + 1")
			err = errors.Join(err, tx.Commit())
		}
		if err := errors.Join(err, databases.Close()); err != nil {
			t.Errorf("%s%s: %v", test.server, test.arguments, err)
		}
	}
}
