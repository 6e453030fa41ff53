package db

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
)

// machine is a controller's file tree with the nova.conf of the databases, to be
// changed by the test alone.
func machine(t testing.TB) string {
	t.Helper()
	root := t.TempDir()
	text, err := os.ReadFile(database.Conf())
	if err == nil {
		err = errors.Join(os.MkdirAll(filepath.Join(root, "etc/nova"), 0o755), os.WriteFile(filepath.Join(root, "etc/nova/nova.conf"), text, 0o640))
	}
	hosttest.NoError(t, err)
	return root
}

// repairMigration runs repair-migration. What it prints holds no password, and is as docs/schema
// describes it.
func repairMigration(t testing.TB, root string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := exec.Command(gpustack, append([]string{"repair-migration", "--root", root}, args...)...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + root, "LANG=C.UTF-8"}
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if strings.Contains(out.String()+talk.String(), database.Password) {
		t.Errorf("%q tells the password", args)
	}
	if slices.Contains(args, "json") {
		checkDocument(t, "repair-migration", out.Bytes())
	}
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

type repairOutput struct {
	Summary  struct{ Stale, Suspicious, Unknown, Legitimate int }
	Findings []struct {
		Cell, Host, Case, Verdict, Repair, Needs, Reason string
		Device                                           struct{ Address string }
	}
	Changes []struct{ State, Note string }
}

// findings are what repair-migration finds, a line each.
func findings(t *testing.T, root string, args ...string) (lines []string, status int) {
	t.Helper()
	stdout, stderr, status := repairMigration(t, root, append([]string{"-o", "json"}, args...)...)
	var r repairOutput
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatalf("exit status %d, %s: %v", status, stderr, err)
	}
	lines = []string{}
	for _, f := range r.Findings {
		lines = append(lines, strings.Join(strings.Fields(fmt.Sprintf("%s %s %s %s %s", f.Host, f.Device.Address, f.Case, f.Verdict, f.Repair)), " "))
	}
	return lines, status
}

