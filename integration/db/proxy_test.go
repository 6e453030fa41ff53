package db

import (
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

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
