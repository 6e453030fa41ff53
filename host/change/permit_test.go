package change_test

import (
	"context"
	"errors"
	"testing"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/edit"
	"gpustack/host/hosttest"
	"gpustack/host/pci"
)

// TestPermit: a change of files, and its undo, are refused before anything changes where Permit
// does not permit what they lead to.
func TestPermit(t *testing.T) {
	root := hosttest.Root(t, t.TempDir())
	inUse := errors.New("in use")
	refused := ""
	files := change.Files{Root: root, Permit: func(plan edit.Changes) ([]pci.Identity, error) {
		leads := "removed"
		if plan[0].After != nil {
			leads = string(plan[0].After.Content)
		}
		if leads == refused {
			return nil, inUse
		}
		return []pci.Identity{{Address: pci.Address{Bus: uint8(len(leads))}}}, nil
	}}
	engine := change.Engine{Store: change.Machine(root), Kinds: []change.Kind{files}, Run: func(context.Context, host.Program) error { return nil }}
	apply := func(text string) error {
		c, err := edit.Put(root, "/file", []byte(text), 0o644, false)
		hosttest.NoError(t, err)
		_, err = engine.Apply(t.Context(), change.Work{Command: "test", Change: files.New(edit.Changes{c})})
		return err
	}
	is := func(want string) {
		t.Helper()
		if data, err := root.ReadFile("/file"); err != nil || string(data) != want {
			t.Errorf("%q, %v, want %q", data, err, want)
		}
	}
	hosttest.NoError(t, apply("one"))
	refused = "two"
	if err := apply("two"); !errors.Is(err, inUse) {
		t.Errorf("%v, want a refusal", err)
	}
	is("one")
	lifts := func(want string) {
		t.Helper()
		entries, err := engine.Store.List()
		if err != nil || len(entries) != 1 || len(entries[0].Allowed) != 1 || int(entries[0].Allowed[0].Address.Bus) != len(want) {
			t.Errorf("%v, %v, want what was allowed for %s", entries, err, want)
		}
	}
	lifts("one")
	refused = "removed"
	if _, err := engine.PlanUndo(t.Context(), 0); !errors.Is(err, inUse) {
		t.Errorf("the plan of the undo: %v, want a refusal", err)
	}
	if _, err := engine.Undo(t.Context(), 1); !errors.Is(err, inUse) {
		t.Errorf("undo: %v, want a refusal", err)
	}
	is("one")
	if entries, err := engine.Store.List(); err != nil || len(entries) != 1 || entries[0].Status != change.Done {
		t.Errorf("%v, %v", entries, err)
	}
	refused = ""
	if _, err := engine.Undo(t.Context(), 1); err != nil {
		t.Error(err)
	}
	lifts("removed")
	if there, err := root.Exists("/file"); there || err != nil {
		t.Error(there, err)
	}
}
