package servertest_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
	"gpustack/nova/probe"
	"gpustack/nova/servertest"
)

// TestEnd: what is left of the servers and of the entry at the end of a test, and its error.
func TestEnd(t *testing.T) {
	refuse := func(b *bed) {
		b.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "1") {
				w.WriteHeader(http.StatusConflict)
				return true
			}
			return false
		})
	}
	for name, test := range map[string]struct {
		options     servertest.Options
		cloud       func(b *bed)
		interrupted bool
		failed      error // of the first outcome
		want        string
		deleted     []bool
		verdict     probe.Verdict
		status      change.Status
	}{
		"deleted":                  {want: "", deleted: []bool{true, true}, verdict: probe.Pass, status: change.Undone},
		"kept":                     {options: servertest.Options{Keep: true}, want: "", deleted: []bool{false, false}, verdict: probe.Pass, status: change.Done},
		"one is left":              {cloud: refuse, want: "is left: ", deleted: []bool{false, true}, verdict: probe.Unknown, status: change.Done},
		"interrupted":              {interrupted: true, want: "interrupted, no server of the test is left", deleted: []bool{true, true}, verdict: probe.Pass, status: change.Undone},
		"interrupted, one is left": {cloud: refuse, interrupted: true, want: "interrupted, not all servers of the test were deleted", deleted: []bool{false, true}, verdict: probe.Unknown, status: change.Done},
		"interrupted, kept":        {options: servertest.Options{Keep: true}, interrupted: true, want: "interrupted, the servers of the test are kept", deleted: []bool{false, false}, verdict: probe.Pass, status: change.Done},
		"not tested":               {failed: errors.New("no console"), want: "no console", deleted: []bool{true, true}, verdict: probe.Pass, status: change.Undone},
		"follows":                  {failed: errors.New("no console"), interrupted: true, want: "interrupted, no server of the test is left", deleted: []bool{true, true}, verdict: probe.Pass, status: change.Undone},
	} {
		t.Run(name, func(t *testing.T) {
			test.options.Count = 2
			b := newBed(t, test.options)
			servers, entry, err := b.create(t)
			hosttest.NoError(t, err)
			if test.cloud != nil {
				test.cloud(b)
			}
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if test.interrupted {
				cancel(errors.New("interrupted"))
			}
			o := passed(servers)
			o[0].Err = test.failed
			tested := b.test(servertest.Evidence{})
			tested.Warn = func(w string) { t.Errorf("warning: %s", w) }
			err = tested.End(ctx, entry, o)
			var text string
			if err != nil {
				text = err.Error()
			}
			if test.cloud == nil && text != test.want || !strings.Contains(text, test.want) {
				t.Errorf("%v, want %q", err, test.want)
			}
			left := 0
			for i, want := range test.deleted {
				if o[i].Deleted != want || (o[i].Seconds.Delete != nil) != want {
					t.Errorf("server %d: %+v", i, o[i])
				}
				if !want {
					left++
				}
			}
			if got := servertest.Verdict(o); got != test.verdict || len(b.Left()) != left {
				t.Errorf("%s, left %q", got, b.Left())
			}
			hosttest.EqualIn(t, "the entry", test.status, b.status(t, entry))
		})
	}
}

// TestEndWarns: an entry that cannot be closed is a warning. The servers are deleted.
func TestEndWarns(t *testing.T) {
	b := newBed(t, servertest.Options{})
	servers, entry, err := b.create(t)
	hosttest.NoError(t, err)
	var warnings []string
	tested := b.test(servertest.Evidence{})
	tested.Warn = func(w string) { warnings = append(warnings, w) }
	entry.ID++
	if err := tested.End(t.Context(), entry, passed(servers)); err != nil || len(b.Left()) != 0 {
		t.Errorf("%v, left %q", err, b.Left())
	}
	if len(warnings) != 1 || !strings.HasPrefix(warnings[0], "the servers are deleted, but entry 2 stays open: ") || !strings.HasSuffix(warnings[0], "; 'gpustack undo 2' closes it") {
		t.Errorf("%q", warnings)
	}
}

