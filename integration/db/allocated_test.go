package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host/guest"
	"gpustack/host/hosttest"
	"gpustack/integration/evidence"
	"gpustack/nova/cloud"
)

// shelf is a Placement with a provider for each card, whose name is that of its node with the
// address, and with what consumers hold.
type shelf struct {
	mu        sync.Mutex
	roots     map[string]string                    // uuids of compute nodes, by name
	providers []string                             // names
	held      map[string]map[string]map[string]int // by consumer and provider
	asked     int
	most      int // requests at the same time
	now       int
	failing   string       // a provider whose allocations cannot be read, or "all"
	then      func(*shelf) // called once all providers were read
	without   error        // of the list of providers
}

func (s *shelf) PCIProviders(context.Context) (all []cloud.Provider, err error) {
	for _, name := range s.providers {
		node, _, _ := strings.Cut(name, "_")
		all = append(all, cloud.Provider{UUID: name, Name: name, Root: s.roots[node]})
	}
	return all, s.without
}

func (s *shelf) HeldOn(_ context.Context, provider string) (map[string]map[string]int, error) {
	s.mu.Lock()
	s.asked++
	s.now++
	s.most = max(s.most, s.now)
	last := s.asked == len(s.providers)
	on := map[string]map[string]int{}
	for consumer, providers := range s.held {
		if resources := providers[provider]; resources != nil {
			on[consumer] = resources
		}
	}
	s.mu.Unlock()
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.now--
	if last && s.then != nil {
		s.then(s)
	}
	if provider == s.failing || s.failing == "all" {
		return nil, errors.New("503")
	}
	return on, nil
}

func (s *shelf) Allocations(_ context.Context, consumer string) (cloud.Allocations, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return cloud.Allocations{Providers: s.held[consumer], Project: "p", User: "u"}, nil
}

func (s *shelf) Tree(_ context.Context, name string) (tree []string, err error) {
	for _, p := range s.providers {
		if strings.HasPrefix(p, name+"_") {
			tree = append(tree, p)
		}
	}
	return append(tree, s.roots[name]), nil
}

// newShelf has two cards of each of these compute nodes.
func newShelf(t testing.TB, hosts ...string) *shelf {
	t.Helper()
	s := &shelf{roots: map[string]string{}, held: map[string]map[string]map[string]int{}}
	for _, host := range hosts {
		rows, err := database.rows(t.Context(), "SELECT uuid FROM nova_cell1.compute_nodes WHERE host = ?", host)
		hosttest.NoError(t, err)
		s.roots[host] = "root of " + host
		if len(rows) > 0 {
			s.roots[host] = rows[0][0]
		}
		s.providers = append(s.providers, host+"_0000:84:00.0", host+"_0000:88:00.0")
	}
	return s
}

// hold gives a consumer a card, as NODE/1 or NODE/2, or CPUs of a node, as NODE.
func (s *shelf) hold(consumer string, what ...string) {
	s.held[consumer] = map[string]map[string]int{}
	for _, w := range what {
		node, card, _ := strings.Cut(w, "/")
		switch card {
		case "":
			s.held[consumer][s.roots[node]] = map[string]int{"VCPU": 8}
		case "1":
			s.held[consumer][node+"_0000:84:00.0"] = oneCard
		default:
			s.held[consumer][node+"_0000:88:00.0"] = oneCard
		}
	}
}

// nodeOf returns the id of the compute node of a host.
func nodeOf(t *testing.T, host string) (id int64) {
	t.Helper()
	hosttest.NoError(t, database.SQL.QueryRowContext(t.Context(), "SELECT id FROM nova_cell1.compute_nodes WHERE host = ?", host).Scan(&id))
	return id
}

