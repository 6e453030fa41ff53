package flavor_test

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
	"gpustack/nova/flavor"
	"gpustack/nova/object"
)

// journal makes changes of flavors, recorded in a folder of the test.
type journal struct {
	t       *testing.T
	cloud   *cloudtest.Cloud
	compute *cloud.Compute
	engine  change.Engine
}

func newJournal(t *testing.T) *journal {
	c := cloudtest.Start(t, 96)
	root := hosttest.Root(t, t.TempDir())
	compute := connect(t, c)
	return &journal{t, c, compute, change.Engine{Store: change.Store{Root: root, Dir: "/state"}, Kinds: []change.Kind{flavor.Kind(compute)}}}
}

func (j *journal) apply(m flavor.Move) (change.Entry, error) {
	return j.engine.Apply(context.Background(), change.Work{Command: "flavor", Change: j.kind().New(m)})
}

func (j *journal) kind() object.Kind[flavor.Move] { return flavor.Kind(j.compute) }

// flavors returns the flavors of the cloud as text, by their ids.
func (j *journal) flavors() map[string]string {
	j.t.Helper()
	all, err := j.compute.FlavorsWithSpecs(context.Background())
	hosttest.NoError(j.t, err)
	texts := map[string]string{}
	for _, f := range all {
		s, err := flavor.Complete(context.Background(), j.compute, f)
		hosttest.NoError(j.t, err)
		texts[f.ID] = f.Name + "\n" + flavor.Text(s)
	}
	return texts
}

// plan plans a private flavor for one project.
func (j *journal) plan(existing *flavor.State) flavor.Move {
	j.t.Helper()
	description := "two"
	p, err := flavor.NewPlan(flavor.Options{
		Request: request(j.t, "A100:1"), Name: "gpu", Private: true, Description: &description, CPUPolicy: "dedicated", Projects: []string{"lab"},
	}, flavor.Cloud{Microversion: j.compute.Microversion, Newest: j.compute.Newest, Existing: existing, Projects: []cloud.Project{{ID: "lab"}}})
	hosttest.NoError(j.t, err)
	return p.Move
}

// existing adds a flavor with other values, which no field of the plan has.
func (j *journal) existing() *flavor.State {
	j.t.Helper()
	f := j.cloud.Add("1", "gpu", 3, 999, 7, false, map[string]string{"hw:cpu_policy": "shared", "quota:x": "1"})
	f.Access = []string{"own"}
	f.Body["rxtx_factor"], f.Body["OS-FLV-EXT-DATA:ephemeral"], f.Body["swap"], f.Body["description"] = 2.5, 4, 8, "was"
	s, err := flavor.Read(context.Background(), j.compute, "1")
	hosttest.NoError(j.t, err)
	return s
}

// moves are a creation, a change and a deletion.
func moves(j *journal) map[string]func() flavor.Move {
	return map[string]func() flavor.Move{
		"create": func() flavor.Move { return j.plan(nil) },
		"change": func() flavor.Move { return j.plan(j.existing()) },
		"delete": func() flavor.Move { return flavor.Move{Before: j.existing()} },
	}
}

var kindsOfMoves = []string{"create", "change", "delete"}

// TestUndo: undo restores every value of a flavor, its id included; the record has no credentials.
func TestUndo(t *testing.T) {
	for _, name := range kindsOfMoves {
		t.Run(name, func(t *testing.T) {
			j := newJournal(t)
			m := moves(j)[name]()
			before := j.flavors()
			entry, err := j.apply(m)
			hosttest.NoError(t, err)
			if entry.ID != 1 || entry.Status != change.Done || entry.Changes != change.KindObjects || strings.Contains(string(entry.Objects), j.cloud.Password) {
				t.Errorf("%+v, %s", entry, entry.Objects)
			}
			r, err := flavor.ParseRecord(entry)
			if want := (cloud.Scope{Cloud: j.compute.URL, Region: "RegionOne", Project: "id-of-admin"}); err != nil || r.Scope != want || r.Name() != "gpu" {
				t.Errorf("%+v, %v", r, err)
			}
			if cmp.Equal(before, j.flavors()) {
				t.Error("nothing changed")
			}
			if _, err := j.engine.PlanUndo(context.Background(), 0); err != nil {
				t.Error(err)
			}
			if entry, err = j.engine.Undo(context.Background(), 1); err != nil || entry.Status != change.Undone {
				t.Errorf("%s, %v", entry.Status, err)
			}
			hosttest.EqualIn(t, "after undo", before, j.flavors())
		})
	}
}