// TestRepair: real rows of every case in Nova's own schema: what they are found to be,
// that nothing is written without --apply, what --apply makes of them, that a real
// tracker then loads the node and changes nothing, and that a second run finds nothing
// to do.
func TestRepair(t *testing.T) {
	u, other := UUID(1), UUID(2)
	down := LastSeen(time.Hour)
	type reports map[string]func(*testing.T) string
	gone := func(host string) func(*testing.T) string {
		return func(t *testing.T) string { return evidence.Write(t, evidence.Report(host, evidence.Stopped)) }
	}
	// Reports of nova-compute's that have been up for a time, and of a resize's leavings.
	at := func(up time.Duration, host string) func(*testing.T) string {
		return func(t *testing.T) string {
			return evidence.Write(t, evidence.Report(host, evidence.RunningFor(up)))
		}
	}
	defines := func(host string) func(*testing.T) string {
		return func(t *testing.T) string {
			return evidence.Write(t, evidence.Report(host, evidence.Defines(t, first, u)))
		}
	}
	holds := func(host string) func(*testing.T) string {
		return func(t *testing.T) string {
			return evidence.Write(t, evidence.Report(host, evidence.Holds(t, first, u)))
		}
	}
	// arrived is a live migration from gpu2 to gpu1 that is completed by its record, while the
	// instance is still on gpu2.
	arrived := func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
		c.Instance(t, u, "gpu2", "active", "")
		c.Card(t, gpu1, first, "allocated", u)
		c.Card(t, gpu2, first, "allocated", u)
		c.Migration(t, 3, u, "live-migration", "completed", "gpu2", "gpu1")
	}
	resized := func(status string) func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
		return func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
			old := Row{"updated_at": Ago(2 * time.Hour)}
			c.Instance(t, u, "gpu2", "active", "")
			c.Card(t, gpu1, first, "allocated", u, old)
			c.Card(t, gpu2, first, "allocated", u, old)
			c.Migration(t, 3, u, "resize", status, "gpu1", "gpu2", old)
		}
	}
	for name, test := range map[string]struct {
		host    []HostOption // of gpu1
		rows    func(t *testing.T, c *Cell, gpu1, gpu2 int64)
		reports reports
		args    []string
		found   []string // without --apply
		left    []string // after it
		cards   []string // the rows of gpu1 after it: status and owner
		free    int      // K4200s that Nova offers on gpu1 then
	}{
		"nothing": {
			rows:  func(t *testing.T, c *Cell, gpu1, _ int64) { c.Card(t, gpu1, first, "available", "") },
			found: []string{}, left: []string{}, cards: []string{"available NULL"}, free: 1,
		},
		"at work": {
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, u, "gpu1", "active", "")
				c.Card(t, gpu1, first, "allocated", u)
			},
			found: []string{}, left: []string{}, cards: []string{"allocated " + u},
		},
		"VERIFY_RESIZE": {
			rows: func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
				c.Instance(t, u, "gpu2", "resized", "")
				from, to := c.Card(t, gpu1, first, "allocated", u), c.Card(t, gpu2, first, "allocated", u)
				c.Context(t, u, c.Migration(t, 3, u, "migration", "finished", "gpu1", "gpu2"), []int64{from}, []int64{to})
			},
			found: []string{}, left: []string{}, cards: []string{"allocated " + u},
		},
		"never stale": {
			rows: func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
				c.Card(t, gpu1, "0000:f0:00.0", "available", "")
				for i, s := range []struct{ host, vm, task, migration string }{
					{"gpu1", "active", "resize_migrating", "migration migrating gpu1 gpu2"},
					{"gpu2", "active", "resize_finish", "migration post-migrating gpu1 gpu2"},
					{"gpu2", "active", "resize_reverting", "migration reverting gpu1 gpu2"},
					{"gpu1", "resized", "", "resize finished gpu1 gpu1"},
					{"gpu2", "active", "migrating", "live-migration running gpu2 gpu1"},
					{"gpu2", "active", "rebuilding", "evacuation accepted gpu1 gpu2"},
					{"gpu1", "active", "spawning", ""},
					{"gpu1", "building", "spawning", ""},
					{"gpu1", "soft-delete", "", ""},
					{"gpu1", "shelved", "", ""},
					{"gpu1", "rescued", "", ""},
					{"gpu1", "paused", "", ""},
					{"gpu1", "suspended", "", ""},
					{"gpu1", "stopped", "", ""},
					{"gpu1", "error", "", "migration error gpu1 gpu2"},
				} {
					owner := UUID(20 + i)
					c.Instance(t, owner, s.host, s.vm, s.task)
					c.Card(t, gpu1, fmt.Sprintf("0000:%02x:00.0", i), "allocated", owner)
					if m := strings.Fields(s.migration); len(m) > 0 {
						c.Migration(t, 0, owner, m[0], m[1], m[2], m[3], Row{"updated_at": Ago(100 * time.Hour)})
						if m[3] == "gpu2" {
							c.Card(t, gpu2, fmt.Sprintf("0000:%02x:00.0", i), "allocated", owner)
						}
					}
				}
				c.Instance(t, UUID(50), "gpu2", "active", "")
				c.Card(t, gpu1, "0000:80:00.0", "allocated", UUID(50))
				c.Migration(t, 0, UUID(50), "migration", "migrating", "gpu1", "gpu2", Row{"cross_cell_move": true})
			},
			reports: reports{
				"gpu1": func(t *testing.T) string {
					return evidence.Write(t, evidence.Report("gpu1", evidence.RunningFor(90*time.Hour)))
				},
				"gpu2": func(t *testing.T) string {
					return evidence.Write(t, evidence.Report("gpu2", evidence.RunningFor(90*time.Hour)))
				},
			},
			// The last of these is one whose guest is in error where it is, and has a card
			// on the other host, which the failed migration keeps: a true case B there.
			found: []string{"gpu2 0000:0e:00.0 B stale online"}, left: []string{"gpu2 0000:0e:00.0 B stale online"},
			cards: nil,
		},
		"A: nova-compute is up and frees it itself": {
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, u, "gpu1", "deleted", "", InstanceDeleted(time.Hour))
				c.Instance(t, other, "gpu1", "active", "")
				c.Card(t, gpu1, first, "allocated", u)
			},
			found: []string{"gpu1 " + first + " A stale nova"}, left: []string{"gpu1 " + first + " A stale nova"}, cards: []string{"allocated " + u},
		},
		"A: down, and nobody has reported": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, u, "gpu1", "deleted", "", InstanceDeleted(time.Hour))
				c.Instance(t, other, "gpu2", "active", "")
				c.Card(t, gpu1, first, "allocated", u)
			},
			found: []string{"gpu1 " + first + " A stale offline"}, left: []string{"gpu1 " + first + " A stale offline"}, cards: []string{"allocated " + u},
		},
		"A: down, and proved": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, u, "gpu1", "deleted", "", InstanceDeleted(time.Hour))
				c.Instance(t, other, "gpu2", "active", "")
				c.Card(t, gpu1, first, "allocated", u)
			},
			reports: reports{"gpu1": gone("gpu1")},
			found:   []string{"gpu1 " + first + " A stale offline"}, left: []string{}, cards: []string{"available NULL"}, free: 1,
		},
		"A: down, by the operator's word": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, other, "gpu2", "active", "")
				c.Card(t, gpu1, first, "allocated", u)
			},
			args:  []string{"--host-is-off", "gpu1"},
			found: []string{"gpu1 " + first + " A stale offline"}, left: []string{}, cards: []string{"available NULL"}, free: 1,
		},
		"A: down, but the guest still runs there": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, u, "gpu1", "deleted", "", InstanceDeleted(time.Hour))
				c.Instance(t, other, "gpu2", "active", "")
				c.Card(t, gpu1, first, "allocated", u, Row{"updated_at": Ago(time.Hour)})
			},
			reports: reports{"gpu1": func(t *testing.T) string {
				return evidence.Write(t, evidence.Report("gpu1", evidence.Stopped, evidence.Holds(t, first, u)))
			}},
			found: []string{"gpu1 " + first + " A suspicious"}, left: []string{"gpu1 " + first + " A suspicious"}, cards: []string{"allocated " + u},
		},
		"A: silent, but nova-compute runs": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, other, "gpu2", "active", "")
				c.Card(t, gpu1, first, "allocated", u)
			},
			reports: reports{"gpu1": func(t *testing.T) string { return evidence.Write(t, evidence.Report("gpu1")) }},
			found:   []string{"gpu1 " + first + " A stale nova"}, left: []string{"gpu1 " + first + " A stale nova"}, cards: []string{"allocated " + u},
		},
		"A: forced down, but reporting": { // TestDeclaredOff: the host cannot be declared off
			host: []HostOption{ForcedDown()},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, other, "gpu2", "active", "")
				c.Card(t, gpu1, first, "allocated", u)
			},
			found: []string{"gpu1 " + first + " A stale nova"}, left: []string{"gpu1 " + first + " A stale nova"}, cards: []string{"allocated " + u},
		},
		"D: the host is gone for good": {
			host: []HostOption{ServiceDeleted(time.Hour)},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, u, "gpu1", "deleted", "", InstanceDeleted(time.Hour))
				c.Instance(t, other, "gpu2", "active", "")
				c.Card(t, gpu1, first, "allocated", u)
			},
			args:  []string{"--host-is-off", "gpu1"},
			found: []string{"gpu1 " + first + " D stale offline"}, left: []string{}, cards: []string{},
		},
		"E: elsewhere, and the host is down": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
				c.Instance(t, u, "gpu2", "active", "")
				c.Card(t, gpu1, first, "allocated", u)
				c.Card(t, gpu2, first, "allocated", u)
			},
			reports: reports{"gpu1": gone("gpu1")},
			found:   []string{"gpu1 " + first + " E stale offline"}, left: []string{}, cards: []string{"available NULL"}, free: 1,
		},
		"E: the last step of a live migration has failed, and the guest runs here": {
			rows:    arrived,
			reports: reports{"gpu1": holds("gpu1")},
			found:   []string{"gpu1 " + first + " E suspicious"}, left: []string{"gpu1 " + first + " E suspicious"}, cards: []string{"allocated " + u},
		},
		"E: nobody has reported": {
			rows:  arrived,
			found: []string{"gpu1 " + first + " E unknown"}, left: []string{"gpu1 " + first + " E unknown"}, cards: []string{"allocated " + u},
		},
		"E: and it does not run here": {
			rows:    arrived,
			reports: reports{"gpu1": at(20*time.Minute, "gpu1")},
			found:   []string{"gpu1 " + first + " E stale nova"}, left: []string{"gpu1 " + first + " E stale nova"}, cards: []string{"allocated " + u},
		},
		"E: evacuated": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
				c.Instance(t, u, "gpu2", "active", "")
				c.Migration(t, 3, u, "evacuation", "done", "gpu1", "gpu2")
				c.Card(t, gpu1, first, "allocated", u)
				c.Card(t, gpu2, first, "allocated", u)
			},
			reports: reports{"gpu1": gone("gpu1")},
			found:   []string{"gpu1 " + first + " E stale nova"}, left: []string{"gpu1 " + first + " E stale nova"}, cards: []string{"allocated " + u},
		},
		"F: VFs blocked by nobody": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, other, "gpu2", "active", "")
				c.Card(t, gpu1, first, "available", "", PF())
				c.Card(t, gpu1, "0000:84:00.4", "unavailable", "", VF(first))
			},
			reports: reports{"gpu1": gone("gpu1")},
			found:   []string{"gpu1 0000:84:00.4 F stale offline"}, left: []string{}, cards: []string{"available NULL", "available NULL"},
		},
		"a PF takes its VFs with it": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, other, "gpu2", "active", "")
				c.Card(t, gpu1, first, "allocated", u, PF())
				c.Card(t, gpu1, "0000:84:00.4", "unavailable", "", VF(first))
			},
			reports: reports{"gpu1": gone("gpu1")},
			found:   []string{"gpu1 " + first + " A stale offline"}, left: []string{}, cards: []string{"available NULL", "available NULL"},
		},
		"a VF frees its PF only if it is the last": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, other, "gpu1", "active", "")
				c.Card(t, gpu1, first, "unavailable", "", PF())
				c.Card(t, gpu1, "0000:84:00.4", "allocated", u, VF(first))
				c.Card(t, gpu1, "0000:84:00.5", "allocated", other, VF(first))
			},
			reports: reports{"gpu1": gone("gpu1")},
			found:   []string{"gpu1 0000:84:00.4 A stale offline"}, left: []string{}, cards: []string{"unavailable NULL", "available NULL", "allocated " + other},
		},
		"I: taken by nobody, and the host is down": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, other, "gpu2", "active", "")
				c.Card(t, gpu1, first, "claimed", "")
			},
			reports: reports{"gpu1": gone("gpu1")},
			found:   []string{"gpu1 " + first + " I stale offline"}, left: []string{}, cards: []string{"available NULL"}, free: 1,
		},
		"L: a guest holds a free card, and nobody has said what to do": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, u, "gpu1", "active", "")
				c.Card(t, gpu1, first, "available", "")
			},
			reports: reports{"gpu1": func(t *testing.T) string {
				return evidence.Write(t, evidence.Report("gpu1", evidence.Stopped, evidence.Holds(t, first, u)))
			}},
			found: []string{"gpu1 " + first + " L stale offline"}, left: []string{"gpu1 " + first + " L stale offline"}, cards: []string{"available NULL"}, free: 1,
		},
		"L: it is given to the instance": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, u, "gpu1", "active", "")
				c.Card(t, gpu1, first, "available", "")
				c.Card(t, gpu1, second, "available", "")
			},
			reports: reports{"gpu1": func(t *testing.T) string {
				return evidence.Write(t, evidence.Report("gpu1", evidence.Stopped, evidence.Holds(t, first, u)))
			}},
			args:  []string{"--claim"},
			found: []string{"gpu1 " + first + " L stale offline"}, left: []string{}, cards: []string{"allocated " + u, "available NULL"}, free: 1,
		},
		"L: a PF, whose VFs are blocked then": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, u, "gpu1", "active", "", Asks("flex:1", RequestOf(u)))
				c.Card(t, gpu1, first, "available", "", PF())
				c.Card(t, gpu1, "0000:84:00.4", "available", "", VF(first))
			},
			reports: reports{"gpu1": func(t *testing.T) string {
				return evidence.Write(t, evidence.Report("gpu1", evidence.Stopped, evidence.Holds(t, first, u)))
			}},
			args:  []string{"--claim"},
			found: []string{"gpu1 " + first + " L stale offline"}, left: []string{}, cards: []string{"allocated " + u, "unavailable NULL"},
		},
		"L: the instance has all that it asks for": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, u, "gpu1", "active", "")
				c.Card(t, gpu1, first, "available", "")
				c.Card(t, gpu1, second, "allocated", u)
			},
			reports: reports{"gpu1": func(t *testing.T) string {
				return evidence.Write(t, evidence.Report("gpu1", evidence.Stopped, evidence.Holds(t, first, u)))
			}},
			args:  []string{"--claim"},
			found: []string{"gpu1 " + first + " L suspicious"}, left: []string{"gpu1 " + first + " L suspicious"}, cards: []string{"available NULL", "allocated " + u},
		},
		"L: nova-compute runs": {
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, u, "gpu1", "active", "")
				c.Card(t, gpu1, first, "available", "")
			},
			reports: reports{"gpu1": func(t *testing.T) string {
				return evidence.Write(t, evidence.Report("gpu1", evidence.Holds(t, first, u)))
			}},
			args:  []string{"--claim"},
			found: []string{"gpu1 " + first + " L stale offline"}, left: []string{"gpu1 " + first + " L stale offline"}, cards: []string{"available NULL"},
		},
		"M: a status that breaks the node": {
			host: []HostOption{down},
			rows: func(t *testing.T, c *Cell, gpu1, _ int64) {
				c.Instance(t, other, "gpu2", "active", "")
				c.Card(t, gpu1, first, "taken", "")
			},
			reports: reports{"gpu1": gone("gpu1")},
			found:   []string{"gpu1 " + first + " M stale offline"}, left: []string{}, cards: []string{"available NULL"}, free: 1,
		},
		"B, C and S stay unknown without reports": {
			rows: func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
				for i, status := range []string{"error", "migrating", "finished"} {
					c.Instance(t, UUID(10+i), "gpu2", "active", "")
					c.Card(t, gpu1, fmt.Sprintf("0000:8%d:00.0", i), "allocated", UUID(10+i))
					c.Card(t, gpu2, fmt.Sprintf("0000:8%d:00.0", i), "allocated", UUID(10+i))
					c.Migration(t, int64(3+i), UUID(10+i), "migration", status, "gpu1", "gpu2")
				}
			},
			found: []string{"gpu1 0000:80:00.0 B unknown", "gpu1 0000:81:00.0 C unknown", "gpu1 0000:82:00.0 S unknown"},
			left:  []string{"gpu1 0000:80:00.0 B unknown", "gpu1 0000:81:00.0 C unknown", "gpu1 0000:82:00.0 S unknown"},
			cards: []string{"allocated " + UUID(10), "allocated " + UUID(11), "allocated " + UUID(12)},
		},
		"C: of two hosts that two dead migrations went to, one has reported": {
			rows: func(t *testing.T, c *Cell, gpu1, gpu2 int64) {
				gpu3 := c.Compute(t, "gpu3")
				old := Row{"updated_at": Ago(2 * time.Hour)}
				c.Instance(t, u, "gpu1", "active", "")
				c.Card(t, gpu1, first, "allocated", u, old)
				c.Card(t, gpu2, first, "allocated", u, old)
				c.Card(t, gpu3, first, "allocated", u, old)
				c.Migration(t, 3, u, "migration", "migrating", "gpu1", "gpu2", old)
				c.Migration(t, 4, u, "migration", "migrating", "gpu1", "gpu3", old)
			},
			reports: reports{"gpu1": at(20*time.Minute, "gpu1"), "gpu2": at(20*time.Minute, "gpu2")},
			found:   []string{"gpu2 " + first + " C unknown", "gpu3 " + first + " C unknown"},
			left:    []string{"gpu2 " + first + " C unknown", "gpu3 " + first + " C unknown"},
			cards:   []string{"allocated " + u},
		},
		"S: libvirt has the source's domain defined": {
			rows:    resized("finished"),
			reports: reports{"gpu1": defines("gpu1"), "gpu2": holds("gpu2")},
			found:   []string{"gpu1 " + first + " S stale online"}, left: []string{"gpu1 " + first + " S stale online"}, cards: []string{"allocated " + u},
		},
		"S: and the guest is on no host": {
			rows:    resized("finished"),
			reports: reports{"gpu1": defines("gpu1"), "gpu2": at(20*time.Minute, "gpu2")},
			found:   []string{"gpu1 " + first + " S stale online"}, left: []string{"gpu1 " + first + " S stale online"}, cards: []string{"allocated " + u},
		},
		"C: libvirt has the source's domain defined": {
			rows:    resized("post-migrating"),
			reports: reports{"gpu1": defines("gpu1"), "gpu2": holds("gpu2")},
			found:   []string{"gpu1 " + first + " C stale online"}, left: []string{"gpu1 " + first + " C stale online"}, cards: []string{"allocated " + u},
		},
		"S: nova-compute has been up all the time": {
			rows:    resized("finished"),
			reports: reports{"gpu1": at(100*time.Hour, "gpu1"), "gpu2": at(100*time.Hour, "gpu2")},
			found:   []string{"gpu1 " + first + " S stale online"}, left: []string{"gpu1 " + first + " S stale online"}, cards: []string{"allocated " + u},
		},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			gpu1, gpu2 := cell.Compute(t, "gpu1", test.host...), cell.Compute(t, "gpu2")
			test.rows(t, cell, gpu1, gpu2)
			root := machine(t)
			args := test.args
			for _, write := range test.reports {
				args = append(args, "--guests", write(t))
			}
			tables := []string{"pci_devices", "instances", "instance_extra", "migrations", "services", "compute_nodes"}
			dump := func() (all [][][]string) {
				for _, table := range tables {
					all = append(all, cell.Dump(t, table))
				}
				return all
			}
			before := dump()
			found, status := findings(t, root, args...)
			if diff := cmp.Diff(test.found, found); diff != "" || (status == 2) != (len(test.found) > 0) {
				t.Errorf("exit status %d, found (-want +got):\n%s", status, diff)
			}
			hosttest.EqualIn(t, "without --apply it has written", before, dump())
			left, status := findings(t, root, append(args, "--apply", "--yes", "--wait", "1s")...)
			again, _ := findings(t, root, args...)
			if diff := cmp.Diff(test.left, left); diff != "" || (status == 2) != (len(test.left) > 0) {
				t.Errorf("exit status %d, left (-want +got):\n%s", status, diff)
			}
			hosttest.EqualIn(t, "a second run finds", test.left, again)
			cards := []string{}
			for _, row := range cell.Dump(t, "pci_devices", "compute_node_id", "deleted", "status", "instance_uuid") {
				if row[0] == fmt.Sprint(gpu1) && row[1] == "0" {
					cards = append(cards, row[2]+" "+row[3])
				}
			}
			if diff := cmp.Diff(test.cards, cards); diff != "" && test.cards != nil {
				t.Errorf("cards (-want +got):\n%s", diff)
			}
			if cmp.Equal(test.found, test.left) {
				hosttest.EqualIn(t, "it has written", before, dump())
				return
			}
			if len(test.cards) == 0 {
				return
			}
			// A tracker that starts now agrees.
			tracked := database.Track(t, cell, gpu1, cell.Reported(t, gpu1))
			if tracked.Error != "" || len(tracked.Changes) > 0 || tracked.Offers["K4200"] != test.free {
				t.Errorf("Nova then: %+v", tracked)
			}
		})
	}
}

