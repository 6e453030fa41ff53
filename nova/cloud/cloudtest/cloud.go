// Package cloudtest is a small OpenStack for tests ([Start]): a Keystone, a Nova and a Glance on
// one address of loopback, whose answers follow the API reference (docs.openstack.org/api-ref) for
// any microversion. It is no judge of requests: what a real cloud does is tested in
// integration/nova.
package cloudtest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// Cloud is a cloud with one user, who is its administrator.
type Cloud struct {
	URL      string // of Keystone, with its version
	User     string
	Password string
	Project  string
	Newest   int               // microversion 2.N
	Flavors  []*Flavor         // that are there
	Servers  map[string]string // flavor IDs by the instances' ids
	Images   []map[string]any  // as Glance prints them
	Traits   map[string]int    // compute nodes by the traits that they have
	NoTraits []string          // standard traits that Placement does not have, as one of an earlier release
	Page     int               // flavors to the page; 0 for all

	Boot      Boot             // how new servers behave
	Instances []*Instance      // servers in detail
	Member    bool             // the user is no administrator
	Quota     map[string]int   // limits in the API's words
	Networks  []map[string]any // as Neutron prints them
	PCI       *Devices         // that compute nodes report to Placement; nil: none does
	Placement *Placement       // nil: with what Traits, PCI and Instances imply
	Consumers *Consumers       // of Placement; nil: those of PCI and Instances
	created   int

	ComputePath string // of Nova, in the catalog

	// Fault may answer a request in place of the cloud; it then returns true.
	Fault func(http.ResponseWriter, *http.Request) bool

	hosts *Hosts // nil: none, and no Placement for them

	mu       sync.Mutex
	mux      *http.ServeMux
	server   *httptest.Server
	requests []request
}

type request struct{ line, body string }

// Flavor is a flavor, in the API's words.
type Flavor struct {
	Body   map[string]any
	Specs  map[string]string
	Access []string
}

// Start starts a cloud that ends with the test.
func Start(t testing.TB, newest int) *Cloud {
	t.Helper()
	c := New(newest)
	t.Cleanup(c.Close)
	return c
}

// New starts a cloud.
func New(newest int) *Cloud {
	c := &Cloud{User: "admin", Password: "hunter2-" + "not-to-be-seen", Project: "admin", Newest: newest, Servers: map[string]string{}, ComputePath: "/v2.1"}
	mux := http.NewServeMux()
	c.mux = mux
	mux.HandleFunc("POST /v3/auth/tokens", c.signIn)
	mux.HandleFunc("GET /v3/projects", c.listProjects)
	mux.HandleFunc("GET /v3/projects/{id}", func(w http.ResponseWriter, _ *http.Request) {
		fail(w, http.StatusNotFound, "error", "Could not find project")
	})
	mux.HandleFunc("GET /v2.1/{$}", c.version)
	mux.HandleFunc("GET /v2.1/flavors/detail", c.listFlavors)
	mux.HandleFunc("POST /v2.1/flavors", c.createFlavor)
	mux.HandleFunc("GET /v2.1/flavors/{id}", c.flavor(c.showFlavor))
	mux.HandleFunc("PUT /v2.1/flavors/{id}", c.flavor(c.updateFlavor))
	mux.HandleFunc("DELETE /v2.1/flavors/{id}", c.flavor(c.deleteFlavor))
	mux.HandleFunc("GET /v2.1/flavors/{id}/os-extra_specs", c.flavor(c.showSpecs))
	mux.HandleFunc("POST /v2.1/flavors/{id}/os-extra_specs", c.flavor(c.setSpecs))
	mux.HandleFunc("DELETE /v2.1/flavors/{id}/os-extra_specs/{key}", c.flavor(c.unsetSpec))
	mux.HandleFunc("GET /v2.1/flavors/{id}/os-flavor-access", c.flavor(c.showAccess))
	mux.HandleFunc("POST /v2.1/flavors/{id}/action", c.flavor(c.changeAccess))
	mux.HandleFunc("GET /v2.1/servers", c.listServers)
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { // Glance's versions
		w.WriteHeader(http.StatusMultipleChoices)
		reply(w, map[string]any{"versions": []any{map[string]any{"id": "v2.9", "status": "CURRENT"}}})
	})
	mux.HandleFunc("GET /v2/images", c.listImages)
	mux.HandleFunc("GET /v2/images/{id}", c.image(func(w http.ResponseWriter, _ *http.Request, image map[string]any) { reply(w, image) }))
	mux.HandleFunc("PATCH /v2/images/{id}", c.image(c.patchImage))
	mux.HandleFunc("GET /placement/", func(w http.ResponseWriter, r *http.Request) {
		if !c.placement().serve(w, r) {
			http.NotFound(w, r)
		}
	})
	c.serveServers()
	c.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		c.mu.Lock()
		defer c.mu.Unlock()
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has gone
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		c.requests = append(c.requests, request{r.Method + " " + r.URL.RequestURI(), string(body)})
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("X-Openstack-Request-Id", "req-"+strconv.Itoa(len(c.requests)))
		if c.Fault != nil && c.Fault(w, r) {
			return
		}
		if r.URL.Path != "/v3/auth/tokens" && r.Header.Get("X-Auth-Token") != "token" {
			fail(w, http.StatusUnauthorized, "error", "The request you have made requires authentication.")
			return
		}
		if c.hosts != nil && c.hosts.serve(w, r) {
			return
		}
		if c.Consumers != nil && c.Consumers.answer(w, r) {
			return
		}
		mux.ServeHTTP(w, r)
	}))
	c.URL = c.server.URL + "/v3"
	return c
}

