package db

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/cleanup"
	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
)

// action is an action on an instance as Nova records it, with its events: finished ones, and one
// that has not finished.
func action(t *testing.T, c *Cell, instance, name, request, finished, open string) {
	t.Helper()
	id := c.Insert(t, "instance_actions", Row{"action": name, "instance_uuid": instance, "request_id": request, "start_time": Ago(7 * time.Hour)})
	for k, event := range []string{finished, open} {
		what, host, ok := strings.Cut(event, " on ")
		if !ok {
			continue
		}
		row := Row{"action_id": id, "event": what, "host": host, "start_time": Ago(7 * time.Hour)}
		if k == 0 {
			row["finish_time"], row["result"] = Ago(7*time.Hour), "Success"
		}
		c.Insert(t, "instance_actions_events", row)
	}
}

// TestBusyRows: rows of instances in a task are counted, and listed when Nova has not changed the
// instance for long, with its request and the hosts to ask. They are never written.
func TestBusyRows(t *testing.T) {
	reset(t)
	cell := database.Cell1
	gpu1, gpu2 := cell.Compute(t, "gpu1"), cell.Compute(t, "gpu2")
	n := 0
	// put makes an instance and its row on gpu1.
	put := func(host, state, task string, changed time.Duration, options ...InstanceOption) string {
		n++
		options = append([]InstanceOption{With(Row{"updated_at": Ago(changed)})}, options...)
		cell.Instance(t, UUID(n), host, state, task, options...)
		cell.Card(t, gpu1, fmt.Sprintf("0000:%02x:00.0", n), "allocated", UUID(n))
		return UUID(n)
	}
	// move makes a migration of it, and its row on gpu2.
	move := func(instance, kind, status string, changed time.Duration) {
		cell.Migration(t, 0, instance, kind, status, "gpu1", "gpu2", Row{"updated_at": Ago(changed)})
		cell.Card(t, gpu2, fmt.Sprintf("0000:%02x:00.0", n), "allocated", instance)
	}
	stuck := put("gpu1", "active", "resize_migrating", 7*time.Hour) // 01
	move(stuck, "migration", "migrating", 7*time.Hour)
	action(t, cell, stuck, "create", "req-create", "compute__do_build_and_run_instance on gpu1", "")
	action(t, cell, stuck, "migrate", "req-migrate", "conductor_migrate_server on ctl1", "compute_resize_instance on gpu1")
	action(t, cell, stuck, "lock", "req-lock", "", "")
	move(put("gpu1", "active", "resize_migrating", time.Hour), "migration", "migrating", time.Hour)    // 02: young
	move(put("gpu1", "active", "migrating", 7*time.Hour), "live-migration", "running", time.Minute)    // 03: goes on
	move(put("gpu2", "resized", "", 900*time.Hour), "migration", "finished", 900*time.Hour)            // 04
	unknown := put("gpu1", "building", "spawning", 0, With(Row{"updated_at": nil, "created_at": nil})) // 05
	action(t, cell, unknown, "create", "req-build", "conductor_schedule_and_build_instances on ctl2", "")
	put("gpu1", "building", "spawning", 0, With(Row{"updated_at": nil, "created_at": Ago(7 * time.Hour)})) // 06: without an action
	put("gpu1", "soft-delete", "", 900*time.Hour)                                                          // 07
	put("gpu1", "active", "resize_migrated", 900*time.Hour, With(Row{"hidden": true}))                     // 08
	move(put("gpu2", "active", "", 7*time.Hour), "migration", "migrating", 7*time.Hour)                    // 09: across cells
	update(t, "UPDATE nova_cell1.migrations SET cross_cell_move = 1 WHERE instance_uuid = ?", UUID(9))
	move(put("gpu2", "active", "", 7*time.Hour), "migration", "error", 7*time.Hour) // 0a: and in error
	update(t, "UPDATE nova_cell1.migrations SET cross_cell_move = 1 WHERE instance_uuid = ?", UUID(10))
	move(put("gpu2", "resized", "", 7*time.Hour), "migration", "confirmed", 7*time.Hour) // 0b: nothing can be confirmed or reverted

	type output struct {
		Summary  cleanup.Summary
		Findings []cleanup.Finding
	}
	run := func(args ...string) (o output, status int) {
		t.Helper()
		stdout, stderr, status := repairMigration(t, machine(t), append([]string{"-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(stdout), &o); err != nil {
			t.Fatalf("%s: %v", stderr, err)
		}
		return o, status
	}
	lines := func(o output) (all []string) {
		for _, f := range o.Findings {
			line := fmt.Sprintf("%s %s %s %s", f.Host, f.Device.Address[5:7], f.Case, f.Verdict)
			if f.Busy != nil {
				line += fmt.Sprintf(" %q %q %s", f.Busy.Request, f.Busy.Action, f.Busy.Hosts)
				if f.Busy.Age == nil {
					line += " of unknown age"
				} else if f.Listed() && (*f.Busy.Age < 7*3600 || *f.Busy.Age > 7*3600+600) {
					line += fmt.Sprintf(" %d s old", *f.Busy.Age)
				}
			}
			all = append(all, line)
		}
		return all
	}
	want := []string{
		`gpu1 01 T busy "req-migrate" "migrate" [gpu1 gpu2]`,
		`gpu1 05 T busy "req-build" "create" [ctl2 gpu1] of unknown age`,
		`gpu1 06 T busy "" "" [gpu1]`,
		`gpu1 09 T busy "" "" [gpu1 gpu2]`,
		`gpu1 0a B unknown`,
		`gpu1 0b T busy "" "" [gpu1 gpu2]`,
		`gpu2 01 T busy "req-migrate" "migrate" [gpu1 gpu2]`,
	}
	before := cell.Dump(t, "pci_devices")
	for _, args := range [][]string{nil, {"--apply", "--yes", "--wait", "1s"}} {
		o, status := run(args...)
		if diff := cmp.Diff(want, lines(o)); diff != "" || status != 2 {
			t.Errorf("%q: exit status %d, (-want +got):\n%s", args, status, diff)
		}
		wantSum := cleanup.Summary{Unknown: 1, Busy: 10, BusyLong: 6, Legitimate: 7}
		hosttest.EqualIn(t, fmt.Sprintf("%q: summary", args), wantSum, o.Summary)
	}
	hosttest.EqualIn(t, "it has written", before, cell.Dump(t, "pci_devices"))
	if o, _ := run("--all"); len(o.Findings) != 18 {
		t.Errorf("--all: %q", lines(o))
	}
	if o, status := run("--busy-after", "10h", "--device", "0000:01:00.0"); status != 0 || len(o.Findings) > 0 || o.Summary.Busy != 2 {
		t.Errorf("--busy-after 10h: exit status %d, %+v", status, o)
	}
	if o, status := run("--busy-after", "30m", "--device", "0000:02:00.0"); status != 2 || len(o.Findings) != 2 {
		t.Errorf("--busy-after 30m: exit status %d, %+v", status, o)
	}
	stdout, _, _ := repairMigration(t, machine(t), "--device", "0000:01:00.0", "--host", "gpu1")
	for _, part := range []string{"  BUSY (case T)\n", "the instance is in task resize_migrating, unchanged for 7 h\n", "; request req-migrate (migrate), not finished: compute_resize_instance on gpu1\n",
		"  look in the logs of gpu1, gpu2 for req-migrate\n", "\n0 stale, 0 suspicious, 0 unknown, 1 busy (1 for too long), 0 legitimate\n"} {
		if !strings.Contains(strings.ReplaceAll(stdout, "  repair  ", "  "), part) {
			t.Errorf("no %q in:\n%s", part, stdout)
		}
	}
	// Young or old, it is suspicious when no nova-compute can be at work on it.
	report := func(host string, ago time.Duration) []string {
		return []string{"--guests", evidence.Write(t, evidence.Report(host, evidence.RunningFor(ago)))}
	}
	for address, restarted := range map[string]bool{"0000:01:00.0": true, "0000:02:00.0": true, "0000:03:00.0": false, "0000:05:00.0": false,
		"0000:09:00.0": false, "0000:0b:00.0": true} {
		o, _ := run(slices.Concat([]string{"--device", address, "--all"}, report("gpu1", 20*time.Minute), report("gpu2", 20*time.Minute))...)
		for _, f := range o.Findings {
			if f.Case == cleanup.CaseBusy && (f.Verdict == cleanup.Suspicious) != restarted {
				t.Errorf("both restarted: %s of %s: %s %s", address, f.Host, f.Verdict, f.Reason)
			}
		}
		o, _ = run(slices.Concat([]string{"--device", address}, report("gpu1", 20*time.Minute), report("gpu2", 50*time.Hour))...)
		for _, f := range o.Findings {
			if f.Verdict == cleanup.Suspicious {
				t.Errorf("one restarted: %s of %s: %s", address, f.Host, f.Reason)
			}
		}
	}
	update(t, "UPDATE nova_cell1.instances SET vm_state = 'active' WHERE uuid = ?", UUID(11)) // as its steps say
	if o, _ := run("--device", "0000:0b:00.0"); !slices.Equal(lines(o), []string{"gpu1 0b E unknown"}) {
		t.Errorf("the state is reset: %q", lines(o))
	}
	// Releases whose events have no host.
	if _, err := database.SQL.ExecContext(t.Context(), "ALTER TABLE nova_cell1.instance_actions_events RENAME COLUMN host TO no_host"); err != nil {
		t.Fatal(err)
	}
	defer statement(t, "ALTER TABLE nova_cell1.instance_actions_events RENAME COLUMN no_host TO host")
	if o, _ := run("--device", "0000:01:00.0", "--host", "gpu1"); !slices.Equal(lines(o), want[:1]) {
		t.Errorf("events without a host: %q", lines(o))
	}
}

// statement runs a statement that changes no row.
func statement(t *testing.T, text string) {
	t.Helper()
	if _, err := database.SQL.Exec(text); err != nil {
		t.Error(err)
	}
}