// TestAllocations: which allocations on PCI devices are found, of real rows of all cells.
func TestAllocations(t *testing.T) {
	u, m := UUID(1), migrationUUID
	old := Row{"updated_at": Ago(time.Hour)}
	quiet := With(old)
	const unproved = "; that no guest uses the device is not proved: "
	for name, test := range map[string]struct {
		rows    func(t *testing.T, c *Cell, s *shelf)
		options find.Options
		want    []string
		recent  int
		steps   string // of the first
	}{
		"on its own host": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "")
			s.hold(u, "gpu1", "gpu1/1", "gpu1/2")
		}},
		"on its own host, in other letters": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "GPU1", "active", "", quiet)
			s.hold(u, "gpu1", "gpu1/1")
		}},
		"elsewhere": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet)
			s.hold(u, "gpu1", "gpu1/1", "gpu2/2")
		}, want: []string{"gpu2_0000:88:00.0 " + u + " P suspicious: the instance is on gpu1, and no open migration of it is to or from gpu2"},
			steps: "the instance must hold what it has on its own host, and migrations that are over nothing: see what they hold with openstack resource provider allocation show " + u + ", and correct it with openstack resource provider allocation set, unset and delete"},
		"on its own host, on no node": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet, With(Row{"node": nil}))
			s.hold(u, "gpu1", "gpu1/1")
		}, want: []string{"gpu1_0000:84:00.0 " + u + "  unknown: instance " + u + " is on host \"gpu1\", but its node is NULL, which is not a node of that host"}},
		"on the node of its host that was renamed": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet, With(Row{"node": "gpu1.example.org"}))
			s.hold(u, "gpu1", "gpu1/1")
		}, want: []string{"gpu1_0000:84:00.0 " + u + "  unknown: instance " + u + " is on host \"gpu1\", but its node is \"gpu1.example.org\", which is not a node of that host"}},
		"elsewhere, in a task": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "unshelving", quiet)
			s.hold(u, "gpu2/2")
		}},
		"elsewhere since a minute": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", With(Row{"updated_at": Ago(time.Minute)}))
			s.hold(u, "gpu2/2")
		}, recent: 1},
		"while it migrates": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet)
			c.Migration(t, 3, u, "migration", "migrating", "gpu1", "gpu2", old, Row{"uuid": m})
			s.hold(u, "gpu2", "gpu2/1")
			s.hold(m, "gpu1", "gpu1/1")
		}},
		"after a migration in error (case B)": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet)
			c.Migration(t, 3, u, "migration", "error", "gpu1", "gpu2", old, Row{"uuid": m})
			s.hold(u, "gpu2", "gpu2/1")
			s.hold(m, "gpu1", "gpu1/1")
		}},
		// 10.1: closed by hand, without its allocations.
		"after a migration that was closed by hand": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet)
			c.Migration(t, 3, u, "migration", "failed", "gpu1", "gpu2", old, Row{"uuid": m})
			s.hold(u, "gpu2", "gpu2/1")
			s.hold(m, "gpu1", "gpu1/1")
		}, want: []string{
			"gpu1_0000:84:00.0 " + m + " P suspicious: migration 3 (migration) 'failed' gpu1->gpu2 is over, but still holds the allocation",
			"gpu2_0000:84:00.0 " + u + " P suspicious: the instance is on gpu1, and no open migration of it is to or from gpu2",
		}, steps: "the instance must hold what it has on its own host, and migrations that are over nothing: see what they hold with openstack resource provider allocation show " + u + ", " + m + ", and correct it with openstack resource provider allocation set, unset and delete"},
		"that, while another migration runs": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet)
			c.Migration(t, 3, u, "migration", "failed", "gpu1", "gpu2", old, Row{"uuid": m})
			c.Migration(t, 4, u, "migration", "migrating", "gpu1", "gpu3", old)
			s.hold(m, "gpu1", "gpu1/1")
		}, want: []string{"gpu1_0000:84:00.0 " + m + " P suspicious: migration 3 (migration) 'failed' gpu1->gpu2 is over, but still holds the allocation"},
			steps: "the instance must hold what it has on its own host, and migrations that are over nothing: see what they hold with openstack resource provider allocation show " + u + ", " + m +
				", and correct it with openstack resource provider allocation set, unset and delete"},
		"evacuated, until its host returns (11.11)": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet)
			c.Migration(t, 3, u, "evacuation", "done", "gpu2", "gpu1", old)
			s.hold(u, "gpu1", "gpu1/1", "gpu2", "gpu2/1")
		}},
		"VERIFY_RESIZE": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu2", "resized", "", quiet)
			c.Migration(t, 3, u, "migration", "finished", "gpu1", "gpu2", old, Row{"uuid": m})
			s.hold(u, "gpu2", "gpu2/1")
			s.hold(m, "gpu1", "gpu1/1")
		}},
		"deleted": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "deleted", "", InstanceDeleted(time.Hour), quiet)
			s.hold(u, "gpu1", "gpu1/1")
		}, want: []string{"gpu1_0000:84:00.0 " + u + " P suspicious: the instance is deleted"},
			steps: "check with gpustack host guests on gpu1 that no guest uses the device; then: openstack resource provider allocation show " + u + ", and openstack resource provider allocation delete " + u},
		"deleted just now": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "deleted", "", InstanceDeleted(time.Minute), quiet)
			s.hold(u, "gpu1", "gpu1/1")
		}, recent: 1},
		"the migration of an instance that is deleted": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "deleted", "", InstanceDeleted(time.Hour), quiet)
			c.Migration(t, 3, u, "migration", "migrating", "gpu1", "gpu2", old, Row{"uuid": m}, Deleted(time.Hour))
			s.hold(m, "gpu1", "gpu1/1")
		}, want: []string{"gpu1_0000:84:00.0 " + m + " P suspicious: migration 3 (migration) 'migrating' gpu1->gpu2 is deleted, but still holds the allocation"}},
		"purged": {rows: func(t *testing.T, _ *Cell, s *shelf) { s.hold(u, "gpu1", "gpu1/1") },
			want: []string{"gpu1_0000:84:00.0 " + u + "  unknown: no cell has an instance or a migration with this uuid: its row is purged, or the consumer is not of Nova"}},
		"purged, and it is the instance to judge": {options: find.Options{Instance: u}, rows: func(t *testing.T, _ *Cell, s *shelf) { s.hold(u, "gpu1", "gpu1/1") },
			want: []string{"gpu1_0000:84:00.0 " + u + "  unknown: no cell has an instance or a migration with this uuid: its row is purged, or the consumer is not of Nova"}},
		"purged, but for its mapping": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.db.API.Insert(t, "instance_mappings", Row{"instance_uuid": u, "cell_id": c.id, "project_id": "project", "user_id": "user", "queued_for_delete": true})
			s.hold(u, "gpu1/1")
		}, want: []string{"gpu1_0000:84:00.0 " + u + " P suspicious: the instance is deleted, and its row is purged"}},
		"mapped, but in no cell": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.db.API.Insert(t, "instance_mappings", Row{"instance_uuid": u, "cell_id": c.id, "project_id": "project", "user_id": "user", "queued_for_delete": false})
			s.hold(u, "gpu1", "gpu1/1")
		}, want: []string{"gpu1_0000:84:00.0 " + u + "  unknown: the instance is mapped to a cell, but no cell has it"}},
		"scheduled just now": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.db.API.Insert(t, "instance_mappings", Row{"instance_uuid": u, "project_id": "project", "user_id": "user", "queued_for_delete": false})
			c.db.API.Insert(t, "build_requests", Row{"instance_uuid": u, "project_id": "project"})
			s.hold(u, "gpu1", "gpu1/1")
		}, recent: 1},
		"of another service": {rows: func(t *testing.T, _ *Cell, s *shelf) { s.hold("blazar", "gpu1/1") },
			want: []string{"gpu1_0000:84:00.0 blazar  unknown: no cell has an instance or a migration with this uuid: its row is purged, or the consumer is not of Nova"}},
		"in another cell": {rows: func(t *testing.T, c *Cell, s *shelf) {
			cell2 := database.AddCell(t, "cell2")
			cell2.Compute(t, "far")
			cell2.Instance(t, u, "far", "active", "", quiet)
			s.hold(u, "gpu1/1")
		}, want: []string{"gpu1_0000:84:00.0 " + u + "  unknown: the instance is in cell cell2"}},
		"in the other cell of a resize across cells": {rows: func(t *testing.T, c *Cell, s *shelf) {
			cell2 := database.AddCell(t, "cell2")
			cell2.Compute(t, "far")
			cell2.Instance(t, u, "far", "active", "", quiet)
			c.Instance(t, u, "gpu1", "active", "resize_migrated", quiet, With(Row{"hidden": true}))
			cell2.Migration(t, 3, u, "migration", "finished", "gpu1", "far", old, Row{"cross_cell_move": true, "uuid": m})
			s.hold(m, "gpu1/1")
			s.hold(u, "far", "gpu1/2")
		}},
		"the compute node is gone": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet)
			s.hold(u, "gpu1/1", "gone/1")
		}, want: []string{"gone_0000:84:00.0 " + u + "  unknown: the instance is in cell cell1"}},
		"a guest uses the device": {options: find.Options{Proof: proof(t, evidence.Report("gpu1"), evidence.Report("gpu2", evidence.Holds(t, "0000:88:00.0", u)))}, rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet)
			s.hold(u, "gpu1", "gpu1/1", "gpu2/2")
		}, want: []string{"gpu2_0000:88:00.0 " + u + " P suspicious: the instance is on gpu1, and no open migration of it is to or from gpu2" + unproved +
			"gpu2: 0000:88:00.0 is in the arguments of pid 7 (qemu-system-x86_64 of guest " + u + "), gpu2: 0000:88:00.0 is in use by pid 7 (qemu-system-x86 of guest " + u + "), " +
			"gpu2: guest " + u + " has VFIO group 0 open, gpu2: guest " + u + " is running, pid 7 (qemu-system-x86_64)"},
			steps: "ssh gpu2 gpustack host guests -o json > gpu2.json; gpustack repair-migration --guests gpu2.json"},
		"no host has reported": {options: find.Options{Proof: proof(t)}, rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet)
			s.hold(u, "gpu1", "gpu1/1", "gpu2/2")
		}, want: []string{"gpu2_0000:88:00.0 " + u + " P suspicious: the instance is on gpu1, and no open migration of it is to or from gpu2" + unproved + "no guest report of gpu2 was given"},
			steps: "ssh gpu2 gpustack host guests -o json > gpu2.json; gpustack repair-migration --guests gpu2.json"},
		"the device's row is another instance's, in a task": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet)
			c.Instance(t, UUID(2), "gpu3", "active", "rebuilding", With(Row{"updated_at": Ago(10 * time.Minute)}))
			c.Card(t, nodeOf(t, "gpu2"), "0000:88:00.0", "allocated", UUID(2), old)
			s.hold(u, "gpu1", "gpu1/1", "gpu2/2")
		}, want: []string{"gpu2_0000:88:00.0 " + u + " P suspicious: the instance is on gpu1, and no open migration of it is to or from gpu2" + unproved +
			"the row of 0000:88:00.0 is busy: the instance is in task rebuilding, unchanged for 10 min"},
			steps: "ssh gpu2 gpustack host guests -o json > gpu2.json; gpustack repair-migration --guests gpu2.json"},
		"the device's row is unknown": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet)
			c.Card(t, nodeOf(t, "gpu2"), "0000:88:00.0", "allocated", UUID(2), old)
			c.Instance(t, UUID(2), "gpu2", "active", "", quiet)
			c.Insert(t, "instance_extra", Row{"instance_uuid": UUID(2)})
			s.hold(u, "gpu1", "gpu1/1", "gpu2/2")
		}, want: []string{"gpu2_0000:88:00.0 " + u + " P suspicious: the instance is on gpu1, and no open migration of it is to or from gpu2" + unproved +
			"the row of 0000:88:00.0 is unknown: instance " + UUID(2) + ": it has several rows of instance_extra"},
			steps: "ssh gpu2 gpustack host guests -o json > gpu2.json; gpustack repair-migration --guests gpu2.json"},
		"of another host":     {options: find.Options{Host: "gpu2"}, rows: func(t *testing.T, _ *Cell, s *shelf) { s.hold(u, "gpu1", "gpu1/1", "gone/1") }},
		"of another cell":     {options: find.Options{Cell: "cell0"}, rows: func(t *testing.T, _ *Cell, s *shelf) { s.hold(u, "gpu1", "gpu1/1", "gone/1") }},
		"of another instance": {options: find.Options{Instance: UUID(2)}, rows: func(t *testing.T, _ *Cell, s *shelf) { s.hold(u, "gpu1", "gpu1/1", "gone/1") }},
		"of another device":   {options: find.Options{Address: "0000:88:00.0"}, rows: func(t *testing.T, _ *Cell, s *shelf) { s.hold(u, "gpu1", "gpu1/1", "gone/1") }},
		"it is removed meanwhile": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "deleted", "", InstanceDeleted(time.Hour), quiet)
			s.hold(u, "gpu1", "gpu1/1")
			s.then = func(s *shelf) { delete(s.held, u) }
		}},
		"a migration arrives meanwhile": {rows: func(t *testing.T, c *Cell, s *shelf) {
			c.Instance(t, u, "gpu1", "active", "", quiet)
			s.hold(u, "gpu1", "gpu1/1", "gpu2/1")
			s.then = func(*shelf) {
				c.Migration(t, 3, u, "migration", "pre-migrating", "gpu1", "gpu2")
			}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			reset(t)
			cell := database.Cell1
			for _, host := range []string{"gpu1", "gpu2", "gpu3"} {
				cell.Compute(t, host)
			}
			s := newShelf(t, "gpu1", "gpu2", "gpu3", "gone")
			test.rows(t, cell, s)
			databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
			hosttest.NoError(t, err)
			defer databases.Close()
			if test.options.Proof == nil {
				test.options.Proof = proof(t, evidence.Report("gpu1"), evidence.Report("gpu2"), evidence.Report("gpu3"))
			}
			report, unread, err := find.Allocations(t.Context(), databases, test.options, s)
			if err != nil || unread != nil || !report.Judged {
				t.Fatalf("%v, %v, %+v", err, unread, report)
			}
			var got []string
			for _, f := range report.Findings {
				reason, _, _ := strings.Cut(f.Reason, ", gpu2: guest "+u+" uses") // with the time of the report
				got = append(got, fmt.Sprintf("%s %s %s %s: %s", f.Name, f.Consumer, f.Case, f.Verdict, reason))
				// Of a consumer whose row is purged, it is unknown whether it was an instance.
				if strings.Contains(f.Reason, "no cell has an instance") != (f.Instance == "") {
					t.Errorf("%+v", f)
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" || report.Recent != test.recent {
				t.Errorf("%d recent (-want +got):\n%s", report.Recent, diff)
			}
			if test.steps != "" && (len(report.Findings) == 0 || report.Findings[0].Steps.String() != test.steps) {
				t.Errorf("steps %q\nwant %q", report.Findings[0].Steps, test.steps)
			}
		})
	}
}

