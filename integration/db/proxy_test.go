package db

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// A proxy passes on to the server of the tests what a client sends, packet by packet,
// and can keep a statement from the server. There is no TLS between them.
type proxy struct {
	Address string

	// hold says for how long a statement, or the text of one that is prepared, is kept
	// back before the server gets it. forever keeps it back until the test ends.
	hold func(statement string) time.Duration
}

const forever = time.Duration(-1)

// newProxy starts a proxy, which ends with the test.
func newProxy(t *testing.T, hold func(statement string) time.Duration) *proxy {
	t.Helper()
	p := &proxy{hold: hold}
	p.Address = listen(t, func(client net.Conn) {
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
				switch d := p.hold(string(packet[5:])); d {
				case forever:
					io.Copy(io.Discard, client) // until the client or the test ends it
					return
				default:
					time.Sleep(d)
				}
			}
			if _, err := server.Write(packet); err != nil {
				return
			}
		}
	})
	return p
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
	if err != nil {
		t.Fatal(err)
	}
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
