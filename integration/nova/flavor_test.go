package nova

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"gpustack/host/hosttest"

	"github.com/google/go-cmp/cmp"
	"github.com/gophercloud/gophercloud/v2"
	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/servers"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/applicationcredentials"
	"github.com/gophercloud/gophercloud/v2/openstack/identity/v3/tokens"
)

// isolated is a command for which a folder of the test is /var/lib, where root records changes.
func isolated(t testing.TB, argv ...string) *exec.Cmd {
	t.Helper()
	lib := filepath.Join(filepath.Dir(gpustack), "lib", strings.ReplaceAll(t.Name(), "/", "-"))
	hosttest.NoError(t, os.MkdirAll(lib, 0o755))
	return exec.Command("unshare", append([]string{"--mount", "sh", "-c", `mount --bind "$1" /var/lib && shift && exec "$@"`, "sh", lib}, argv...)...)
}

// command runs gpustack, with these variables beside those that name no cloud. What
// it prints must hold no secret, whatever else comes of it.
func command(t testing.TB, env []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := isolated(t, append([]string{gpustack}, args...)...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8"}, env...)
	var out, talk bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &talk
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	for _, secret := range append(secretsOf(env), lab.AdminPassword, lab.DemoPassword) {
		if strings.Contains(out.String()+talk.String(), secret) {
			t.Errorf("%q tells a secret:\n%s%s", args, out.String(), talk.String())
		}
	}
	return out.String(), talk.String(), cmd.ProcessState.ExitCode()
}

func secretsOf(env []string) (secrets []string) {
	for _, variable := range env {
		name, value, _ := strings.Cut(variable, "=")
		if strings.HasSuffix(name, "_PASSWORD") || strings.HasSuffix(name, "_SECRET") || strings.HasSuffix(name, "_TOKEN") {
			secrets = append(secrets, value)
		}
	}
	return secrets
}

// succeed runs gpustack as admin, which must succeed, and returns what it printed,
// with what is different each time replaced.
func succeed(t testing.TB, args ...string) string {
	t.Helper()
	stdout, stderr, status := command(t, lab.Env(), args...)
	if status != 0 {
		t.Fatalf("%q: exit status %d\n%s", args, status, stderr)
	}
	return steady(stdout + stderr)
}

func steady(text string) string {
	text = regexp.MustCompile(`127\.0\.0\.1:\d+`).ReplaceAllString(text, "HOST")
	text = regexp.MustCompile(`req-[0-9a-f-]{36}`).ReplaceAllString(text, "REQUEST")
	return regexp.MustCompile(`[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}`).ReplaceAllString(text, "ID")
}

// TestFlavor is a flavor's life: made, made again, changed, drifted, used, deleted.
func TestFlavor(t *testing.T) {
	t.Cleanup(func() { command(t, lab.Env(), "flavor", "delete", "gpu.k4200.2", "--yes") }) // where the test has failed
	want := `flavor gpu.k4200.2 at http://HOST/v2.1 (microversion 2.86)

--- /dev/null
+++ flavor gpu.k4200.2
@@ -0,0 +1,5 @@
+vcpus        2
+ram          64 MiB
+disk         0 GiB
+access       public
+property     pci_passthrough:alias=K4200:2

requests:
  POST /flavors
  POST /flavors/ID/os-extra_specs

create flavor gpu.k4200.2; 2 requests
gpustack: warning: with --disk 0 the disk of a guest is as large as its image: cloud images are too small for CUDA, which needs 20 GiB or a volume
gpustack: done, recorded as entry 1: 'gpustack undo 1' undoes it
gpustack: created flavor gpu.k4200.2, id ID
gpustack: next: run 'gpustack flavor test gpu.k4200.2 --image IMAGE'
`
	create := []string{"flavor", "create", "K4200:2", "--vcpus", "2", "--ram", "64", "--disk", "0", "--yes"}
	hosttest.EqualIn(t, "create", want, succeed(t, create...))
	hosttest.ContainsIn(t, "again", "nothing to do: the flavor is as planned", succeed(t, create...))
	got := succeed(t, append(create, "--description", "two cards", "--hide-hypervisor")...)
	for _, line := range []string{"+description  two cards\n", "+property     hw:hide_hypervisor_id=true\n", "  PUT /flavors/ID\n"} {
		hosttest.ContainsIn(t, "change", line, got)
	}
	// Somebody changes what it asks for.
	nova := compute(t)
	id := rows(t, "SELECT flavorid FROM nova_api.flavors WHERE name = 'gpu.k4200.2'")[0][0]
	osc(t, "flavor", "set", id, "--property", "pci_passthrough:alias=K4200:1", "--property", "hw:mem_page_size=any")
	got = succeed(t, create...)
	if !strings.Contains(got, "-property     pci_passthrough:alias=K4200:1\n+property     pci_passthrough:alias=K4200:2\n") || !strings.Contains(got, " property     hw:mem_page_size=any\n") {
		t.Errorf("drift: %s", got)
	}
	// As another client sees it.
	var shown struct {
		Properties  map[string]string
		VCPUs       int
		Description string
	}
	hosttest.NoError(t, json.Unmarshal([]byte(osc(t, "flavor", "show", id, "-f", "json")), &shown))
	if diff := cmp.Diff(map[string]string{"pci_passthrough:alias": "K4200:2", "hw:hide_hypervisor_id": "true", "hw:mem_page_size": "any"}, shown.Properties); diff != "" || shown.VCPUs != 2 || shown.Description != "two cards" {
		t.Errorf("%+v (-want +got):\n%s", shown, diff)
	}
	// What cannot be changed is named, and stays.
	_, stderr, status := command(t, lab.Env(), "flavor", "create", "K4200:2", "--vcpus", "4", "--yes")
	if status != 1 || !strings.Contains(stderr, "error: flavor gpu.k4200.2: vcpus is 2 and cannot be changed to 4\n") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	// A guest boots with it, gets both cards of a host, and keeps the flavor alive.
	server := boot(t, nova, id)
	if got := rows(t, cards, server); len(got) != 2 || got[0][0] != got[1][0] || got[0][2] != "allocated" || got[1][2] != "allocated" {
		t.Errorf("cards of the server: %q", got)
	}
	_, stderr, status = command(t, lab.Env(), "flavor", "delete", "gpu.k4200.2", "--yes")
	if status != 1 || !strings.Contains(stderr, "error: flavor gpu.k4200.2: is in use by 1 instance: "+server+"\n") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	remove(t, nova, server)
	if got := succeed(t, "flavor", "delete", "gpu.k4200.2", "--yes"); !strings.HasSuffix(got, "gpustack: deleted flavor gpu.k4200.2\n") {
		t.Error(got)
	}
	hosttest.EqualIn(t, "it is still there", "0", rows(t, "SELECT count(*) FROM nova_api.flavors WHERE name = 'gpu.k4200.2'")[0][0])
}

// TestUndoFlavor: undo of a deletion creates a flavor again as another client sees it, id,
// properties, access and all; undo of its creation deletes it, unless another client has changed it
// since.
func TestUndoFlavor(t *testing.T) {
	succeed(t, "flavor", "create", "K4200:1", "--name", "undone", "--vcpus", "3", "--ram", "512", "--disk", "5", "--ephemeral", "2", "--swap", "64",
		"--description", "for the lab", "--private", "--project", "demo", "--hide-hypervisor", "--yes")
	show := func() string {
		return osc(t, "flavor", "show", "undone", "-f", "json")
	}
	before := show()
	succeed(t, "flavor", "delete", "undone", "--yes")
	succeed(t, "undo", "--yes")
	hosttest.EqualIn(t, "after undo", before, show())
	osc(t, "flavor", "set", "undone", "--property", "hw:mem_page_size=any")
	_, stderr, status := command(t, lab.Env(), "undo", "--yes")
	if status != 1 || !strings.Contains(stderr, "error: flavor undone has changed since: it has property hw:mem_page_size=any\n") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	osc(t, "flavor", "unset", "undone", "--property", "hw:mem_page_size")
	// A change is undone too.
	before = show()
	succeed(t, "flavor", "create", "K4200:2", "--name", "undone", "--private", "--description", "", "--project", "admin", "--property", "hw:mem_page_size=any", "--yes")
	if before == show() {
		t.Error("no change")
	}
	succeed(t, "undo", "--yes")
	hosttest.EqualIn(t, "after undo", before, show())
	succeed(t, "undo", "--yes")
	hosttest.EqualIn(t, "it is still there", "0", rows(t, "SELECT count(*) FROM nova_api.flavors WHERE name = 'undone'")[0][0])
}

// TestThreeCards: what no host has is told beforehand, and is so.
func TestThreeCards(t *testing.T) {
	succeed(t, "flavor", "create", "K4200:3", "--vcpus", "1", "--ram", "64", "--disk", "0", "--yes")
	defer succeed(t, "flavor", "delete", "gpu.k4200.3", "--yes")
	node := filepath.Join(t.TempDir(), "node")
	if out, err := exec.Command(gpustack, "host", "unpack", "../../examples/talk-2xk4200.txtar", node).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	inventory, err := exec.Command(gpustack, "host", "scan", "--root", node, "-o", "json").Output()
	hosttest.NoError(t, err)
	file := filepath.Join(t.TempDir(), "gpu1.json")
	hosttest.NoError(t, os.WriteFile(file, inventory, 0o600))
	got := succeed(t, "flavor", "list", "--conf", "all="+lab.NovaConf, "--release", lab.ReleaseName(), "--inventory", file)
	hosttest.Contains(t, "no: no host has enough devices: gpu1 has 2 of 3", got)
	nova := compute(t)
	id := rows(t, "SELECT flavorid FROM nova_api.flavors WHERE name = 'gpu.k4200.3'")[0][0]
	server := start(t, nova, id)
	until(t, "the server finds no host", func() bool {
		s, err := servers.Get(t.Context(), nova, server).Extract()
		if err != nil || s.Status == "ACTIVE" {
			t.Fatalf("%v, %+v", err, s)
		}
		return s.Status == "ERROR" && strings.Contains(s.Fault.Message, "No valid host was found")
	})
	remove(t, nova, server)
}

// TestPrivate: who may use a flavor, and who sees it.
func TestPrivate(t *testing.T) {
	create := []string{"flavor", "create", "K4200:1", "--name", "demos", "--private", "--project", "demo", "--disk", "20G", "--yes"}
	_, stderr, status := command(t, lab.Env(), "flavor", "create", "K4200:1", "--name", "demos", "--private", "--project", "nobody", "--yes")
	if status != 1 || !strings.Contains(steady(stderr), "error: project nobody: not found: ") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	succeed(t, "flavor", "create", "K4200:1", "--name", "admins", "--private", "--yes")
	defer succeed(t, "flavor", "delete", "admins", "--yes")
	if got := succeed(t, create...); !strings.Contains(got, "+project      ID\n") || !strings.Contains(got, "  POST /flavors/ID/action\n") {
		t.Error(got)
	}
	defer succeed(t, "flavor", "delete", "demos", "--yes")
	hosttest.Contains(t, "nothing to do", succeed(t, create...))
	want := `NAME  DEVICES  VCPUS  RAM  DISK  ACCESS  OTHER PROPERTIES
admins  K4200:1  4  16 GiB  40 GiB  private, no project
demos  K4200:1  4  16 GiB  20 GiB  ID
`
	hosttest.Equal(t, want, regexp.MustCompile(`  +`).ReplaceAllString(succeed(t, "flavor", "list"), "  "))
	// Its user sees it, not the other, and may make none.
	stdout, stderr, status := command(t, lab.DemoEnv(), "flavor", "list")
	if status != 0 || !strings.Contains(stdout, "demos") || strings.Contains(stdout, "admins") {
		t.Errorf("exit status %d, %s%s", status, stdout, stderr)
	}
	_, stderr, status = command(t, lab.DemoEnv(), "flavor", "create", "K4200:2", "--yes")
	if status != 1 || !strings.Contains(steady(stderr), "error: nothing was changed: creating flavor gpu.k4200.2: permission denied: Policy doesn't allow os_compute_api:os-flavor-manage:create to be performed (HTTP 403, REQUEST)\n") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
}

// TestNovaRefuses: a property that Nova does not know leaves nothing behind.
func TestNovaRefuses(t *testing.T) {
	_, stderr, status := command(t, lab.Env(), "flavor", "create", "K4200:1", "--property", "hw:bogus=1", "--yes")
	if status != 1 || !strings.HasPrefix(steady(stderr), "gpustack: error: nothing was changed: extra specs of flavor gpu.k4200.1: Validation failed; extra spec 'hw:bogus' does not appear to be a valid extra spec (HTTP 400, REQUEST)\n") {
		t.Errorf("exit status %d, %s", status, stderr)
	}
	hosttest.EqualIn(t, "a flavor is left", "0", rows(t, "SELECT count(*) FROM nova_api.flavors WHERE name LIKE 'gpu.%%'")[0][0])
}

// proxy is what stands before Keystone and Nova: the catalog names it. Its own log is
// what was asked, in order.
type proxy struct {
	auth string // Keystone's address here

	mu    sync.Mutex
	asked []string
	// fault may answer a request itself, and then returns true.
	fault func(http.ResponseWriter, *http.Request) bool
}

// A catalog that names another Nova leads people astray.
func newProxy(t testing.TB, elsewhere string) *proxy {
	t.Helper()
	p := &proxy{}
	before := func(address string, modify func(*http.Response) error) *httptest.Server {
		target, err := url.Parse(address)
		hosttest.NoError(t, err)
		forward := &httputil.ReverseProxy{
			Rewrite: func(r *httputil.ProxyRequest) {
				r.SetURL(&url.URL{Scheme: target.Scheme, Host: target.Host})
				r.Out.Host = target.Host // or the services put their own links there
			},
			ModifyResponse: modify,
			ErrorLog:       log.New(io.Discard, "", 0),
		}
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			p.mu.Lock()
			p.asked = append(p.asked, r.Method+" "+r.URL.Path)
			fault := p.fault
			p.mu.Unlock()
			if fault != nil && fault(w, r) {
				return
			}
			forward.ServeHTTP(w, r)
		}))
		t.Cleanup(server.Close)
		return server
	}
	nova := elsewhere
	if nova == "" {
		nova = hostOf(before(lab.NovaURL, nil).URL)
	}
	keystone := before(lab.KeystoneURL, func(r *http.Response) error {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return err
		}
		body = bytes.ReplaceAll(body, []byte(hostOf(lab.NovaURL)), []byte(nova))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		r.Header.Set("Content-Length", strconv.Itoa(len(body)))
		return nil
	})
	p.auth = keystone.URL + "/v3"
	return p
}