// Do does what a request asks for and keeps the answer: for a Fault that loses it.
func (c *Cloud) Do(r *http.Request) {
	answer := httptest.NewRecorder()
	if c.hosts == nil || !c.hosts.serve(answer, r) {
		c.mux.ServeHTTP(answer, r)
	}
}

// Unlocked calls wait for a Fault: the cloud answers other requests meanwhile.
func (c *Cloud) Unlocked(wait func()) {
	c.mu.Unlock()
	defer c.mu.Lock()
	wait()
}

// Close ends the cloud.
func (c *Cloud) Close() {
	c.server.Close()
}

// Env are the variables that sign in.
func (c *Cloud) Env() map[string]string {
	return map[string]string{
		"OS_CLOUD": "", "OS_AUTH_URL": c.URL, "OS_USERNAME": c.User, "OS_PASSWORD": c.Password, "OS_PROJECT_NAME": c.Project,
		"OS_USER_DOMAIN_NAME": "Default", "OS_PROJECT_DOMAIN_NAME": "Default", "OS_REGION_NAME": "RegionOne",
	}
}

// Requests returns what was asked since the last time, but for signing in: each
// request's method and path, and its body.
func (c *Cloud) Requests() (lines, bodies []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.requests {
		if !strings.HasSuffix(r.line, "/auth/tokens") {
			lines, bodies = append(lines, r.line), append(bodies, r.body)
		}
	}
	c.requests = nil
	return lines, bodies
}

// Add adds a flavor.
func (c *Cloud) Add(id, name string, vcpus, ram, disk int, public bool, specs map[string]string) *Flavor {
	f := &Flavor{map[string]any{
		"id": id, "name": name, "vcpus": vcpus, "ram": ram, "disk": disk, "swap": "", "OS-FLV-EXT-DATA:ephemeral": 0,
		"os-flavor-access:is_public": public, "rxtx_factor": 1.0, "description": nil,
	}, specs, nil}
	c.Flavors = append(c.Flavors, f)
	return f
}

func fail(w http.ResponseWriter, status int, kind, message string) {
	w.WriteHeader(status)
	reply(w, map[string]any{kind: map[string]any{"code": status, "message": message}})
}

func reply(w http.ResponseWriter, body any) {
	if err := json.NewEncoder(w).Encode(body); err != nil {
		panic(err)
	}
}

// spoken is the microversion of a request.
func spoken(r *http.Request) int {
	n, err := strconv.Atoi(strings.TrimPrefix(r.Header.Get("OpenStack-API-Version"), "compute 2."))
	if err != nil {
		return 1
	}
	return n
}

