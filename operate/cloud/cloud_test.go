package cloud

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/document"
	"gpustack/host/hosttest"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
	"gpustack/nova/flavor"
	"gpustack/nova/servertest"
)

// connect authenticates with a cloud.
func connect(t *testing.T, c *cloudtest.Cloud) *cloud.Compute {
	t.Helper()
	for _, variable := range os.Environ() {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, "OS_") {
			t.Setenv(name, "")
		}
	}
	for name, value := range maps.All(c.Env()) {
		t.Setenv(name, value)
	}
	signedIn, err := cloud.Connect(t.Context(), cloud.Options{})
	hosttest.NoError(t, err)
	compute, err := signedIn.Compute(t.Context())
	hosttest.NoError(t, err)
	return compute
}

// TestListFlavors: the flavors that request devices, with what configuration files say of them. A
// list of projects that the user may not see is a warning, and another error ends the list.
func TestListFlavors(t *testing.T) {
	c := cloudtest.Start(t, 96)
	c.Add("1", "gpu", 8, 32768, 80, true, map[string]string{nova.RequestKey: "K4200:2"})
	c.Add("2", "small", 1, 2048, 20, true, map[string]string{})
	c.Add("3", "malformed", 1, 2048, 20, true, map[string]string{nova.RequestKey: "K4200"})
	c.Add("4", "private", 1, 2048, 20, false, map[string]string{nova.RequestKey: "A100:1"}).Access = []string{"lab"}
	compute := connect(t, c)
	root := hosttest.Lay(t, "-- etc/nova/nova.conf --\n[pci]\nalias = {\"name\": \"K4200\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n")
	offers, err := ReadOffers(root, OfferOptions{Confs: []nova.SideFiles{{Role: nova.Controller, Names: []string{nova.DefaultConf}}}, Release: nova.Newest})
	if err != nil || len(offers.Sides) != 1 || offers.Hosts != nil || offers.Warnings != nil {
		t.Fatalf("%+v, %v", offers, err)
	}
	text := func(list []ListedFlavor) (lines []string) {
		for _, f := range list {
			lines = append(lines, fmt.Sprintf("%s %v %q %s", f.Name, f.Projects, f.Request, f.Reason))
		}
		return lines
	}
	list, warnings, err := ListFlavors(t.Context(), compute, offers)
	if got, want := text(list), []string{`gpu [] "K4200:2" `, `malformed [] "" `, `private [lab] "A100:1" no file defines alias A100`}; err != nil || warnings != nil ||
		len(got) != 3 || got[0] != want[0] || !strings.HasPrefix(got[1], want[1]) || got[2] != want[2] || list[1].Met != host.No || list[1].Request != nil {
		t.Errorf("%q, %q, %v", got, warnings, err)
	}

	status := http.StatusForbidden
	c.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/os-flavor-access") {
			return false
		}
		w.WriteHeader(status)
		return true
	}
	list, warnings, err = ListFlavors(t.Context(), compute, offers)
	if err != nil || len(list) != 3 || list[2].Projects != nil || len(warnings) != 1 {
		t.Errorf("%q, %q, %v", text(list), warnings, err)
	}
	status = http.StatusBadRequest
	if _, _, err = ListFlavors(t.Context(), compute, offers); err == nil {
		t.Error("no error")
	}
}

// TestReadOffers: the errors of all documents are returned at once.
func TestReadOffers(t *testing.T) {
	_, err := ReadOffers(hosttest.Lay(t, "-- etc/hostname --\na\n"), OfferOptions{
		Inventories: document.Source{Paths: []string{"/no/inventory"}}, Confs: []nova.SideFiles{{Names: []string{"/no/nova.conf"}}}, Release: nova.Newest,
	})
	if err == nil || !strings.Contains(err.Error(), "/no/inventory") || !strings.Contains(err.Error(), "/no/nova.conf") {
		t.Error(err)
	}
}

// TestPlanUndo: the undo of a flavor; of one that was undone already, which is an error unless the
// entry was open before; and of an object of another type.
func TestPlanUndo(t *testing.T) {
	c := cloudtest.Start(t, 96)
	compute := connect(t, c)
	engine := UndoEngine(compute, change.Store{Root: hosttest.Lay(t, "-- etc/hostname --\na\n"), Dir: "/state"})
	request, err := nova.ParseRequest("K4200:2")
	hosttest.NoError(t, err)
	made, err := flavor.NewPlan(flavor.Options{Request: request}, flavor.Cloud{Microversion: compute.Microversion, Newest: compute.Newest})
	hosttest.NoError(t, err)
	entry, err := engine.Apply(t.Context(), change.Work{Command: "flavor create", Change: flavor.Kind(compute).New(made.Move)})
	hosttest.NoError(t, err)
	if err := Known(entry); err != nil {
		t.Error(err)
	}
	plan, recovered, err := PlanUndo(t.Context(), engine, entry)
	if undone, ok := plan.Change.(*flavor.Change); err != nil || recovered || !ok || undone.Move.After.Name != "gpu.k4200.2" {
		t.Errorf("%+v, %t, %v", plan, recovered, err)
	}
	if _, err := engine.Undo(t.Context(), entry.ID); err != nil {
		t.Fatal(err)
	}
	if _, recovered, err := PlanUndo(t.Context(), engine, entry); recovered || !errors.Is(err, change.ErrUndone) {
		t.Errorf("%t, %v", recovered, err)
	}
	entry.Status = change.Applying
	if _, recovered, err := PlanUndo(t.Context(), engine, entry); !recovered || err != nil {
		t.Errorf("%t, %v", recovered, err)
	}
	hosttest.NoError(t, entry.SetDetail(map[string]string{"type": "volume"}))
	if err := Known(entry); err == nil {
		t.Error("no error")
	}
}