// TestUndoRefused: undo refuses a flavor that is not as the change left it, that is in use, or that
// is in another cloud, names what differs and changes nothing.
func TestUndoRefused(t *testing.T) {
	for name, test := range map[string]struct {
		move   string
		change func(j *journal, f *cloudtest.Flavor)
		want   string
	}{
		"another extra spec": {"create", func(_ *journal, f *cloudtest.Flavor) { f.Specs["quota:y"] = "1" },
			"flavor gpu has changed since: it has property quota:y=1"},
		"an extra spec is gone": {"create", func(_ *journal, f *cloudtest.Flavor) { delete(f.Specs, "hw:cpu_policy") },
			"flavor gpu has changed since: it does not have property hw:cpu_policy=dedicated"},
		"a description": {"change", func(_ *journal, f *cloudtest.Flavor) { f.Body["description"] = "x" },
			"flavor gpu has changed since: it has description x, it does not have description two"},
		"another project": {"create", func(_ *journal, f *cloudtest.Flavor) { f.Access = append(f.Access, "else") },
			"flavor gpu has changed since: it has project else"},
		"another field": {"create", func(_ *journal, f *cloudtest.Flavor) { f.Body["vcpus"] = 2 },
			"flavor gpu has changed since: it has vcpus 2, it does not have vcpus 4"},
		"another name": {"create", func(_ *journal, f *cloudtest.Flavor) { f.Body["name"] = "mine" }, "flavor gpu has changed since: its name is mine"},
		"gone":         {"create", func(j *journal, _ *cloudtest.Flavor) { j.cloud.Flavors = nil }, "flavor gpu has changed since: it does not exist"},
		"in use": {"create", func(j *journal,
			f *cloudtest.Flavor) {
			j.cloud.Servers["s"] = f.Body["id"].(string)
		}, "flavor gpu: is in use by 1 instance: s"},
		"the id is taken": {"delete", func(j *journal,
			_ *cloudtest.Flavor) {
			j.cloud.Add("1", "other", 1, 1, 1, true, nil)
		}, "flavor gpu has changed since: it exists"},
		"the name is taken": {"delete", func(j *journal,
			_ *cloudtest.Flavor) {
			j.cloud.Add("2", "gpu", 1, 1, 1, true, nil)
		}, "flavor gpu has changed since: another flavor with id 2 has the name"},
		"credentials of elsewhere": {"create", func(j *journal, _ *cloudtest.Flavor) { j.compute = nil },
			"the change was made in another cloud, region or project: "},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal(t)
			if _, err := j.apply(moves(j)[test.move]()); err != nil {
				t.Fatal(err)
			}
			var made *cloudtest.Flavor
			if len(j.cloud.Flavors) > 0 {
				made = j.cloud.Flavors[0]
			}
			test.change(j, made)
			other := j
			if j.compute == nil { // the same journal, another cloud
				other = newJournal(t)
				other.engine.Store = j.engine.Store
			}
			before := other.flavors()
			other.cloud.Requests()
			_, err := other.engine.Undo(context.Background(), 1)
			if err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
			lines, _ := other.cloud.Requests()
			if slices.ContainsFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "GET ") }) {
				t.Errorf("%q", lines)
			}
			hosttest.EqualIn(t, "before and after", before, other.flavors())
		})
	}
}

// TestKilled: after a run that was killed at any request, before it or after it, in a change or in
// an undo, the next run determines from the cloud what was made: the entry and the flavor agree, no
// flavor is incomplete, and undo leads back.
func TestKilled(t *testing.T) {
	for _, name := range kindsOfMoves {
		for _, undoing := range []bool{false, true} {
			for _, heard := range []bool{false, true} {
				for at := 1; at <= 4; at++ {
					t.Run(fmt.Sprintf("%s undoing %t heard %t at %d", name, undoing, heard, at), func(t *testing.T) {
						killedAt(t, name, undoing, heard, at)
					})
				}
			}
		}
	}
}

