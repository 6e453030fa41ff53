package cloudtest

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
)

// Hosts are the compute nodes of a cloud with what Placement has for them, and servers that found
// none.
type Hosts struct {
	Nodes      []*Node
	Aggregates []map[string]any          // as Nova prints them
	Failed     map[string]map[string]any // servers by id, as Nova prints them
	Forbidden  bool                      // the user is no administrator
	Page       int                       // hypervisors to the page; 0 for all
	mux        *http.ServeMux
	url        string
}

// Node is a compute node.
type Node struct {
	Name, Zone    string
	Down, Forced  bool
	Disabled      string // the reason; "" for an enabled service
	VCPU, Used    int
	Memory, Disk  int
	Traits        []string
	Class         string // of its PCI devices in Placement
	Devices, Free int    // that it reports
}

// ID returns the id of the node's resource provider.
func (n *Node) ID() string {
	return fmt.Sprintf("%032x", sha256.Sum256([]byte(n.Name)))[:32]
}

// AddHosts lets the cloud have compute nodes.
func (c *Cloud) AddHosts(h *Hosts) {
	h.url, h.mux, c.hosts = c.server.URL, http.NewServeMux(), h
	admin := func(path string, serve func(http.ResponseWriter, *http.Request)) {
		h.mux.HandleFunc("GET "+path, func(w http.ResponseWriter, r *http.Request) {
			if h.Forbidden {
				fail(w, http.StatusForbidden, "forbidden", "Policy doesn't allow this to be performed.")
				return
			}
			serve(w, r)
		})
	}
	admin("/v2.1/os-services", h.listServices)
	admin("/v2.1/os-hypervisors/detail", h.listHypervisors)
	admin("/v2.1/os-aggregates", func(w http.ResponseWriter, _ *http.Request) { reply(w, map[string]any{"aggregates": h.Aggregates}) })
	h.mux.HandleFunc("GET /placement/{$}", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, map[string]any{"versions": []any{map[string]any{"id": "v1.0", "status": "CURRENT", "min_version": "1.0", "max_version": "1.39"}}})
	})
	admin("/placement/allocation_candidates", h.listCandidates)
	admin("/placement/resource_providers", h.listProviders)
	admin("/placement/resource_providers/{id}/inventories", h.showInventories)
	admin("/placement/resource_providers/{id}/usages", h.showUsages)
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
		list = append(list, map[string]any{"id": strconv.Itoa(i), "binary": "nova-compute", "host": n.Name, "zone": n.Zone,
			"state": word(n.Down || n.Forced, "down", "up"), "status": word(n.Disabled == "", "enabled", "disabled"), "disabled_reason": n.Disabled,
			"forced_down": n.Forced, "updated_at": "2026-11-22T00:00:00.000000"})
	}
	reply(w, map[string]any{"services": list})
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

// amounts reads "VCPU:4,MEMORY_MB:8".
func amounts(text string) map[string]int {
	all := map[string]int{}
	for word := range strings.SplitSeq(text, ",") {
		class, amount, _ := strings.Cut(word, ":")
		n, err := strconv.Atoi(amount)
		if err == nil {
			all[class] = n
		}
	}
	return all
}

// has reports whether a node has resources free, and traits.
func (n *Node) has(resources map[string]int, traits string) bool {
	free := map[string]int{"VCPU": n.VCPU - n.Used, "MEMORY_MB": n.Memory, "DISK_GB": n.Disk}
	for class, amount := range resources {
		if free[class] < amount {
			return false
		}
	}
	for trait := range strings.SplitSeq(traits, ",") {
		name, isForbidden := strings.CutPrefix(trait, "!")
		if trait != "" && slices.Contains(n.Traits, name) == isForbidden {
			return false
		}
	}
	return true
}

// isUnknown rejects a query with a trait that no node has, as Placement does with one that does not
// exist.
func (h *Hosts) isUnknown(w http.ResponseWriter, traits string) bool {
	for trait := range strings.SplitSeq(traits, ",") {
		name := strings.TrimPrefix(trait, "!")
		if name == "" || name == "COMPUTE_MANAGED_PCI_DEVICE" || slices.ContainsFunc(h.Nodes, func(n *Node) bool { return slices.Contains(n.Traits, name) }) {
			continue
		}
		w.WriteHeader(http.StatusBadRequest)
		reply(w, map[string]any{"errors": []any{map[string]any{"status": 400, "detail": "No such trait(s): " + name + "."}}})
		return true
	}
	return false
}

func (h *Hosts) listCandidates(w http.ResponseWriter, r *http.Request) {
	resources, traits := amounts(r.URL.Query().Get("resources")), r.URL.Query().Get("required")
	if h.isUnknown(w, traits) {
		return
	}
	requests, summaries := []any{}, map[string]any{}
	for _, n := range h.Nodes {
		if n.has(resources, traits) {
			requests = append(requests, map[string]any{"allocations": map[string]any{n.ID(): map[string]any{"resources": resources}}})
			summaries[n.ID()] = map[string]any{"root_provider_uuid": n.ID(), "traits": n.Traits}
		}
	}
	reply(w, map[string]any{"allocation_requests": requests, "provider_summaries": summaries})
}

// listProviders lists PCI devices: all that are reported, or those that are free.
func (h *Hosts) listProviders(w http.ResponseWriter, r *http.Request) {
	resources := amounts(r.URL.Query().Get("resources"))
	if h.isUnknown(w, r.URL.Query().Get("required")) {
		return
	}
	list := []any{}
	for _, n := range h.Nodes {
		count := n.Devices
		if len(resources) > 0 {
			if count = n.Free; resources[n.Class] != 1 {
				count = 0
			}
		}
		for i := range count {
			list = append(list, map[string]any{"uuid": fmt.Sprintf("%s-%d", n.ID(), i), "name": fmt.Sprintf("%s_0000:%02X:00.0", n.Name, i),
				"root_provider_uuid": n.ID()})
		}
	}
	reply(w, map[string]any{"resource_providers": list})
}

func (h *Hosts) showInventories(w http.ResponseWriter, r *http.Request) {
	all := map[string]any{}
	for _, n := range h.Nodes {
		totals := map[string]int{"VCPU": n.VCPU, "MEMORY_MB": n.Memory, "DISK_GB": n.Disk}
		if r.PathValue("id") != n.ID() {
			totals = map[string]int{n.Class: 1}
			if !strings.HasPrefix(r.PathValue("id"), n.ID()+"-") {
				continue
			}
		}
		for class, total := range maps.All(totals) {
			all[class] = map[string]any{"total": total, "reserved": 0, "max_unit": total, "min_unit": 1, "step_size": 1, "allocation_ratio": 1.0}
		}
	}
	reply(w, map[string]any{"inventories": all, "resource_provider_generation": 1})
}

func (h *Hosts) showUsages(w http.ResponseWriter, r *http.Request) {
	used := map[string]int{}
	for _, n := range h.Nodes {
		if r.PathValue("id") == n.ID() {
			used["VCPU"] = n.Used
		}
	}
	reply(w, map[string]any{"usages": used, "resource_provider_generation": 1})
}
