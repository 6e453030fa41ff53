package drain_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
	"gpustack/nova/drain"
)

var noon = time.Date(2026, 11, 27, 12, 0, 0, 0, time.UTC)

const ours = "gpustack 2026-11-27T09:00:00Z 5e0c3a71: new kernel"

// TestReason: what gpustack writes is read again, at the greatest length too, and nothing else is
// taken for it.
func TestReason(t *testing.T) {
	t.Parallel()
	long := drain.Reason{Since: noon, ID: "0123abcd", Text: strings.Repeat("ü", drain.MaxText)}
	hosttest.EqualIn(t, "characters", 255, len([]rune(long.String())))
	for _, r := range []drain.Reason{long, {Since: noon, ID: "ffffffff", Text: "a: b: c"}} {
		if got, ok := drain.ParseReason(r.String()); !ok || got != r {
			t.Errorf("%s: %+v", r, got)
		}
	}
	for _, s := range []string{
		"", "maintenance", "AUTO: Connection to libvirt lost: 1", "gpustack", "gpustack: new kernel", "gpustack 2026-11-27T09:00:00Z: x",
		"gpustack 2026-11-27T09:00:00Z 5e0c3a71", "gpustack 2026-11-27T09:00:00Z 5E0C3A71: x", "gpustack 2026-11-27T09:00:00Z 5e0c3a7: x",
		"gpustack 2026-11-27T09:00:00+01:00 5e0c3a71: x", "gpustack 2026-11-27 09:00:00 5e0c3a71: x", "gpustack 2026-13-27T09:00:00Z 5e0c3a71: x",
		" " + ours, "Gpustack 2026-11-27T09:00:00Z 5e0c3a71: x", "gpustack 2026-11-27T09:00:00.5Z 5e0c3a71: x",
	} {
		if r, ok := drain.ParseReason(s); ok {
			t.Errorf("%q: %+v", s, r)
		}
	}
	for text, bad := range map[string]bool{
		"new kernel": false, "Küche 3: neu": false, "": true, "  ": true, " x": true, "a\nb": true, "\x1b[1m": true, "🚀": true,
		strings.Repeat("x", drain.MaxText): false, strings.Repeat("x", drain.MaxText+1): true,
	} {
		if err := drain.CheckText(text); (err != nil) != bad || bad && len(host.HintOf(err)) == 0 {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestPlans is what each command does to each state of a service.
func TestPlans(t *testing.T) {
	t.Parallel()
	drained := "gpustack 2026-11-27T09:00:00Z 5e0c3a71: reboot"
	for _, test := range []struct {
		name                string
		is                  cloud.ComputeService
		drain, step, enable string // the state that is planned, or the error
	}{
		{"enabled", cloud.ComputeService{Enabled: true}, "new", "is enabled", "enabled"},
		{"enabled, with the reason of the last time", cloud.ComputeService{Enabled: true, Reason: ours}, "new", "is enabled", "enabled"},
		{"disabled by gpustack", cloud.ComputeService{Reason: ours}, drained, drained, "enabled"},
		{"disabled by a person", cloud.ComputeService{Reason: "disk"}, "the reason is disk", "the reason is disk", "the reason is disk"},
		{"disabled without a reason", cloud.ComputeService{}, "no reason is given", "no reason is given", "no reason is given"},
		{"disabled by nova-compute", cloud.ComputeService{Reason: "AUTO: Connection to libvirt lost: 1"}, "AUTO: ", "AUTO: ", "AUTO: "},
	} {
		s := test.is
		s.Host = "gpu1"
		for what, plan := range map[string]func() (drain.Move, error){
			"drain":  func() (drain.Move, error) { return drain.NewDraining(s, "reboot", noon, []string{"5e0c3a71"}, false) },
			"step":   func() (drain.Move, error) { return drain.NewStep(s, "reboot") },
			"enable": func() (drain.Move, error) { return drain.NewEnabling(s) },
		} {
			want := map[string]string{"drain": test.drain, "step": test.step, "enable": test.enable}[what]
			m, err := plan()
			got := m.After.String()
			r, isOurs := drain.ParseReason(m.After.Reason)
			switch {
			case err != nil:
				if got = err.Error(); strings.Contains(got, want) && len(host.HintOf(err)) > 0 {
					continue
				}
			case isOurs && m.Before.Enabled:
				if got = "new"; !r.Since.Equal(noon) || r.Text != "reboot" || len(r.ID) != 8 || m.Renames() {
					t.Errorf("%s: %+v", test.name, r)
				}
			case isOurs:
				if got = m.After.Reason; !m.Renames() {
					t.Errorf("%s: not only the text changes: %+v", test.name, m)
				}
			}
			hosttest.EqualIn(t, test.name+": "+what, want, got)
		}
	}
	a, _ := drain.NewDraining(cloud.ComputeService{Enabled: true}, "x", noon, nil, false)
	b, _ := drain.NewDraining(cloud.ComputeService{Enabled: true}, "x", noon, nil, false)
	if a.After == b.After {
		t.Error("two services have one id")
	}
}

// TestTakeOver: a drain of another operator stays, unless it is taken over, which is a change that can
// be recorded and undone.
func TestTakeOver(t *testing.T) {
	t.Parallel()
	s := cloud.ComputeService{Host: "gpu1", Reason: ours}
	if _, err := drain.NewDraining(s, "mine", noon, []string{"00000000"}, false); !errors.Is(err, drain.ErrOtherOperator) {
		t.Errorf("%v", err)
	}
	m, err := drain.NewDraining(s, "mine", noon, nil, true)
	r, isOurs := drain.ParseReason(m.After.Reason)
	if err != nil || !isOurs || m.Renames() || m.Before.Reason != ours || r.Text != "mine" {
		t.Errorf("%+v, %v", m, err)
	}
	if err := m.Valid(); err != nil {
		t.Error(err)
	}
}

func TestStatus(t *testing.T) {
	t.Parallel()
	got := drain.NewStatus([]cloud.ComputeService{
		{Host: "a", Enabled: true}, {Host: "b", Reason: "gpustack 2026-11-27T09:00:00Z 5e0c3a71: late", Up: true}, {Host: "c", Reason: "disk"},
		{Host: "d", Unknown: true},
		{Host: "e", Reason: "gpustack 2026-11-26T09:00:00Z 5e0c3a72: early"}, {Host: "f", Enabled: true, Reason: ours},
	})
	want := drain.Status{Enabled: 2, Others: 1, Unknown: []string{"d"}, Drained: []drain.Drained{
		{Host: "e", Reason: drain.Reason{Since: time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC), ID: "5e0c3a72", Text: "early"}},
		{Host: "b", Up: true, Reason: drain.Reason{Since: time.Date(2026, 11, 27, 9, 0, 0, 0, time.UTC), ID: "5e0c3a71", Text: "late"}},
	}}
	hosttest.Equal(t, want, got)
}

// lab is a cloud with the host gpu1, and a journal.
type lab struct {
	t       *testing.T
	cloud   *cloudtest.Cloud
	hosts   *cloudtest.Hosts
	compute *cloud.Compute
	engine  change.Engine
}

func newLab(t *testing.T, newest int) *lab {
	c := cloudtest.Start(t, newest)
	l := &lab{t: t, cloud: c, hosts: &cloudtest.Hosts{Nodes: []*cloudtest.Node{{Name: "gpu0"}, {Name: "gpu1"}, {Name: "gpu1.example.org", Silent: true}}}}
	c.AddHosts(l.hosts)
	for name, value := range c.Env() {
		t.Setenv(name, value)
	}
	signedIn, err := cloud.Connect(t.Context(), cloud.Options{})
	hosttest.NoError(t, err)
	if l.compute, err = signedIn.Compute(t.Context()); err != nil {
		t.Fatal(err)
	}
	root := hosttest.Root(t, t.TempDir())
	l.engine = change.Engine{Store: change.Store{Root: root, Dir: "/state"}, Kinds: []change.Kind{drain.Kind(l.compute)}}
	return l
}

func (l *lab) service() cloud.ComputeService {
	l.t.Helper()
	s, err := drain.Find(context.Background(), l.compute, "gpu1")
	hosttest.NoError(l.t, err)
	return s
}

func (l *lab) reason() string { return l.hosts.Nodes[1].Disabled }

// make plans and makes a change, and returns its entry.
func (l *lab) make(plan func(cloud.ComputeService) (drain.Move, error)) (change.Entry, error) {
	l.t.Helper()
	m, err := plan(l.service())
	hosttest.NoError(l.t, err)
	return l.engine.Apply(context.Background(), change.Work{Command: "nova drain gpu1", Change: drain.Kind(l.compute).New(m)})
}

// look returns looks at gpu1 while it is enabled.
func (l *lab) look() *drain.Look { return drain.NewLook(l.compute, "gpu1", drain.State{Enabled: true}) }

func disable(s cloud.ComputeService) (drain.Move, error) {
	return drain.NewDraining(s, "new kernel", noon, nil, false)
}

// TestFind: a host is found by its whole name.
func TestFind(t *testing.T) {
	l := newLab(t, 96)
	for name, want := range map[string]string{
		"gpu1": "", "gpu1.example.org": "its cell does not answer", "gpu1.example.com": "did you mean gpu1 or gpu1.example.org?", "nope": "names the hosts",
	} {
		_, err := drain.Find(t.Context(), l.compute, name)
		if got := fmt.Sprint(err, " ", host.HintOf(err)); (err == nil) != (want == "") || err != nil && !strings.Contains(got, want) {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// TestUndo: a service is disabled with one request, and enabled by undo, also when its text has
// changed since; an enabled one is disabled again with its reason. Old releases have other
// requests.
func TestUndo(t *testing.T) {
	for newest, want := range map[int][]string{
		96: {"PUT /v2.1/os-services/1", "PUT /v2.1/os-services/1", "PUT /v2.1/os-services/1"},
		25: {"PUT /v2.1/os-services/disable-log-reason", "PUT /v2.1/os-services/disable-log-reason", "PUT /v2.1/os-services/enable"},
	} {
		t.Run(fmt.Sprint(newest), func(t *testing.T) {
			l := newLab(t, newest)
			l.cloud.Requests()
			entry, err := l.make(disable)
			r, isOurs := drain.ParseReason(l.reason())
			if err != nil || entry.Status != change.Done || entry.ObjectType() != drain.Type || !isOurs || !r.Since.Equal(noon) || r.Text != "new kernel" {
				t.Fatalf("%+v, %s, %v", entry, l.reason(), err)
			}
			step, err := drain.NewStep(l.service(), "reboot")
			if err == nil {
				err = drain.Kind(l.compute).New(step).Make(t.Context())
			}
			if now, _ := drain.ParseReason(l.reason()); err != nil || now != (drain.Reason{Since: r.Since, ID: r.ID, Text: "reboot"}) {
				t.Fatalf("%s, %v", l.reason(), err)
			}
			if _, err := l.engine.Undo(t.Context(), entry.ID); err != nil || l.reason() != "" {
				t.Fatalf("%s, %v", l.reason(), err)
			}
			var puts []string
			lines, _ := l.cloud.Requests()
			for _, line := range lines {
				if strings.HasPrefix(line, http.MethodPut) {
					puts = append(puts, line)
				}
			}
			hosttest.Equal(t, want, puts)
			l.hosts.Nodes[1].Disabled = ours
			if entry, err = l.make(drain.NewEnabling); err != nil || l.reason() != "" {
				t.Fatalf("%s, %v", l.reason(), err)
			}
			if _, err := l.engine.Undo(t.Context(), entry.ID); err != nil || l.reason() != ours {
				t.Fatalf("%s, %v", l.reason(), err)
			}
		})
	}
}

// TestUndoAfter: undo leaves a service that was disabled by other means meanwhile, and finds
// nothing to do at one that was enabled.
func TestUndoAfter(t *testing.T) {
	for name, test := range map[string]struct {
		now, want string // the reasons before and after the undo
		changed   bool   // it is an error
	}{
		"enabled meanwhile":          {"", "", false},
		"disabled by a person":       {"disk", "disk", true},
		"drained again by gpustack":  {ours, ours, true},
		"taken over by nova-compute": {"AUTO: lost", "AUTO: lost", true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 96)
			entry, err := l.make(disable)
			hosttest.NoError(t, err)
			l.hosts.Nodes[1].Disabled = test.now
			if _, err = l.engine.Undo(t.Context(), entry.ID); errors.Is(err, drain.ErrChanged) != test.changed || (err != nil) != test.changed ||
				l.reason() != test.want {
				t.Errorf("%s, %v", l.reason(), err)
			}
		})
	}
}

// TestAnswers: a request whose answer is an error or is lost leaves an entry that says what is so.
func TestAnswers(t *testing.T) {
	for name, test := range map[string]struct {
		status  int
		carried bool
		made    bool
	}{
		"refused":               {http.StatusForbidden, false, false},
		"failed":                {http.StatusInternalServerError, false, false},
		"made, the answer lost": {http.StatusInternalServerError, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 96)
			l.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				if r.Method != http.MethodPut {
					return false
				}
				if test.carried {
					l.cloud.Do(r)
				}
				w.WriteHeader(test.status)
				return true
			}
			entry, err := l.make(disable)
			if (err == nil) != test.made || (l.reason() != "") != test.made || test.made != (entry.Status == change.Done) {
				t.Errorf("%+v, %q, %v", entry, l.reason(), err)
			}
			if all, err := l.engine.Store.List(); err != nil || len(all) != map[bool]int{true: 1}[test.made] {
				t.Errorf("%d entries, %v", len(all), err)
			}
		})
	}
}

