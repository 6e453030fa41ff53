package repair

import (
	"fmt"
	"testing"

	"gpustack/cleanup"
	"gpustack/host/hosttest"
)

// columns are a row's, "" for NULL.
func columns(values ...string) map[string]*string {
	all := map[string]*string{}
	for i := 0; i < len(values); i += 2 {
		all[values[i]] = nil
		if v := values[i+1]; v != "" {
			all[values[i]] = &v
		}
	}
	return all
}

// TestStatement: an UPDATE changes nothing unless each column that it writes is still as before.
func TestStatement(t *testing.T) {
	row := cleanup.Row{Table: "pci_devices", Key: "7", Before: columns("status", "allocated", "instance_uuid", "u", "request_id", "")}
	text, args := Statement(row.With(columns("status", "available", "instance_uuid", "")))
	var values []string
	for _, arg := range args {
		switch v := arg.(type) {
		case *string:
			if v == nil {
				values = append(values, "NULL")
			} else {
				values = append(values, *v)
			}
		default:
			values = append(values, fmt.Sprint(v))
		}
	}
	want := []string{"UPDATE pci_devices SET instance_uuid = ?, request_id = ?, status = ? WHERE id = ? AND instance_uuid <=> ? AND request_id <=> ? AND status <=> ?",
		"NULL", "NULL", "available", "7", "u", "NULL", "allocated"}
	hosttest.Equal(t, want, append([]string{text}, values...))
}

// TestCheckOurs: a journal that names other tables or columns than those of repairs is refused.
func TestCheckOurs(t *testing.T) {
	for name, test := range map[string]struct {
		table         string
		before, after map[string]*string
		ours          bool
	}{
		"a device":               {"pci_devices", columns("status", "a", "deleted", "0"), columns("status", "b", "deleted", "7"), true},
		"a migration":            {"migrations", columns("status", "a"), columns("status", "b"), true},
		"a context":              {"instance_extra", columns("migration_context", "a"), columns("migration_context", ""), true},
		"the guard of an older":  {"instances", columns("host", "a", "node", "a", "compute_id", "1"), columns("updated_at", "b"), true},
		"another column after":   {"migrations", columns("status", "a"), columns("status", "b", "uuid", "c"), false},
		"another column before":  {"migrations", columns("status", "a", "uuid", "c"), columns("status", "b"), false},
		"SQL in a column's name": {"migrations", columns("status", "a"), columns("status = '' --", "b"), false},
		"another table":          {"services", columns("updated_at", "a"), columns("updated_at", "b"), false},
		"another schema's table": {"other.migrations", columns("status", "a"), columns("status", "b"), false},
	} {
		t.Run(name, func(t *testing.T) {
			if err := checkOurs(cleanup.Row{Table: test.table, Key: "1", Before: test.before, After: test.after}); (err == nil) != test.ours {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestContent: rows that another run has repaired have the same content, at another time.
func TestContent(t *testing.T) {
	recorded, now := columns("status", "failed", "updated_at", "12:00"), columns("status", "failed", "updated_at", "12:05")
	if sameColumns(recorded, now) || !sameColumns(contentOf(recorded), contentOf(now)) {
		t.Errorf("%v and %v", recorded, now)
	}
	if recorded["updated_at"] == nil {
		t.Error("the recorded row has lost a column")
	}
	if sameColumns(columns("instance_uuid", ""), columns("instance_uuid", "u")) || !sameColumns(columns("instance_uuid", ""), columns("instance_uuid", "")) {
		t.Error("NULL equals only NULL")
	}
}

// TestCloseUnit: the state of an open unit after a recovery that has found its rows at a side.
func TestCloseUnit(t *testing.T) {
	for name, test := range map[string]struct {
		repair  cleanup.Repair
		side    Side
		undoing bool
		want    cleanup.State
		rows    bool // whether the unit keeps its rows, and so can be undone
	}{
		"online, committed":                  {cleanup.Online, After, false, cleanup.Written, true},
		"offline, committed":                 {cleanup.Offline, After, false, cleanup.Repaired, true},
		"not committed":                      {cleanup.Online, Before, false, cleanup.Skipped, false},
		"changed by something else":          {cleanup.Offline, Neither, false, cleanup.Skipped, false},
		"an undo, committed":                 {cleanup.Online, Before, true, cleanup.Undone, true},
		"an undo, not committed":             {cleanup.Online, After, true, cleanup.Written, true},
		"an undo, not committed, offline":    {cleanup.Offline, After, true, cleanup.Repaired, true},
		"an undo, changed by something else": {cleanup.Offline, Neither, true, cleanup.Skipped, false},
	} {
		t.Run(name, func(t *testing.T) {
			u := cleanup.Unit{Repair: test.repair, State: cleanup.Begun, Note: "before", Rows: []cleanup.Row{{Table: "migrations", Key: "1"}}}
			closeUnit(&u, test.side, test.undoing, "the run was interrupted")
			if u.State != test.want || len(u.Rows) > 0 != test.rows || u.Open() {
				t.Errorf("%s, %d rows", u.State, len(u.Rows))
			}
			if (u.State == cleanup.Skipped) != (u.Note != "") {
				t.Errorf("note %q", u.Note)
			}
		})
	}
}