func hostOf(address string) string {
	u, err := url.Parse(address)
	if err != nil {
		panic(err)
	}
	return u.Host
}

func (p *proxy) env() []string {
	return append(lab.Env(), "OS_AUTH_URL="+p.auth)
}

// breaks lets the first requests of that method and end of path go wrong.
func (p *proxy) breaks(times int, method, path string, fault func(http.ResponseWriter, *http.Request) bool) {
	p.fault = func(w http.ResponseWriter, r *http.Request) bool {
		p.mu.Lock()
		hit := times > 0 && r.Method == method && strings.HasSuffix(r.URL.Path, path)
		if hit {
			times--
		}
		p.mu.Unlock()
		return hit && fault(w, r)
	}
}

// TestRequests: a first flavor takes four requests, after that for a token.
func TestRequests(t *testing.T) {
	p := newProxy(t, "")
	_, stderr, status := command(t, p.env(), "flavor", "create", "K4200:1", "--yes")
	defer succeed(t, "flavor", "delete", "gpu.k4200.1", "--yes")
	if status != 0 {
		t.Fatal(stderr)
	}
	var got []string
	for _, line := range p.asked {
		got = append(got, steady(line))
	}
	want := []string{"POST /v3/auth/tokens", "GET /v2.1/", "GET /v2.1/flavors/detail", "POST /v2.1/flavors", "POST /v2.1/flavors/ID/os-extra_specs"}
	hosttest.Equal(t, want, got)
}

