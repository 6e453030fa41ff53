package nova

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
)

// gateway stands before the real Placement, and answers in its place what a proxy does that
// has lost the answer, or passes a request on late. A second server stands before Keystone,
// whose catalog names the gateway.
type gateway struct {
	Keystone string // with /v3

	mu    sync.Mutex
	next  []func(w http.ResponseWriter, forward func() (int, []byte)) // of the next POSTs of allocations
	posts int
}

func newGateway(t *testing.T) *gateway {
	t.Helper()
	g := &gateway{}
	through := func(address string) *httputil.ReverseProxy {
		target, err := url.Parse(address)
		hosttest.NoError(t, err)
		return httputil.NewSingleHostReverseProxy(&url.URL{Scheme: target.Scheme, Host: target.Host})
	}
	real := through(lab.PlacementURL)
	placement := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodPost || !strings.HasSuffix(r.URL.Path, "/allocations") {
			real.ServeHTTP(w, r)
			return
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		forward := func() (int, []byte) {
			request, err := http.NewRequest(r.Method, lab.PlacementURL+r.URL.Path, bytes.NewReader(body))
			if err != nil {
				return http.StatusBadGateway, nil
			}
			request.Header = r.Header.Clone()
			answer, err := http.DefaultClient.Do(request)
			if err != nil {
				return http.StatusBadGateway, nil
			}
			defer answer.Body.Close()
			text, _ := io.ReadAll(answer.Body)
			return answer.StatusCode, text
		}
		g.mu.Lock()
		g.posts++
		act := func(w http.ResponseWriter, forward func() (int, []byte)) {
			status, text := forward()
			w.WriteHeader(status)
			w.Write(text)
		}
		if len(g.next) > 0 {
			act, g.next = g.next[0], g.next[1:]
		}
		g.mu.Unlock()
		act(w, forward)
	}))
	t.Cleanup(placement.Close)
	identity := through(lab.KeystoneURL)
	identity.ModifyResponse = func(answer *http.Response) error {
		text, err := io.ReadAll(answer.Body)
		text = bytes.ReplaceAll(text, []byte(lab.PlacementURL), []byte(placement.URL))
		answer.Body = io.NopCloser(bytes.NewReader(text))
		answer.ContentLength = int64(len(text))
		answer.Header.Set("Content-Length", strconv.Itoa(len(text)))
		return errors.Join(err)
	}
	keystone := httptest.NewServer(identity)
	t.Cleanup(keystone.Close)
	g.Keystone = keystone.URL + "/v3"
	return g
}

// then says what becomes of the next POSTs of allocations.
func (g *gateway) then(acts ...func(http.ResponseWriter, func() (int, []byte))) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.next, g.posts = acts, 0
}

func (g *gateway) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.posts
}

// controller is a controller that finds Placement through the gateway.
func (g *gateway) controller(t *testing.T) string {
	t.Helper()
	root := controller(t)
	name := filepath.Join(root, "etc/nova/nova.conf")
	text, err := os.ReadFile(name)
	if err == nil {
		err = os.WriteFile(name, bytes.ReplaceAll(text, []byte(lab.KeystoneURL), []byte(g.Keystone)), 0o640)
	}
	hosttest.NoError(t, err)
	return root
}

// TestRepairPlacementAnswers: a real Placement behind a gateway that loses its answers, or
// brings requests to it late: rows and allocations agree in the end, and no save of Nova's
// waits for Placement.
func TestRepairPlacementAnswers(t *testing.T) {
	nova := compute(t)
	server := boot(t, nova, newFlavor(t, nova, "behind-a-gateway", 1))
	g := newGateway(t)
	root := g.controller(t)

	// A request is applied 12 s after it was sent, when the run has gone on. Nova saves the
	// instance meanwhile.
	source := killInMigration(t, nova, server)
	later(t, server)
	before := allocations(t)
	arrived := make(chan int, 1)
	g.then(func(_ http.ResponseWriter, forward func() (int, []byte)) {
		time.Sleep(12 * time.Second)
		status, _ := forward()
		arrived <- status
	})
	type outcome struct {
		stderr string
		status int
	}
	done := make(chan outcome, 1)
	go func() {
		_, stderr, status := command(t, nil, append([]string{"repair-migration", "--root", root, "--apply", "--yes", "--wait", "1s"}, reportsOfBoth(t)...)...)
		done <- outcome{stderr, status}
	}()
	until(t, "Placement has its request", func() bool { return g.count() > 0 })
	begin := time.Now()
	_, err := servers.Update(t.Context(), nova, server, servers.UpdateOpts{Name: "saved-meanwhile"}).Extract()
	if took := time.Since(begin); err != nil || took > 7*time.Second {
		t.Errorf("Nova's save took %s, %v", took, err)
	}
	if o := <-done; o.status != 1 || !strings.Contains(o.stderr, "no answer within 5s") {
		t.Errorf("exit status %d, %s", o.status, o.stderr)
	}
	if status := <-arrived; status != http.StatusConflict {
		t.Errorf("the late request was answered %d, and not refused", status)
	}
	if diff := cmp.Diff(before, allocations(t)); diff != "" || len(rows(t, cards, server)) != 2 {
		t.Errorf("Placement (-before +after):\n%s", diff)
	}

	// It is applied, and the gateway answers 504.
	g.then(func(w http.ResponseWriter, forward func() (int, []byte)) {
		forward()
		w.WriteHeader(http.StatusGatewayTimeout)
	})
	if got, status := repaired(t, root, append(reportsOfBoth(t), "--apply", "--yes", "--wait", "90s")...); len(got) > 0 || status != 0 {
		t.Errorf("exit status %d, %q", status, got)
	}
	if n := g.count(); n != 2 { // the repair's, and the one that makes it certain
		t.Errorf("%d requests", n)
	}
	hosttest.EqualIn(t, "Placement", [][]string{{source, server}}, allocations(t))
	remove(t, nova, server)
	until(t, "Placement's books are empty", func() bool { return len(allocations(t)) == 0 })
}
