package novadb

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"gpustack/host"
	"gpustack/host/hosttest"
)

// TestConnectionErrorsHaveHints: whatever prevents a connection to a database, the hint says what
// to do next. The servers are listeners on loopback that answer as MySQL, MariaDB and others do.
func TestConnectionErrorsHaveHints(t *testing.T) {
	dir := t.TempDir()
	hosttest.NoError(t, os.Mkdir(filepath.Join(dir, "etc"), 0o755))
	root := hosttest.Root(t, dir)
	closed := listen(t, nil)
	expired := certificate(t, "127.0.0.1", time.Now().Add(-time.Hour))
	right := certificate(t, "127.0.0.1", time.Now().Add(time.Hour))
	other := certificate(t, "db.example", time.Now().Add(time.Hour))
	for name, c := range map[string]tls.Certificate{"expired": expired, "other": other} {
		hosttest.NoError(t, os.WriteFile(filepath.Join(dir, "etc", name+".pem"), pemOf(c), 0o600))
	}
	// A label of more than 63 letters (RFC 1035) is no name: no server is asked for it.
	noName := strings.Repeat("a", 64) + ".invalid"
	for name, test := range map[string]struct {
		url        string // without the credentials
		text, hint string
	}{
		"refused":            {closed, "connection refused", "check that the database runs and listens on " + closed},
		"unknown host":       {noName, "lookup " + noName, "getent hosts " + noName},
		"no route":           {"255.255.255.255", "255.255.255.255", "check the address"},
		"no socket":          {"localhost/nova?unix_socket=/nowhere.sock", "no such file", "/nowhere.sock"},
		"access denied":      {listen(t, refuse(1045, "28000", "Access denied for user 'nova'@'c1'")), "Access denied", "check user and password"},
		"user of a socket":   {listen(t, refuse(1698, "28000", "Access denied for user 'nova'@'c1'")), "Access denied", "check user and password"},
		"no right":           {listen(t, refuse(1044, "42000", "Access denied for user 'nova'@'%' to database 'nova'")), "to database", "SHOW GRANTS"},
		"unknown database":   {listen(t, refuse(1049, "42000", "Unknown database 'nova'")), "Unknown database", "SHOW DATABASES"},
		"host not allowed":   {listen(t, refuse(1130, "HY000", "Host 'c1' is not allowed to connect")), "not allowed", "run gpustack on a controller"},
		"host blocked":       {listen(t, greetWith(refusal(1129, "HY000", "Host 'c1' is blocked because of many connection errors"), 0)), "blocked", "FLUSH HOSTS"},
		"too many":           {listen(t, greetWith(refusal(1040, "08004", "Too many connections"), 0)), "Too many connections", "SHOW PROCESSLIST"},
		"TLS required":       {listen(t, refuse(3159, "HY000", "Connections using insecure transport are prohibited")), "insecure transport", "ssl_ca=FILE"},
		"no TLS":             {listen(t, refuse(1045, "28000", "")) + "/nova?ssl_mode=REQUIRED", "does not support TLS", "enable TLS on the server"},
		"unknown authority":  {listen(t, secure(right)) + "/nova?ssl_ca=/etc/other.pem", "unknown authority", "ssl_ca=FILE"},
		"another name":       {listen(t, secure(other)) + "/nova?ssl_ca=/etc/other.pem", "127.0.0.1", "use a host name of the certificate"},
		"expired":            {listen(t, secure(expired)) + "/nova?ssl_ca=/etc/expired.pem", "expired", "date"},
		"timeout":            {listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) }), "no answer within", "--timeout waits longer"},
		"another service":    {listen(t, func(conn net.Conn) { conn.Write([]byte("SSH-2.0-OpenSSH_9.2p1\r\n")) }), "", "is that of a MySQL or MariaDB server"},
		"closes at once":     {listen(t, func(net.Conn) {}), "", "is that of a MySQL or MariaDB server"},
		"unknown sign-in":    {listen(t, greetWith([]byte("\xfesha256_gssapi\x00"), 1)), "plugin", "authentication"},
		"no certificate":     {closed + "/nova?ssl_ca=/etc/nowhere.pem", "/etc/nowhere.pem", "check the files that ssl_ca,"},
		"not a database URL": {"/", "no database is named", "mysql+pymysql://USER:PASSWORD@HOST/DATABASE"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := test.url
			if !strings.Contains(url, "/") {
				url += "/nova"
			}
			for what, where := range map[string]Where{
				"api_database": {API: "mysql+pymysql://nova:hunter2@" + url},
				"database":     {Database: "mysql+pymysql://nova:hunter2@" + url},
			} {
				where.Root, where.Limits = root, Limits{Connect: time.Minute} // a busy machine may answer late
				if name == "timeout" {
					where.Limits.Connect = 100 * time.Millisecond
				}
				_, err := Open(t.Context(), where)
				if err == nil || !strings.HasPrefix(err.Error(), what) || !strings.Contains(err.Error(), test.text) {
					t.Fatalf("error: %v\nwant %s", err, test.text)
				}
				var hinted interface{ Hint() string }
				if !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), test.hint) {
					t.Errorf("%v\nhint of it: %v\nwant %s", err, hinted, test.hint)
					continue
				}
				if strings.Contains(err.Error()+hinted.Hint(), "hunter2") {
					t.Errorf("shows the password: %v, %s", err, hinted.Hint())
				}
			}
		})
	}
}

