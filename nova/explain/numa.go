package explain

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/fit"
)

// numa judges whether the NUMA nodes of a host fit those of the guest, near its devices.
func (j *judge) numa(h Host, free, offered []unit) Judged {
	result := Judged{Link: NUMA, From: j.fromNUMA()}
	units := free
	if units == nil {
		units = offered
	}
	switch {
	case len(j.request) == 0:
		units = h.free() // Nova tries the nodes last that have devices
	case j.aliases.unresolved(j.request) != "":
		units = nil
	}
	switch node := h.node(); {
	case j.instance == nil:
		result.Status, result.Seen = Pass, "the guest has no NUMA topology"
	case node == nil:
		j.near(&result, units)
	default:
		j.onNode(&result, h, node, units)
	}
	return result
}

// fromNUMA returns where the topology and the policies of the guest are set.
func (j *judge) fromNUMA() string {
	from := []string{"flavor " + j.facts.Flavor.Name}
	if image := j.facts.Image; image != nil && slices.ContainsFunc(slices.Collect(maps.Keys(j.guest.Image)), func(key string) bool {
		return strings.HasPrefix(key, "hw_numa_") || strings.HasPrefix(key, "hw_cpu_") || key == "hw_pci_numa_affinity_policy" || key == "hw_mem_page_size"
	}) {
		from = append(from, "image "+image.Name)
	}
	for _, w := range j.request {
		for _, o := range j.aliases.defined[w.Alias] {
			if _, given := o["numa_policy"].(string); given && j.policy == "" {
				from = append(from, j.aliases.where[w.Alias])
			}
		}
	}
	return strings.Join(slices.Compact(from), ", ")
}

// onNode judges the NUMA nodes that nova-compute has reported. units are nil if the devices are
// unknown.
func (j *judge) onNode(result *Judged, h Host, n *Node, units []unit) {
	d := fit.Devices{Release: j.facts.Release, Pools: pools(units), Host: n.Topology}
	requests := j.requests
	if units == nil {
		requests = nil
	}
	limits := n.Limits
	if !j.filtersNUMA() {
		limits = fit.Limits{}
	}
	misfit, isKnown := j.instance.Host(d, requests, limits)
	switch {
	case !isKnown:
		result.notChecked("the host has too many NUMA nodes to try every choice", "see the log of nova-scheduler with debug = true")
	case misfit != nil && n.Topology == nil:
		result.fail("reports no NUMA topology", misfit.Seen, "use another host, or a flavor without NUMA topology")
	case misfit != nil && misfit.Short != nil:
		result.fail("has the devices on other NUMA nodes", misfit.Seen+"; the host has "+j.perNode(units), j.remedyNUMA(d, limits, "use fewer devices, or another host"))
	case misfit != nil:
		result.fail("does not fit the NUMA topology", misfit.Seen, j.remedyNUMA(d, limits,
			host.Textf("use a smaller flavor, or free the host: openstack server list --all-projects --host %s", h.Name)))
	case units == nil && j.needsNear():
		result.notChecked("the NUMA nodes of the devices are unknown", "give --database URL or --inventory FILE")
	default:
		result.Status, result.Seen = Pass, fmt.Sprintf("%s, and the devices near it, fit the host", nodesOf(j.instance.Cells()))
	}
}

// filtersNUMA reports whether nova-scheduler has NUMATopologyFilter on a controller. Without it
// only nova-compute judges the topology.
func (j *judge) filtersNUMA() bool {
	return len(j.filters) == 0 || slices.ContainsFunc(j.filters, func(e enabledFilters) bool { return slices.Contains(e.names, filterNUMA) })
}

// needsNear reports whether the policy of a request excludes devices by their NUMA nodes.
func (j *judge) needsNear() bool {
	return slices.ContainsFunc(j.requests, func(r fit.Request) bool { return r.Policy != fit.Preferred })
}

