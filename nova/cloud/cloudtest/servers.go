package cloudtest

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Boot is how servers that are created behave: what Nova, the guest and Placement do.
type Boot struct {
	Building int                             // answers with BUILD before the server is ACTIVE; -1: it stays so
	Fault    string                          // the server ends in ERROR with this message
	Host     string                          // that the scheduler chooses, whatever is asked for
	Console  func(nonce, data string) string // the console log, by metadata and user_data; nil: what Nova's fake driver prints
	NoLog    int                             // the HTTP status of answers in place of the console log
	Deleting int                             // answers before a deleted server is gone; -1: it stays
	// Unwilling: nova-compute fails to delete servers.
	Unwilling bool
	Soft      bool // a deleted server is only marked as deleted
	Held      bool // devices stay allocated after their server is gone
}

// Instance is a server that was created.
type Instance struct {
	ID, Name, Project, Flavor, Host, UserData string
	Metadata                                  map[string]string
	Created                                   time.Time
	Asked                                     map[string]any // the body of the request
	More                                      map[string]any // what else Nova prints, in its words
	polls                                     int
	deleted                                   bool
	soft                                      bool
}

// Devices are the PCI devices that compute nodes report to Placement, one provider for each.
type Devices struct {
	Class      string
	Total      int
	OneTimeUse bool
	ToClean    int      // how many of them, the last ones, were used once and wait to be cleaned
	holders    []string // consumers by provider; "" is free
}

func (c *Cloud) serveServers() {
	c.Quota = map[string]int{"maxTotalInstances": 10, "maxTotalCores": -1, "maxTotalRAMSize": -1}
	c.mux.HandleFunc("POST /v2.1/servers", c.createServer)
	c.mux.HandleFunc("GET /v2.1/servers/detail", c.listServerDetails)
	c.mux.HandleFunc("GET /v2.1/servers/{id}", c.showServer)
	c.mux.HandleFunc("DELETE /v2.1/servers/{id}", c.deleteServer)
	c.mux.HandleFunc("POST /v2.1/servers/{id}/action", c.actOnServer)
	c.mux.HandleFunc("GET /v2.1/limits", c.showLimits)
	c.mux.HandleFunc("GET /network/v2.0/networks", c.listNetworks)
}

// AddServer adds a server as if another client had created it.
func (c *Cloud) AddServer(i Instance) *Instance {
	c.mu.Lock()
	defer c.mu.Unlock()
	if i.Created.IsZero() {
		i.Created = time.Now().UTC()
	}
	if i.Project == "" {
		i.Project = "id-of-" + c.Project
	}
	c.Instances = append(c.Instances, &i)
	return &i
}

// SetFault sets Fault while the cloud runs.
func (c *Cloud) SetFault(fault func(http.ResponseWriter, *http.Request) bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Fault = fault
}

// Left returns the names of the servers that exist.
func (c *Cloud) Left() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	names := []string{}
	for _, i := range c.Instances {
		names = append(names, i.Name)
	}
	return names
}

func (c *Cloud) createServer(w http.ResponseWriter, r *http.Request) {
	var request struct{ Server map[string]any }
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		fail(w, http.StatusBadRequest, "badRequest", err.Error())
		return
	}
	asked := request.Server
	text := func(key string) string { s, _ := asked[key].(string); return s }
	_, networks := asked["networks"]
	data, err := base64.StdEncoding.DecodeString(text("user_data"))
	known := slices.ContainsFunc(c.Images, func(image map[string]any) bool { return image["id"] == asked["imageRef"] })
	switch {
	case err != nil:
		fail(w, http.StatusBadRequest, "badRequest", "user_data: "+err.Error())
		return
	case networks != (spoken(r) >= 37):
		fail(w, http.StatusBadRequest, "badRequest", "Invalid input for field/attribute server: 'networks' is a required property, or not known")
		return
	case text("host") != "" && spoken(r) < 74:
		fail(w, http.StatusBadRequest, "badRequest", "Additional properties are not allowed ('host' was unexpected)")
		return
	case text("host") != "" && c.Member:
		fail(w, http.StatusForbidden, "forbidden", "Policy doesn't allow compute:servers:create:requested_destination to be performed.")
		return
	case !known:
		fail(w, http.StatusBadRequest, "badRequest", "Can not find requested image")
		return
	}
	c.created++
	i := &Instance{
		ID: fmt.Sprintf("5e60e600-0000-4000-8000-%012d", c.created), Name: text("name"), Project: "id-of-" + c.Project, Flavor: text("flavorRef"),
		UserData: string(data),
		Metadata: map[string]string{}, Created: time.Now().UTC().Truncate(time.Second), Asked: asked, Host: c.Boot.Host,
	}
	if i.Host == "" {
		if i.Host = text("host"); i.Host == "" {
			i.Host = "gpu1"
		}
	}
	if metadata, ok := asked["metadata"].(map[string]any); ok {
		for key, value := range metadata {
			i.Metadata[key] = fmt.Sprint(value)
		}
	}
	c.Instances = append(c.Instances, i)
	if free := slices.Index(c.devices(), ""); free >= 0 && c.Boot.Fault == "" {
		c.PCI.holders[free] = i.ID
	}
	w.WriteHeader(http.StatusAccepted)
	reply(w, map[string]any{"server": map[string]any{"id": i.ID, "adminPass": "admin-pass-not-to-be-seen"}})
}

