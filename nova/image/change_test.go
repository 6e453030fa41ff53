package image_test

import (
	"context"
	"errors"
	"maps"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
	"gpustack/nova/flavor"
	"gpustack/nova/image"
)

// journal makes changes of one image, recorded in a folder of the test.
type journal struct {
	t       *testing.T
	cloud   *cloudtest.Cloud
	compute *cloud.Compute
	engine  change.Engine
}

func newJournal(t *testing.T) *journal {
	c := cloudtest.Start(t, 96)
	c.Images = []map[string]any{{"id": "9", "name": "debian", "owner": "id-of-admin", "status": "active", "min_disk": 0, "min_ram": 0, "size": 1, "virtual_size": nil,
		"os_distro": "debian", "os_type": "linux", "tags": []any{}}}
	root := hosttest.Root(t, t.TempDir())
	j := &journal{t: t, cloud: c, compute: connect(t, c)}
	j.engine = change.Engine{Store: change.Store{Root: root, Dir: "/state"}, Kinds: []change.Kind{flavor.Kind(j.compute), image.Kind(j.compute)}}
	return j
}

// connect authenticates with a cloud.
func connect(t *testing.T, c *cloudtest.Cloud) *cloud.Compute {
	t.Helper()
	for name, value := range c.Env() {
		t.Setenv(name, value)
	}
	signedIn, err := cloud.Connect(t.Context(), cloud.Options{})
	hosttest.NoError(t, err)
	compute, err := signedIn.Compute(t.Context())
	hosttest.NoError(t, err)
	return compute
}

// move sets, changes and removes values.
func move() image.Move {
	return image.Move{ID: "9", Name: "debian", Owner: "id-of-admin", Values: []image.Value{
		{Name: "hw_machine_type", After: text("q35")}, {Name: "min_disk", Before: text("0"), After: text("40")},
		{Name: "os_distro", Before: text("debian")}, {Name: "os_type", Before: text("linux"), After: text("windows")},
	}}
}

func (j *journal) apply(m image.Move) (change.Entry, error) {
	return j.engine.Apply(context.Background(), change.Work{Command: "image set debian", Change: image.Kind(j.compute).New(m)})
}

func (j *journal) image() map[string]any {
	is := maps.Clone(j.cloud.Images[0])
	if n, ok := is["min_disk"].(float64); ok {
		is["min_disk"] = int(n)
	}
	return is
}

// once answers the first PATCH in place of the cloud. It carries the request out if done is true.
func (j *journal) once(status int, done bool) {
	first := true
	j.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPatch || !first {
			return false
		}
		if first = false; done {
			j.cloud.Do(r)
		}
		w.WriteHeader(status)
		return true
	}
}

// TestUndo: one request changes the image, the record has no credentials, and undo restores all
// of the image.
func TestUndo(t *testing.T) {
	j := newJournal(t)
	before := j.image()
	j.cloud.Requests()
	entry, err := j.apply(move())
	if err != nil || entry.Status != change.Done || entry.ObjectType() != image.Type || strings.Contains(string(entry.Objects), j.cloud.Password) {
		t.Fatalf("%+v, %s, %v", entry, entry.Objects, err)
	}
	lines, bodies := j.cloud.Requests()
	const body = `[{"op":"add","path":"/hw_machine_type","value":"q35"},{"op":"replace","path":"/min_disk","value":40},` +
		`{"op":"remove","path":"/os_distro"},{"op":"replace","path":"/os_type","value":"windows"}]`
	patches := 0
	for i, line := range lines {
		if strings.HasPrefix(line, "PATCH") {
			patches++
			if line != "PATCH /v2/images/9" || strings.TrimSpace(bodies[i]) != body {
				t.Errorf("%s: %s", line, bodies[i])
			}
		}
	}
	if patches != 1 {
		t.Errorf("%q", lines)
	}
	want := maps.Clone(before)
	maps.Copy(want, map[string]any{"hw_machine_type": "q35", "min_disk": 40, "os_type": "windows"})
	delete(want, "os_distro")
	hosttest.Equal(t, want, j.image())
	if entry, err = j.engine.Undo(context.Background(), 1); err != nil || entry.Status != change.Undone {
		t.Errorf("%s, %v", entry.Status, err)
	}
	hosttest.EqualIn(t, "after undo", before, j.image())
}