// TestOverBadRoads: what a busy cloud, a lost connection and a token that has run out
// break on the way is mended, and a flavor is made once.
func TestOverBadRoads(t *testing.T) {
	lose := func(w http.ResponseWriter, _ *http.Request) bool {
		if connection, _, err := w.(http.Hijacker).Hijack(); err == nil {
			connection.Close()
		}
		return true
	}
	for name, test := range map[string]struct {
		times        int
		method, path string
		fault        func(http.ResponseWriter, *http.Request) bool
	}{
		"503 twice, signing in": {2, "POST", "/auth/tokens", status(http.StatusServiceUnavailable)},
		"503 twice, making":     {2, "POST", "/flavors", status(http.StatusServiceUnavailable)},
		"429":                   {1, "GET", "/flavors/detail", status(http.StatusTooManyRequests)},
		"the question is lost":  {1, "POST", "/flavors", lose},
		"the answer is lost": {1, "POST", "/flavors", func(w http.ResponseWriter, r *http.Request) bool {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return false
			}
			again, err := http.NewRequest(r.Method, "http://"+hostOf(lab.NovaURL)+r.URL.Path, bytes.NewReader(body))
			if err != nil {
				return false
			}
			again.Header = r.Header
			if answer, err := http.DefaultClient.Do(again); err == nil {
				answer.Body.Close()
			}
			return lose(w, r)
		}},
		"the token is refused": {1, "POST", "/os-extra_specs", func(_ http.ResponseWriter, r *http.Request) bool {
			r.Header.Set("X-Auth-Token", "gAAAAABstale")
			return false // the real Nova refuses it
		}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProxy(t, "")
			p.breaks(test.times, test.method, test.path, test.fault)
			_, stderr, status := command(t, p.env(), "flavor", "create", "K4200:1", "--yes", "-v")
			if status != 0 {
				t.Fatal(stderr)
			}
			defer succeed(t, "flavor", "delete", "gpu.k4200.1", "--yes")
			hosttest.Contains(t, "gpustack: created flavor gpu.k4200.1, id ", stderr)
			got := rows(t, "SELECT count(DISTINCT f.id), group_concat(s.value) FROM nova_api.flavors f LEFT JOIN nova_api.flavor_extra_specs s ON s.flavor_id = f.id WHERE f.name LIKE 'gpu.%%'")
			hosttest.EqualIn(t, "flavors", [][]string{{"1", "K4200:1"}}, got)
		})
	}
}

