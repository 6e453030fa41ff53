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

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
	"gpustack/nova/conf"
	"gpustack/nova/probe"
	"gpustack/nova/servertest"
)

// fast is a pace for tests.
func fast() servertest.Pace {
	const ms = time.Millisecond
	return servertest.Pace{First: ms, Most: ms, Delete: 100 * ms, Free: 20 * ms, Lost: 20 * ms}
}

// bed is a cloud with a flavor of two devices, and a plan of a test.
type bed struct {
	*cloudtest.Cloud
	kind      servertest.Kind
	placement *cloud.Placement
	plan      servertest.Plan
	engine    change.Engine
}

func newBed(t *testing.T, o servertest.Options) *bed {
	t.Helper()
	c := cloudtest.Start(t, 96)
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OS_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range c.Env() {
		t.Setenv(name, value)
	}
	c.Images = []map[string]any{{"id": "9", "name": "debian", "status": "active"}}
	c.PCI = &cloudtest.Devices{Class: "CUSTOM_PCI_10DE_11B4", Total: 2}
	connected, err := cloud.Connect(t.Context(), cloud.Options{})
	hosttest.NoError(t, err)
	b := &bed{Cloud: c}
	if b.kind.Compute, err = connected.Compute(t.Context()); err != nil {
		t.Fatal(err)
	}
	if b.placement, err = connected.Placement(); err != nil {
		t.Fatal(err)
	}
	if b.kind.Root, err = host.NewRoot("/"); err != nil {
		t.Fatal(err)
	}
	b.kind.Pace = fast()
	is := servertest.Observed{Newest: 96, Image: cloud.Image{ID: "9", Name: "debian", Status: "active"}}
	is.Flavor = cloud.Flavor{ID: "1", Name: "gpu", VCPUs: 1, RAM: 512, Disk: 10, ExtraSpecs: map[string]string{"pci_passthrough:alias": "K4200:2"}}
	o.Count = max(o.Count, 1)
	if o.Timeout == 0 {
		o.Timeout = 100 * time.Millisecond
	}
	if is.Wanted, err = servertest.NewWanted(is.Flavor, nil); err == nil {
		b.plan, err = servertest.NewPlan(o, is, time.Now())
	}
	hosttest.NoError(t, err)
	root := hosttest.Root(t, t.TempDir())
	b.engine = change.Engine{Store: change.Machine(root), Kinds: []change.Kind{b.kind}}
	return b
}

// create makes the servers of the plan.
func (b *bed) create(t *testing.T) ([]servertest.Server, change.Entry, error) {
	t.Helper()
	entry, servers, err := b.test(servertest.Evidence{}).Create(t.Context())
	return servers, entry, err
}

// test returns the test of the plan.
func (b *bed) test(e servertest.Evidence) servertest.Test {
	return servertest.Test{Kind: b.kind, Plan: b.plan, Evidence: e, Engine: b.engine}
}

// status returns the status of an entry as the journal has it.
func (b *bed) status(t *testing.T, entry change.Entry) change.Status {
	t.Helper()
	all, err := b.engine.Store.List()
	hosttest.NoError(t, err)
	for _, e := range all {
		if e.ID == entry.ID {
			return e.Status
		}
	}
	return ""
}

// passed returns the outcomes of servers whose guests have the devices.
func passed(servers []servertest.Server) (outcomes []servertest.Outcome) {
	for _, s := range servers {
		outcomes = append(outcomes, servertest.Outcome{Server: s, Verdict: probe.Pass})
	}
	return outcomes
}

