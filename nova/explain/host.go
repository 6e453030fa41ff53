package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/conf"
)

// service judges nova-compute of a host.
func (j *judge) service(h Host) Judged {
	result := Judged{Link: Service, From: "compute services"}
	s := h.Service
	if s == nil {
		why, known := j.facts.Unread[Services]
		switch {
		case known:
			result.From = ""
			result.notChecked(why, "use an administrator's credentials")
		default:
			result.fail("has no nova-compute", "Nova has no nova-compute service of the host", host.Textf("start nova-compute on %s; "+
				"if it runs: nova-manage cell_v2 discover_hosts", h.Name))
		}
		return result
	}
	switch {
	case s.ForcedDown:
		result.fail("is forced down", "nova-compute is forced down", host.Textf("if the host is well: openstack compute service set --up %s nova-compute", h.Name))
	case !s.Up:
		result.fail("is down", "nova-compute does not report", host.Textf("on %s: %s, and journalctl -u nova-compute", h.Name,
			host.NewCommand("host check").Elsewhere()))
	case !s.Enabled:
		seen := "nova-compute is disabled"
		if s.Reason != "" {
			seen += ": " + s.Reason
		}
		result.fail("is disabled", seen, host.Textf("openstack compute service set --enable %s nova-compute", h.Name))
	default:
		result.Status, result.Seen = Pass, "nova-compute is up and enabled"
	}
	return result
}

// zone judges the availability zone of a host.
func (j *judge) zone(h Host) Judged {
	result := Judged{Link: Zone, From: "compute services"}
	wanted, from := j.facts.Zone, ""
	if wanted == "" {
		wanted, from = j.defaultZone()
	}
	switch {
	case wanted == "":
		result.Status, result.Seen, result.From = Pass, "no availability zone is requested", ""
	case h.Service == nil || h.Service.Zone == "":
		result.From = ""
		result.notChecked("the availability zone of the host is unknown", "use an administrator's credentials")
	case h.Service.Zone != wanted:
		seen := fmt.Sprintf("the host is in availability zone %s, and %s is requested", h.Service.Zone, wanted)
		if from != "" {
			seen += " (default_schedule_zone, " + from + ")"
		}
		remedy := host.Textf("request --availability-zone %s", h.Service.Zone)
		if name := j.aggregateOf(wanted); name != "" {
			remedy += host.Textf(", or openstack aggregate add host %s %s", name, h.Name)
		}
		result.fail("is not in availability zone "+wanted, seen, remedy)
	default:
		result.Status, result.Seen = Pass, "the host is in availability zone "+wanted
	}
	return result
}

// defaultZone returns [DEFAULT] default_schedule_zone of nova-api, which applies to requests
// without a zone (nova/conf/availability_zone.py).
func (j *judge) defaultZone() (zone, from string) {
	for _, s := range j.facts.Sides {
		if found := s.API().Find(conf.Name{Section: "DEFAULT", Key: "default_schedule_zone"}); s.Role.Controls() && len(found) > 0 {
			zone, from = found[len(found)-1].Value, found[len(found)-1].File
		}
	}
	return zone, from
}

// aggregateOf returns the name of an aggregate with an availability zone, or "".
func (j *judge) aggregateOf(zone string) string {
	for _, a := range j.facts.Aggregates {
		if a.Metadata["availability_zone"] == zone {
			return a.Name
		}
	}
	return ""
}

// Filters that explain judges.
const (
	filterPCI      = "PciPassthroughFilter"
	filterExtra    = "AggregateInstanceExtraSpecsFilter"
	filterTenants  = "AggregateMultiTenancyIsolation"
	filterNUMA     = "NUMATopologyFilter"
	filterCompute  = "ComputeFilter"
	filterZone     = "AvailabilityZoneFilter"
	filterCapable  = "ComputeCapabilitiesFilter"
	filterImage    = "ImagePropertiesFilter"
	filterAffinity = "ServerGroupAffinityFilter"
	filterAnti     = "ServerGroupAntiAffinityFilter"
)

// enabledFilters are the filters of nova-scheduler on one machine, and where they are set.
type enabledFilters struct {
	names []string
	from  string
}