func killedAt(t *testing.T, name string, undoing, heard bool, at int) {
	j := newJournal(t)
	m := moves(j)[name]()
	before := j.flavors()
	if undoing {
		if _, err := j.apply(m); err != nil {
			t.Fatal(err)
		}
	}
	after := j.flavors() // of an undo
	// From that request on nothing is answered or recorded, as for a killed run.
	killed, asked := false, 0
	c := j.cloud
	c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodGet {
			asked++
		}
		switch {
		case killed:
		case asked < at:
			return false
		case heard:
			c.Do(r)
		}
		killed = true
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	var err error
	if undoing {
		_, err = j.engine.Undo(context.Background(), 1)
	} else {
		_, err = j.apply(m)
	}
	c.Fault = nil
	if killed == (err == nil) {
		t.Fatalf("killed %t, %v", killed, err)
	}
	entries, err := j.engine.Store.List()
	hosttest.NoError(t, err)
	if !killed || len(entries) == 0 || !entries[0].IsOpen() {
		if killed && cmp.Equal(entries, []change.Entry(nil)) && !cmp.Equal(before, j.flavors()) {
			t.Errorf("no entry, but %v", j.flavors())
		}
		return
	}
	left, err := j.engine.Interrupted(context.Background(), change.ToRecover)
	if err != nil || len(left) != 1 || !left[0].Here || left[0].Obstacle != nil {
		t.Fatalf("%+v, %v", left, err)
	}
	recovered, err := j.engine.Recover(context.Background(), []int{1})
	if err != nil || len(recovered) != 1 {
		t.Fatalf("%+v, %v", recovered, err)
	}
	entries, err = j.engine.Store.List()
	hosttest.NoError(t, err)
	is := j.flavors()
	switch {
	case len(entries) == 0 || entries[0].Status == change.Undone:
		hosttest.EqualIn(t, recovered[0].Text, before, is)
		return
	case undoing:
		hosttest.EqualIn(t, recovered[0].Text, after, is)
	}
	if _, err := j.engine.Undo(context.Background(), 1); err != nil {
		t.Error(err)
	}
	hosttest.EqualIn(t, "after undo", before, j.flavors())
}

// TestKilledInUse: an incomplete flavor that instances have already is completed.
func TestKilledInUse(t *testing.T) {
	j := newJournal(t)
	m := j.plan(nil)
	j.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPost && r.URL.Path == "/v2.1/flavors" {
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	if _, err := j.apply(m); err == nil {
		t.Fatal("no error")
	}
	j.cloud.Fault = nil
	j.cloud.Servers["s"] = j.cloud.Flavors[0].Body["id"].(string)
	recovered, err := j.engine.Recover(context.Background(), []int{1})
	if err != nil || recovered[0].Entry.Status != change.Done || recovered[0].Text != "was interrupted: flavor gpu was completed" {
		t.Errorf("%+v, %v", recovered, err)
	}
	if f := j.cloud.Flavors[0]; f.Specs["pci_passthrough:alias"] != "A100:1" || !slices.Equal(f.Access, []string{"lab"}) {
		t.Errorf("%+v", f)
	}
}

// TestKilledAndChanged: an incomplete flavor that another user has changed since is not deleted,
// and neither is a complete one of which another user has changed a value.
func TestKilledAndChanged(t *testing.T) {
	for name, touch := range map[string]func(f *cloudtest.Flavor){
		"another value":    func(f *cloudtest.Flavor) { f.Specs["pci_passthrough:alias"] = "A100:2" },
		"another property": func(f *cloudtest.Flavor) { f.Specs["own"] = "1" },
		"another project":  func(f *cloudtest.Flavor) { f.Access = append(f.Access, "own") },
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal(t)
			j.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost && !strings.HasSuffix(r.URL.Path, "/action") {
					return false
				}
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}
			if _, err := j.apply(j.plan(nil)); err == nil {
				t.Fatal("no error")
			}
			j.cloud.Fault = nil
			touch(j.cloud.Flavors[0])
			before := j.flavors()
			recovered, err := j.engine.Recover(context.Background(), []int{1})
			if err != nil || recovered[0].Entry.Status != change.Done || !strings.HasSuffix(recovered[0].Text, "was changed by another user since: it stays as it is") {
				t.Errorf("%+v, %v", recovered, err)
			}
			hosttest.Equal(t, before, j.flavors())
		})
	}
}

// TestOtherCloud: an interrupted entry of another cloud is no concern of this one's commands.
func TestOtherCloud(t *testing.T) {
	j := newJournal(t)
	j.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodGet && !strings.Contains(r.URL.Path, "/flavors/") {
			return false
		}
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	if _, err := j.apply(j.plan(nil)); err == nil {
		t.Fatal("no error")
	}
	other := newJournal(t)
	other.engine.Store = j.engine.Store
	left, err := other.engine.Interrupted(context.Background(), change.ToRecover)
	if err != nil || len(left) != 1 || left[0].Here {
		t.Errorf("%+v, %v", left, err)
	}
}

// TestRecordRefused: a record that is not that of a flavor is an error.
func TestRecordRefused(t *testing.T) {
	for text, want := range map[string]string{
		`{}`: "type is missing",
		`{"type": "image", "cloud": "", "region": "", "project_id": "", "before": null, "after": null}`:  "is not supported",
		`{"type": "flavor", "cloud": "", "region": "", "project_id": "", "before": null, "after": null}`: "not a change of a flavor",
	} {
		_, err := flavor.ParseRecord(change.Entry{ID: 7, Changes: change.KindObjects, Objects: []byte(text)})
		hosttest.ContainsIn(t, text, want, fmt.Sprint(err))
	}
}
