package db

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"
)

// A Proxy passes on all that clients send to the server of the tests, but for one COMMIT,
// whose client gets no answer.
type Proxy struct {
	Address string

	mu   sync.Mutex
	next func(forward func())
	seen func(packet []byte) (cut bool)
	all  sync.WaitGroup
}

// NewProxy starts one, which ends with the test, and only when what it delays has been done.
func NewProxy(t *testing.T) *Proxy {
	t.Helper()
	p := &Proxy{}
	t.Cleanup(p.all.Wait)
	p.Address = listen(t, p.serve)
	return p
}

// LoseCommit has the next COMMIT lost on its way to the server.
func (p *Proxy) LoseCommit() { p.lose(func(func()) {}) }

// LoseAnswer has the server get the next COMMIT, and its client no answer.
func (p *Proxy) LoseAnswer() { p.lose(func(forward func()) { forward() }) }

// DelayCommit has the server get the next COMMIT later, and its client no answer: other
// connections read what was before until then.
func (p *Proxy) DelayCommit(by time.Duration) {
	p.lose(func(forward func()) { time.Sleep(by); forward() })
}

func (p *Proxy) lose(what func(forward func())) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next = what
}

// Watch has each packet of clients shown to a function, which may end its connection.
func (p *Proxy) Watch(seen func(packet []byte) (cut bool)) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen = seen
}

// watched returns whether a packet ends its connection.
func (p *Proxy) watched(packet []byte) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.seen != nil && p.seen(packet[4:])
}

// take returns what is to become of a COMMIT, once.
func (p *Proxy) take() func(func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	what := p.next
	p.next = nil
	return what
}

func (p *Proxy) serve(client net.Conn) {
	p.all.Add(1)
	defer p.all.Done()
	server, err := net.Dial("tcp", database.Server.Address)
	if err != nil {
		return
	}
	defer server.Close()
	go func() {
		io.Copy(client, server) // until either is closed
		client.Close()
	}()
	for {
		packet, err := readPacket(client)
		if err != nil {
			return
		}
		if p.watched(packet) {
			client.Close()
			return
		}
		if bytes.Equal(packet[4:], []byte("\x03COMMIT")) { // COM_QUERY
			if lose := p.take(); lose != nil {
				client.Close()
				lose(func() {
					server.Write(packet)
					time.Sleep(100 * time.Millisecond) // the server reads it before the connection ends
				})
				return
			}
		}
		if _, err := server.Write(packet); err != nil {
			return
		}
	}
}
