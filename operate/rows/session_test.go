package rows

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb/novadbtest"
	"gpustack/cleanup/repair"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud/cloudtest"
)

const (
	controller = "-- etc/nova/nova.conf --\n[api_database]\nconnection = mysql://api/a\n"
	instance   = "1f975a18-2c6e-4a6e-9d0d-3d7f4b7a8c11"
)

// newSession returns a session of a controller whose databases are open, and neither the user nor
// nova.conf has credentials for Placement. more are further files.
func newSession(t *testing.T, more string, cells ...*novadbtest.Database) *Session {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OS_") {
			t.Setenv(name, "")
		}
	}
	s := New(hosttest.Lay(t, controller+more), Options{Conf: "/etc/nova/nova.conf"})
	s.connections.databases = novadbtest.Open(t, cells...)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// now is the clock of the databases.
var now = novadbtest.Answer{Part: "SELECT UTC_TIMESTAMP(6)", Rows: [][]any{{time.Date(2026, 3, 1, 8, 0, 0, 0, time.UTC)}}}

// claimed is a cell with a row that is claimed by no instance, of a device on gpu1.
func claimed(address string) *novadbtest.Database {
	return &novadbtest.Database{Answers: []novadbtest.Answer{
		now,
		{Part: "SELECT id, host, hypervisor_hostname, deleted FROM compute_nodes", Rows: [][]any{{int64(1), []byte("gpu1"), []byte("gpu1"), int64(0)}}},
		{Part: "SELECT id, instance_uuid, compute_node_id, status", Rows: [][]any{{[]byte("1"), nil, []byte("1"), []byte("claimed"), []byte("1"), nil}}},
		{Part: "FROM pci_devices WHERE deleted = 0 AND id IN", Rows: [][]any{
			{int64(1), int64(1), address, "10de", "11b4", "type-PCI", "claimed", nil, nil, nil, time.Date(2026, 2, 1, 8, 0, 0, 0, time.UTC)},
		}},
	}}
}

// TestObserve: findings are in the order of cells and addresses whatever the order of the cells
// was, and what could be judged before an error is returned with it.
func TestObserve(t *testing.T) {
	gone := errors.New("the server has gone away")
	for name, test := range map[string]struct {
		cells []*novadbtest.Database
		want  []string // cell and address of each finding
		err   error
	}{
		"nothing is taken": {[]*novadbtest.Database{{Answers: []novadbtest.Answer{now}}}, nil, nil},
		"two cells":        {[]*novadbtest.Database{claimed("0000:88:00.0"), claimed("0000:84:00.0")}, []string{"cell1 0000:88:00.0", "cell2 0000:84:00.0"}, nil},
		"the second cell cannot be read": {
			[]*novadbtest.Database{claimed("0000:88:00.0"), {Answers: []novadbtest.Answer{{Part: "FROM compute_nodes", Err: gone}}}}, []string{"cell1 0000:88:00.0"}, gone,
		},
	} {
		t.Run(name, func(t *testing.T) {
			o, err := newSession(t, "", test.cells...).Observe(t.Context())
			var got []string
			for _, f := range o.Findings {
				got = append(got, f.Cell+" "+f.Device.Address)
			}
			if !errors.Is(err, test.err) || !slices.Equal(got, test.want) || o.Findings == nil {
				t.Errorf("%v, %v, want %v, %v", got, err, test.want, test.err)
			}
			if different := len(test.want) > 0; o.Different() != different || o.Summary.Different() != different {
				t.Errorf("different %t, %+v", o.Different(), o.Summary)
			}
		})
	}
}

// TestObserveAllocations: without credentials no allocation is judged, which is no error. A
// Placement that refuses the user is one, and what else was observed stays.
func TestObserveAllocations(t *testing.T) {
	const asked = "no compute node reports PCI devices to Placement"
	for name, test := range map[string]struct {
		section, user string // [placement] of nova.conf, and who names the cloud in the environment
		why           string // no allocation is judged
		unread        bool
	}{
		"no credentials":           {"", "", "no Placement is configured: ", false},
		"of the user":              {"", "secret", asked, false},
		"of the user, and refused": {"", "wrong", "credentials rejected", true},
		"of nova.conf":             {"secret", "", asked, false},
		"of both: the user's":      {"wrong", "secret", asked, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := cloudtest.Start(t, 96)
			c.Consumers, c.Traits = &cloudtest.Consumers{Newest: 39}, map[string]int{"COMPUTE_MANAGED_PCI_DEVICE": 0}
			section := ""
			if test.section != "" {
				section = "[placement]\nauth_url = " + c.URL + "\nusername = " + c.User + "\npassword = " + c.Password + "\nproject_name = " + c.Project +
					"\nuser_domain_name = Default\nproject_domain_name = Default\n"
				if test.section == "wrong" {
					section = strings.Replace(section, c.Password, "wrong", 1)
				}
			}
			s := newSession(t, "", &novadbtest.Database{Answers: []novadbtest.Answer{now}})
			s.root = hosttest.Lay(t, controller+section)
			if test.user != "" {
				for name, value := range c.Env() {
					t.Setenv(name, value)
				}
				if test.user == "wrong" {
					t.Setenv("OS_PASSWORD", "wrong")
				}
			}
			hosttest.NoError(t, s.readConf())
			o, err := s.Observe(t.Context())
			if err != nil || (o.Unread != nil) != test.unread || !strings.Contains(o.Allocations.Why, test.why) {
				t.Errorf("%+v, unread %v, %v", o.Allocations, o.Unread, err)
			}
			if o.Allocations.Findings == nil {
				t.Error("no list of findings")
			}
		})
	}
}