// TestRecover: what a run that was killed at its request has made is found out from the reason of
// the service.
func TestRecover(t *testing.T) {
	for name, test := range map[string]struct {
		undo, made bool
		gone       bool   // the service was deleted meanwhile
		drifts     bool   // Nova stores another reason than the recovery requests
		now        string // the reason that an administrator has given meanwhile
		status     change.Status
		disabled   bool
	}{
		"applying, not made":                  {},
		"applying, made":                      {made: true, status: change.Done, disabled: true},
		"applying, then deleted":              {made: true, gone: true, disabled: true},
		"applying, then disabled by a person": {now: "disk", disabled: true},
		"undoing, not made":                   {undo: true, status: change.Undone},
		"undoing, made":                       {undo: true, made: true, status: change.Undone},
		"undoing, then deleted":               {undo: true, gone: true, status: change.Undone, disabled: true},
		"undoing, then drifts":                {undo: true, drifts: true, status: change.Undone, disabled: true},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 96)
			node := l.hosts.Nodes[1]
			if test.undo {
				if _, err := l.make(disable); err != nil {
					t.Fatal(err)
				}
			}
			asked := false
			l.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				switch {
				case r.Method == http.MethodPut:
					if test.made && !asked {
						l.cloud.Do(r)
					}
					asked = true
				case !asked:
					return false
				}
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}
			var err error
			if test.undo {
				_, err = l.engine.Undo(t.Context(), 1)
			} else {
				m, planErr := disable(cloud.ComputeService{Host: "gpu1", Enabled: true})
				hosttest.NoError(t, planErr)
				_, err = l.engine.Apply(t.Context(), change.Work{Change: drain.Kind(l.compute).New(m)})
			}
			entries, listErr := l.engine.Store.List()
			if err == nil || listErr != nil || len(entries) != 1 || !entries[0].IsOpen() {
				t.Fatalf("%v, %+v, %v", err, entries, listErr)
			}
			l.cloud.Fault = nil
			if test.now != "" {
				node.Disabled = test.now
			}
			if test.gone {
				l.hosts.Nodes = nil
			}
			if test.drifts {
				l.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
					if r.Method != http.MethodPut {
						return false
					}
					l.cloud.Do(r)
					node.Disabled = "disk"
					_, _ = w.Write([]byte("{}"))
					return true
				}
			}
			if _, err := l.engine.Recover(t.Context(), []int{1}); errors.Is(err, drain.ErrDrift) != test.drifts || (err != nil) != test.drifts {
				t.Fatal(err)
			}
			entries, err = l.engine.Store.List()
			var status change.Status
			if len(entries) == 1 {
				status = entries[0].Status
			}
			if err != nil || status != test.status || (node.Disabled != "") != test.disabled {
				t.Errorf("%q, %q, %v", status, node.Disabled, err)
			}
		})
	}
}