// TestUndoInPart: undo restores what is still as the change has set it, and names the rest.
func TestUndoInPart(t *testing.T) {
	j := newJournal(t)
	if _, err := j.apply(move()); err != nil {
		t.Fatal(err)
	}
	j.cloud.Images[0]["os_type"], j.cloud.Images[0]["os_distro"], j.cloud.Images[0]["other"] = "freebsd", "debian", "theirs"
	plan, err := j.engine.PlanUndo(context.Background(), 1)
	hosttest.NoError(t, err)
	back, stays := plan.Change.(*image.Change).Back()
	if diff := cmp.Diff([]string{"it has property os_type=freebsd"}, stays); diff != "" || len(back.Values) != 2 {
		t.Errorf("%s%v", diff, back.Values)
	}
	if _, err := j.engine.Undo(context.Background(), 1); err != nil {
		t.Fatal(err)
	}
	is := j.image()
	if _, there := is["hw_machine_type"]; there || is["min_disk"] != 0 || is["os_type"] != "freebsd" || is["os_distro"] != "debian" || is["other"] != "theirs" {
		t.Errorf("%v", is)
	}
}

// TestRefused: what is not as planned or recorded is named, and nothing changes.
func TestRefused(t *testing.T) {
	for name, c := range map[string]struct {
		applied bool
		disturb func(j *journal)
		is      error
		want    string
	}{
		"changed since the plan": {false, func(j *journal) { j.cloud.Images[0]["os_type"] = "windows" }, image.ErrChanged, "image debian has changed since: it has property os_type=windows"},
		"removed since the plan": {false, func(j *journal) { delete(j.cloud.Images[0], "os_type") }, image.ErrChanged, "image debian has changed since: it does not have os_type"},
		"of another project": {false, func(j *journal) { j.cloud.Images[0]["owner"] = "theirs" }, image.ErrOwner,
			"image debian belongs to another project, theirs: changing image debian: permission denied: You are not authorized to complete this action (HTTP 403"},
		"deleted since the plan": {false, func(j *journal) { j.cloud.Images = nil }, cloud.ErrNotFound, "image 9: not found: No image found with ID 9 (HTTP 404"},
		"nothing is ours": {true, func(j *journal) {
			i := j.cloud.Images[0]
			i["hw_machine_type"], i["min_disk"], i["os_distro"], i["os_type"] = "pc", 50, "ubuntu", "freebsd"
		}, image.ErrChanged, "image debian has changed since: it has property hw_machine_type=pc, it has min-disk 50 GiB, it has property os_distro=ubuntu, it has property os_type=freebsd"},
		"deleted since": {true, func(j *journal) { j.cloud.Images = nil }, cloud.ErrNotFound, "image 9: not found"},
		"refused":       {true, func(j *journal) { j.once(http.StatusForbidden, false) }, cloud.ErrForbidden, "nothing was changed: changing image debian: permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal(t)
			m := move()
			if name == "of another project" {
				m.Owner = "theirs"
			}
			if c.applied {
				if _, err := j.apply(m); err != nil {
					t.Fatal(err)
				}
			}
			c.disturb(j)
			before := len(j.cloud.Images)
			var is map[string]any
			if before > 0 {
				is = j.image()
			}
			var err error
			if c.applied {
				_, err = j.engine.Undo(context.Background(), 1)
			} else {
				_, err = j.apply(m)
			}
			if !errors.Is(err, c.is) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if before > 0 {
				hosttest.EqualIn(t, "changed", is, j.image())
			}
			entries, listErr := j.engine.Store.List()
			if listErr != nil || len(entries) != map[bool]int{true: 1, false: 0}[c.applied] || c.applied && entries[0].Status != change.Done {
				t.Errorf("%+v, %v", entries, listErr)
			}
		})
	}
}

// TestLostAnswer: what a request whose answer was lost has made is read from the image. A request
// that is made again conflicts with itself where it removes a property.
func TestLostAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		status int
		done   bool
		stands bool
	}{
		"made, and made again":       {http.StatusServiceUnavailable, true, true},
		"not made, and made again":   {http.StatusServiceUnavailable, false, true},
		"made, and the answer fails": {http.StatusInternalServerError, true, true},
		"not made":                   {http.StatusInternalServerError, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal(t)
			before := j.image()
			j.once(c.status, c.done)
			_, err := j.apply(move())
			entries, listErr := j.engine.Store.List()
			if (err == nil) != c.stands || listErr != nil || (len(entries) == 1) != c.stands {
				t.Errorf("%v, %v, %v", err, entries, listErr)
			}
			hosttest.EqualIn(t, "changed", c.stands, !cmp.Equal(before, j.image()))
		})
	}
}

