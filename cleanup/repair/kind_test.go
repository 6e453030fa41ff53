package repair

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"gpustack/cleanup"
	"gpustack/host/change"
	"gpustack/host/hosttest"
)

// TestOutcome: what the states of its units make of an entry, by the run that has left them.
func TestOutcome(t *testing.T) {
	for name, test := range map[string]struct {
		units []cleanup.Unit
		want  change.Outcome
	}{
		"all written":                {[]cleanup.Unit{{State: cleanup.Written}, {State: cleanup.Repaired}}, change.Stands},
		"one skipped":                {[]cleanup.Unit{{State: cleanup.Written}, {State: cleanup.Skipped}}, change.Stands},
		"one undone":                 {[]cleanup.Unit{{State: cleanup.Repaired}, {State: cleanup.Undone}}, change.Stands},
		"all skipped":                {[]cleanup.Unit{{State: cleanup.Skipped}}, change.Reverted},
		"all undone":                 {[]cleanup.Unit{{State: cleanup.Undone}, {State: cleanup.Undone}}, change.Reverted},
		"one unknown":                {[]cleanup.Unit{{State: cleanup.Repaired}, {State: cleanup.Begun}}, change.Open},
		"planned, and not begun yet": {[]cleanup.Unit{{State: cleanup.Planned}}, change.Reverted},
	} {
		t.Run(name, func(t *testing.T) {
			hosttest.EqualIn(t, "outcome", test.want, (&Change{units: test.units}).outcome())
		})
	}
}

// TestRecord: what is recorded of a change is what is opened again. The plan that was shown does not
// change by it.
func TestRecord(t *testing.T) {
	planned := []cleanup.Unit{{Cell: "cell1", Repair: cleanup.Offline, State: cleanup.Planned, Rows: []cleanup.Row{{Table: "pci_devices", Key: "1"}}}}
	c := NewChange(&Repairer{}, planned, 0, nil)
	hosttest.EqualIn(t, "the plan that was shown has changed", 1, len(planned[0].Rows))
	e := change.Entry{Changes: change.KindRows}
	hosttest.NoError(t, c.Record(&e))
	opened, err := (&Kind{}).Open(t.Context(), e)
	hosttest.NoError(t, err)
	if units := opened.(*Change).Units(); len(units) != 1 || units[0].Cell != "cell1" || units[0].Open() {
		t.Errorf("opened: %+v", units)
	}
	later, err := json.Marshal([]cleanup.Unit{{Repair: cleanup.Online, Closings: []cleanup.Closing{{Migration: 5, Status: "failed"}}, State: "paused"}})
	hosttest.NoError(t, err)
	for text, want := range map[string]string{
		`{}`:          "malformed JSON: ",
		`null`:        "no repair is recorded",
		`[]`:          "no repair is recorded",
		string(later): `migration 5: unknown state "paused"`,
	} {
		e.ID, e.Rows = 3, json.RawMessage(text)
		if _, err := (&Kind{}).Open(t.Context(), e); err == nil || !strings.HasPrefix(err.Error(), "entry 3: rows: "+want) {
			t.Errorf("rows %s: %v, want %s", text, err, want)
		}
	}
}

// TestRecoverWithoutPlacement: an entry whose recovery needs Placement is left as it is when
// nobody can sign in.
func TestRecoverWithoutPlacement(t *testing.T) {
	refused := errors.New("401")
	kind := &Kind{Connect: func(context.Context) (*Repairer, error) {
		return &Repairer{SignIn: func(context.Context) (Placement, error) { return nil, refused }}, nil
	}}
	c := &Change{kind: kind, entry: 2, units: []cleanup.Unit{{State: cleanup.Begun, Placement: &cleanup.AllocationChange{}}}}
	save := func() error { t.Error("the entry was written"); return nil }
	outcome, _, err := c.Recover(t.Context(), save)
	if outcome != change.Open || !errors.Is(err, refused) || !strings.HasPrefix(err.Error(), "entry 2: ") {
		t.Errorf("outcome %d, %v", outcome, err)
	}
	if err := c.Check(t.Context(), change.ToUndo); !errors.Is(err, refused) {
		t.Errorf("checked for an undo: %v", err)
	}
	kind.Connect = func(context.Context) (*Repairer, error) { return &Repairer{}, nil }
	c.repairer = nil
	if _, _, err := c.Recover(t.Context(), save); !errors.Is(err, errNoPlacement) {
		t.Errorf("not configured: %v", err)
	}
}

// TestUnknownBecause: the hint of a reason comes before that of ErrUnknown, which has one of its
// own.
func TestUnknownBecause(t *testing.T) {
	hint := func(err error) string {
		var hinted interface{ Hint() string }
		if !errors.As(err, &hinted) {
			t.Fatalf("no hint: %v", err)
		}
		return hinted.Hint()
	}
	for name, test := range map[string]struct {
		reason error
		want   string
	}{
		"with a hint":    {errOtherDatabase, "give the --database"},
		"without a hint": {errors.New("timeout"), "gpustack repair-migration --apply determines it"},
	} {
		t.Run(name, func(t *testing.T) {
			err := unknownBecause(test.reason)
			if !errors.Is(err, ErrUnknown) || !errors.Is(err, test.reason) || !strings.HasPrefix(hint(err), test.want) {
				t.Errorf("%v, hint %q", err, hint(err))
			}
		})
	}
}
