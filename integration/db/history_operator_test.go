package db

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/cleanup/repair"
	"gpustack/host/hosttest"
	"gpustack/nova/cloud"
	"gpustack/nova/cloud/cloudtest"
)

// An operator runs gpustack repair-migration on a machine of their own: with a connection to the
// database and one to Placement, both with faults, and a journal. Its runs come to points, which
// are counted: the begin and the end of each question to Placement, and each record in the journal.
// At a point the run can be killed, or something else happens first.
type operator struct {
	name    string
	cloud   *cloudtest.Cloud // signs in, and has Placement behind it
	client  repair.Placement
	forward http.Handler

	mu      sync.Mutex
	posts   int               // requests that change allocations, in this run
	changed int               // those that were applied and changed something
	fates   map[string]string // by "post1" and so on
	late    []lateRequest

	points  int
	actions map[int]func()
	seen    []string // names of the points

	entries   []*entry
	options   find.Options
	databases *novadb.Databases
	proxy     *Proxy
	cut       bool              // the connection of a transaction was lost in this run
	findings  []cleanup.Finding // of the last run
}

// entry is what a run has recorded in the journal.
type entry struct {
	units  []cleanup.Unit
	lost   bool // COMMIT was not answered
	killed bool // the run was killed
	ended  bool // Recover has determined an outcome
}

// lateRequest is a change of allocations that Placement makes later than it was asked to.
type lateRequest struct {
	request *http.Request
	point   int // of the operator; 0: when all runs are over
}

// killed ends a run as SIGKILL would: what the journal has stays, and what the server has not
// committed is rolled back.
type killed struct{}

func newOperator(t *testing.T, name string, p *Placement) *operator {
	t.Helper()
	target, err := url.Parse(p.URL)
	hosttest.NoError(t, err)
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.URL.Path = strings.TrimPrefix(r.In.URL.Path, "/placement")
		r.Out.Header.Set("X-Auth-Token", PlacementToken)
	}}
	o := &operator{name: name, cloud: cloudtest.Start(t, 90), forward: proxy}
	o.bind()
	service := cloud.NewService(map[string]string{
		"auth_url": o.cloud.URL, "username": o.cloud.User, "password": o.cloud.Password, "project_name": o.cloud.Project, "user_domain_name": "Default", "project_domain_name": "Default",
	})
	connected, err := cloud.Connect(t.Context(), cloud.Options{Service: service})
	hosttest.NoError(t, err)
	client, err := connected.Placement()
	hosttest.NoError(t, err)
	o.client = client
	return o
}

// bind has the cloud's Placement be this operator's.
func (o *operator) bind() {
	o.cloud.Fault = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/placement") {
			return false
		}
		o.cloud.Unlocked(func() { o.serve(w, r) })
		return true
	}
}

// serve answers a request to Placement, by what the history says.
func (o *operator) serve(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		o.forward.ServeHTTP(w, r)
		return
	}
	o.mu.Lock()
	o.posts++
	fate, when, _ := strings.Cut(o.fates[fmt.Sprintf("post%d", o.posts)], ":")
	o.mu.Unlock()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	again := func() *http.Request {
		copied := r.Clone(context.Background())
		copied.Body, copied.ContentLength = io.NopCloser(strings.NewReader(string(body))), int64(len(body))
		return copied
	}
	switch fate {
	case "refused": // never applied
	case "late":
		point, _ := strconv.Atoi(when)
		o.late = append(o.late, lateRequest{again(), point})
	case "lost":
		o.do(again())
	default:
		o.pass(w, again())
		return
	}
	w.WriteHeader(http.StatusGatewayTimeout)
}

// do has Placement make a change whose answer nobody gets.
func (o *operator) do(r *http.Request) { o.pass(discard{http.Header{}}, r) }

func (o *operator) pass(w http.ResponseWriter, r *http.Request) {
	status := &statusOf{w, 0}
	o.forward.ServeHTTP(status, r)
	if status.code == http.StatusNoContent {
		o.mu.Lock()
		o.changed++
		o.mu.Unlock()
	}
}

type discard struct{ header http.Header }

func (d discard) Header() http.Header         { return d.header }
func (d discard) Write(p []byte) (int, error) { return len(p), nil }
func (d discard) WriteHeader(int)             {}