// TestRead is what counts as a server with GPUs that runs, and as in progress.
func TestRead(t *testing.T) {
	now := time.Now().UTC()
	recent, old := now.Add(-time.Minute).Format(time.RFC3339), now.Add(-2*time.Hour).Format(time.RFC3339)
	gpu := map[string]any{"original_name": "gpu", "extra_specs": map[string]any{"pci_passthrough:alias": "A100:2"}}
	plain := map[string]any{"original_name": "m1", "extra_specs": map[string]any{}}
	server := func(status string, task any, vm string, power int, flavor map[string]any) map[string]any {
		return map[string]any{"status": status, "OS-EXT-STS:task_state": task, "OS-EXT-STS:vm_state": vm, "OS-EXT-STS:power_state": power, "flavor": flavor,
			"updated": recent}
	}
	const host = "OS-EXT-SRV-ATTR:host"
	with := func(body map[string]any, key string, value any) map[string]any { body[key] = value; return body }
	for _, test := range []struct {
		name              string
		body              map[string]any
		newest            int
		running, withGPUs bool
		tasks, stuck      string
	}{
		{"runs with GPUs", server("ACTIVE", nil, "active", 1, gpu), 96, true, true, "", ""},
		{"runs without", server("ACTIVE", nil, "active", 1, plain), 96, true, false, "", ""},
		{"powered off", server("SHUTOFF", nil, "stopped", 4, gpu), 96, false, true, "", ""},
		{"shut down by its guest, not seen by Nova yet", server("ACTIVE", nil, "active", 4, gpu), 96, false, true, "", ""},
		{"paused", server("PAUSED", nil, "paused", 3, gpu), 96, true, true, "", ""},
		{"suspended", server("SUSPENDED", nil, "suspended", 7, gpu), 96, false, true, "", ""},
		{"its hypervisor does not answer", server("ACTIVE", nil, "active", 0, gpu), 96, true, true, "", ""},
		{"a build that failed", server("ERROR", nil, "error", 0, gpu), 96, false, true, "", ""},
		{"in error, and runs", server("ERROR", nil, "error", 1, gpu), 96, true, true, "", ""},
		{"the policy hides extra specs", server("ACTIVE", nil, "active", 1, map[string]any{"original_name": "gpu"}), 96, true, true, "", ""},
		{"an old release names the flavor", server("ACTIVE", nil, "active", 1, map[string]any{"id": "2"}), 25, true, true, "", ""},
		{"an old release, another flavor", server("ACTIVE", nil, "active", 1, map[string]any{"id": "1"}), 25, true, false, "", ""},
		{"an old release, a deleted flavor", server("ACTIVE", nil, "active", 1, map[string]any{"id": "7"}), 25, true, true, "", ""},
		{"stopping", server("ACTIVE", "powering-off", "active", 1, gpu), 96, true, true, "task powering-off", ""},
		{"a build", server("BUILD", "spawning", "building", 0, gpu), 96, false, true, "build (spawning)", ""},
		{"a build that takes long", with(server("BUILD", "spawning", "building", 0, gpu), "updated", old), 96, false, true, "build (spawning)", ""},
		{"a build without a host", with(server("BUILD", "scheduling", "building", 0, gpu), host, nil), 96, false, false,
			"build (scheduling), not on this host yet", ""},
		{"a build elsewhere, which may fail there", with(server("BUILD", "spawning", "building", 0, gpu), host, "gpu0"), 96, false, false,
			"build (spawning) on gpu0, not on this host yet", ""},
		{"a build that hangs on a living host", with(with(server("BUILD", "spawning", "building", 0, gpu), host, "gpu0"), "updated", old), 96, false, false,
			"build (spawning) on gpu0, not on this host yet", ""},
		{"a build that has hung there for a day", with(with(server("BUILD", "spawning", "building", 0, gpu), host, "gpu0"), "updated",
			now.Add(-25*time.Hour).Format(time.RFC3339)), 96, false, false, "", "build (spawning) on gpu0, not on this host yet: unchanged since"},
		{"a build elsewhere that nothing continues", with(with(server("BUILD", "scheduling", "building", 0, gpu), host, nil), "created", old), 96, false, false,
			"", "build (scheduling), not on this host yet: unchanged since"},
		{"unshelved", with(server("SHELVED_OFFLOADED", "unshelving", "shelved_offloaded", 4, gpu), host, nil), 96, false, false,
			"task unshelving, not on this host yet", ""},
		{"shelved", with(server("SHELVED_OFFLOADED", nil, "shelved_offloaded", 4, gpu), host, nil), 96, false, false, "", ""},
		{"marked as deleted", server("SOFT_DELETED", nil, "soft-delete", 4, gpu), 96, false, true, "", ""},
		{"asleep by itself", server("ACTIVE", nil, "active", 7, gpu), 96, true, true, "", ""},
		{"rescued, and its hypervisor does not answer", server("RESCUE", nil, "rescued", 0, gpu), 96, true, true, "", ""},
		{"a virtual GPU", server("ACTIVE", nil, "active", 1, map[string]any{"extra_specs": map[string]any{"resources1:VGPU": "1"}}), 96, true, true, "", ""},
		{"a virtual GPU of a class of its own", server("ACTIVE", nil, "active", 1,
			map[string]any{"extra_specs": map[string]any{"resources:CUSTOM_NVIDIA_42": "1"}}), 96, true, true, "", ""},
		{"a bare metal class", server("ACTIVE", nil, "active", 1, map[string]any{"extra_specs": map[string]any{"resources:CUSTOM_BAREMETAL_BIG": "1"}}), 96,
			true, false, "", ""},
		{"a GPU of Cyborg", server("ACTIVE", nil, "active", 1, map[string]any{"extra_specs": map[string]any{"accel:device_profile": "gpu"}}), 96, true, true, "", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t, test.newest)
			l.cloud.Add("1", "m1", 1, 1, 1, true, map[string]string{})
			l.cloud.Add("2", "gpu", 1, 1, 1, true, map[string]string{"pci_passthrough:alias": "A100:2"})
			l.cloud.AddServer(cloudtest.Instance{ID: "it", Name: "guest", Host: "gpu1", More: test.body})
			l.cloud.AddServer(cloudtest.Instance{ID: "other", Name: "guest", Host: "gpu0", More: server("ACTIVE", "deleting", "active", 1, gpu)})
			left, err := l.look().Read(t.Context())
			hosttest.NoError(t, err)
			tasks := ""
			for _, task := range left.Tasks {
				tasks += task.What
			}
			running, withGPUs := false, false
			if len(left.Servers) == 1 {
				running, withGPUs = left.Servers[0].Running, left.Servers[0].HasGPUs()
			}
			if running != test.running || withGPUs != test.withGPUs || tasks != test.tasks || !strings.Contains(strings.Join(left.Ignored, ""), test.stuck) ||
				len(left.Ignored) > 0 != (test.stuck != "") || len(left.RunningGPUs()) > 0 != (test.running && test.withGPUs) {
				t.Errorf("%+v", left)
			}
		})
	}
}