func (c *Cloud) signIn(w http.ResponseWriter, r *http.Request) {
	var body struct {
		Auth struct {
			Identity struct {
				Password struct {
					User struct{ Name, Password string }
				}
				ApplicationCredential struct{ ID, Secret string } `json:"application_credential"`
			}
			Scope json.RawMessage
		}
	}
	if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
		fail(w, http.StatusBadRequest, "error", err.Error())
		return
	}
	user, credential := body.Auth.Identity.Password.User, body.Auth.Identity.ApplicationCredential
	byPassword := user.Name == c.User && user.Password == c.Password
	byCredential := credential.ID == "credential" && credential.Secret == c.Password && body.Auth.Scope == nil
	if !byPassword && !byCredential {
		fail(w, http.StatusUnauthorized, "error", "The request you have made requires authentication.")
		return
	}
	w.Header().Set("X-Subject-Token", "token")
	w.WriteHeader(http.StatusCreated)
	var catalog []any
	for kind, path := range map[string]string{"compute": c.ComputePath, "identity": "/v3", "image": "", "placement": "/placement", "network": "/network"} {
		catalog = append(catalog, map[string]any{"type": kind, "name": kind, "endpoints": []any{
			map[string]any{"interface": "public", "region": "RegionOne", "region_id": "RegionOne", "url": c.server.URL + path},
		}})
	}
	reply(w, map[string]any{"token": map[string]any{"expires_at": "2099-01-01T00:00:00.000000Z", "catalog": catalog,
		"project": map[string]any{"id": "id-of-" + c.Project, "name": c.Project}}})
}

func (c *Cloud) listProjects(w http.ResponseWriter, r *http.Request) {
	projects := []any{}
	if name := r.URL.Query().Get("name"); name == c.Project || name == "lab" {
		projects = append(projects, map[string]any{"id": "id-of-" + name, "name": name, "domain_id": "default"})
	}
	reply(w, map[string]any{"projects": projects})
}

func (c *Cloud) version(w http.ResponseWriter, _ *http.Request) {
	reply(w, map[string]any{"version": map[string]any{"id": "v2.1", "status": "CURRENT", "version": fmt.Sprintf("2.%d", c.Newest), "min_version": "2.1"}})
}

// body is a flavor as a request's microversion shows it.
func (f *Flavor) body(r *http.Request) map[string]any {
	body := maps.Clone(f.Body)
	if spoken(r) < 55 {
		delete(body, "description")
	}
	if spoken(r) >= 61 {
		body["extra_specs"] = f.Specs
	}
	return body
}

func (c *Cloud) listFlavors(w http.ResponseWriter, r *http.Request) {
	flavors, links, skip := []any{}, []any{}, r.URL.Query().Get("marker") != ""
	for _, f := range c.Flavors {
		if skip {
			skip = f.Body["id"] != r.URL.Query().Get("marker")
			continue
		}
		if c.Page > 0 && len(flavors) == c.Page {
			last := flavors[len(flavors)-1].(map[string]any)["id"]
			links = append(links, map[string]any{"rel": "next", "href": fmt.Sprintf("%s/v2.1/flavors/detail?is_public=None&marker=%s", c.server.URL, last)})
			break
		}
		flavors = append(flavors, f.body(r))
	}
	body := map[string]any{"flavors": flavors}
	if len(links) > 0 {
		body["flavors_links"] = links
	}
	reply(w, body)
}

// additional finds what a request's microversion does not know.
func additional(w http.ResponseWriter, r *http.Request, body map[string]any) bool {
	if _, there := body["description"]; there && spoken(r) < 55 {
		fail(w, http.StatusBadRequest, "badRequest", "Invalid input for field/attribute flavor. Value: …. Additional properties are not allowed ('description' was unexpected)")
		return true
	}
	return false
}

