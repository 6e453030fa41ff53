package explain

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/nova/pools"
)

// Where a guest requests a policy for the NUMA nodes of its devices, and the policies.
const (
	policySpec     = "hw:pci_numa_affinity_policy"
	policyProperty = "hw_pci_numa_affinity_policy"
	nodesSpec      = "hw:numa_nodes"
)

var policies = []string{pools.Required, "legacy", pools.Preferred, "socket"}

// layoutSpecs are extra specs that give a guest a NUMA topology besides hw:numa_nodes
// (nova/virt/hardware.py, numa_get_constraints; hw:numa_cpus and hw:numa_mem give none by
// themselves). Properties of images have _ for the colon.
var layoutSpecs = []string{"hw:cpu_policy", "hw:mem_page_size", "hw:pmem", "hw:cpu_dedicated_mask", "resources:PCPU"}

// property returns a property of the image, "" for none.
func (f Facts) property(key string) string {
	return host.Value(f.Image).Properties[key]
}

// policy returns the policy for the NUMA nodes of all devices, "" for that of each alias.
func (f Facts) policy() string {
	return cmp.Or(f.Flavor.ExtraSpecs[policySpec], f.property(policyProperty))
}

// numaNodes returns how many NUMA nodes the guest has, 0 for none.
func (f Facts) numaNodes() int {
	if n, err := strconv.Atoi(cmp.Or(f.Flavor.ExtraSpecs[nodesSpec], f.property("hw_numa_nodes"))); err == nil && n > 0 {
		return n
	}
	for _, key := range layoutSpecs {
		value := cmp.Or(f.Flavor.ExtraSpecs[key], f.property(strings.Replace(key, ":", "_", 1)))
		if value != "" && value != "shared" {
			return 1
		}
	}
	return 0
}

// numa judges whether a host can have the devices near the NUMA nodes of the guest. CPUs and memory
// of these are not judged.
func (j *judge) numa(h Host, free, offered []pools.Pool) Judged {
	result := Judged{Link: NUMA, From: j.fromNUMA()}
	list := free
	if list == nil {
		list = offered
	}
	nodes := j.facts.numaNodes()
	isUnknown := list == nil || j.aliases.unresolved(j.request) != ""
	switch {
	case nodes == 0:
		result.Status, result.Seen = Pass, "the guest has no NUMA topology"
	case h.Stock != nil && h.Stock.Node != nil && h.Stock.Node.Topology == nil: // nova-compute then compares no nodes
		result.Status, result.Seen = Pass, "the host reports no NUMA nodes, so that its devices are near none"
	case isUnknown && slices.ContainsFunc(j.requests, func(r pools.Request) bool { return r.Policy != pools.Preferred }):
		result.notChecked("the NUMA nodes of the devices are unknown", host.Plain("give --database URL or --inventory FILE"))
	case !isUnknown && !j.fitsDevices(list, nodes):
		result.fail("has the devices on other NUMA nodes", fmt.Sprintf("the guest has %s and %s devices, of which the host has %s", host.Numbered(nodes, "NUMA node"),
			j.request, j.perNode(list)), j.nearer(list, nodes))
	default:
		result.Status, result.Seen = Pass, fmt.Sprintf("the devices can be near %s", host.Numbered(nodes, "NUMA node"))
	}
	return result
}

// fromNUMA returns where the topology and the policies of the guest are set.
func (j *judge) fromNUMA() string {
	from := []string{"flavor " + j.facts.Flavor.Name}
	if image := j.facts.Image; image != nil && (image.Properties[policyProperty] != "" || image.Properties["hw_numa_nodes"] != "") {
		from = append(from, "image "+image.Name)
	}
	for _, w := range j.request {
		for _, o := range j.aliases.defined[w.Alias] {
			if _, given := o["numa_policy"].(string); given && j.facts.policy() == "" {
				from = append(from, j.aliases.where[w.Alias])
			}
		}
	}
	return strings.Join(slices.Compact(from), ", ")
}

// fitsDevices reports whether some NUMA nodes, as many as the guest has, have the devices of the
// request. Policy socket excludes nothing, as the sockets are not read.
func (j *judge) fitsDevices(list []pools.Pool, nodes int) bool {
	requests := slices.Clone(j.requests)
	for i := range requests {
		if requests[i].Policy == "socket" {
			requests[i].Policy = pools.Preferred
		}
	}
	d := pools.Devices{Release: j.facts.Release, Pools: list}
	var have []int
	for _, p := range list {
		if p.NUMA != nil && !slices.Contains(have, *p.NUMA) {
			have = append(have, *p.NUMA)
		}
	}
	const most = 16 // nodes of a host, which bounds the number of choices
	have = have[:min(len(have), most)]
	const none = -1 // a node without devices
	for choice := range 1 << len(have) {
		chosen := []int{none}
		for i, n := range have {
			if choice&(1<<i) != 0 {
				chosen = append(chosen, n)
			}
		}
		if len(chosen)-1 <= nodes && d.Supports(requests, chosen) == nil {
			return true
		}
	}
	return false
}

// nearer returns the remedy for devices on other NUMA nodes. An image with a policy of its own does
// not permit another one in the flavor.
func (j *judge) nearer(list []pools.Pool, nodes int) host.Text {
	const other = ", or use fewer devices, or another host"
	if j.facts.property(policyProperty) == "" {
		return host.Textf("openstack flavor set --property %s=%s %s%s", policySpec, pools.Preferred, j.facts.Flavor.Name, other)
	}
	for n := nodes + 1; n <= j.facts.Flavor.VCPUs && j.facts.property("hw_numa_nodes") == ""; n++ {
		if j.facts.Flavor.VCPUs%n == 0 && j.facts.Flavor.RAM%n == 0 && j.fitsDevices(list, n) {
			return host.Textf("openstack flavor set --property %s=%d %s%s", nodesSpec, n, j.facts.Flavor.Name, other)
		}
	}
	return host.Plain("use fewer devices, or another host")
}

// perNode counts the devices of the request by NUMA node: "1 on node 0, 1 on node 1".
func (j *judge) perNode(list []pools.Pool) string {
	counts := map[string]int{}
	for _, p := range list {
		if j.selects(p) {
			counts[nodeName(p.NUMA)] += p.Count
		}
	}
	words := host.Map(slices.Sorted(maps.Keys(counts)), func(node string) string { return fmt.Sprintf("%d on %s", counts[node], node) })
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

func nodeName(numa *int) string {
	if numa == nil {
		return "no node"
	}
	return fmt.Sprintf("node %d", *numa)
}