// drift makes Glance store another os_type than every request sets.
func (j *journal) drift() {
	j.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodPatch {
			j.cloud.Do(r)
			j.cloud.Images[0]["os_type"] = "freebsd"
			_, _ = w.Write([]byte("{}"))
			return true
		}
		return false
	}
}

// TestDrift: an image that is other than requested is an error, and the entry stays for undo.
func TestDrift(t *testing.T) {
	j := newJournal(t)
	j.drift()
	_, err := j.apply(move())
	if !errors.Is(err, image.ErrDrift) || !strings.Contains(err.Error(), "image debian is not as requested: it has property os_type=freebsd") {
		t.Error(err)
	}
	if entries, err := j.engine.Store.List(); err != nil || len(entries) != 1 || entries[0].Status != change.Done {
		t.Errorf("%+v, %v", entries, err)
	}
}

// TestRecover: a run that was killed at its request, before or after it, is recovered.
func TestRecover(t *testing.T) {
	for name, c := range map[string]struct {
		undo, done, deleted bool
		drifts              bool          // Glance stores another value than the recovery requests
		want                change.Status // "" for no entry
	}{
		"applying, not made":     {},
		"applying, made":         {done: true, want: change.Done},
		"applying, then deleted": {done: true, deleted: true},
		"undoing, not made":      {undo: true, want: change.Undone},
		"undoing, made":          {undo: true, done: true, want: change.Undone},
		"undoing, then deleted":  {undo: true, deleted: true, want: change.Undone},
		"undoing, then drifts":   {undo: true, drifts: true, want: change.Undone},
	} {
		t.Run(name, func(t *testing.T) {
			j := newJournal(t)
			before := j.image()
			if c.undo {
				if _, err := j.apply(move()); err != nil {
					t.Fatal(err)
				}
			}
			after := j.image()
			// Neither the change nor its state can be determined: the entry stays open.
			asked := false
			j.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.Method == http.MethodPatch:
					if asked = true; c.done {
						j.cloud.Do(r)
					}
				case !asked || !strings.HasPrefix(r.URL.Path, "/v2/images/"):
					return false
				}
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}
			var err error
			if c.undo {
				_, err = j.engine.Undo(context.Background(), 1)
			} else {
				_, err = j.apply(move())
			}
			if err == nil {
				t.Fatal("the run has not failed")
			}
			j.cloud.Fault = nil
			entries, err := j.engine.Store.List()
			if err != nil || len(entries) != 1 || !entries[0].IsOpen() {
				t.Fatalf("%+v, %v", entries, err)
			}
			if c.deleted {
				j.cloud.Images = nil
			}
			if c.drifts {
				j.drift()
			}
			if _, err := j.engine.Recover(context.Background(), []int{1}); errors.Is(err, image.ErrDrift) != c.drifts || (err != nil) != c.drifts {
				t.Fatal(err)
			}
			entries, err = j.engine.Store.List()
			if err != nil || len(entries) != map[bool]int{true: 1, false: 0}[c.want != ""] || len(entries) == 1 && entries[0].Status != c.want {
				t.Errorf("%+v, %v", entries, err)
			}
			if !c.deleted && !c.drifts {
				want := map[bool]map[string]any{true: before, false: after}[c.want != change.Done]
				if c.want == change.Done && cmp.Equal(before, j.image()) || c.want != change.Done && !cmp.Equal(want, j.image()) {
					t.Errorf("%v", j.image())
				}
			}
		})
	}
}

// TestRecord: a record that was edited is an error that names the entry.
func TestRecord(t *testing.T) {
	const scope = `"cloud": "", "region": "", "project_id": "", "name": "debian", "owner": ""`
	for objects, want := range map[string]string{
		`{"type": "flavor", "id": "9", "values": [], ` + scope + `}`:                                                                       `type "flavor" is not supported: it was written by another version of gpustack`,
		`{"type": "image", "id": "9", "values": [], ` + scope + `}`:                                                                        "not a change of an image",
		`{"type": "image", "id": "9", "values": [{"name": "min_disk", "old_value": null, "new_value": "1", "reason": ""}], ` + scope + `}`: "min_disk: the value is missing",
		`{"type": "image", "id": "9", "values": [{"name": "min_ram", "old_value": "x", "new_value": "1", "reason": ""}], ` + scope + `}`:   `min_ram: not a number: "x"`,
	} {
		e := change.Entry{ID: 7, Changes: change.KindObjects, Objects: []byte(objects)}
		if _, err := image.ParseRecord(e); err == nil || err.Error() != "entry 7: objects: "+want {
			t.Errorf("%s: %v", objects, err)
		}
	}
}
