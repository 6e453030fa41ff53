package cloudtest

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Hosts are the compute nodes of a cloud with what Placement has for them, and servers that found
// none.
type Hosts struct {
	Nodes      []*Node
	Aggregates []map[string]any          // as Nova prints them
	Migrations []map[string]any          // as Nova prints them
	Failed     map[string]map[string]any // servers by id, as Nova prints them
	Forbidden  bool                      // the user is no administrator
	Page       int                       // hypervisors to the page; 0 for all
	Placement  *Placement                // nil: made of Nodes for each request
	mux        *http.ServeMux
	url        string
}

// Node is a compute node.
type Node struct {
	Name, Zone    string
	Down, Forced  bool
	Disabled      string        // the reason; "" for an enabled service
	Silent        bool          // its cell does not answer
	Ahead         time.Duration // by which the clock was ahead with which it has reported
	VCPU, Used    int
	Memory, Disk  int
	Traits        []string
	Class         string // of its PCI devices in Placement
	Devices, Free int    // that it reports
	Once          bool   // its free devices wait to be cleaned (one_time_use)
}

// ID returns the id of the node's resource provider.
func (n *Node) ID() string {
	return fmt.Sprintf("%032x", sha256.Sum256([]byte(n.Name)))[:32]
}

// AddHosts lets the cloud have compute nodes.
func (c *Cloud) AddHosts(h *Hosts) {
	h.url, h.mux, c.hosts = c.server.URL, http.NewServeMux(), h
	handle := func(pattern string, serve func(http.ResponseWriter, *http.Request)) {
		h.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
			if h.Forbidden {
				fail(w, http.StatusForbidden, "forbidden", "Policy doesn't allow this to be performed.")
				return
			}
			serve(w, r)
		})
	}
	admin := func(path string, serve func(http.ResponseWriter, *http.Request)) { handle("GET "+path, serve) }
	admin("/v2.1/os-services", h.listServices)
	handle("PUT /v2.1/os-services/{id}", h.changeService)
	admin("/v2.1/os-migrations", h.listMigrations)
	admin("/v2.1/os-hypervisors/detail", h.listHypervisors)
	admin("/v2.1/os-aggregates", func(w http.ResponseWriter, _ *http.Request) { reply(w, map[string]any{"aggregates": h.Aggregates}) })
	admin("/placement/", func(w http.ResponseWriter, r *http.Request) {
		if !h.placement().serve(w, r) {
			http.NotFound(w, r)
		}
	})
}

// serve answers a request about hosts, and returns false for another one.
func (h *Hosts) serve(w http.ResponseWriter, r *http.Request) bool {
	if id, ok := strings.CutPrefix(r.URL.Path, "/v2.1/servers/"); ok && h.Failed[id] != nil {
		reply(w, map[string]any{"server": h.Failed[id]})
		return true
	}
	if _, pattern := h.mux.Handler(r); pattern == "" {
		return false
	}
	h.mux.ServeHTTP(w, r)
	return true
}

func (h *Hosts) listServices(w http.ResponseWriter, _ *http.Request) {
	list := []any{}
	word := func(is bool, yes, no string) string {
		if is {
			return yes
		}
		return no
	}
	for i, n := range h.Nodes {
		status := word(n.Disabled == "", "enabled", "disabled")
		if n.Silent {
			status = "UNKNOWN"
		}
		list = append(list, map[string]any{"id": strconv.Itoa(i), "binary": "nova-compute", "host": n.Name, "zone": n.Zone,
			"state": word(n.Down || n.Forced, "down", "up"), "status": status, "disabled_reason": n.Disabled,
			"forced_down": n.Forced, "updated_at": time.Now().Add(n.Ahead).UTC().Format("2006-01-02T15:04:05.000000")})
	}
	reply(w, map[string]any{"services": list})
}

// changeService changes a service by its id, or as before microversion 2.53.
func (h *Hosts) changeService(w http.ResponseWriter, r *http.Request) {
	var request struct {
		Status, Host, Binary string
		Reason               string `json:"disabled_reason"`
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		fail(w, http.StatusBadRequest, "badRequest", err.Error())
		return
	}
	enable := request.Status == "enabled"
	id := r.PathValue("id")
	if spoken(r) < 53 {
		enable = id == "enable"
	}
	for i, n := range h.Nodes {
		if spoken(r) >= 53 && strconv.Itoa(i) != id || spoken(r) < 53 && n.Name != request.Host {
			continue
		}
		switch {
		case utf8.RuneCountInString(request.Reason) > 255:
			fail(w, http.StatusBadRequest, "badRequest", "Invalid input for field/attribute disabled_reason. '…' is too long.")
			return
		case enable && request.Reason != "":
			fail(w, http.StatusBadRequest, "badRequest", "Specifying 'disabled_reason' with status 'enabled' is invalid.")
			return
		}
		n.Disabled = request.Reason
		if n.Disabled == "" && !enable {
			n.Disabled = "(none)"
		}
		reply(w, map[string]any{"service": map[string]any{"host": n.Name, "binary": "nova-compute"}})
		return
	}
	fail(w, http.StatusNotFound, "itemNotFound", fmt.Sprintf("Service %s could not be found.", id))
}

