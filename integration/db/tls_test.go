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
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"gpustack/cleanup/novadb"
	"gpustack/host/hosttest"
)

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