// TestMigrations: what is in progress on either host counts, an unconfirmed resize and a failed
// migration that was left for as long as that takes, and what has no destination yet.
func TestMigrations(t *testing.T) {
	now := time.Now().UTC()
	const form = "2006-01-02T15:04:05.000000"
	l := newLab(t, 96)
	for i, m := range []struct {
		kind, status string
		from, to     any
		age          time.Duration
	}{
		{"resize", "migrating", "gpu1", "gpu0", time.Minute}, {"resize", "queued", "gpu0", "gpu1", time.Minute},
		{"resize", "finished", "gpu1", "gpu0", 48 * time.Hour},
		{"resize", "confirmed", "gpu1", "gpu0", time.Minute}, {"resize", "error", "gpu1", "gpu0", time.Minute},
		{"resize", "migrating", "gpu1", "gpu0", 2 * time.Hour},
		{"live-migration", "running", "gpu0", "gpu2", time.Minute}, {"resize", "pre-migrating", "gpu0", nil, time.Minute},
		{"evacuation", "accepted", "gpu0", nil, 2 * time.Hour},
		{"evacuation", "done", "gpu1", "gpu0", time.Hour}, {"evacuation", "done", "gpu0", "gpu1", time.Hour}, {"evacuation", "completed", "gpu1", "gpu0", time.Hour},
		{"live-migration", "accepted", "gpu0", "gpu2", time.Minute}, {"resize", "pre-migrating", "gpu0", "gpu2", time.Minute},
	} {
		l.hosts.Migrations = append(l.hosts.Migrations, map[string]any{"id": i, "instance_uuid": fmt.Sprint("server", i), "migration_type": m.kind,
			"status":         m.status,
			"source_compute": m.from, "dest_compute": m.to, "created_at": now.Add(-m.age).Format(form), "updated_at": nil})
	}
	left, err := l.look().Read(t.Context())
	var tasks []string
	for _, task := range left.Tasks {
		remedy, _, _ := strings.Cut(task.Remedy.String(), ":")
		remedy, _, _ = strings.Cut(remedy, " since")
		tasks = append(tasks, strings.TrimSpace(task.Server+" "+task.What+" "+remedy))
	}
	want := []string{"server7 resize 7 (pre-migrating)", "server13 resize 13 (pre-migrating)", "server0 resize 0 (migrating)",
		"server1 resize 1 (queued)", "server2 resize 2 (finished) confirm or revert it",
		"server5 resize 5 (migrating) nothing has changed it", "server9 evacuation 9 (done) start nova-compute of gpu1"}
	if diff := cmp.Diff(want, tasks); diff != "" || err != nil {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}
	if remedy := left.Tasks[4].Remedy.String(); !strings.HasSuffix(remedy,
		"where Nova refuses that, 'gpustack repair-migration --instance server2' shows what is left") {
		t.Errorf("%s", remedy)
	}
	if len(left.Ignored) != 1 || !strings.HasPrefix(left.Ignored[0], "server server8: evacuation 8 (accepted): unchanged since ") {
		t.Errorf("%q", left.Ignored)
	}
	// Nova deletes migrations with their server.
	look := l.look()
	if left, err := look.Read(t.Context()); err != nil || len(left.Tasks) != 7 {
		t.Errorf("%+v, %v", left, err)
	}
	l.hosts.Migrations = nil
	if left, err := look.Read(t.Context()); err != nil || len(left.Tasks) != 0 {
		t.Errorf("%+v, %v", left, err)
	}
}

