package novadb

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

// TestOpenSilent: a server that accepts connections and never answers is given up after
// the limit, and the error names it; an interrupt is not taken for a server's silence.
func TestOpenSilent(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	hosttest.NoError(t, err)
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			go io.Copy(io.Discard, conn)
		}
	}()
	where := Where{API: "mysql+pymysql://nova:secret@" + listener.Addr().String() + "/nova_api", Limits: Limits{Connect: 100 * time.Millisecond}}
	want := "api_database at " + listener.Addr().String() + ": no answer within 100ms"
	if _, err := Open(t.Context(), where); err == nil || err.Error() != want {
		t.Errorf("%v, want %s", err, want)
	}
	where.Limits.Connect = time.Minute
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := Open(ctx, where); !errors.Is(err, context.Canceled) || strings.Contains(err.Error(), "no answer") {
		t.Errorf("interrupted: %v", err)
	}
}
