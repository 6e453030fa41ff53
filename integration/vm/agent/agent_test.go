package agent

import (
	"encoding/json"
	"net"
	"testing"
	"time"

	"gpustack/host/hosttest"
)

// TestNudge: both ends pass over nudges, whenever they come.
func TestNudge(t *testing.T) {
	here, there := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(there, "boot") }()
	defer nudge(there, time.Millisecond)()
	messages, requests := json.NewDecoder(here), json.NewEncoder(here)
	next := func() (m Message) {
		t.Helper()
		hosttest.NoError(t, messages.Decode(&m))
		return m
	}
	if m := next(); m.Boot != "boot" {
		t.Errorf("%+v", m)
	}
	defer nudge(here, time.Millisecond)()
	for range 20 {
		hosttest.NoError(t, requests.Encode(Request{Argv: []string{"echo", "word"}}))
		if m := next(); m.Reply == nil || m.Reply.Stdout != "word\n" {
			t.Errorf("%+v", m)
		}
	}
	hosttest.NoError(t, here.Close())
	if err := <-served; err == nil {
		t.Error("the line was cut")
	}
}