// TestClock: what is old is judged by the clock of services that report, not by one that is gone
// and was ahead, and not at all if none reports.
func TestClock(t *testing.T) {
	for name, down := range map[string]bool{"one reports": false, "none reports": true} {
		l := newLab(t, 96)
		l.hosts.Nodes = append(l.hosts.Nodes, &cloudtest.Node{Name: "gone", Down: true, Ahead: 5 * 365 * 24 * time.Hour})
		l.hosts.Nodes[0].Down, l.hosts.Nodes[1].Down = down, down
		l.cloud.AddServer(cloudtest.Instance{ID: "it", Name: "guest",
			More: map[string]any{"status": "BUILD", "OS-EXT-STS:task_state": "scheduling", "OS-EXT-SRV-ATTR:host": nil}})
		if left, err := l.look().Read(t.Context()); err != nil || len(left.Tasks) != 1 {
			t.Errorf("%s: %+v, %v", name, left, err)
		}
	}
}

// TestBusyCloud: builds that have begun after the first look cannot come to the host, and are not
// waited for.
func TestBusyCloud(t *testing.T) {
	l := newLab(t, 96)
	look := l.look()
	build := func(id string) map[string]any {
		i := l.cloud.AddServer(cloudtest.Instance{ID: id, Name: id,
			More: map[string]any{"status": "BUILD", "OS-EXT-STS:task_state": "scheduling", "OS-EXT-SRV-ATTR:host": nil,
				"updated": time.Now().UTC().Format(time.RFC3339)}})
		return i.More
	}
	first := build("first")
	for _, want := range []int{1, 1, 0} {
		left, err := look.Read(t.Context())
		if err != nil || len(left.Tasks) != want {
			t.Fatalf("%+v, %v, want %d tasks", left, err, want)
		}
		if build(fmt.Sprint("later", want)); len(l.cloud.Instances) == 3 {
			first["status"], first["OS-EXT-STS:task_state"] = "ACTIVE", nil
		}
	}
}