func (c *Cloud) createFlavor(w http.ResponseWriter, r *http.Request) {
	var request struct{ Flavor map[string]any }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		fail(w, http.StatusBadRequest, "badRequest", err.Error())
		return
	}
	if additional(w, r, request.Flavor) {
		return
	}
	for _, f := range c.Flavors {
		switch {
		case f.Body["name"] == request.Flavor["name"]:
			fail(w, http.StatusConflict, "conflictingRequest", fmt.Sprintf("Flavor with name %s already exists.", f.Body["name"]))
			return
		case f.Body["id"] == request.Flavor["id"]:
			fail(w, http.StatusConflict, "conflictingRequest", fmt.Sprintf("Flavor with ID %s already exists.", f.Body["id"]))
			return
		}
	}
	f := &Flavor{request.Flavor, map[string]string{}, nil}
	f.Body["description"] = request.Flavor["description"]
	if f.Body["swap"] == 0.0 {
		f.Body["swap"] = ""
	}
	c.Flavors = append(c.Flavors, f)
	reply(w, map[string]any{"flavor": f.body(r)})
}

// flavor finds the flavor that a request's path names.
func (c *Cloud) flavor(act func(http.ResponseWriter, *http.Request, *Flavor)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, f := range c.Flavors {
			if f.Body["id"] == r.PathValue("id") {
				act(w, r, f)
				return
			}
		}
		fail(w, http.StatusNotFound, "itemNotFound", fmt.Sprintf("Flavor %s could not be found.", r.PathValue("id")))
	}
}

func (c *Cloud) showFlavor(w http.ResponseWriter, r *http.Request, f *Flavor) {
	reply(w, map[string]any{"flavor": f.body(r)})
}

func (c *Cloud) updateFlavor(w http.ResponseWriter, r *http.Request, f *Flavor) {
	var request struct{ Flavor map[string]any }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil || spoken(r) < 55 {
		fail(w, http.StatusBadRequest, "badRequest", "not so")
		return
	}
	maps.Copy(f.Body, request.Flavor)
	reply(w, map[string]any{"flavor": f.body(r)})
}

func (c *Cloud) deleteFlavor(w http.ResponseWriter, _ *http.Request, f *Flavor) {
	c.Flavors = slices.DeleteFunc(c.Flavors, func(g *Flavor) bool { return g == f })
	w.WriteHeader(http.StatusAccepted)
}

func (c *Cloud) showSpecs(w http.ResponseWriter, _ *http.Request, f *Flavor) {
	reply(w, map[string]any{"extra_specs": f.Specs})
}

// known are some of what Nova knows in its own namespaces
// (nova/api/validation/extra_specs); hw:hide_hypervisor_id came with Victoria, whose
// newest microversion is Ussuri's, 2.87.
var known = regexp.MustCompile(`^hw:(cpu_policy|numa_nodes|mem_page_size|pci_numa_affinity_policy|hide_hypervisor_id)$|^pci_passthrough:alias$`)