// TestVerdict: one server that fails decides; otherwise all must pass.
func TestVerdict(t *testing.T) {
	for text, want := range map[string]probe.Verdict{
		"pass": probe.Pass, "pass pass": probe.Pass, "unknown": probe.Unknown, "pass unknown": probe.Unknown, "unknown pass": probe.Unknown,
		"fail unknown": probe.Fail, "unknown fail": probe.Fail, "pass fail pass": probe.Fail,
	} {
		var outcomes []servertest.Outcome
		for word := range strings.FieldsSeq(text) {
			outcomes = append(outcomes, servertest.Outcome{Verdict: probe.Verdict(word)})
		}
		hosttest.EqualIn(t, text, want, servertest.Verdict(outcomes))
	}
}

// TestClean: servers of tests that are not running are deleted, and the entries closed of which no
// server stays.
func TestClean(t *testing.T) {
	b := newBed(t, servertest.Options{})
	servers, entry, err := b.create(t)
	hosttest.NoError(t, err)
	add := func(id, nonce string, ends time.Duration) {
		metadata := map[string]string{"gpustack-test": nonce, "gpustack-test-ends": time.Now().Add(ends).UTC().Format(time.RFC3339)}
		b.AddServer(cloudtest.Instance{ID: id, Name: "gpustack-test-" + nonce, Metadata: metadata, Created: time.Now()})
	}
	add("ended", "0123abcd", -time.Minute)
	add("running", "0123abce", time.Hour)
	plan := func() servertest.Cleaning {
		t.Helper()
		entries, err := b.engine.Store.List()
		hosttest.NoError(t, err)
		c, err := b.kind.NewCleaning(t.Context(), entries, time.Now())
		hosttest.NoError(t, err)
		return c
	}
	// A server of the journal that another client has changed stays, and so does its entry.
	nonce := b.Instances[0].Metadata["gpustack-test"]
	b.Instances[0].Metadata["gpustack-test"] = "ffffffff"
	if c := plan(); len(c.Remove()) != 1 || len(c.Closed) != 0 {
		t.Errorf("%+v", c)
	}
	b.Instances[0].Metadata["gpustack-test"] = nonce

	c := plan()
	if len(c.Leftovers) != 3 || len(c.Remove()) != 2 || len(c.Closed) != 1 || c.Closed[0].ID != entry.ID || !c.All {
		t.Fatalf("%+v", c)
	}

	// What cannot be deleted is left, and then no entry is closed.
	b.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/ended") {
			w.WriteHeader(http.StatusConflict)
			return true
		}
		return false
	})
	err = b.kind.Clean(t.Context(), b.engine, &c)
	deleted := map[string]bool{}
	for _, l := range c.Leftovers {
		deleted[l.ID] = l.Deleted
	}
	var left *servertest.LeftError
	if diff := cmp.Diff(map[string]bool{servers[0].ID: true, "ended": false, "running": false}, deleted); diff != "" || !errors.As(err, &left) || left.Server != "ended" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	hosttest.EqualIn(t, "the entry", change.Done, b.status(t, entry))

	b.SetFault(nil)
	c = plan()
	if err := b.kind.Clean(t.Context(), b.engine, &c); err != nil || b.status(t, entry) != change.Undone {
		t.Errorf("%v, the entry is %s", err, b.status(t, entry))
	}
	if c := plan(); len(c.Remove()) != 0 || len(c.Closed) != 0 || len(c.Leftovers) != 1 {
		t.Errorf("%+v", c)
	}
}