// readFilters returns the filters of each controller.
func (f Facts) readFilters() (all []enabledFilters) {
	for _, side := range f.Sides {
		s := side.Scheduler()
		if !side.Role.Controls() || len(s.Files) == 0 {
			continue
		}
		e := enabledFilters{f.Release.DefaultFilters(), s.Name() + " (default)"}
		for _, n := range f.Release.FilterNames() {
			if found := s.Find(n); len(found) > 0 {
				o := found[len(found)-1]
				e = enabledFilters{conf.ParseList(o.Value), fmt.Sprintf("%s:%d", o.File, o.Line())}
				break
			}
		}
		all = append(all, e)
	}
	return all
}

// filter judges the filters of nova-scheduler for a host, as far as they depend on what is known.
func (j *judge) filter(h Host) Judged {
	result := Judged{Link: Filters}
	if len(j.filters) == 0 {
		result.notChecked("nova.conf of no controller is given", giveConf)
		return result
	}
	var warned *Judged
	for _, e := range j.filters {
		result.From = e.from
		for _, name := range e.names {
			if !j.facts.Release.HasFilter(name) {
				result.fail("is not reached: nova-scheduler does not start", fmt.Sprintf("%s has no %s: nova-scheduler does not start", j.facts.Release, name),
					host.Textf("remove it from enabled_filters: %s",
						host.NewCommand("nova configure").Flag("role", "controller").Elsewhere()))
				return result
			}
		}
		if len(j.request) > 0 && !slices.Contains(e.names, filterPCI) {
			warned = &Judged{Link: Filters, Status: Warn, From: e.from, Reason: "is chosen without " + filterPCI,
				Seen: filterPCI + " is not enabled: nova-scheduler also selects hosts without a free device, on which the guest fails",
				Remedy: host.Textf("%s, and restart nova-scheduler",
					host.NewCommand("nova configure").Flag("role", "controller").Elsewhere())}
		}
		if slices.Contains(e.names, filterExtra) && !j.extraSpecs(&result, h) || slices.Contains(e.names, filterTenants) && !j.tenants(&result, h) {
			return result
		}
	}
	if !j.isolated(&result, h) {
		return result
	}
	if warned != nil {
		return *warned
	}
	result.Status, result.Seen = Pass, "no judged filter excludes the host"
	return result
}

// extraSpecs judges AggregateInstanceExtraSpecsFilter (nova/scheduler/filters/
// aggregate_instance_extra_specs.py): keys without a namespace count as well.
func (j *judge) extraSpecs(result *Judged, h Host) bool {
	for _, key := range slices.Sorted(maps.Keys(j.facts.Flavor.ExtraSpecs)) {
		want := j.facts.Flavor.ExtraSpecs[key]
		space, name, isScoped := strings.Cut(key, ":")
		if !isScoped {
			name = space
		} else if space != "aggregate_instance_extra_specs" {
			continue
		}
		if why, unread := j.facts.Unread[Aggregates]; unread {
			result.notChecked(filterExtra+": "+why, "use an administrator's credentials")
			return false
		}
		values := j.metadata(h, name)
		switch {
		case len(values) > 0 && hasOperator(want):
			result.notChecked(fmt.Sprintf("%s: %s=%s has an operator", filterExtra, key, want), "openstack aggregate list --long")
			return false
		case !slices.Contains(values, want):
			seen := fmt.Sprintf("%s: the flavor has %s=%s, and no aggregate of the host has that", filterExtra, key, want)
			if len(values) > 0 {
				seen = fmt.Sprintf("%s: the flavor has %s=%s, and the aggregates of the host have %s", filterExtra, key, want, strings.Join(values, ", "))
			}
			remedy := host.Textf("openstack aggregate set --property %s=%s AGGREGATE, with the host in it", name, want)
			if !isScoped {
				remedy = host.Textf("openstack flavor unset --property %s %s, if it is not meant for aggregates", key, j.facts.Flavor.Name)
			}
			result.fail("is in no aggregate with "+name+"="+want, seen, remedy)
			return false
		}
	}
	return true
}