func (c *Cloud) setSpecs(w http.ResponseWriter, r *http.Request, f *Flavor) {
	var request struct {
		Specs map[string]string `json:"extra_specs"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		fail(w, http.StatusBadRequest, "badRequest", err.Error())
		return
	}
	for key := range request.Specs {
		namespace, _, ok := strings.Cut(key, ":")
		if spoken(r) >= 86 && ok && (namespace == "hw" || namespace == "pci_passthrough") &&
			(!known.MatchString(key) || c.Newest <= 87 && key == "hw:hide_hypervisor_id") {
			fail(w, http.StatusBadRequest, "badRequest", fmt.Sprintf("Validation failed; extra spec '%s' does not appear to be a valid extra spec.", key))
			return
		}
	}
	maps.Copy(f.Specs, request.Specs)
	reply(w, map[string]any{"extra_specs": request.Specs})
}

func (f *Flavor) access() map[string]any {
	list := []any{}
	for _, project := range f.Access {
		list = append(list, map[string]any{"flavor_id": f.Body["id"], "tenant_id": project})
	}
	return map[string]any{"flavor_access": list}
}

func (c *Cloud) showAccess(w http.ResponseWriter, _ *http.Request, f *Flavor) {
	if f.Body["os-flavor-access:is_public"] == true {
		fail(w, http.StatusNotFound, "itemNotFound", "Access list not available for public flavors.")
		return
	}
	reply(w, f.access())
}

func (c *Cloud) unsetSpec(w http.ResponseWriter, r *http.Request, f *Flavor) {
	if _, there := f.Specs[r.PathValue("key")]; !there {
		fail(w, http.StatusNotFound, "itemNotFound", "There is no such extra spec.")
		return
	}
	delete(f.Specs, r.PathValue("key"))
}

func (c *Cloud) changeAccess(w http.ResponseWriter, r *http.Request, f *Flavor) {
	var request struct{ AddTenantAccess, RemoveTenantAccess struct{ Tenant string } }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		fail(w, http.StatusBadRequest, "badRequest", err.Error())
		return
	}
	if project := request.RemoveTenantAccess.Tenant; project != "" {
		if !slices.Contains(f.Access, project) {
			fail(w, http.StatusNotFound, "itemNotFound", "Flavor access not found.")
			return
		}
		f.Access = slices.DeleteFunc(f.Access, func(p string) bool { return p == project })
		reply(w, f.access())
		return
	}
	if slices.Contains(f.Access, request.AddTenantAccess.Tenant) {
		fail(w, http.StatusConflict, "conflictingRequest", "Flavor access already exists.")
		return
	}
	f.Access = append(f.Access, request.AddTenantAccess.Tenant)
	reply(w, f.access())
}

func (c *Cloud) listServers(w http.ResponseWriter, r *http.Request) {
	list := []any{}
	for _, id := range slices.Sorted(maps.Keys(c.Servers)) {
		if c.Servers[id] == r.URL.Query().Get("flavor") && r.URL.Query().Get("all_tenants") == "true" {
			list = append(list, map[string]any{"id": id, "name": id})
		}
	}
	reply(w, map[string]any{"servers": list})
}

func (c *Cloud) listImages(w http.ResponseWriter, r *http.Request) {
	list := []any{}
	for _, image := range c.Images {
		if hidden, _ := image["os_hidden"].(bool); image["name"] == r.URL.Query().Get("name") && hidden == (r.URL.Query().Get("os_hidden") == "true") {
			list = append(list, image)
		}
	}
	reply(w, map[string]any{"images": list})
}

// image finds the image that a request's path names.
func (c *Cloud) image(act func(http.ResponseWriter, *http.Request, map[string]any)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for _, image := range c.Images {
			if image["id"] == r.PathValue("id") {
				act(w, r, image)
				return
			}
		}
		plain(w, http.StatusNotFound, "No image found with ID "+r.PathValue("id"))
	}
}

// plain is an error of Glance, whose text is in HTML.
func plain(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/html; charset=UTF-8")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<html><head><title>%d</title></head><body><h1>%d</h1>%s<br /><br /></body></html>", status, status, message)
}

// patchImage changes an image as Glance does: all or nothing (glance/api/v2/images.py).
func (c *Cloud) patchImage(w http.ResponseWriter, r *http.Request, image map[string]any) {
	var patch []struct {
		Op, Path string
		Value    any
	}
	if err := json.NewDecoder(r.Body).Decode(&patch); err != nil || r.Header.Get("Content-Type") != "application/openstack-images-v2.1-json-patch" {
		plain(w, http.StatusBadRequest, "not so")
		return
	}
	if owner, owned := image["owner"]; owned && owner != "id-of-"+c.Project {
		plain(w, http.StatusForbidden, "You are not authorized to complete this action.")
		return
	}
	changed := maps.Clone(image)
	for _, op := range patch {
		name := strings.TrimPrefix(op.Path, "/")
		if _, there := changed[name]; !there && op.Op != "add" {
			plain(w, http.StatusConflict, "Property "+name+" does not exist.")
			return
		}
		if changed[name] = op.Value; op.Op == "remove" {
			delete(changed, name)
		}
	}
	clear(image)
	maps.Copy(image, changed)
	reply(w, image)
}

// listProviders lists the compute nodes that have a trait.