// TestShared: a test of another machine or PID namespace with the same journal counts as running for
// as long as it may take, also one whose servers are kept. Of one that has ended undo deletes them.
func TestShared(t *testing.T) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	hosttest.NoError(t, err)
	const elsewhere = "the test may be running on another machine or in another container until "
	for name, test := range map[string]struct {
		boot  string // "" for this process
		keep  bool
		left  int // right after the start
		error string
	}{
		"another machine":   {boot: "b1\n", left: 1, error: elsewhere},
		"another namespace": {boot: string(boot), left: 1, error: elsewhere},
		"kept there":        {boot: "b1\n", keep: true, left: 1, error: elsewhere},
		"kept here":         {keep: true},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, servertest.Options{Keep: test.keep})
			servers, entry, err := b.create(t)
			hosttest.NoError(t, err)
			if test.boot != "" {
				b.kind.Root = hosttest.Lay(t, "symlink proc/self/ns/pid -> pid:[1]\n-- proc/sys/kernel/random/boot_id --\n"+test.boot)
				b.engine.Kinds = []change.Kind{b.kind}
			}
			for after, left := range map[time.Duration]int{0: test.left, time.Hour: 0} {
				c, err := b.kind.NewCleaning(t.Context(), []change.Entry{entry}, time.Now().Add(after))
				if err != nil || len(c.Leftovers)-len(c.Remove()) != left || len(c.Closed) != 1-left {
					t.Errorf("after %s: %+v, %v", after, c, err)
				}
			}
			_, err = b.engine.Undo(t.Context(), entry.ID)
			if (err != nil) != (test.error != "") || !strings.Contains(fmt.Sprint(err), test.error) {
				t.Errorf("undo: %v", err)
			}
			if test.error == "" { // it is undone already
				tested := b.test(servertest.Evidence{})
				tested.Plan.Keep, tested.Warn = false, func(w string) { t.Errorf("warning: %s", w) }
				hosttest.NoError(t, tested.End(t.Context(), entry, passed(servers)))
			}
		})
	}
}

// TestObserve: a plan's flavor, image and network by their names, with all errors at once.
func TestObserve(t *testing.T) {
	b := newBed(t, servertest.Options{})
	b.Add("1", "gpu", 1, 512, 10, true, map[string]string{"pci_passthrough:alias": "K4200:2"})
	b.Networks = []map[string]any{{"id": "4e7e0000-0000-4000-8000-000000000001", "name": "lab"}}
	c, err := cloud.Connect(t.Context(), cloud.Options{})
	hosttest.NoError(t, err)
	for name, test := range map[string]struct {
		options       servertest.Options
		network, said string // of the plan
		want          string // error
	}{
		"names":     {servertest.Options{FlavorName: "gpu", ImageName: "debian", Network: "lab"}, "4e7e0000-0000-4000-8000-000000000001", "lab", ""},
		"ids":       {servertest.Options{FlavorName: "1", ImageName: "debian"}, cloud.NetworkNone, "none", ""},
		"automatic": {servertest.Options{FlavorName: "gpu", ImageName: "debian", Network: cloud.NetworkAuto}, cloud.NetworkAuto, "auto", ""},
		"all errors": {servertest.Options{FlavorName: "no", ImageName: "such", Network: "names"}, "", "",
			"flavor no: not found\nimage such: not found\nnetwork names: not found"},
	} {
		t.Run(name, func(t *testing.T) {
			is, err := servertest.Observe(t.Context(), c, b.kind.Compute, test.options, nil)
			if test.want != "" {
				hosttest.Equal(t, test.want, fmt.Sprint(err))
				return
			}
			hosttest.NoError(t, err)
			p, err := servertest.NewPlan(test.options, is, time.Now())
			if err != nil || p.Flavor.Name != "gpu" || p.Image.Name != "debian" || p.Network != test.network || p.NetworkName != test.said {
				t.Errorf("%v, %+v", err, p)
			}
			if is.Placement == nil || p.Free == nil || p.Free.Devices != 2 {
				t.Errorf("free devices: %+v", p.Free)
			}
		})
	}
}