// TestRepairUndo: an offline repair goes back byte for byte, until nova-compute has
// read the rows; what was changed since is left.
func TestRepairUndo(t *testing.T) {
	u := UUID(1)
	begin := func(t *testing.T) (root string, cell *Cell, card int64) {
		reset(t)
		cell = database.Cell1
		gpu1 := cell.Compute(t, "gpu1", LastSeen(time.Hour))
		cell.Compute(t, "gpu2")
		cell.Instance(t, UUID(2), "gpu2", "active", "")
		card = cell.Card(t, gpu1, first, "allocated", u)
		return machine(t), cell, card
	}
	undo := func(t *testing.T, root string) (stderr string, status int) {
		cmd := exec.Command(gpustack, "undo", "--root", root, "--yes")
		var talk bytes.Buffer
		cmd.Stderr = &talk
		if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
			t.Fatal(err)
		}
		return talk.String(), cmd.ProcessState.ExitCode()
	}
	apply := func(t *testing.T, root string) {
		t.Helper()
		if _, stderr, status := repairMigration(t, root, "--host-is-off", "gpu1", "--apply", "--yes", "--wait", "1s"); status != 0 {
			t.Fatalf("exit status %d, %s", status, stderr)
		}
	}
	t.Run("back", func(t *testing.T) {
		root, cell, _ := begin(t)
		before := cell.Dump(t, "pci_devices")
		apply(t, root)
		if cmp.Equal(before, cell.Dump(t, "pci_devices")) {
			t.Fatal("nothing was written")
		}
		if stderr, status := undo(t, root); status != 0 {
			t.Fatal(stderr)
		}
		hosttest.EqualIn(t, "before and after", before, cell.Dump(t, "pci_devices"))
		if stderr, status := undo(t, root); status != 1 || !strings.Contains(stderr, "nothing to undo") {
			t.Errorf("again: %s", stderr)
		}
	})
	t.Run("undone in part", func(t *testing.T) {
		cell, root := stale(t, 3), machine(t)
		before := states(t, cell)
		apply(t, root)
		other, err := database.SQL.BeginTx(t.Context(), nil)
		hosttest.NoError(t, err)
		defer other.Rollback()
		if _, err := other.ExecContext(t.Context(), "SELECT id FROM nova_cell1.pci_devices WHERE id = 2 FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		if stderr, status := undo(t, root); status != 1 || !strings.Contains(stderr, "0000:01:00.0 of gpu1: ") {
			t.Errorf("exit status %d, %s", status, stderr)
		}
		if got := states(t, cell); got[0] == before[0] || got[1] == before[1] || got[2] != before[2] {
			t.Errorf("the last one alone is to be undone: %q", got)
		}
		entry, err := os.ReadFile(filepath.Join(root, "var/lib/gpustack/journal/0001.json"))
		if err != nil || !strings.Contains(string(entry), `"status": "done"`) || strings.Count(string(entry), `"state": "undone"`) != 1 {
			t.Errorf("%v, %s", err, entry)
		}
		other.Rollback()
		if stderr, status := undo(t, root); status != 0 {
			t.Fatal(stderr)
		}
		hosttest.EqualIn(t, "before and undone", before, states(t, cell))
	})
	t.Run("nova-compute has run since", func(t *testing.T) {
		root, cell, _ := begin(t)
		apply(t, root)
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.services SET report_count = report_count + 1 WHERE host = 'gpu1'"); err != nil {
			t.Fatal(err)
		}
		after := cell.Dump(t, "pci_devices")
		if stderr, status := undo(t, root); status != 1 || !strings.Contains(stderr, "nova-compute on gpu1 has run since") {
			t.Errorf("exit status %d, %s", status, stderr)
		}
		hosttest.Equal(t, after, cell.Dump(t, "pci_devices"))
	})
	t.Run("somebody has taken the card since", func(t *testing.T) {
		root, cell, card := begin(t)
		apply(t, root)
		if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_cell1.pci_devices SET status = 'allocated', instance_uuid = ? WHERE id = ?", UUID(2), card); err != nil {
			t.Fatal(err)
		}
		after := cell.Dump(t, "pci_devices")
		if stderr, status := undo(t, root); status != 1 || !strings.Contains(stderr, "row 1 of pci_devices has been changed since") {
			t.Errorf("exit status %d, %s", status, stderr)
		}
		hosttest.Equal(t, after, cell.Dump(t, "pci_devices"))
	})
}