// TestHidden: what cannot be seen does not look empty.
func TestHidden(t *testing.T) {
	gpu := map[string]any{"status": "ACTIVE", "OS-EXT-STS:power_state": 1, "flavor": map[string]any{}}
	for name, test := range map[string]struct {
		change func(l *lab)
		want   error
	}{
		"the policy hides the hosts of servers": {func(l *lab) { l.cloud.Member = true; l.cloud.Fault = nil }, cloud.ErrForbidden},
		"the cell does not answer":              {func(l *lab) { l.hosts.Nodes[1].Silent = true }, drain.ErrUnknown},
		"the service was disabled by a person":  {func(l *lab) { l.hosts.Nodes[1].Disabled = "disk" }, drain.ErrChanged},
		"the service was deleted":               {func(l *lab) { l.hosts.Nodes = nil }, drain.ErrNoService},
		"servers cannot be listed": {func(l *lab) {
			l.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
				if strings.HasSuffix(r.URL.Path, "/servers/detail") {
					w.WriteHeader(http.StatusForbidden)
					return true
				}
				return false
			}
		}, cloud.ErrForbidden},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 96)
			l.cloud.AddServer(cloudtest.Instance{ID: "it", Name: "guest", Host: "gpu1", More: gpu})
			look := l.look()
			test.change(l)
			if left, err := look.Wait(t.Context(), drain.Waiting{Tasks: time.Second, Every: time.Millisecond}); !errors.Is(err, test.want) || left != nil {
				t.Errorf("%+v, %v", left, err)
			}
		})
	}
	l := newLab(t, 96)
	i := l.cloud.AddServer(cloudtest.Instance{ID: "it", Name: "guest", More: gpu})
	l.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if strings.HasSuffix(r.URL.Path, "/servers/detail") {
			fmt.Fprintf(w, `{"servers": [{"id": %q, "status": "ACTIVE"}]}`, i.ID)
			return true
		}
		return false
	}
	hiddenMove := newLab(t, 96)
	hiddenMove.hosts.Migrations = []map[string]any{{"id": 1, "instance_uuid": "it", "status": "accepted", "source_compute": nil, "dest_compute": nil,
		"created_at": "2026-11-27T12:00:00.000000"}}
	if left, err := hiddenMove.look().Read(t.Context()); !errors.Is(err, cloud.ErrHidden) {
		t.Errorf("%+v, %v", left, err)
	}
	if left, err := l.look().Read(t.Context()); !errors.Is(err, cloud.ErrHidden) || len(host.HintOf(err)) == 0 {
		t.Errorf("%+v, %v", left, err)
	}
}

