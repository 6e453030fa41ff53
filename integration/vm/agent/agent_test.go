package agent

import (
	"encoding/json"
	"net"
	"testing"
	"time"
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
		if err := messages.Decode(&m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	if m := next(); m.Boot != "boot" {
		t.Errorf("%+v", m)
	}
	defer nudge(here, time.Millisecond)()
	for range 20 {
		if err := requests.Encode(Request{Argv: []string{"echo", "word"}}); err != nil {
			t.Fatal(err)
		}
		if m := next(); m.Reply == nil || m.Reply.Stdout != "word\n" {
			t.Errorf("%+v", m)
		}
	}
	if err := here.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-served; err == nil {
		t.Error("the line was cut")
	}
}