// TestFreed: null without evidence, true with it, false with what holds the devices and the command
// that repairs it.
func TestFreed(t *testing.T) {
	rows := func(before, after []string) func(context.Context, string) ([]string, error) {
		n := 0
		return func(context.Context, string) ([]string, error) {
			if n++; n == 1 {
				return before, nil
			}
			return after, nil
		}
	}
	rejects := func(detail string) func(*bed) {
		return func(b *bed) {
			b.SetFault(func(w http.ResponseWriter, r *http.Request) bool {
				if r.URL.Path != "/placement/resource_providers" {
					return false
				}
				w.WriteHeader(http.StatusBadRequest)
				fmt.Fprintf(w, `{"errors": [{"status": 400, "detail": %q}]}`, detail)
				return true
			})
		}
	}
	for name, test := range map[string]struct {
		cloud     func(b *bed)
		placement bool
		rows      func(context.Context, string) ([]string, error)
		want      host.Bool
		by, why   string
	}{
		"Placement":             {nil, true, nil, host.Yes, "Placement", ""},
		"stale in Placement":    {func(b *bed) { b.Boot.Held = true }, true, nil, host.No, "Placement", "still has an allocation in Placement"},
		"Placement comes first": {nil, true, rows([]string{"0000:84:00.0"}, []string{"0000:84:00.0"}), host.Yes, "Placement", ""},
		"no evidence":           {func(b *bed) { b.PCI = nil }, true, nil, host.Unknown, "", "Placement does not show PCI devices of the server"},
		"an earlier release": {rejects("No such trait(s): COMPUTE_MANAGED_PCI_DEVICE."), true, nil, host.Unknown, "",
			"Placement does not show PCI devices of the server"},
		"rejected":     {rejects("Invalid query string parameters"), true, nil, host.Unknown, "", "Invalid query string parameters"},
		"not asked":    {nil, false, nil, host.Unknown, "", "--database is not given"},
		"the database": {nil, false, rows([]string{"0000:84:00.0"}, nil), host.Yes, "the database", ""},
		"stale in the database": {nil, false, rows([]string{"0000:84:00.0"}, []string{"0000:84:00.0", "0000:88:00.0"}), host.No, "the database",
			"rows of nova.pci_devices are still assigned to the deleted server SERVER: 0000:84:00.0, 0000:88:00.0"},
		"another database": {nil, false, rows(nil, nil), host.Unknown, "", "the database has no device of the server: it may be that of another cell"},
		"no such database": {nil, false, func(context.Context, string) ([]string, error) { return nil, errors.New("no answer") }, host.Unknown, "",
			"no answer"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, servertest.Options{Timeout: time.Minute})
			if test.cloud != nil {
				test.cloud(b)
			}
			servers, entry, err := b.create(t)
			hosttest.NoError(t, err)
			e := servertest.Evidence{Rows: test.rows}
			if test.placement {
				e.Placement = b.placement
			}
			o := passed(servers)
			hosttest.NoError(t, b.test(e).End(t.Context(), entry, o))
			got := o[0].Freed
			if diff := cmp.Diff(test.want, got.Free); diff != "" || got.By != test.by || !strings.Contains(got.Why, strings.ReplaceAll(test.why, "SERVER", servers[0].ID)) || (got.Why == "") != (test.why == "") {
				t.Errorf("%+v (-want +got):\n%s", got, diff)
			}
			if fails := test.want == host.No; fails != (servertest.Verdict(o) == probe.Fail) ||
				fails != strings.Contains(fmt.Sprint(o[0].Hints), "gpustack repair-migration --instance "+servers[0].ID) {
				t.Errorf("%+v", o)
			}
			if got := b.status(t, entry); !o[0].Deleted || got != change.Undone {
				t.Errorf("deleted %v, the entry is %s", o[0].Deleted, got)
			}
		})
	}
}

// TestFreedInterrupted: of devices that are not free when the test is interrupted, nothing is said:
// they may be free in a moment. The server is deleted.
func TestFreedInterrupted(t *testing.T) {
	b := newBed(t, servertest.Options{})
	b.kind.Pace.Free = time.Minute
	servers, entry, err := b.create(t)
	hosttest.NoError(t, err)
	ctx, cancel := context.WithCancelCause(t.Context())
	n := 0
	e := servertest.Evidence{Rows: func(context.Context, string) ([]string, error) {
		if n++; n == 2 {
			cancel(errors.New("interrupted"))
		}
		return []string{"0000:84:00.0"}, nil
	}}
	o := passed(servers)
	hosttest.Equal(t, "interrupted, no server of the test is left", fmt.Sprint(b.test(e).End(ctx, entry, o)))
	if got := o[0].Freed; got.Free.Known() || got.By != "" || got.Why != "interrupted" || n != 2 || o[0].Verdict != probe.Pass || len(b.Left()) != 0 {
		t.Errorf("%+v after %d looks, left %q", got, n, b.Left())
	}
}