// instance finds the server that a request's path names, and lets time pass for it.
func (c *Cloud) instance(w http.ResponseWriter, r *http.Request) *Instance {
	for k, i := range c.Instances {
		if i.ID != r.PathValue("id") {
			continue
		}
		if i.polls++; i.deleted && !i.soft && c.Boot.Deleting >= 0 && i.polls > c.Boot.Deleting {
			c.Instances = slices.Delete(c.Instances, k, k+1)
			for p, holder := range c.devices() {
				if holder == i.ID && !c.Boot.Held {
					c.PCI.holders[p] = ""
				}
			}
			break
		}
		return i
	}
	fail(w, http.StatusNotFound, "itemNotFound", fmt.Sprintf("Instance %s could not be found.", r.PathValue("id")))
	return nil
}

func (c *Cloud) serverBody(i *Instance) map[string]any {
	body := map[string]any{
		"id": i.ID, "name": i.Name, "tenant_id": i.Project, "metadata": i.Metadata, "status": "ACTIVE", "OS-EXT-STS:task_state": nil,
		"created": i.Created.Format(time.RFC3339), "updated": i.Created.Format(time.RFC3339),
	}
	if !c.Member {
		body["OS-EXT-SRV-ATTR:host"], body["OS-EXT-SRV-ATTR:hypervisor_hostname"] = i.Host, i.Host
	}
	switch {
	case i.soft:
		body["status"] = "SOFT_DELETED"
	case i.deleted && c.Boot.Unwilling:
		body["status"] = "ERROR"
	case i.deleted:
		body["OS-EXT-STS:task_state"] = "deleting"
	case c.Boot.Building < 0 || i.polls <= c.Boot.Building:
		body["status"], body["OS-EXT-STS:task_state"] = "BUILD", "spawning"
	case c.Boot.Fault != "":
		body["status"], body["fault"] = "ERROR", map[string]any{"code": http.StatusInternalServerError, "message": c.Boot.Fault,
			"created": i.Created.Format(time.RFC3339)}
		body["OS-EXT-SRV-ATTR:host"] = nil
	}
	maps.Copy(body, i.More)
	return body
}

func (c *Cloud) showServer(w http.ResponseWriter, r *http.Request) {
	if i := c.instance(w, r); i != nil {
		reply(w, map[string]any{"server": c.serverBody(i)})
	}
}

func (c *Cloud) listServerDetails(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	if query.Get("all_tenants") == "true" && c.Member {
		fail(w, http.StatusForbidden, "forbidden", "Policy doesn't allow os_compute_api:servers:detail:get_all_tenants to be performed.")
		return
	}
	list := []any{}
	for _, i := range slices.Backward(c.Instances) {
		body := c.serverBody(i)
		asked := (query.Get("host") == "" || query.Get("host") == body["OS-EXT-SRV-ATTR:host"]) &&
			(query.Get("status") == "" || query.Get("status") == body["status"]) &&
			(query.Get("task_state") == "" || query.Get("task_state") == body["OS-EXT-STS:task_state"])
		if asked && strings.Contains(i.Name, query.Get("name")) && (query.Get("all_tenants") == "true" || i.Project == "id-of-"+c.Project) {
			list = append(list, body)
		}
	}
	reply(w, map[string]any{"servers": list})
}

