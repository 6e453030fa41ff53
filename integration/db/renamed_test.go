package db

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/cleanup"
	"gpustack/host/hosttest"
)

// TestRenamed: after a change of hypervisor_hostname, devices that guests use are free on the new
// node, as Nova's own tracker confirms. The finding's SQL makes that tracker keep them.
func TestRenamed(t *testing.T) {
	u := UUID(1)
	for name, test := range map[string]struct {
		live  string // the name of the live node
		rows  func(t *testing.T, c *Cell, old, live int64)
		found []string
		left  []string // after the finding's SQL; nil: it has none
		free  int      // devices that Nova offers then
	}{
		"renamed": {
			live: "gpu1.example.org",
			rows: func(t *testing.T, c *Cell, old, live int64) {
				c.Instance(t, u, "gpu1", "active", "")
				c.Card(t, old, first, "allocated", u)
				c.Card(t, old, second, "available", "")
				c.Card(t, live, first, "available", "")
				c.Card(t, live, second, "available", "")
			},
			found: []string{"gpu1 " + first + " L suspicious"}, left: []string{}, free: 1,
		},
		"renamed, of a release without request ids, in other letters": {
			live: "gpu1.exam'ple",
			rows: func(t *testing.T, c *Cell, old, live int64) {
				c.Instance(t, u, "GPU1", "stopped", "")
				c.Card(t, old, first, "claimed", u, Row{"request_id": nil})
				c.Card(t, live, first, "available", "")
			},
			found: []string{"gpu1 " + first + " L suspicious"}, left: []string{},
		},
		"renamed, with a PF": {
			live: "gpu1.example.org",
			rows: func(t *testing.T, c *Cell, old, live int64) {
				c.Instance(t, u, "gpu1", "active", "", Asks("flex:1", RequestOf(u)))
				c.Card(t, old, first, "allocated", u, PF())
				c.Card(t, old, "0000:84:00.4", "unavailable", "", VF(first))
				c.Card(t, live, first, "available", "", PF())
				c.Card(t, live, "0000:84:00.4", "available", "", VF(first))
			},
			found: []string{"gpu1 " + first + " L suspicious"}, left: []string{},
		},
		"renamed, with a VF": {
			live: "gpu1.example.org",
			rows: func(t *testing.T, c *Cell, old, live int64) {
				c.Instance(t, u, "gpu1", "active", "", Asks("flex-vf:1", RequestOf(u)))
				c.Card(t, old, first, "unavailable", "", PF())
				c.Card(t, old, "0000:84:00.4", "allocated", u, VF(first))
				c.Card(t, live, first, "available", "", PF())
				c.Card(t, live, "0000:84:00.4", "available", "", VF(first))
			},
			found: []string{"gpu1 0000:84:00.4 L suspicious"}, left: []string{},
		},
		"renamed, and back": {
			live: "gpu1",
			rows: func(t *testing.T, c *Cell, old, live int64) {
				c.Instance(t, u, "gpu1", "active", "")
				c.Card(t, old, first, "allocated", u)
				c.Card(t, live, first, "available", "")
			},
			found: []string{"gpu1 " + first + " L suspicious"}, left: []string{},
		},
		"assigned to a second instance": {
			live: "gpu1.example.org",
			rows: func(t *testing.T, c *Cell, old, live int64) {
				c.Instance(t, u, "gpu1", "active", "")
				c.Instance(t, UUID(2), "gpu1", "active", "", With(Row{"node": "gpu1.example.org"}))
				c.Card(t, old, first, "allocated", u)
				c.Card(t, live, first, "allocated", UUID(2))
			},
			found: []string{"gpu1 " + first + " L suspicious"},
		},
		"the live node has no such device": {
			live: "gpu1.example.org",
			rows: func(t *testing.T, c *Cell, old, live int64) {
				c.Instance(t, u, "gpu1", "active", "")
				c.Card(t, old, first, "allocated", u)
				c.Card(t, live, second, "available", "")
			},
			found: []string{"gpu1 " + first + " D suspicious"},
		},
		"the instance has its device on the node that was created again": {
			live: "gpu1",
			rows: func(t *testing.T, c *Cell, old, live int64) {
				c.Instance(t, u, "gpu1", "active", "")
				c.Card(t, old, first, "allocated", u)
				c.Card(t, live, first, "allocated", u)
			},
			found: []string{"gpu1 " + first + " D stale offline"},
		},
		"in a task": {
			live: "gpu1.example.org",
			rows: func(t *testing.T, c *Cell, old, live int64) {
				c.Instance(t, u, "gpu1", "active", "rebooting")
				c.Card(t, old, first, "allocated", u)
				c.Card(t, live, first, "available", "")
			},
			found: []string{},
		},
		"the instance is on another host": {
			live: "gpu1.example.org",
			rows: func(t *testing.T, c *Cell, old, live int64) {
				c.Compute(t, "gpu2")
				c.Instance(t, u, "gpu2", "active", "")
				c.Card(t, old, first, "allocated", u)
				c.Card(t, live, first, "available", "")
			},
			found: []string{"gpu1 " + first + " D stale offline"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			old := cell.Compute(t, "was", ServiceDeleted(time.Hour))
			update(t, "UPDATE nova_cell1.compute_nodes SET host = 'gpu1', hypervisor_hostname = 'gpu1' WHERE id = ?", old)
			live := cell.Compute(t, "gpu1", Node(Row{"hypervisor_hostname": test.live}))
			test.rows(t, cell, old, live)
			root := machine(t)
			found, _ := findings(t, root)
			if diff := cmp.Diff(test.found, found); diff != "" {
				t.Fatalf("found (-want +got):\n%s", diff)
			}
			stdout, _, _ := repairMigration(t, root, "-o", "json")
			var r struct{ Findings []cleanup.Finding }
			hosttest.NoError(t, json.Unmarshal([]byte(stdout), &r))
			if test.left == nil {
				for _, f := range r.Findings {
					if strings.Contains(f.Steps.String(), "UPDATE") {
						t.Errorf("has SQL: %s", f.Steps)
					}
				}
				return
			}
			if offers := database.Track(t, cell, live, cell.Reported(t, live)).Offers; len(offers) == 0 {
				t.Error("the test is wrong: Nova does not offer the device")
			}
			_, statements, _ := strings.Cut(r.Findings[0].Steps.String(), "enable the host: ")
			for statement := range strings.SplitSeq(statements, "; ") {
				if _, err := database.SQL.ExecContext(t.Context(), strings.Replace(statement, "UPDATE ", "UPDATE nova_cell1.", 1)); err != nil {
					t.Fatalf("%s: %v", statement, err)
				}
			}
			left, _ := findings(t, root)
			hosttest.EqualIn(t, "left", test.left, left)
			tracked := database.Track(t, cell, live, cell.Reported(t, live))
			offers := 0
			for _, n := range tracked.Offers {
				offers += n
			}
			if tracked.Error != "" || len(tracked.Changes) > 0 || offers != test.free {
				t.Errorf("Nova then: %+v", tracked)
			}
		})
	}
}