// proof is that of guest reports.
func proof(t *testing.T, reports ...guest.Report) cleanup.Proof {
	t.Helper()
	p, err := cleanup.NewProof(reports, nil)
	hosttest.NoError(t, err)
	return p
}

// TestAllocationsUnread: what Placement or a cell does not answer is said, and hides nothing else.
func TestAllocationsUnread(t *testing.T) {
	reset(t)
	cell := database.Cell1
	cell.Compute(t, "gpu1")
	cell.Instance(t, UUID(1), "gpu1", "deleted", "", InstanceDeleted(time.Hour), With(Row{"updated_at": Ago(time.Hour)}))
	s := newShelf(t, "gpu1")
	s.hold(UUID(1), "gpu1", "gpu1/1")
	open := func(w novadb.Where) *novadb.Databases {
		databases, err := novadb.Open(t.Context(), w)
		hosttest.NoError(t, err)
		t.Cleanup(func() { databases.Close() })
		return databases
	}
	databases := open(novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
	judge := func(d *novadb.Databases) (cleanup.AllocationReport, error) {
		report, unread, err := find.Allocations(t.Context(), d, find.Options{}, s)
		hosttest.NoError(t, err)
		return report, unread
	}
	s.failing = "gpu1_0000:88:00.0"
	if report, unread := judge(databases); unread == nil || report.Judged || report.Why != "1 of 2 resource providers could not be read: 503" || len(report.Findings) != 1 {
		t.Errorf("a provider: %v, %+v", unread, report)
	}
	s.failing = ""
	one := open(novadb.Where{Database: database.URL("nova_cell1")})
	if report, unread := judge(one); unread != nil || len(report.Findings) != 1 || report.Findings[0].Verdict != cleanup.Unknown ||
		report.Findings[0].Reason != "the instance is deleted in this cell, but the API database is not configured, so other cells could not be read" {
		t.Errorf("one cell: %v, %+v", unread, report)
	}
	s.without = errors.New("504")
	if report, unread := judge(databases); unread == nil || report.Judged || report.Why != "504" || len(report.Findings) != 0 {
		t.Errorf("the list: %v, %+v", unread, report)
	}
	s.without, s.providers = nil, nil
	if report, unread := judge(databases); unread != nil || report.Judged || report.Why != "no compute node reports PCI devices to Placement (report_in_placement)" {
		t.Errorf("none: %v, %+v", unread, report)
	}
}

// TestAllocationsOfOneCell: with --database, only providers of that cell's nodes are judged.
func TestAllocationsOfOneCell(t *testing.T) {
	reset(t)
	cell, cell2 := database.Cell1, database.AddCell(t, "cell2")
	cell.Compute(t, "gpu1")
	cell2.Compute(t, "far")
	old := Row{"updated_at": Ago(time.Hour)}
	cell.Instance(t, UUID(1), "gpu1", "deleted", "", InstanceDeleted(time.Hour), With(old))
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0"), Database: database.URL("nova_cell1")})
	hosttest.NoError(t, err)
	defer databases.Close()
	s := newShelf(t, "gpu1", "far")
	far := database.find(t, "SELECT uuid FROM "+cell2.Name+".compute_nodes")
	s.roots["far"] = far[0][0]
	s.hold(UUID(1), "gpu1", "gpu1/1")
	s.hold(UUID(2), "far", "far/1")
	report, unread, err := find.Allocations(t.Context(), databases, find.Options{}, s)
	if err != nil || unread != nil || report.Providers != 2 || len(report.Findings) != 1 {
		t.Fatalf("%v, %v, %+v", err, unread, report)
	}
	if f := report.Findings[0]; f.Cell != "database" || f.Host != "gpu1" {
		t.Errorf("%+v", f)
	}
}

// TestAllocationsOfUnreadCell: providers that may belong to a cell which cannot be read are not
// judged, and the report says so. An allocation of a migration across cells is unknown, even if the
// instance is here.
func TestAllocationsOfUnreadCell(t *testing.T) {
	reset(t)
	cell := database.Cell1
	cell.Compute(t, "gpu1")
	database.AddCell(t, "cell2")
	if _, err := database.SQL.ExecContext(t.Context(), "UPDATE nova_api.cell_mappings SET database_connection = 'mysql+pymysql://nova:x@127.0.0.1:1/none' WHERE name = 'cell2'"); err != nil {
		t.Fatal(err)
	}
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
	hosttest.NoError(t, err)
	defer databases.Close()
	old := Row{"updated_at": Ago(time.Hour)}
	cell.Instance(t, UUID(1), "gpu1", "active", "", With(old))
	cell.Migration(t, 3, UUID(1), "resize", "reverted", "gpu1", "far", old, Row{"cross_cell_move": true, "uuid": migrationUUID})
	s := newShelf(t, "gpu1", "far")
	s.hold(migrationUUID, "gpu1", "gpu1/1")
	report, unread, err := find.Allocations(t.Context(), databases, find.Options{}, s)
	if err != nil || unread != nil || report.Judged || report.Providers != 2 || !strings.HasPrefix(report.Why, "2 of 4 resource providers belong to no compute node of the cells that were read: cell cell2 at 127.0.0.1:1") {
		t.Errorf("%v, %v, %+v", err, unread, report)
	}
	if n := len(report.Findings); n != 1 || report.Findings[0].Verdict != cleanup.Unknown ||
		!strings.HasPrefix(report.Findings[0].Reason, "migration 3 (resize) 'reverted' gpu1->far is over, but crosses cells, and cell cell2 at 127.0.0.1:1") {
		t.Errorf("of a migration whose other cell is not read: %+v", report.Findings)
	}
}

// TestAllocationsEnd: a Placement that has stopped to answer is not asked about each of many
// providers.
func TestAllocationsEnd(t *testing.T) {
	const hosts = 100
	reset(t)
	var names []string
	for i := range hosts {
		names = append(names, fmt.Sprintf("gpu%d", i))
		database.Cell1.Compute(t, names[i])
	}
	s := newShelf(t, names...)
	s.failing = "all"
	report, unread, err := find.Allocations(t.Context(), openAll(t), find.Options{}, s)
	if err != nil || unread == nil || report.Judged || report.Why != "200 of 200 resource providers could not be read: 503" || s.asked > 32 {
		t.Errorf("%d requests, %v, %v, %+v", s.asked, err, unread, report)
	}
}

// TestManyAllocations: each provider is asked for once, several at the same time, and what is
// legitimate is asked for no further.
func TestManyAllocations(t *testing.T) {
	const hosts = 500
	reset(t)
	cell := database.Cell1
	var names []string
	for i := range hosts {
		names = append(names, fmt.Sprintf("gpu%d", i))
		cell.Compute(t, names[i])
	}
	const insert = "INSERT INTO nova_cell1.instances (uuid, host, node, vm_state, deleted, created_at, hidden) SELECT LPAD(seq, 36, '0'), CONCAT('gpu', seq DIV 2), CONCAT('gpu', seq DIV 2), 'active', 0, UTC_TIMESTAMP(), 0 FROM nova_cell1.seq_0_to_999"
	if _, err := database.SQL.ExecContext(t.Context(), insert); err != nil {
		t.Fatal(err)
	}
	s := newShelf(t, names...)
	for i := range 2 * hosts {
		s.hold(fmt.Sprintf("%036d", i), names[i/2], fmt.Sprintf("%s/%d", names[i/2], 1+i%2))
	}
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Local: database.URL("nova_cell0")})
	hosttest.NoError(t, err)
	defer databases.Close()
	begin := time.Now()
	report, unread, err := find.Allocations(t.Context(), databases, find.Options{}, s)
	if err != nil || unread != nil || len(report.Findings) > 0 || report.Providers != 2*hosts {
		t.Errorf("%v, %v, %+v", err, unread, report)
	}
	t.Logf("%d providers: %.2f s, %d requests, %d at the same time", report.Providers, time.Since(begin).Seconds(), s.asked, s.most)
	if s.asked != 2*hosts || s.most < 2 || s.most > 8 {
		t.Errorf("%d requests, %d at the same time", s.asked, s.most)
	}
}