// TestTests: a test is planned from files of the operator; one whose run has ended without deleting
// its servers is found, and its entry is closed by a cleaning.
func TestTests(t *testing.T) {
	c := cloudtest.Start(t, 96)
	c.Add("1", "gpu", 8, 32768, 80, true, map[string]string{nova.RequestKey: "GPU:2"})
	c.Images = []map[string]any{{"id": "9", "name": "debian", "status": "active", "size": 1}}
	root := hosttest.Lay(t, "-- etc/hostname --\na\n")
	compute := connect(t, c)
	engine, kind := UndoEngine(compute, change.Store{Root: root, Dir: "/state"}), servertest.Kind{Compute: compute, Root: root}
	list := func() []change.Entry {
		entries, err := engine.Store.List()
		if err != nil {
			t.Error(err)
		}
		return entries
	}
	newPlan := func(o servertest.Options, sources []nova.Defined) (servertest.Plan, error) {
		is, err := servertest.Observe(t.Context(), compute.Cloud(), compute, o, sources)
		if err != nil {
			return servertest.Plan{}, err
		}
		return servertest.NewPlan(o, is, time.Now())
	}

	options := servertest.Options{FlavorName: "gpu", ImageName: "debian", Count: 1, Timeout: time.Minute}
	evidence, end, err := OpenEvidence(t.Context(), "")
	if err != nil || evidence.Rows != nil {
		t.Fatalf("%+v, %v", evidence, err)
	}
	defer func() {
		if err := end(); err != nil {
			t.Error(err)
		}
	}()
	if _, err := newPlan(options, nil); !errors.Is(err, servertest.ErrNoIDs) {
		t.Errorf("%v", err)
	}
	conf := "/nova.conf"
	hosttest.NoError(t, os.WriteFile(root.Path(conf), []byte("[pci]\nalias = {\"name\": \"GPU\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n"), 0o600))
	sources, unread, err := AliasSources(root, []nova.SideFiles{{Names: []string{conf}}}, document.Source{})
	if err != nil || unread != nil {
		t.Fatal(unread, err)
	}
	plan, err := newPlan(options, sources)
	if err != nil || len(plan.Wanted.IDs) != 1 {
		t.Fatalf("%+v, %v", plan, err)
	}

	if unended := kind.Unended(list()); unended != nil {
		t.Errorf("%+v", unended)
	}
	entry, err := engine.Apply(t.Context(), change.Work{Command: "flavor test gpu", Change: kind.New(plan)})
	hosttest.NoError(t, err)
	unended := kind.Unended(list()) // of this tree's processes, none is running
	if len(unended) != 1 || unended[0].ID != entry.ID {
		t.Errorf("%+v", unended)
	}
	cleaning, err := kind.NewCleaning(t.Context(), list(), time.Now())
	if err != nil || len(cleaning.Remove()) != 1 || len(cleaning.Closed) != 1 {
		t.Fatalf("%+v, %v", cleaning, err)
	}
	kind.Pace = servertest.Pace{First: time.Millisecond, Most: time.Millisecond}
	if err := kind.Clean(t.Context(), engine, &cleaning); err != nil || !cleaning.Leftovers[0].Deleted {
		t.Errorf("%+v, %v", cleaning, err)
	}
	if unended := kind.Unended(list()); unended != nil {
		t.Errorf("%+v", unended)
	}
}

// TestAliasSources: aliases of the machine's own files; a file that cannot be parsed is no error.
func TestAliasSources(t *testing.T) {
	const alias = "-- etc/nova/nova.conf --\n[pci]\nalias = {\"name\": \"GPU\", \"vendor_id\": \"10de\", \"product_id\": \"11b4\"}\n"
	for name, test := range map[string]struct {
		tree            string
		aliases, unread int
	}{
		"none":      {"-- etc/hostname --\na\n", 0, 0},
		"an alias":  {alias, 1, 0},
		"malformed": {alias + "alias = {\n", 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			sources, unread, err := AliasSources(hosttest.Lay(t, test.tree), nil, document.Source{})
			if err != nil || len(sources) != 1 || len(sources[0].Aliases) != test.aliases || len(unread) != test.unread {
				t.Errorf("%+v, %v, %v", sources, unread, err)
			}
		})
	}
}