func (c *Cloud) deleteServer(w http.ResponseWriter, r *http.Request) {
	if i := c.instance(w, r); i != nil {
		i.deleted, i.soft, i.polls = true, c.Boot.Soft, 0
		w.WriteHeader(http.StatusNoContent)
	}
}

func (c *Cloud) actOnServer(w http.ResponseWriter, r *http.Request) {
	var request map[string]any
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		fail(w, http.StatusBadRequest, "badRequest", err.Error())
		return
	}
	i := c.instance(w, r)
	if i == nil {
		return
	}
	if _, ok := request["forceDelete"]; ok {
		i.soft, i.polls = false, 0
		w.WriteHeader(http.StatusAccepted)
		return
	}
	switch {
	case c.Boot.NoLog != 0:
		fail(w, c.Boot.NoLog, "itemNotFound", "Unable to get console log, functionality not implemented")
	case c.Boot.Console == nil:
		reply(w, map[string]any{"output": "FAKE CONSOLE OUTPUT\nANOTHER\nLAST LINE"})
	default:
		reply(w, map[string]any{"output": c.Boot.Console(i.Metadata["gpustack-test"], i.UserData)})
	}
}

func (c *Cloud) showLimits(w http.ResponseWriter, _ *http.Request) {
	absolute := map[string]any{"totalInstancesUsed": len(c.Instances), "totalCoresUsed": 0, "totalRAMUsed": 0}
	for key, value := range maps.All(c.Quota) {
		absolute[key] = value
	}
	reply(w, map[string]any{"limits": map[string]any{"absolute": absolute, "rate": []any{}}})
}

func (c *Cloud) listNetworks(w http.ResponseWriter, r *http.Request) {
	list := []any{}
	for _, n := range c.Networks {
		if query := r.URL.Query(); query.Get("name") == n["name"] || query.Get("id") == n["id"] {
			list = append(list, n)
		}
	}
	reply(w, map[string]any{"networks": list})
}

// devices returns who holds each device.
func (c *Cloud) devices() []string {
	if c.PCI == nil {
		return nil
	}
	for len(c.PCI.holders) < c.PCI.Total {
		c.PCI.holders = append(c.PCI.holders, "")
	}
	return c.PCI.holders
}

func providerID(k int) string { return fmt.Sprintf("9c1d0000-0000-4000-8000-%012d", k+1) }

// root is the provider of the compute node that has the devices.
const root = "00000000-0000-0000-0000-000000000001"

// placement returns what Placement has: the compute nodes that have Traits, and the devices of PCI.
func (c *Cloud) placement() *Placement {
	if c.Placement != nil {
		return c.Placement
	}
	p := &Placement{Newest: newestPlacement, Traits: slices.Collect(maps.Keys(c.Traits)), Lacks: c.NoTraits}
	nodes := 1
	for _, n := range c.Traits {
		nodes = max(nodes, n)
	}
	for i := range nodes {
		node := &Provider{UUID: fmt.Sprintf("00000000-0000-0000-0000-%012d", i+1), Name: fmt.Sprintf("gpu%d", i+1), Inventories: map[string]Inventory{"VCPU": Whole(64)}}
		for trait, n := range c.Traits {
			if i < n {
				node.Traits = append(node.Traits, trait)
			}
		}
		p.Providers = append(p.Providers, node)
	}
	for k, holder := range c.devices() {
		d := device(providerID(k), fmt.Sprintf("gpu1_0000:%02x:00.0", 0x84+k), root, c.PCI.Class, holder)
		waits := k >= c.PCI.Total-c.PCI.ToClean
		if c.PCI.OneTimeUse || waits {
			d.Traits = append(d.Traits, "HW_PCI_ONE_TIME_USE")
		}
		if waits {
			reserved := Whole(1)
			reserved.Reserved = 1
			d.Inventories[c.PCI.Class] = reserved
		}
		p.Providers = append(p.Providers, d)
	}
	return p
}