// unit is an offline repair of a device of gpu1 in cell1, in a state.
func unit(state cleanup.State) cleanup.Unit {
	text := func(s string) *string { return &s }
	return cleanup.Unit{
		Cell: "cell1", Database: "nova", Repair: cleanup.Offline, State: state, Instance: instance, Reports: map[string]int64{"gpu1": 7},
		Devices: []cleanup.Held{{Device: cleanup.Device{ID: 1, Node: 1, Address: "0000:84:00.0", Instance: text(instance)}, Host: "gpu1"}},
		Rows: []cleanup.Row{{Table: "pci_devices", Key: "1", Before: map[string]*string{"status": text("allocated")},
			After: map[string]*string{"status": text("available")}}},
	}
}

// recorded returns an entry of the journal with repairs.
func recorded(t *testing.T, status change.Status, units ...cleanup.Unit) string {
	t.Helper()
	text, err := json.Marshal(units)
	hosttest.NoError(t, err)
	return "-- var/lib/gpustack/journal/0002.json --\n" + `{"schema": 1, "id": 2, "kind": "journal entry", "changes": "` + change.KindRows + `", "command": "repair-migration --apply", "status": "` +
		string(status) + `", "origin":{"user":"","host":"","version":"","argv":null},"started": "2026-03-01T08:00:00Z", "ended": null, "files": [], "programs": null, "left": null, "rows": ` + string(text) + "}\n"
}

// TestApplyNothing: repairs that cannot be begun are returned as skipped with the reason, and leave
// no entry.
func TestApplyNothing(t *testing.T) {
	stopped, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	cancel(interrupted)
	for name, test := range map[string]struct {
		ctx   context.Context
		cell  string
		state cleanup.State
		err   string
	}{
		"interrupted before":    {stopped, "cell1", cleanup.Planned, "interrupted, nothing was changed"},
		"no such cell":          {t.Context(), "cell9", cleanup.Skipped, `cell "cell9"`},
		"no transaction begins": {t.Context(), "cell1", cleanup.Skipped, "connection refused"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, "", &novadbtest.Database{Begin: errors.New("connection refused")})
			planned := unit(cleanup.Planned)
			planned.Cell = test.cell
			applied, err := s.Apply(test.ctx, Plan{Units: []cleanup.Unit{planned}}, Applying{Command: "test", Waits: func(int) { t.Error("waits") }})
			if err == nil || !strings.Contains(err.Error(), test.err) || applied.Entry != 0 || applied.Units[0].State != test.state {
				t.Errorf("%+v, %v", applied, err)
			}
			if applied.Written() || applied.Offline() {
				t.Error("counts as written")
			}
			if entries, err := change.Machine(s.root).List(); err != nil || len(entries) != 0 {
				t.Errorf("%+v, %v", entries, err)
			}
		})
	}
}

// TestApplied: what makes a settled repair necessary.
func TestApplied(t *testing.T) {
	for _, test := range []struct {
		repair           cleanup.Repair
		state            cleanup.State
		written, offline bool
	}{
		{cleanup.Offline, cleanup.Repaired, true, true},
		{cleanup.Offline, cleanup.Skipped, false, false},
		{cleanup.Offline, cleanup.Begun, false, false},
		{cleanup.Online, cleanup.Written, true, false},
		{cleanup.Online, cleanup.Repaired, true, false},
	} {
		a := Applied{Units: []cleanup.Unit{{State: cleanup.Skipped}, {Repair: test.repair, State: test.state}}}
		if a.Written() != test.written || a.Offline() != test.offline {
			t.Errorf("%s %s: written %t, offline %t", test.repair, test.state, a.Written(), a.Offline())
		}
	}
}

// TestSettle: an interrupt ends the wait with its cause, and a nova-compute that has reported since
// is an error.
func TestSettle(t *testing.T) {
	stopped, cancel := context.WithCancelCause(t.Context())
	interrupted := errors.New("interrupted")
	cancel(interrupted)
	a := Applied{Units: []cleanup.Unit{unit(cleanup.Repaired)}}
	if err := newSession(t, "", &novadbtest.Database{}).Settle(stopped, a, time.Hour); !errors.Is(err, interrupted) {
		t.Errorf("%v", err)
	}
	for reports, started := range map[int64]bool{7: false, 8: true} {
		cell := &novadbtest.Database{Answers: []novadbtest.Answer{{Part: "MAX(report_count)", Rows: [][]any{{reports}}}}}
		if err := newSession(t, "", cell).Settle(t.Context(), a, 0); (err != nil) != started {
			t.Errorf("report %d: %v", reports, err)
		}
	}
}