// TestInterruptedRequest: whether servers are left is said as it is.
func TestInterruptedRequest(t *testing.T) {
	for name, test := range map[string]struct {
		boot cloudtest.Boot
		want string
		left int
	}{
		"deleted":     {cloudtest.Boot{}, "interrupted, no server of the test is left", 0},
		"not deleted": {cloudtest.Boot{Deleting: -1}, "interrupted, not all servers of the test were deleted", 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, servertest.Options{Count: 2})
			b.Boot = test.boot
			ctx, cancel := context.WithCancelCause(t.Context())
			b.SetFault(func(_ http.ResponseWriter, r *http.Request) bool {
				if r.Method == http.MethodPost && r.URL.Path == "/v2.1/servers" {
					cancel(errors.New("interrupted"))
				}
				return false
			})
			_, err := b.engine.Apply(ctx, change.Work{Command: "flavor test gpu", Change: b.kind.New(b.plan)})
			if err == nil || !strings.Contains(err.Error(), test.want) || len(b.Left()) != test.left {
				t.Errorf("%v, left %q", err, b.Left())
			}
		})
	}
}

// TestDeleteFails: a server that Nova does not delete is named, with the command that does.
func TestDeleteFails(t *testing.T) {
	for name, test := range map[string]struct {
		cloud func(b *bed)
		want  string
	}{
		"too slow": {func(b *bed) { b.Boot.Deleting = -1 }, "is left: not deleted after 100ms"},
		"failed":   {func(b *bed) { b.Boot.Deleting, b.Boot.Unwilling = -1, true }, "is left: nova has failed to delete it"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, servertest.Options{})
			servers, entry, err := b.create(t)
			hosttest.NoError(t, err)
			test.cloud(b)
			_, err = b.engine.Undo(t.Context(), entry.ID)
			var left *servertest.LeftError
			if !errors.As(err, &left) || left.Server != servers[0].ID || !strings.Contains(err.Error(), test.want) || !strings.Contains(left.Hint(), "openstack server delete --wait "+left.Server) {
				t.Errorf("%v", err)
			}
			b.Boot = cloudtest.Boot{}
			if _, err := b.engine.Undo(t.Context(), entry.ID); err != nil || len(b.Left()) != 0 {
				t.Errorf("%v, left %q", err, b.Left())
			}
		})
	}
}

// TestLostAnswer: a request without an answer that Nova has not carried out leaves nothing, and one
// that it carries out later is found by the recovery.
func TestLostAnswer(t *testing.T) {
	b := newBed(t, servertest.Options{Count: 2})
	n := 0
	lose := func(w http.ResponseWriter, r *http.Request) bool {
		if r.Method != http.MethodPost || r.URL.Path != "/v2.1/servers" {
			return false
		}
		if n++; n == 1 {
			return false
		}
		w.WriteHeader(http.StatusGatewayTimeout)
		return true
	}
	b.SetFault(lose)
	_, entry, err := b.create(t)
	if !errors.Is(err, cloud.ErrUnavailable) || entry.ID != 0 || len(b.Left()) != 0 || n != 2 {
		t.Errorf("%v, entry %d, left %q, %d requests", err, entry.ID, b.Left(), n)
	}
}

// TestServerMeanwhile: what happens to a server while it is watched.
func TestServerMeanwhile(t *testing.T) {
	for name, test := range map[string]struct {
		cloud func(b *bed)
		want  string
		err   bool
	}{
		"deleted by another client": {func(b *bed) { b.Instances = nil }, "another client has deleted the server", false},
		"unavailable for a while":   {func(b *bed) { b.SetFault(unavailable(3)) }, "has not reported within", false},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, servertest.Options{Timeout: 5 * time.Second}) // a slow machine answers late
			servers, _, err := b.create(t)
			hosttest.NoError(t, err)
			test.cloud(b)
			got := servertest.Test{Kind: b.kind, Plan: b.plan}.Watch(t.Context(), servers)[0]
			if got.Verdict != probe.Unknown || (got.Err != nil) != test.err || !strings.Contains(strings.Join(got.Reasons, "; "), test.want) {
				t.Errorf("%+v", got)
			}
		})
	}
}

// unavailable answers n requests with an error that passes.
func unavailable(n int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		if n--; n >= 0 {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
		return n >= 0
	}
}

