package rows

import (
	"errors"
	"strings"
	"testing"

	"gpustack/host/change"
	"gpustack/host/hosttest"
)

// TestDatabases: which databases a run opens, from nova.conf and the options.
func TestDatabases(t *testing.T) {
	const conf = "-- etc/nova/nova.conf --\n[DEFAULT]\nservice_down_time = 90\n[api_database]\nconnection = mysql://api/a\nconnection_parameters = x=1\n[database]\nconnection = mysql://main/m\n"
	for name, test := range map[string]struct {
		tree               string
		options            Options
		api, params, local string
		err                string
	}{
		"nova.conf":                {conf, Options{}, "mysql://api/a", "x=1", "mysql://main/m", ""},
		"a cell":                   {conf, Options{Database: "mysql://cell/c"}, "", "", "mysql://main/m", ""},
		"a cell without nova.conf": {"-- etc/hostname --\na\n", Options{Database: "mysql://cell/c"}, "", "", "", ""},
		"another API database":     {conf, Options{API: "mysql://other/o"}, "mysql://other/o", "", "mysql://main/m", ""},
		"of a compute node":        {"-- etc/nova/nova.conf --\n[DEFAULT]\n", Options{}, "", "", "", "/etc/nova/nova.conf: has no [api_database] connection"},
		"no nova.conf":             {"-- etc/hostname --\na\n", Options{}, "", "", "", "/etc/nova/nova.conf: "},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Conf = "/etc/nova/nova.conf"
			read, err := readConnections(hosttest.Lay(t, test.tree), test.options)
			if test.err != "" {
				if err == nil || !strings.HasPrefix(err.Error(), test.err) {
					t.Errorf("%v, want %s", err, test.err)
				}
				return
			}
			if w := read.where; err != nil || w.API != test.api || w.APIParameters != test.params || w.Local != test.local || w.Database != test.options.Database {
				t.Errorf("%+v, %v", w, err)
			}
		})
	}
}

// TestInterrupted: a run finds the repairs that an earlier one has left open, and no other entry.
// Another run's lock stops a run that repairs, and one that only reads reports it.
func TestInterrupted(t *testing.T) {
	entry := func(id, kind string) string {
		return "-- var/lib/gpustack/journal/000" + id + ".json --\n" + `{"schema": 1, "id": ` + id + `, "kind": "journal entry", "changes": "` + kind +
			`", "command": "test", "status": "applying", "origin":{"user":"","host":"","version":"","argv":null},"started": "2026-03-01T08:00:00Z", "ended": null, "files": [], "programs": null, "left": null, "rows": ` +
			`[{"repair": "online", "migration_id": 5, "state": "planned", "rows": []}]` + "}\n"
	}
	root := hosttest.Lay(t, entry("1", change.KindDrivers)+entry("2", change.KindRows))
	s := New(root, Options{})
	open, err := s.Interrupted(t.Context())
	if err != nil || len(open) != 1 || open[0].Entry.ID != 2 {
		t.Errorf("%+v, %v", open, err)
	}
	if open, locked, err := s.Unsettled(t.Context()); err != nil || locked != nil || len(open) != 1 {
		t.Errorf("%+v, %v, %v", open, locked, err)
	}
	j, err := change.Machine(root).Lock()
	hosttest.NoError(t, err)
	defer j.Close()
	if _, err := s.Interrupted(t.Context()); !errors.Is(err, change.ErrLocked) {
		t.Errorf("%v", err)
	}
	if _, locked, err := s.Unsettled(t.Context()); err != nil || !errors.Is(locked, change.ErrLocked) {
		t.Errorf("%v, %v", locked, err)
	}
	if _, err := s.PlanUndo(t.Context(), open[0].Entry, Evidence{}); !errors.Is(err, change.ErrLocked) {
		t.Errorf("%v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
