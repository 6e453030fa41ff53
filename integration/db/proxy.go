package db

import (
	"bytes"
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy stands between a client and the server, and can lose the answer to a COMMIT.
type Proxy struct {
	Address string

	server string
	mu     sync.Mutex
	next   func(forward func() error)
	all    sync.WaitGroup
}

// NewProxy starts one on loopback, which ends with the test.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: listener.Addr().String(), server: server}
	t.Cleanup(func() { listener.Close(); p.all.Wait() })
	go func() {
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			p.all.Go(func() { p.serve(client) })
		}
	}()
	return p
}

// LoseCommit has the next COMMIT lose its connection, once: its client gets no answer.
func (p *Proxy) LoseCommit() { p.lose(func(func() error) {}) }

// LoseAnswer has the server get the next COMMIT, and its client no answer.
func (p *Proxy) LoseAnswer() { p.lose(func(forward func() error) { forward() }) }

// DelayCommit has the server get the next COMMIT later, and its client no answer: other
// connections read what was before until then.
func (p *Proxy) DelayCommit(by time.Duration) {
	p.lose(func(forward func() error) { time.Sleep(by); forward() })
}

func (p *Proxy) lose(what func(forward func() error)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = what
}

// taken returns what is to become of a COMMIT, and nil from then on.
func (p *Proxy) taken() func(func() error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what := p.next
	p.next = nil
	return what
}

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp4", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	var lost sync.Mutex // held for good once no answer must come through any more
	p.all.Go(func() {
		defer client.Close()
		buffer := make([]byte, 1<<16)
		for {
			n, err := server.Read(buffer)
			if n > 0 {
				if !lost.TryLock() {
					continue
				}
				_, writeErr := client.Write(buffer[:n])
				lost.Unlock()
				if writeErr != nil {
					return
				}
			}
			if err != nil {
				return
			}
		}
	})
	// COM_QUERY (MariaDB, "COM_QUERY"): a header of three bytes of length and one of
	// sequence, 3, and the statement.
	for {
		header := make([]byte, 4)
		if _, err := io.ReadFull(client, header); err != nil {
			return
		}
		length := binary.LittleEndian.Uint32(append(bytes.Clone(header[:3]), 0))
		packet := append(header, make([]byte, length)...)
		if _, err := io.ReadFull(client, packet[4:]); err != nil {
			return
		}
		forward := func() error { _, err := server.Write(packet); return err }
		if bytes.Equal(packet[4:], []byte("\x03COMMIT")) {
			if lose := p.taken(); lose != nil {
				lost.Lock()
				client.Close()
				lose(forward)
				time.Sleep(100 * time.Millisecond) // the server reads it before the connection ends
				return
			}
		}
		if forward() != nil {
			return
		}
	}
}