type statusOf struct {
	http.ResponseWriter
	code int
}

func (s *statusOf) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

// at is a point of a run.
func (o *operator) at(name string) {
	o.points++
	o.seen = append(o.seen, name)
	o.arrive(o.points)
	if act := o.actions[o.points]; act != nil {
		act()
	}
}

// arrive has the late requests applied whose time has come.
func (o *operator) arrive(point int) {
	o.mu.Lock()
	var now []lateRequest
	o.late = slices.DeleteFunc(o.late, func(l lateRequest) bool {
		due := l.point > 0 && l.point <= point || point < 0
		if due {
			now = append(now, l)
		}
		return due
	})
	o.mu.Unlock()
	for _, l := range now {
		o.do(l.request)
	}
}

// pointed is Placement with a point before and after each question.
type pointed struct {
	repair.Placement
	o *operator
}

func (p pointed) Allocations(ctx context.Context, consumer string) (cloud.Allocations, error) {
	p.o.at("asks what " + consumer[:8] + " holds")
	return p.Placement.Allocations(ctx, consumer)
}

func (p pointed) SetAllocations(ctx context.Context, consumers map[string]cloud.Allocations) error {
	p.o.at("sets allocations")
	err := p.Placement.SetAllocations(ctx, consumers)
	p.o.at("has set allocations")
	return err
}

// open connects to the database, in place of the connection of a run before.
func (o *operator) open(t *testing.T, account string, options find.Options) {
	t.Helper()
	o.proxy = NewProxy(t)
	address := strings.Replace(at(o.proxy.Address, "nova_cell1"), "//"+User+":", "//"+account+":", 1)
	databases, err := novadb.Open(t.Context(), novadb.Where{API: database.URL("nova_api"), Database: address})
	hosttest.NoError(t, err)
	o.databases, o.options = databases, options
}

func (o *operator) repairer(e *entry) *repair.Repairer {
	return &repair.Repairer{Databases: o.databases, Options: o.options, Placement: pointed{o.client, o}, Record: func(units []cleanup.Unit) error {
		text, err := json.Marshal(units)
		if err != nil {
			return err
		}
		e.units = nil
		if err := json.Unmarshal(text, &e.units); err != nil {
			return err
		}
		o.at("records")
		return nil
	}}
}

// run is gpustack repair-migration --apply: it recovers what is open, and repairs nothing while
// something stays open.
func (o *operator) run(ctx context.Context) (err error) {
	defer func() {
		if x := recover(); x != nil {
			if _, ok := x.(killed); !ok {
				panic(x)
			}
			err = errors.New("killed")
		}
	}()
	o.findings = nil
	if _, err := find.CheckGiven(ctx, o.databases, o.options); err != nil {
		return err
	}
	if err := o.recover(ctx); err != nil {
		return err
	}
	e := &entry{}
	r := o.repairer(e)
	if _, _, err := find.RowsAndPools(ctx, o.databases, o.options, func(f cleanup.Finding) { o.findings = append(o.findings, f) }); err != nil {
		return err
	}
	units, placement, err := r.Plan(ctx, o.findings, 100)
	if err != nil || placement != nil {
		return errors.Join(err, placement)
	}
	if !slices.ContainsFunc(units, func(u cleanup.Unit) bool { return u.State == cleanup.Planned }) {
		return nil
	}
	o.entries = append(o.entries, e)
	e.killed = true
	err = r.Apply(ctx, units)
	e.killed = false
	e.lost = errors.Is(err, novadb.ErrCommitUnknown)
	return err
}

// recover determines what became of entries that are open.
func (o *operator) recover(ctx context.Context) error {
	var errs []error
	for _, e := range o.entries {
		if !slices.ContainsFunc(e.units, cleanup.Unit.Open) {
			continue
		}
		err := o.repairer(e).Recover(ctx, e.units, false)
		e.ended = err == nil
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// rowsLocked returns whether a transaction holds locks on rows, for which another run would wait.
func rowsLocked(t *testing.T) bool {
	t.Helper()
	for _, table := range []string{"instances", "migrations", "pci_devices"} {
		if _, err := database.SQL.ExecContext(t.Context(), "SELECT id FROM nova_cell1."+table+" FOR UPDATE NOWAIT"); err != nil {
			return true
		}
	}
	return false
}