// TestWanted: the ids come from the first source that defines the alias, else from the product
// table.
func TestWanted(t *testing.T) {
	defined := func(text string) nova.Defined {
		t.Helper()
		file, err := conf.Parse([]byte(text))
		hosttest.NoError(t, err)
		d, err := nova.DefinedBy([]nova.Side{{Files: []conf.Source{{Name: "nova.conf", File: file}}}})
		hosttest.NoError(t, err)
		return d
	}
	alias := defined("[pci]\nalias = {\"name\": \"gpu\", \"vendor_id\": \"10de\", \"product_id\": \"20b5\"}\nalias = {\"name\": \"K4200\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n")
	other := defined("[pci]\nalias = {\"name\": \"gpu\", \"vendor_id\": \"10de\", \"product_id\": \"1db6\"}\n")
	both := defined("[pci]\nalias = {\"name\": \"gpu\", \"vendor_id\": \"10de\", \"product_id\": \"20b5\"}\nalias = {\"name\": \"gpu\", \"vendor_id\": \"10de\", \"product_id\": \"1db6\"}\n")
	class := defined("[pci]\nalias = {\"name\": \"gpu\", \"resource_class\": \"a100\"}\ndevice_spec = {\"vendor_id\": \"10de\", \"product_id\": \"20b5\", \"resource_class\": \"A100\", \"one_time_use\": \"yes\"}\n")
	for name, test := range map[string]struct {
		specs   map[string]string
		sources []nova.Defined
		want    string
		classes map[string]int
		once    int
		err     error
	}{
		"product table":      {map[string]string{"pci_passthrough:alias": "K4200:2"}, nil, "10de:11b4=2", map[string]int{"CUSTOM_PCI_10DE_11B4": 2}, 0, nil},
		"a file":             {map[string]string{"pci_passthrough:alias": "gpu:1"}, []nova.Defined{alias}, "10de:20b5=1", map[string]int{"CUSTOM_PCI_10DE_20B5": 1}, 0, nil},
		"the first file":     {map[string]string{"pci_passthrough:alias": "gpu:1"}, []nova.Defined{other, alias}, "10de:1db6=1", map[string]int{"CUSTOM_PCI_10DE_1DB6": 1}, 0, nil},
		"two aliases":        {map[string]string{"pci_passthrough:alias": "gpu:1,K4200:2"}, []nova.Defined{alias}, "10de:11b4=2 10de:20b5=1", map[string]int{"CUSTOM_PCI_10DE_20B5": 1, "CUSTOM_PCI_10DE_11B4": 2}, 0, nil},
		"two products":       {map[string]string{"pci_passthrough:alias": "gpu:1"}, []nova.Defined{both}, "", nil, 0, servertest.ErrManyIDs},
		"unknown":            {map[string]string{"pci_passthrough:alias": "mystery:1"}, []nova.Defined{alias}, "", nil, 0, servertest.ErrNoIDs},
		"alias with a class": {map[string]string{"pci_passthrough:alias": "gpu:1"}, []nova.Defined{class}, "10de:20b5=1", map[string]int{"CUSTOM_A100": 1}, 1, nil},
		"a resource class":   {map[string]string{"resources:CUSTOM_A100": "4"}, []nova.Defined{class}, "10de:20b5=4", map[string]int{"CUSTOM_A100": 4}, 1, nil},
		"Nova's class":       {map[string]string{"resources1:CUSTOM_PCI_10DE_1DB6": "1"}, nil, "10de:1db6=1", map[string]int{"CUSTOM_PCI_10DE_1DB6": 1}, 0, nil},
		"an unknown class":   {map[string]string{"resources:CUSTOM_FPGA": "1"}, []nova.Defined{class}, "", nil, 0, servertest.ErrNoIDs},
		"a number of none":   {map[string]string{"resources:CUSTOM_A100": "0"}, []nova.Defined{class}, "", nil, 0, nil},
		"standard classes":   {map[string]string{"resources:VCPU": "0", "hw:cpu_policy": "dedicated"}, nil, "", nil, 0, servertest.ErrNoDevices},
		"malformed request":  {map[string]string{"pci_passthrough:alias": "K4200"}, nil, "", nil, 0, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := servertest.NewWanted(cloud.Flavor{Name: "f", ExtraSpecs: test.specs}, test.sources)
			if test.want == "" {
				if err == nil || test.err != nil && !errors.Is(err, test.err) {
					t.Fatalf("%+v, %v", w, err)
				}
				return
			}
			hosttest.NoError(t, err)
			want := probe.Wanted{}
			for word := range strings.FieldsSeq(test.want) {
				text, n, _ := strings.Cut(word, "=")
				id, err := probe.ParseID(text)
				hosttest.NoError(t, err)
				want[id] = int(n[0] - '0')
			}
			if diff := cmp.Diff(want, w.IDs) + cmp.Diff(test.classes, w.Classes); diff != "" || len(w.OneTimeUse) != test.once {
				t.Errorf("%+v (-want +got):\n%s", w, diff)
			}
		})
	}
}