// TestFailedLooks: a wait goes on after looks that fail, and returns what the last complete one has
// shown when it ends.
func TestFailedLooks(t *testing.T) {
	for failing, ends := range map[int]bool{2: false, 3: true} {
		l := newLab(t, 96)
		is := l.cloud.AddServer(cloudtest.Instance{ID: "it", Name: "guest", Host: "gpu1",
			More: map[string]any{"status": "ACTIVE", "OS-EXT-STS:task_state": "rebooting",
				"OS-EXT-STS:power_state": 1, "flavor": map[string]any{}, "updated": time.Now().UTC().Format(time.RFC3339)}})
		looks := 0
		l.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
			if !strings.Contains(r.URL.RawQuery, "host=gpu1") || !strings.HasSuffix(r.URL.Path, "/servers/detail") {
				return false
			}
			if looks++; looks > 1 && looks <= 1+failing {
				w.WriteHeader(http.StatusInternalServerError)
				return true
			}
			if looks > 1 {
				is.More["OS-EXT-STS:task_state"] = nil
			}
			return false
		}
		left, err := l.look().Wait(t.Context(), drain.Waiting{Tasks: time.Minute, Every: time.Millisecond})
		if (err != nil) != ends || left == nil || len(left.Servers) != 1 || (len(left.Tasks) > 0) != ends {
			t.Errorf("%d failed looks: %+v, %v", failing, left, err)
		}
	}
}

