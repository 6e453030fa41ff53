package change_test

import (
	"errors"
	"testing"

	"gpustack/host/change"
	"gpustack/host/hosttest"
)

// TestPickFrom: of two journals, the first that has an entry of the number counts, also if the
// entry is undone there. Without a number, it is the first that has something to undo.
func TestPickFrom(t *testing.T) {
	entry := func(number, status string) string {
		return "-- own/journal/000" + number + ".json --\n" + `{"schema": 1, "id": ` + number + `, "kind": "journal entry", "changes": "objects", "command": "test", "status": "` + status +
			`", "origin":{"user":"","host":"","version":"","argv":null},"started": "2026-03-01T08:00:00Z", "ended": null, "files": [], "programs": null, "left": null}` + "\n"
	}
	all := []change.Store{
		{Root: hosttest.Lay(t, entry("1", "done")+entry("2", "undone")), Dir: "/own"},
		{Root: hosttest.Lay(t, entry("1", "done")+entry("2", "done")+entry("3", "done")), Dir: "/own"},
	}
	undone := []change.Store{{Root: hosttest.Lay(t, entry("1", "undone")), Dir: "/own"}, all[1]}
	for _, test := range []struct {
		stores []change.Store
		id     int
		store  int
		want   int
		err    error
	}{
		{all, 0, 0, 1, nil},
		{all, 1, 0, 1, nil},
		{all, 2, 0, 0, change.ErrUndone},
		{all, 3, 1, 3, nil},
		{all, 4, 0, 0, change.ErrNoEntry},
		{undone, 0, 1, 3, nil},
		{undone[:1], 0, 0, 0, change.ErrNothing},
	} {
		store, entry, err := change.PickFrom(test.stores, test.id)
		if !errors.Is(err, test.err) || entry.ID != test.want || err == nil && store != test.stores[test.store] {
			t.Errorf("undo %d: entry %d of %s, %v", test.id, entry.ID, store.Root.Path("/"), err)
		}
	}
}