// hasOperator reports whether a value of an extra spec is a comparison (nova/scheduler/filters/
// extra_specs_ops.py; oslo_utils/specs_matcher.py).
func hasOperator(value string) bool {
	first, _, _ := strings.Cut(strings.TrimSpace(value), " ")
	return slices.Contains([]string{"=", "==", "!=", ">=", "<=", "s==", "s!=", "s<", "s<=", "s>", "s>=", "<in>", "<all-in>", "<or>", "<range-in>"}, first)
}

// tenants judges AggregateMultiTenancyIsolation (nova/scheduler/filters/
// aggregate_multitenancy_isolation.py).
func (j *judge) tenants(result *Judged, h Host) bool {
	var allowed []string
	for _, a := range j.aggregatesOf(h) {
		for key, value := range a.Metadata {
			if strings.HasPrefix(key, "filter_tenant_id") {
				allowed = append(allowed, conf.ParseList(value)...)
			}
		}
	}
	if len(allowed) == 0 || slices.Contains(allowed, j.facts.Project) {
		return true
	}
	if j.facts.Project == "" {
		result.notChecked(filterTenants+": the project of the guest is unknown", "use credentials of that project")
		return false
	}
	result.fail("is reserved for other projects", fmt.Sprintf("%s: aggregates reserve the host for the projects %s", filterTenants, strings.Join(allowed, ", ")),
		host.Textf("use a host without filter_tenant_id, or add project %s to it", j.facts.Project))
	return false
}

// isolated judges isolated aggregates: with [scheduler] enable_isolated_aggregate_filtering, a host
// of an aggregate that requires a trait accepts only guests that require it too
// (nova/scheduler/request_filter.py, isolate_aggregates, since Train).
func (j *judge) isolated(result *Judged, h Host) bool {
	isOn := j.facts.isOn(nova.Side.Scheduler, conf.Name{Section: "scheduler", Key: "enable_isolated_aggregate_filtering"})
	if !isOn || j.facts.Release < nova.Train {
		return true
	}
	for _, a := range j.aggregatesOf(h) {
		for _, key := range slices.Sorted(maps.Keys(a.Metadata)) {
			if strings.HasPrefix(key, "trait:") && a.Metadata[key] == "required" && j.facts.Flavor.ExtraSpecs[key] != "required" && !j.imageHas(key) {
				result.fail("is isolated by "+key, fmt.Sprintf("aggregate %s accepts only guests that require %s", a.Name, strings.TrimPrefix(key, "trait:")),
					host.Textf("openstack flavor set --property %s=required %s", key, j.facts.Flavor.Name))
				return false
			}
		}
	}
	return true
}

// imageHas reports whether the image requires a trait.
func (j *judge) imageHas(key string) bool {
	return j.facts.Image != nil && j.facts.Image.Properties[key] == "required"
}

func (j *judge) aggregatesOf(h Host) (list []cloud.Aggregate) {
	for _, i := range j.memberOf[h.Name] {
		list = append(list, j.facts.Aggregates[i])
	}
	return list
}

// metadata returns the values that the aggregates of a host have for a key.
func (j *judge) metadata(h Host, key string) (values []string) {
	for _, a := range j.aggregatesOf(h) {
		if value, ok := a.Metadata[key]; ok {
			for _, v := range strings.Split(value, ",") {
				values = append(values, strings.TrimSpace(v))
			}
		}
	}
	return values
}