// TestWait: a wait ends when nothing is in progress and no GPU is used by a running server, or at
// its deadline.
func TestWait(t *testing.T) {
	gpu := map[string]any{"original_name": "gpu", "extra_specs": map[string]any{"pci_passthrough:alias": "A100:2"}}
	for name, test := range map[string]struct {
		looks        map[int]map[string]any // what changes of the server, by the number of the look
		tasks, empty time.Duration
		late         bool
		running      int
	}{
		"a build ends":          {map[int]map[string]any{2: {"OS-EXT-STS:task_state": nil, "status": "ACTIVE"}}, time.Minute, 0, false, 1},
		"nothing is waited for": {nil, 0, 0, false, 1},
		"a build does not end":  {nil, 20 * time.Millisecond, 0, true, 1},
		"it is stopped after its build": {map[int]map[string]any{2: {"OS-EXT-STS:task_state": nil}, 3: {"OS-EXT-STS:power_state": 4}}, time.Minute,
			time.Minute, false, 0},
		"it is stopped by a task": {map[int]map[string]any{1: {"OS-EXT-STS:task_state": nil}, 2: {"OS-EXT-STS:task_state": "powering-off"},
			4: {"OS-EXT-STS:task_state": nil, "OS-EXT-STS:power_state": 4}}, time.Minute, time.Minute, false, 0},
		"it is not stopped": {map[int]map[string]any{1: {"OS-EXT-STS:task_state": nil}}, time.Minute, 20 * time.Millisecond, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, 96)
			is := l.cloud.AddServer(cloudtest.Instance{ID: "it", Name: "guest", Host: "gpu1",
				More: map[string]any{"status": "ACTIVE", "OS-EXT-STS:task_state": "spawning",
					"OS-EXT-STS:vm_state": "active", "OS-EXT-STS:power_state": 1, "flavor": gpu, "updated": time.Now().UTC().Format(time.RFC3339)}})
			looks := 0
			l.cloud.Fault = func(_ http.ResponseWriter, r *http.Request) bool {
				if strings.Contains(r.URL.RawQuery, "host=gpu1") && strings.HasSuffix(r.URL.Path, "/servers/detail") {
					looks++
					for key, value := range test.looks[looks] {
						is.More[key] = value
					}
				}
				return false
			}
			left, err := l.look().Wait(t.Context(), drain.Waiting{Tasks: test.tasks, Empty: test.empty, Every: time.Millisecond})
			if errors.Is(err, drain.ErrInProgress) != test.late || (err != nil) != test.late || len(left.RunningGPUs()) != test.running {
				t.Errorf("%+v, %v", left, err)
			}
		})
	}
}