func status(code int) func(http.ResponseWriter, *http.Request) bool {
	return func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(code)
		return true
	}
}

// TestDoesNotGetThere: each error in one line that names what is wrong, exit status 1,
// nothing secret.
func TestDoesNotGetThere(t *testing.T) {
	session, err := lab.Client(t.Context())
	hosttest.NoError(t, err)
	keystone, err := openstack.NewIdentityV3(session, gophercloud.EndpointOpts{Region: Region})
	hosttest.NoError(t, err)
	expired, err := lab.Client(t.Context())
	hosttest.NoError(t, err)
	hosttest.NoError(t, tokens.Revoke(t.Context(), keystone, expired.Token()).Err)
	target, err := url.Parse("http://" + hostOf(lab.KeystoneURL))
	hosttest.NoError(t, err)
	secure := httptest.NewUnstartedServer(httputil.NewSingleHostReverseProxy(target))
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	defer secure.Close()
	authority := filepath.Join(t.TempDir(), "ca.pem")
	hosttest.NoError(t, os.WriteFile(authority, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}), 0o600))
	busy := newProxy(t, "")
	busy.breaks(99, "GET", "/v2.1/", status(http.StatusServiceUnavailable))
	token := func(id string) []string {
		return []string{"OS_AUTH_URL=" + lab.KeystoneURL, "OS_TOKEN=" + id, "OS_PROJECT_NAME=admin", "OS_PROJECT_DOMAIN_NAME=Default"}
	}
	clouds := filepath.Join(t.TempDir(), "clouds.yaml")
	hosttest.NoError(t,
		os.WriteFile(clouds,
			[]byte("clouds:\n  lab:\n    auth: {auth_url: '"+lab.KeystoneURL+"', username: admin, project_name: admin, password: "+lab.AdminPassword+"}\n"), 0o600))
	credential := newCredential(t, keystone)
	for name, test := range map[string]struct {
		env  []string
		args []string
		want string // the error; "" for none
	}{
		"wrong password":              {env: append(lab.Env(), "OS_PASSWORD=not-the-password"), want: "authentication at http://HOST/v3 as admin: credentials rejected: The request you have made requires authentication (HTTP 401, REQUEST)"},
		"no such user":                {env: append(lab.Env(), "OS_USERNAME=nobody"), want: "authentication at http://HOST/v3 as nobody: credentials rejected: The request you have made requires authentication (HTTP 401, REQUEST)"},
		"no such project":             {env: append(lab.Env(), "OS_PROJECT_NAME=nothing"), want: "authentication at http://HOST/v3 as admin: credentials rejected: The request you have made requires authentication (HTTP 401, REQUEST)"},
		"token":                       {env: token(session.Token())},
		"expired token":               {env: token(expired.Token()), want: "authentication at http://HOST/v3: credentials rejected: Failed to validate token (HTTP 404, REQUEST)"},
		"cloud of clouds.yaml":        {env: []string{"OS_CLIENT_CONFIG_FILE=" + clouds}, args: []string{"--os-cloud", "lab"}},
		"no such cloud":               {env: []string{"OS_CLIENT_CONFIG_FILE=" + clouds}, args: []string{"--os-cloud", "prod"}, want: "cloud prod: no such cloud: " + clouds + " contains lab"},
		"application credential":      {env: []string{"OS_AUTH_URL=" + lab.KeystoneURL, "OS_APPLICATION_CREDENTIAL_ID=" + credential.ID, "OS_APPLICATION_CREDENTIAL_SECRET=" + credential.Secret}},
		"the same, wrong":             {env: []string{"OS_AUTH_URL=" + lab.KeystoneURL, "OS_APPLICATION_CREDENTIAL_ID=" + credential.ID, "OS_APPLICATION_CREDENTIAL_SECRET=not-the-secret"}, want: "authentication at http://HOST/v3 with an application credential: credentials rejected: "},
		"without a version":           {env: append(lab.Env(), "OS_AUTH_URL="+strings.TrimSuffix(lab.KeystoneURL, "/v3"))},
		"no such region":              {env: lab.Env(), args: []string{"--os-region-name", "Elsewhere"}, want: "compute service: the catalog has no such endpoint"},
		"API down":                    {env: newProxy(t, closedPort(t)).env(), want: "compute service: no connection: dial tcp HOST: connect: connection refused"},
		"503 for ever":                {env: busy.env(), want: "compute service: the service is not available (HTTP 503)"},
		"unknown authority":           {env: append(lab.Env(), "OS_AUTH_URL="+secure.URL+"/v3"), want: "authentication at https://HOST/v3 as admin: the certificate is not trusted: x509: certificate signed by unknown authority"},
		"the authority is named":      {env: append(lab.Env(), "OS_AUTH_URL="+secure.URL+"/v3"), args: []string{"--os-cacert", authority}},
		"by OS_CACERT":                {env: append(lab.Env(), "OS_AUTH_URL="+secure.URL+"/v3", "OS_CACERT="+authority)},
		"any certificate is believed": {env: append(lab.Env(), "OS_AUTH_URL="+secure.URL+"/v3"), args: []string{"--insecure"}},
	} {
		t.Run(name, func(t *testing.T) {
			_, stderr, status := command(t, test.env, append([]string{"flavor", "list", "-v"}, test.args...)...)
			var talk []string
			for line := range strings.Lines(steady(stderr)) {
				if !strings.HasPrefix(line, "gpustack: GET") && !strings.HasPrefix(line, "gpustack: POST") {
					talk = append(talk, strings.TrimSuffix(line, "\n"))
				}
			}
			switch {
			case test.want == "" && name == "any certificate is believed":
				if status != 0 || !slices.Equal(talk, []string{"gpustack: warning: cloud environment: TLS certificates are not verified: the password can be intercepted"}) {
					t.Errorf("exit status %d, %q", status, talk)
				}
			case test.want == "":
				if status != 0 || len(talk) > 0 {
					t.Errorf("exit status %d, %q", status, talk)
				}
			case status != 1 || len(talk) != 2 || !strings.HasPrefix(talk[0], "gpustack: error: "+test.want) || !strings.HasPrefix(talk[1], "gpustack: hint: "):
				t.Errorf("exit status %d, %q\nwant %s", status, talk, test.want)
			}
		})
	}
}

// closedPort is an address that nobody listens on.
func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	hosttest.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// newCredential makes an application credential of admin.
func newCredential(t *testing.T, keystone *gophercloud.ServiceClient) *applicationcredentials.ApplicationCredential {
	t.Helper()
	user, err := keystone.ProviderClient.GetAuthResult().(tokens.CreateResult).ExtractUser()
	hosttest.NoError(t, err)
	credential, err := applicationcredentials.Create(t.Context(), keystone, user.ID, applicationcredentials.CreateOpts{Name: t.Name()}).Extract()
	hosttest.NoError(t, err)
	t.Cleanup(func() {
		if err := applicationcredentials.Delete(context.WithoutCancel(t.Context()), keystone, user.ID, credential.ID).ExtractErr(); err != nil {
			t.Error(err)
		}
	})
	return credential
}

// osc runs the openstack command as admin.
func osc(t testing.TB, args ...string) string {
	t.Helper()
	cmd := exec.Command("openstack", args...)
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + t.TempDir(), "LANG=C.UTF-8"}, lab.Env()...)
	var talk bytes.Buffer
	cmd.Stderr = &talk
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("openstack %q: %v\n%s", args, err, talk.String())
	}
	return string(out)
}