// near judges only the devices, where the NUMA nodes of the host are unknown: its CPUs and memory
// are not checked then.
func (j *judge) near(result *Judged, units []unit) {
	cells := j.instance.Cells()
	if units != nil && !j.fitsDevices(units, cells) {
		result.fail("has the devices on other NUMA nodes", fmt.Sprintf("the guest has %s and %s devices, of which the host has %s", nodesOf(cells), j.request,
			j.perNode(units)), j.remedyNUMA(fit.Devices{}, fit.Limits{}, "use fewer devices, or another host"))
		return
	}
	if units == nil && j.needsNear() {
		result.notChecked("the NUMA nodes of the devices are unknown", "give --database URL or --inventory FILE")
		return
	}
	result.notChecked(filterNUMA+": the free CPUs and memory of the NUMA nodes of the host are unknown", giveDatabase)
}

// fitsDevices reports whether some NUMA nodes have the devices of the request. Policy socket
// excludes nothing where the sockets are unknown.
func (j *judge) fitsDevices(units []unit, cells int) bool {
	requests := slices.Clone(j.requests)
	for i := range requests {
		if requests[i].Policy == fit.Socket {
			requests[i].Policy = fit.Preferred
		}
	}
	d := fit.Devices{Release: j.facts.Release, Pools: pools(units)}
	var nodes []int
	for _, u := range units {
		if u.numa != nil && !slices.Contains(nodes, *u.numa) {
			nodes = append(nodes, *u.numa)
		}
	}
	const most = 16 // nodes of a host, which bounds the number of choices
	nodes = nodes[:min(len(nodes), most)]
	const none = -1 // a node without devices
	for choice := range 1 << len(nodes) {
		chosen := []int{none}
		for i, n := range nodes {
			if choice&(1<<i) != 0 {
				chosen = append(chosen, n)
			}
		}
		if len(chosen)-1 <= cells && d.Supports(requests, chosen) == nil {
			return true
		}
	}
	return false
}

// remedyNUMA returns extra specs with which nova-api accepts the flavor and the host fits it, or
// else another remedy. Without a topology of the host they are not tried on it.
func (j *judge) remedyNUMA(d fit.Devices, limits fit.Limits, other host.Text) host.Text {
	most := j.instance.Cells() + 1
	if d.Host != nil {
		most = len(d.Host.Cells)
	}
	changes := [][2]string{{"hw:pci_numa_affinity_policy", fit.Preferred}}
	for n := j.instance.Cells() + 1; n <= most; n++ {
		changes = append(changes, [2]string{"hw:numa_nodes", strconv.Itoa(n)})
	}
	for _, c := range changes {
		g := j.guest
		g.Specs = maps.Clone(g.Specs)
		g.Specs[c[0]] = c[1]
		policy, err := g.PCIPolicy()
		instance, err2 := g.Constraints()
		if errors.Join(err, err2) != nil {
			continue
		}
		if d.Host != nil {
			if misfit, isKnown := instance.Host(d, j.aliases.requests(j.request, policy), limits); misfit != nil || !isKnown {
				continue
			}
		}
		return host.Textf("openstack flavor set --property %s=%s %s, or ", c[0], c[1], j.facts.Flavor.Name) + other
	}
	return other
}

// perNode counts the devices of the request by NUMA node: "1 on node 0, 1 on node 1".
func (j *judge) perNode(units []unit) string {
	counts := map[string]int{}
	for _, u := range units {
		if slices.ContainsFunc(j.request, func(w nova.Wanted) bool { return j.aliases.selects(w.Alias, u) }) {
			counts[nodeName(u.numa)] += u.count
		}
	}
	var words []string
	for _, node := range slices.Sorted(maps.Keys(counts)) {
		words = append(words, fmt.Sprintf("%d on %s", counts[node], node))
	}
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

func nodesOf(cells int) string {
	if cells == 1 {
		return "one NUMA node"
	}
	return fmt.Sprintf("%d NUMA nodes", cells)
}

func nodeName(numa *int) string {
	if numa == nil {
		return "no node"
	}
	return fmt.Sprintf("node %d", *numa)
}