// numa judges whether the free devices of a host are on NUMA nodes that the guest can have.
func (j *judge) numa(free, offered []unit) Judged {
	result := Judged{Link: NUMA, From: "flavor " + j.facts.Flavor.Name}
	cells, err := j.facts.cells()
	if err != nil {
		result.notChecked(err.Error(), "correct the extra spec")
		return result
	}
	if cells == 0 {
		result.Status, result.Seen = Pass, "the guest has no NUMA topology"
		return result
	}
	units := free
	if units == nil {
		units = offered
	}
	for _, w := range j.request {
		policy, from := j.policy(w.Alias)
		switch {
		case policy == "preferred":
			continue
		case policy == "socket":
			result.notChecked("policy socket: the sockets of the NUMA nodes are unknown",
				host.Textf("%s shows the NUMA node of each device", host.NewCommand("host scan").Elsewhere()))
			return result
		case units == nil:
			result.notChecked("the NUMA nodes of the devices are unknown", "give --database URL or --inventory FILE")
			return result
		}
		result.From = from
	}
	if j.fitsCells(units, cells) {
		result.Status, result.Seen = Pass, fmt.Sprintf("enough devices are on %s", nodesOf(cells))
		return result
	}
	perNode := map[string]int{}
	for _, u := range units {
		if slices.ContainsFunc(j.request, func(w nova.Wanted) bool { return j.aliases.selects(w.Alias, u) }) {
			perNode[nodeName(u.numa)] += u.count
		}
	}
	var words []string
	for _, node := range slices.Sorted(maps.Keys(perNode)) {
		words = append(words, fmt.Sprintf("%d on %s", perNode[node], node))
	}
	result.fail("has the devices on other NUMA nodes", fmt.Sprintf("the guest has %s and %s devices, of which the host has %s", nodesOf(cells), j.request,
		strings.Join(words, ", ")),
		host.Textf("openstack flavor set --property hw:pci_numa_affinity_policy=preferred %s, or more hw:numa_nodes, or fewer devices", j.facts.Flavor.Name))
	return result
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

// cells returns the number of NUMA nodes of the guest, 0 if it has no NUMA topology
// (nova/virt/hardware.py, numa_get_constraints).
func (f Facts) cells() (int, error) {
	if text := f.property("hw:numa_nodes"); text != "" {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return 0, fmt.Errorf("hw:numa_nodes is %q", text)
		}
		return n, nil
	}
	policy := f.property("hw:cpu_policy")
	if policy == "dedicated" || policy == "mixed" || f.property("hw:mem_page_size") != "" {
		return 1, nil
	}
	return 0, nil
}

// policy returns the NUMA policy of the devices of an alias, and where it is set: that of the
// flavor replaces that of the alias (nova/pci/request.py, _translate_alias_to_requests).
func (j *judge) policy(alias string) (policy, from string) {
	if text := j.facts.Flavor.ExtraSpecs["hw:pci_numa_affinity_policy"]; text != "" {
		return text, "hw:pci_numa_affinity_policy of flavor " + j.facts.Flavor.Name
	}
	if text := j.facts.property("hw:pci_numa_affinity_policy"); text != "" {
		return text, "hw_pci_numa_affinity_policy of image " + j.facts.Image.Name
	}
	for _, o := range j.aliases.defined[alias] {
		if text, _ := o["numa_policy"].(string); text != "" {
			return text, j.aliases.where[alias]
		}
	}
	return "legacy", "the default policy, legacy"
}

// fitsCells reports whether a number of NUMA nodes has the devices of the request. With the policy
// legacy, devices without a node fit every guest (nova/pci/stats.py, _filter_pools_for_numa_cells).
func (j *judge) fitsCells(units []unit, cells int) bool {
	var nodes []int
	for _, u := range units {
		if u.numa != nil && !slices.Contains(nodes, *u.numa) {
			nodes = append(nodes, *u.numa)
		}
	}
	const most = 16 // nodes of a host, which bounds the number of choices
	if len(nodes) > most {
		nodes = nodes[:most]
	}
	for choice := range 1 << len(nodes) {
		var chosen []int
		for i, n := range nodes {
			if choice&(1<<i) != 0 {
				chosen = append(chosen, n)
			}
		}
		if len(chosen) <= cells && j.aliasesFit(units, chosen) {
			return true
		}
	}
	return false
}

// aliasesFit reports whether devices on some NUMA nodes are enough for the request.
func (j *judge) aliasesFit(units []unit, nodes []int) bool {
	left := slices.Clone(units)
	for _, w := range j.request {
		policy, _ := j.policy(w.Alias)
		need := w.Count
		for i := range left {
			isNear := left[i].numa != nil && slices.Contains(nodes, *left[i].numa) || left[i].numa == nil && policy != "required" || policy == "preferred"
			if isNear && j.aliases.selects(w.Alias, left[i]) {
				n := min(need, left[i].count)
				left[i].count -= n
				need -= n
			}
		}
		if need > 0 {
			return false
		}
	}
	return true
}
