package db

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

// TestSilentDatabase: a database that accepts the connection and then stops answering is
// given up after --timeout, whatever it has answered before, and the error names the
// database and the time. Silent cells do not add up.
func TestSilentDatabase(t *testing.T) {
	reset(t)
	gpu1 := database.Cell1.Compute(t, "gpu1")
	database.Cell1.Card(t, gpu1, first, "available", "")
	silent := map[string]string{
		"accepts":          listen(t, func(conn net.Conn) { io.Copy(io.Discard, conn) }),
		"half a handshake": listen(t, func(conn net.Conn) { conn.Write([]byte("\x5d\x00\x00\x00\x0a5.5")); io.Copy(io.Discard, conn) }),
		"signs in":         proxy(t, delay("", never)),
		"first query":      proxy(t, delay("SELECT", never)),
	}
	const limit = time.Second
	run := func(t *testing.T, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 12*limit)
		defer cancel()
		cmd := exec.CommandContext(ctx, gpustack, append([]string{"repair-migration", "--root", machine(t), "--timeout", limit.String()}, args...)...)
		var talk bytes.Buffer
		cmd.Stderr = &talk
		begin := time.Now()
		err := cmd.Run()
		took := time.Since(begin)
		if ctx.Err() != nil {
			t.Fatalf("no answer after %s", took)
		}
		if cmd.ProcessState.ExitCode() != 1 || took > limit+3*time.Second { // a busy machine is slow to start a program
			t.Errorf("%v after %s: %s", err, took, talk.String())
		}
		if strings.Contains(talk.String(), database.Password) {
			t.Error("the password is printed")
		}
		return talk.String()
	}
	for name, address := range silent {
		t.Run(name, func(t *testing.T) {
			want := "database at " + address + ": no answer within " + limit.String()
			hosttest.Contains(t, want, run(t, "--database", at(address, "nova_cell1")))
		})
	}
	t.Run("api", func(t *testing.T) {
		for _, name := range []string{"accepts", "first query"} {
			want := "api_database at " + silent[name] + ": no answer within " + limit.String()
			hosttest.ContainsIn(t, name, want, run(t, "--api-database", at(silent[name], "nova_api")))
		}
	})
	t.Run("cells", func(t *testing.T) {
		i := 0
		want := []string{}
		for _, address := range silent {
			i++
			name := fmt.Sprintf("silent%d", i)
			database.API.Insert(t, "cell_mappings", Row{"uuid": UUID(100 + i), "name": name, "transport_url": "none:///", "database_connection": at(address, "nova_cell1"), "disabled": false})
			want = append(want, "cell "+name+" at "+address+": no answer within "+limit.String())
		}
		stderr := run(t)
		for _, w := range want {
			hosttest.Contains(t, w, stderr)
		}
	})
}