// TestRecover: the recovery closes an entry whose repairs were never begun, and leaves one open
// whose outcome it cannot determine.
func TestRecover(t *testing.T) {
	elsewhere, fresh := unit(cleanup.Begun), unit(cleanup.Planned)
	elsewhere.Cell, fresh.Rows = "cell9", nil
	for name, test := range map[string]struct {
		unit  cleanup.Unit
		state cleanup.State
		open  bool
	}{
		"not begun":              {fresh, cleanup.Skipped, false},
		"begun in another cloud": {elsewhere, cleanup.Begun, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, recorded(t, change.Applying, test.unit), &novadbtest.Database{})
			open, err := s.Interrupted(t.Context())
			if err != nil || len(open) != 1 {
				t.Fatalf("%+v, %v", open, err)
			}
			done, err := s.Recover(t.Context(), open)
			if (err != nil) != test.open || test.open && !errors.Is(err, repair.ErrUnknown) {
				t.Errorf("%v", err)
			}
			if len(done) != 1 || done[0].Entry != 2 || done[0].Units[0].State != test.state {
				t.Errorf("%+v", done)
			}
			if open, err := s.Interrupted(t.Context()); err != nil || len(open) == 1 != test.open {
				t.Errorf("then open: %+v, %v", open, err)
			}
		})
	}
}

// TestPlanUndo: an undo is planned by what the databases have now. It needs each of them, and
// changes none.
func TestPlanUndo(t *testing.T) {
	there := func(reports int64, status string) *novadbtest.Database {
		return &novadbtest.Database{Answers: []novadbtest.Answer{
			{Part: "SELECT DATABASE()", Rows: [][]any{{"nova"}}},
			{Part: "SELECT compute_node_id, address, COALESCE", Rows: [][]any{{int64(1), "0000:84:00.0", "gpu1"}}},
			{Part: "MAX(report_count)", Rows: [][]any{{reports}}},
			{Part: "SELECT CAST(status AS CHAR) FROM pci_devices", Rows: [][]any{{status}}},
		}}
	}
	for name, test := range map[string]struct {
		cell  *novadbtest.Database
		state cleanup.State
		err   string
		code  host.Code
		side  repair.Side // of a repair whose outcome is unknown
	}{
		"as it was written":                      {there(7, "available"), cleanup.Repaired, "", "", ""},
		"nova-compute was started":               {there(8, "available"), cleanup.Repaired, "nova-compute on gpu1 has run since", host.CodeTooLate, ""},
		"the row was changed":                    {there(7, "claimed"), cleanup.Repaired, "row 1 of pci_devices has been changed since", "", ""},
		"another database":                       {&novadbtest.Database{Answers: []novadbtest.Answer{{Part: "SELECT DATABASE()", Rows: [][]any{{"other"}}}}}, cleanup.Repaired, "not the database of this repair", "", ""},
		"an unknown outcome: written":            {there(7, "available"), cleanup.Begun, "", "", repair.After},
		"an unknown outcome: not written so far": {there(7, "allocated"), cleanup.Begun, "", "", repair.Before},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSession(t, recorded(t, change.Done, unit(test.state)), test.cell)
			entries, err := change.Machine(s.root).List()
			hosttest.NoError(t, err)
			plan, err := s.PlanUndo(t.Context(), entries[0], Evidence{})
			if test.err != "" {
				var refusal interface {
					Refusal() (host.Code, string)
				}
				if err == nil || !strings.Contains(err.Error(), test.err) || errors.As(err, &refusal) != (test.code != "") {
					t.Errorf("%v, want %s", err, test.err)
				}
				return
			}
			if err != nil || len(plan.Units) != 1 || plan.Units[0].State != test.state || plan.Standings[0].Rows != test.side {
				t.Errorf("%+v, %v", plan, err)
			}
		})
	}
}

// TestUndoFails: an undo that cannot begin leaves the entry as it is, and returns its repairs.
func TestUndoFails(t *testing.T) {
	cell := &novadbtest.Database{Begin: errors.New("connection refused")}
	s := newSession(t, recorded(t, change.Done, unit(cleanup.Repaired)), cell)
	entries, err := change.Machine(s.root).List()
	hosttest.NoError(t, err)
	units, err := s.Undo(t.Context(), UndoPlan{Entry: entries[0], Units: []cleanup.Unit{unit(cleanup.Repaired)}})
	if err == nil || len(units) != 1 || units[0].State != cleanup.Repaired {
		t.Errorf("%+v, %v", units, err)
	}
	if entries, err := change.Machine(s.root).List(); err != nil || entries[0].Status != change.Done {
		t.Errorf("%+v, %v", entries, err)
	}
}