// TestPlacementSilent: without Placement's credentials the report says that allocations were not
// judged; a Placement that does not answer makes the exit status 1, and hides no row.
func TestPlacementSilent(t *testing.T) {
	reset(t)
	cell := database.Cell1
	gpu1 := cell.Compute(t, "gpu1")
	cell.Instance(t, UUID(2), "gpu1", "active", "")
	root := machine(t)
	type output struct {
		Summary struct{ Stale int }
		Pools   struct {
			Judged bool
			Nodes  int
		}
		Allocations struct {
			Judged   bool
			Why      string
			Findings []any
		}
	}
	read := func(args ...string) (o output, stderr string, status int) {
		t.Helper()
		stdout, stderr, status := repairMigration(t, root, append([]string{"-o", "json"}, args...)...)
		if err := json.Unmarshal([]byte(stdout), &o); err != nil {
			t.Fatalf("exit status %d, %s: %v", status, stderr, err)
		}
		return o, stderr, status
	}
	const absent = "no Placement is configured: nova.conf has no [placement] auth_url, and neither OS_CLOUD nor OS_AUTH_URL is set"
	if o, stderr, status := read(); status != 0 || o.Allocations.Judged || o.Allocations.Why != absent || o.Allocations.Findings == nil || !o.Pools.Judged || o.Pools.Nodes != 1 {
		t.Errorf("exit status %d, %s%+v", status, stderr, o)
	}
	stdout, _, _ := repairMigration(t, root)
	if !strings.HasSuffix(stdout, "pools of 1 compute nodes: 0 suspicious, 0 not judged\nallocations not judged: "+absent+"\n") {
		t.Error(stdout)
	}
	conf, err := os.OpenFile(filepath.Join(root, "etc/nova/nova.conf"), os.O_APPEND|os.O_WRONLY, 0)
	hosttest.NoError(t, err)
	if _, err := conf.WriteString("\n[placement]\nauth_url = http://" + listen(t, func(net.Conn) {}) + "/v3\nusername = nova\npassword = x\nproject_name = service\n"); err != nil {
		t.Fatal(err)
	}
	cell.Card(t, gpu1, first, "allocated", UUID(1))
	o, stderr, status := read("--timeout", "1s")
	if status != 1 || o.Allocations.Judged || !strings.HasPrefix(o.Allocations.Why, "authentication at http://") || o.Summary.Stale != 1 || !strings.Contains(stderr, "gpustack: error: "+o.Allocations.Why) {
		t.Errorf("exit status %d, %s%+v", status, stderr, o)
	}
}