// listen listens on loopback and lets serve answer each connection, or refuses connections if serve
// is nil.
func listen(t *testing.T, serve func(net.Conn)) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	hosttest.NoError(t, err)
	if serve == nil {
		listener.Close()
		return listener.Addr().String()
	}
	t.Cleanup(func() { listener.Close() })
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	return listener.Addr().String()
}

// Capabilities of the protocol (dev.mysql.com/doc, "Capabilities Flags"): protocol 4.1, a database,
// secure connections and plugins; and TLS.
const (
	plain   = 0x200 | 0x8 | 0x8000 | 0x80000
	withTLS = plain | 0x800
)

// greeting is a server's first packet (dev.mysql.com/doc, "Protocol::HandshakeV10").
func greeting(capabilities uint32) []byte {
	var caps [4]byte
	binary.LittleEndian.PutUint32(caps[:], capabilities)
	text := "\x0a8.0.36\x00" + "\x01\x00\x00\x00" + "12345678" + "\x00" + string(caps[:2]) + "\x2d\x02\x00" + string(caps[2:]) +
		"\x15" + strings.Repeat("\x00", 10) + "123456789012\x00" + "mysql_native_password\x00"
	return []byte(text)
}

// send sends a packet.
func send(conn net.Conn, number byte, payload []byte) {
	conn.Write(append([]byte{byte(len(payload)), byte(len(payload) >> 8), 0, number}, payload...))
}

// receive reads a packet.
func receive(conn net.Conn) bool {
	var header [4]byte
	if _, err := io.ReadFull(conn, header[:]); err != nil {
		return false
	}
	_, err := io.CopyN(io.Discard, conn, int64(header[0])|int64(header[1])<<8)
	return err == nil
}

// refusal is an error of the server.
func refusal(number uint16, state, message string) []byte {
	return append([]byte{0xff, byte(number), byte(number >> 8), '#'}, state+message...)
}

// refuse refuses a client that has signed in.
func refuse(number uint16, state, message string) func(net.Conn) {
	return func(conn net.Conn) {
		send(conn, 0, greeting(plain))
		if receive(conn) {
			send(conn, 2, refusal(number, state, message))
			receive(conn) // the client closes the connection
		}
	}
}

// greetWith answers with a packet: before the client has signed in (0), or after it (1).
func greetWith(packet []byte, after int) func(net.Conn) {
	return func(conn net.Conn) {
		if after == 0 {
			send(conn, 0, packet)
			return
		}
		send(conn, 0, greeting(plain))
		if receive(conn) {
			send(conn, 2, packet)
			receive(conn)
		}
	}
}

// secure offers TLS with a certificate.
func secure(c tls.Certificate) func(net.Conn) {
	return func(conn net.Conn) {
		send(conn, 0, greeting(withTLS))
		if receive(conn) {
			// The client rejects the certificate: the error is its own.
			tls.Server(conn, &tls.Config{Certificates: []tls.Certificate{c}, MinVersion: tls.VersionTLS12}).Handshake()
		}
	}
}

// certificate returns a certificate that is its own authority.
func certificate(t *testing.T, name string, until time.Time) tls.Certificate {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	hosttest.NoError(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), NotBefore: until.Add(-24 * time.Hour), NotAfter: until, DNSNames: []string{name},
		IsCA: true, BasicConstraintsValid: true,
	}
	if ip := net.ParseIP(name); ip != nil {
		c.IPAddresses = []net.IP{ip}
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, &key.PublicKey, key)
	hosttest.NoError(t, err)
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

func pemOf(c tls.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate[0]})
}

// TestSilentLater: a database that falls silent after its first answer is named, with a hint.
func TestSilentLater(t *testing.T) {
	err := Explain("cell cell1", mysql.ErrInvalidConn)
	if !strings.HasPrefix(err.Error(), "cell cell1: the connection was lost") || !strings.Contains(host.HintOf(err).String(), "firewall") ||
		!errors.Is(err, mysql.ErrInvalidConn) {
		t.Errorf("%v, %s", err, host.HintOf(err))
	}
}