func (h *Hosts) listMigrations(w http.ResponseWriter, r *http.Request) {
	list := []any{}
	for _, m := range h.Migrations {
		name, status := r.URL.Query().Get("host"), r.URL.Query().Get("status")
		if (name == "" || name == m["source_compute"] || name == m["dest_compute"]) && (status == "" || status == m["status"]) {
			list = append(list, m)
		}
	}
	reply(w, map[string]any{"migrations": list})
}

func (h *Hosts) listHypervisors(w http.ResponseWriter, r *http.Request) {
	list, skip := []any{}, r.URL.Query().Get("marker") != ""
	body := map[string]any{}
	for _, n := range h.Nodes {
		if skip {
			skip = n.ID() != r.URL.Query().Get("marker")
			continue
		}
		if h.Page > 0 && len(list) == h.Page {
			last := list[len(list)-1].(map[string]any)["id"]
			body["hypervisors_links"] = []any{map[string]any{"rel": "next", "href": fmt.Sprintf("%s/v2.1/os-hypervisors/detail?marker=%s", h.url, last)}}
			break
		}
		list = append(list, map[string]any{"id": n.ID(), "hypervisor_hostname": n.Name, "hypervisor_version": 7002000,
			"service": map[string]any{"id": "1", "host": n.Name}})
	}
	body["hypervisors"] = list
	reply(w, body)
}

// placement returns what Placement has for the compute nodes and their devices.
func (h *Hosts) placement() *Placement {
	if h.Placement != nil {
		return h.Placement
	}
	p := &Placement{Newest: newestPlacement}
	for _, n := range h.Nodes {
		p.Providers = append(p.Providers, n.provider())
		for i := range n.Devices {
			held := ""
			if i >= n.Free {
				held = fmt.Sprintf("guest-%d-of-%s", i, n.Name)
			}
			d := device(fmt.Sprintf("%s-%d", n.ID(), i), fmt.Sprintf("%s_0000:%02X:00.0", n.Name, i), n.ID(), n.Class, held)
			if n.Once {
				reserved := Whole(1)
				reserved.Reserved = 1
				d.Traits, d.Inventories[n.Class] = append(d.Traits, "HW_PCI_ONE_TIME_USE"), reserved
			}
			p.Providers = append(p.Providers, d)
		}
	}
	return p
}

func (n *Node) provider() *Provider {
	r := &Provider{UUID: n.ID(), Name: n.Name, Traits: n.Traits, Inventories: map[string]Inventory{}}
	for class, total := range map[string]int{"VCPU": n.VCPU, "MEMORY_MB": n.Memory, "DISK_GB": n.Disk} {
		if total > 0 {
			r.Inventories[class] = Whole(total)
		}
	}
	if n.Used > 0 {
		r.Held = map[string]map[string]int{"guests-of-" + n.Name: {"VCPU": n.Used}}
	}
	return r
}

// device returns the provider of a PCI device, as nova-compute creates it
// (nova/compute/pci_placement_translator.py). consumer holds it; "" for none.
func device(uuid, name, parent, class, consumer string) *Provider {
	r := &Provider{UUID: uuid, Name: name, Parent: parent, Traits: []string{"COMPUTE_MANAGED_PCI_DEVICE"}, Inventories: map[string]Inventory{class: Whole(1)}}
	if consumer != "" {
		r.Held = map[string]map[string]int{consumer: {class: 1}}
	}
	return r
}

// ManyHosts returns hosts with two devices each, of which a server that it adds to the cloud has one.
func ManyHosts(c *Cloud, many int) *Hosts {
	h := &Hosts{Page: 1000}
	for i := range many {
		n := &Node{Name: fmt.Sprintf("gpu%04d", i), Zone: "az1", VCPU: 32, Memory: 65536, Disk: 1000, Class: "CUSTOM_PCI_10DE_11B4", Devices: 2, Free: 1}
		h.Nodes = append(h.Nodes, n)
		c.AddServer(Instance{ID: "guest-1-of-" + n.Name, Name: fmt.Sprintf("train-%d", i), Host: n.Name, Project: "p1"})
	}
	h.Placement = h.placement()
	return h
}
