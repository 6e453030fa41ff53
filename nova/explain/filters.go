package explain

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
	"gpustack/nova/fit"
)

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
	filterImages   = "AggregateImagePropertiesIsolation"
	filterType     = "AggregateTypeAffinityFilter"
	filterIsolated = "IsolatedHostsFilter"
)

// enabledFilters are the filters of nova-scheduler on one machine, and where they are set.
type enabledFilters struct {
	names  []string
	from   string
	faults []nova.FilterFault // with which nova-scheduler does not start
}

// readFilters returns the filters of each controller.
func (f Facts) readFilters() (all []enabledFilters) {
	for _, side := range f.Sides {
		s := side.Scheduler()
		if !side.Role.Controls() || len(s.Files) == 0 {
			continue
		}
		filters := s.Filters(f.Release)
		e := enabledFilters{filters.Enabled, s.Name() + " (default)", filters.Faults(f.Release)}
		if filters.Line > 0 {
			e.from = fmt.Sprintf("%s:%d", filters.File, filters.Line)
		}
		all = append(all, e)
	}
	return all
}

// judges returns the filters that judge a host by what the request contains, by their names. Each
// leaves its result as it is for a host that passes.
func (j *judge) judges() map[string]func(*Judged, Host) {
	return map[string]func(*Judged, Host){
		filterExtra: j.extraSpecs, filterTenants: j.tenants, filterImage: j.imageProperties, filterCapable: j.capabilities,
		filterAffinity: j.affinity, filterAnti: j.antiAffinity, filterZone: j.zoneFilter, filterImages: j.imagesOfAggregates, filterType: j.types,
		filterIsolated: j.isolatedHosts,
	}
}

// filter judges the filters of nova-scheduler for a host, as far as they depend on what is known.
func (j *judge) filter(h Host) Judged {
	result := Judged{Link: Filters}
	if len(j.filters) == 0 {
		result.notChecked("nova.conf of no controller is given", giveConf)
		return result
	}
	var warned, unknown *Judged
	for _, e := range j.filters {
		result.From = e.from
		if j.doesNotStart(&result, e) {
			return result
		}
		if len(j.request) > 0 && !slices.Contains(e.names, filterPCI) {
			warned = &Judged{Link: Filters, Status: Warn, From: e.from, Reason: "is chosen without " + filterPCI,
				Seen: filterPCI + " is not enabled: nova-scheduler also selects hosts without a free device, on which the guest fails",
				Remedy: host.Textf("%s, and restart nova-scheduler",
					host.NewCommand("nova configure").Flag("role", "controller").Elsewhere())}
		}
		of := j.judges()
		for _, name := range e.names {
			if judges := of[name]; judges != nil {
				judges(&result, h)
			}
			if result.Status == Fail {
				return result
			}
			if result.Status == NotChecked && unknown == nil {
				unknown = &Judged{}
				*unknown = result
			}
			result.Status = ""
		}
	}
	for _, judges := range []func(*Judged, Host){j.groupPolicy, j.isolated, j.tenantAggregates} {
		judges(&result, h)
		if result.Status == Fail {
			return result
		}
		if result.Status == NotChecked && unknown == nil {
			unknown = &Judged{}
			*unknown = result
		}
		result.Status = ""
	}
	switch {
	case unknown != nil:
		return *unknown
	case warned != nil:
		return *warned
	}
	return Judged{Link: Filters, Status: Pass, From: result.From, Seen: "no judged filter excludes the host"}
}

// doesNotStart reports whether nova-scheduler does not start with its filters.
func (j *judge) doesNotStart(result *Judged, e enabledFilters) bool {
	if len(e.faults) == 0 {
		return false
	}
	fault := e.faults[0]
	result.fail("is not reached: nova-scheduler does not start", fault.Seen+": nova-scheduler does not start",
		host.Textf("%s: %s", fault.Remedy, host.NewCommand("nova configure").Flag("role", "controller").Elsewhere()))
	return true
}

// extraSpecs judges AggregateInstanceExtraSpecsFilter (nova/scheduler/filters/
// aggregate_instance_extra_specs.py): keys without a namespace count as well.
func (j *judge) extraSpecs(result *Judged, h Host) {
	for _, key := range slices.Sorted(maps.Keys(j.facts.Flavor.ExtraSpecs)) {
		want := j.facts.Flavor.ExtraSpecs[key]
		space, name, isScoped := strings.Cut(key, ":")
		if !isScoped {
			name = space
		} else if space != "aggregate_instance_extra_specs" {
			continue
		}
		if j.lacksAggregates(result, filterExtra) {
			return
		}
		values := j.metadata(h, name)
		if slices.ContainsFunc(values, func(value string) bool { ok, _ := fit.Match(value, want); return ok }) {
			continue
		}
		seen := fmt.Sprintf("%s: the flavor has %s=%s, and no aggregate of the host has that", filterExtra, key, want)
		if len(values) > 0 {
			seen = fmt.Sprintf("%s: the flavor has %s=%s, and the aggregates of the host have %s", filterExtra, key, want, strings.Join(values, ", "))
		}
		remedy := host.Textf("openstack aggregate set --property %s=VALUE AGGREGATE, with the host in it and a value that agrees with %s", name, want)
		if ok, err := fit.Match(want, want); ok && err == nil {
			remedy = host.Textf("openstack aggregate set --property %s=%s AGGREGATE, with the host in it", name, want)
		}
		if !isScoped {
			remedy = host.Textf("openstack flavor unset --property %s %s, if it is not meant for aggregates", key, j.facts.Flavor.Name)
		}
		result.fail("is in no aggregate with "+name+"="+want, seen, remedy)
		return
	}
}

// suffixedTenants is the release since which keys such as filter_tenant_id3 count as well.
const suffixedTenants nova.Release = 30

// tenants judges AggregateMultiTenancyIsolation (nova/scheduler/filters/
// aggregate_multitenancy_isolation.py).
func (j *judge) tenants(result *Judged, h Host) {
	if j.lacksAggregates(result, filterTenants) {
		return
	}
	const key = "filter_tenant_id"
	var allowed []string
	for _, a := range j.aggregatesOf(h) {
		for name, value := range a.Metadata {
			if name == key || strings.HasPrefix(name, key) && j.facts.Release >= suffixedTenants {
				allowed = append(allowed, splitValues(value)...)
			}
		}
	}
	slices.Sort(allowed)
	switch {
	case len(allowed) == 0 || slices.Contains(allowed, j.facts.Project):
	case j.facts.Project == "":
		result.notChecked(filterTenants+": the project of the guest is unknown", "use credentials of that project")
	default:
		result.fail("is reserved for other projects", fmt.Sprintf("%s: aggregates reserve the host for the projects %s", filterTenants, strings.Join(allowed, ", ")),
			host.Textf("use a host without filter_tenant_id, or add project %s to it", j.facts.Project))
	}
}

// splitValues returns the values of a key of an aggregate (nova/scheduler/filters/utils.py,
// aggregate_metadata_get_by_host).
func splitValues(value string) (values []string) {
	for v := range strings.SplitSeq(value, ",") {
		values = append(values, strings.TrimSpace(v))
	}
	return values
}

// node returns what filters read of the compute node, nil if it is unknown.
func (h Host) node() *Node {
	if h.Stock == nil {
		return nil
	}
	return h.Stock.Node
}

const giveDatabase = "give --database URL, or --conf controller=FILE on a machine that reaches Nova's databases"

// imageProperties judges ImagePropertiesFilter (nova/scheduler/filters/image_props_filter.py).
func (j *judge) imageProperties(result *Judged, h Host) {
	node := h.node()
	switch m := j.machine; {
	case m.IsAny():
	case node == nil:
		result.notChecked(filterImage+": the image has requirements, and what the hypervisor supports is unknown", giveDatabase)
	case !m.Fits(node.Supported, node.HypervisorVersion):
		var words []string
		for _, word := range []string{m.Architecture, m.Hypervisor, m.Mode, j.guest.Image["img_hv_requested_version"]} {
			if word != "" {
				words = append(words, word)
			}
		}
		wants := strings.Join(words, ", ")
		result.fail("does not support the image", fmt.Sprintf("%s: the image requires %s, which the hypervisor (%s) does not support", filterImage, wants,
			node.Hypervisor), "use another image, or another host")
	}
}

// fieldsOfHost are attributes of nova-scheduler's HostState that extra specs without a namespace
// are compared with too.
var fieldsOfHost = []string{
	"hypervisor_type", "hypervisor_version", "hypervisor_hostname", "cpu_info", "host", "nodename", "uuid", "updated", "host_ip", "free_ram_mb", "free_disk_mb",
	"total_usable_ram_mb", "total_usable_disk_gb", "disk_mb_used", "vcpus_total", "vcpus_used", "num_instances", "num_io_ops", "failed_builds", "metrics", "limits",
	"pci_stats", "numa_topology", "supported_instances", "aggregates", "instances", "service", "stats", "cell_uuid",
	"ram_allocation_ratio", "cpu_allocation_ratio", "disk_allocation_ratio",
}

// capabilities judges ComputeCapabilitiesFilter (nova/scheduler/filters/
// compute_capabilities_filter.py).
func (j *judge) capabilities(result *Judged, h Host) {
	specs := maps.Clone(j.facts.Flavor.ExtraSpecs)
	if bits, there := specs["hw:maxphysaddr_bits"]; there && j.facts.Release >= nova.Antelope {
		specs["capabilities:cpu_info:maxphysaddr:bits"] = ">= " + bits
	}
	for _, key := range slices.Sorted(maps.Keys(specs)) {
		scope := strings.Split(key, ":")
		switch {
		case len(scope) == 1 && !slices.Contains(fieldsOfHost, key), len(scope) > 1 && scope[0] != "capabilities":
			continue
		case len(scope) > 1:
			scope = scope[1:]
		}
		value, isKnown := h.capability(scope)
		if !isKnown {
			result.notChecked(filterCapable+": "+key+" is not judged: the value of the host is unknown", giveDatabase)
			continue
		}
		ok, err := value != nil, error(nil)
		if ok {
			ok, err = fit.Match(fit.Python(value), specs[key])
		}
		if !ok {
			seen := fmt.Sprintf("%s: the flavor has %s=%s, and the host has %s", filterCapable, key, specs[key], fit.Python(value))
			if err != nil {
				seen += ": " + err.Error()
			}
			result.fail("does not have "+strings.Join(scope, ":")+" of the flavor", seen,
				host.Textf("openstack flavor unset --property %s %s, or use another host", key, j.facts.Flavor.Name))
			return
		}
	}
}

// capability returns a value of the compute node, nil for none.
func (h Host) capability(scope []string) (value any, isKnown bool) {
	n := h.node()
	if n == nil {
		return nil, false
	}
	switch scope[0] {
	case "hypervisor_type":
		value = n.Hypervisor
	case "hypervisor_version":
		value = json.Number(strconv.Itoa(n.HypervisorVersion))
	case "hypervisor_hostname":
		value = h.Node
	case "cpu_info":
		value = n.CPUInfo
	default:
		return nil, false
	}
	for _, key := range scope[1:] {
		if text, isText := value.(string); isText {
			d := json.NewDecoder(strings.NewReader(text))
			d.UseNumber()
			if d.Decode(&value) != nil {
				return nil, true
			}
		}
		object, ok := value.(map[string]any)
		if !ok {
			return nil, true
		}
		value = object[key]
	}
	return value, true
}

// affinity judges ServerGroupAffinityFilter (nova/scheduler/filters/affinity_filter.py).
func (j *judge) affinity(result *Judged, h Host) {
	g := j.facts.Group
	if g == nil || g.Policy != "affinity" || len(g.Members) == 0 || g.Members[h.Name] > 0 {
		return
	}
	hosts := strings.Join(slices.Sorted(maps.Keys(g.Members)), ", ")
	result.fail("is not the host of the server group", fmt.Sprintf("%s: the members of server group %s are on %s", filterAffinity, g.Name, hosts),
		"free that host, or build the server without the group")
}

// antiAffinity judges ServerGroupAntiAffinityFilter.
func (j *judge) antiAffinity(result *Judged, h Host) {
	g := j.facts.Group
	if g == nil || g.Policy != "anti-affinity" || g.Members[h.Name] < max(g.Most, 1) {
		return
	}
	result.fail("has a member of the server group", fmt.Sprintf("%s: the host has %d of server group %s", filterAnti, g.Members[h.Name], g.Name),
		"use another host, or build the server without the group")
}

// groupPolicy judges the policy of the server group: nova-scheduler rejects the request if its
// filter is not enabled (nova/scheduler/utils.py, _get_group_details).
func (j *judge) groupPolicy(result *Judged, _ Host) {
	if why, unread := j.facts.Unread[Groups]; unread {
		result.notChecked("the server group of the server is unknown: "+why, "use an administrator's credentials")
	}
	if j.facts.Group == nil {
		return
	}
	need := map[string]string{"affinity": filterAffinity, "anti-affinity": filterAnti}[j.facts.Group.Policy]
	for _, e := range j.filters {
		if need != "" && !slices.Contains(e.names, need) {
			result.From = e.from
			result.fail("is not reached: the policy of the server group is not supported",
				fmt.Sprintf("server group %s has policy %s, and %s is not enabled", j.facts.Group.Name, j.facts.Group.Policy, need),
				host.Textf("add %s to enabled_filters, and restart nova-scheduler", need))
			return
		}
	}
}

// zoneFilter judges AvailabilityZoneFilter, which releases before 2023.2 have.
func (j *judge) zoneFilter(result *Judged, h Host) {
	zone := j.facts.Zone
	if zone == "" {
		zone, _ = j.defaultZone()
	}
	if zone == "" || h.Service == nil || h.Service.Zone == "" || h.Service.Zone == zone {
		return
	}
	result.fail("is not in availability zone "+zone, fmt.Sprintf("%s: the host is in availability zone %s, and %s is requested", filterZone, h.Service.Zone,
		zone), j.toZone(h, zone))
}

// imagesOfAggregates judges AggregateImagePropertiesIsolation as far as an aggregate of the host
// has a key that is a property of the image too.
func (j *judge) imagesOfAggregates(result *Judged, h Host) {
	if len(j.guest.Image) == 0 || j.lacksAggregates(result, filterImages) {
		return
	}
	space := j.schedulerOption("aggregate_image_properties_isolation_namespace")
	if space != "" {
		space += cmp.Or(j.schedulerOption("aggregate_image_properties_isolation_separator"), ".")
	}
	for _, a := range j.aggregatesOf(h) {
		for _, key := range slices.Sorted(maps.Keys(a.Metadata)) {
			value := j.guest.Property(key)
			if !strings.HasPrefix(key, space) || value == "" || slices.Contains(j.metadata(h, key), value) {
				continue
			}
			result.fail("is reserved for other images", fmt.Sprintf("%s: the image has %s=%s, and aggregate %s has %s", filterImages, key, value, a.Name,
				a.Metadata[key]), "use another image, or another host")
			return
		}
	}
}

// types judges AggregateTypeAffinityFilter (nova/scheduler/filters/type_filter.py).
func (j *judge) types(result *Judged, h Host) {
	if j.lacksAggregates(result, filterType) {
		return
	}
	allowed := j.metadata(h, "instance_type")
	if len(allowed) > 0 && !slices.Contains(allowed, j.facts.Flavor.Name) {
		result.fail("is reserved for other flavors", fmt.Sprintf("%s: aggregates reserve the host for %s", filterType, strings.Join(allowed, ", ")),
			host.Textf("add %s to instance_type of an aggregate of the host, or use another host", j.facts.Flavor.Name))
	}
}

// isolatedHosts judges IsolatedHostsFilter (nova/scheduler/filters/isolated_hosts_filter.py). An
// image that is not given is taken to be none of the isolated ones.
func (j *judge) isolatedHosts(result *Judged, h Host) {
	option := func(key string) []string {
		return slices.DeleteFunc(splitValues(j.schedulerOption(key)), func(value string) bool { return value == "" })
	}
	images, isMine := option("isolated_images"), slices.Contains(option("isolated_hosts"), h.Name)
	restricts, err := devspec.Bool(cmp.Or(j.schedulerOption("restrict_isolated_hosts_to_isolated_images"), "true"))
	isIsolated := j.facts.Image != nil && slices.Contains(images, j.facts.Image.ID)
	switch {
	case err != nil || isIsolated == isMine || isMine && !restricts:
	case isMine && len(images) > 0 && j.facts.Image == nil && !j.facts.Volume:
		result.notChecked(filterIsolated+": isolated_hosts has the host, and the image of the guest is unknown", "give it with --image")
	case isMine:
		result.fail("is reserved for other images", filterIsolated+": isolated_hosts has the host, and isolated_images does not have the image",
			"use another host, or an image of isolated_images")
	default:
		result.fail("is not one of isolated_hosts", filterIsolated+": isolated_images has the image, and isolated_hosts does not have the host",
			"use another image, or a host of isolated_hosts")
	}
}

// schedulerOption returns the last value of an option of [filter_scheduler].
func (j *judge) schedulerOption(key string) (value string) {
	for _, s := range j.facts.Sides {
		if !s.Role.Controls() {
			continue
		}
		if found := s.Scheduler().Find(conf.Name{Section: "filter_scheduler", Key: key}); len(found) > 0 {
			value = found[len(found)-1].Value
		}
	}
	return value
}

// isolated judges isolated aggregates: with [scheduler] enable_isolated_aggregate_filtering, a host
// of an aggregate that requires a trait accepts only guests that require it too
// (nova/scheduler/request_filter.py, isolate_aggregates, since Train).
func (j *judge) isolated(result *Judged, h Host) {
	isOn := j.facts.isOn(nova.Side.Scheduler, conf.Name{Section: "scheduler", Key: "enable_isolated_aggregate_filtering"})
	if !isOn || j.facts.Release < nova.Train || j.lacksAggregates(result, "enable_isolated_aggregate_filtering") {
		return
	}
	required := j.facts.required()
	for _, a := range j.aggregatesOf(h) {
		for _, key := range slices.Sorted(maps.Keys(a.Metadata)) {
			trait, isTrait := strings.CutPrefix(key, "trait:")
			if !isTrait || a.Metadata[key] != "required" || slices.Contains(required, trait) {
				continue
			}
			result.fail("is isolated by "+key, fmt.Sprintf("aggregate %s accepts only guests that require %s", a.Name, trait),
				host.Textf("openstack flavor set --property %s=required %s", key, j.facts.Flavor.Name))
			return
		}
	}
}

// lacksAggregates reports whether the aggregates are unknown, so that what needs them is not
// checked.
func (j *judge) lacksAggregates(result *Judged, what string) bool {
	why, unread := j.facts.Unread[Aggregates]
	if unread {
		result.notChecked(what+": "+why, "use an administrator's credentials")
	}
	return unread
}

// tenantAggregates judges [scheduler] limit_tenants_to_placement_aggregate: guests of a project
// that has aggregates are built on their hosts only (nova/scheduler/request_filter.py,
// require_tenant_aggregate, since Rocky).
func (j *judge) tenantAggregates(result *Judged, h Host) {
	option := func(key string) bool {
		return j.facts.isOn(nova.Side.Scheduler, conf.Name{Section: "scheduler", Key: key})
	}
	if j.facts.Release < nova.Rocky || !option("limit_tenants_to_placement_aggregate") {
		return
	}
	if j.lacksAggregates(result, "limit_tenants_to_placement_aggregate") {
		return
	}
	if j.facts.Project == "" {
		result.notChecked("limit_tenants_to_placement_aggregate: the project of the guest is unknown", "use credentials of that project")
		return
	}
	var names []string
	remedy := host.Text("use a host of these aggregates")
	for _, a := range j.facts.Aggregates {
		if !isForTenant(a, j.facts.Project) {
			continue
		}
		if slices.Contains(a.Hosts, h.Name) {
			return
		}
		names = append(names, a.Name)
		if a.Metadata["availability_zone"] == "" || !j.hasZone(h) {
			remedy = host.Textf("openstack aggregate add host %s %s", a.Name, h.Name)
		}
	}
	switch {
	case len(names) > 0:
		result.fail("is in no aggregate of the project", fmt.Sprintf("limit_tenants_to_placement_aggregate: project %s has the aggregates %s", j.facts.Project,
			strings.Join(names, ", ")), remedy)
	case option("placement_aggregate_required_for_tenants"):
		result.fail("is not reached: the project has no aggregate", fmt.Sprintf("placement_aggregate_required_for_tenants: no aggregate has filter_tenant_id=%s",
			j.facts.Project), host.Textf("openstack aggregate set --property filter_tenant_id=%s AGGREGATE", j.facts.Project))
	}
}

// isForTenant reports whether an aggregate is one of a project: Nova selects aggregates with the
// project as any value, of which it takes those with any key of this prefix.
func isForTenant(a cloud.Aggregate, project string) bool {
	isNamed, hasKey := false, false
	for key, value := range a.Metadata {
		isNamed = isNamed || value == project
		hasKey = hasKey || strings.HasPrefix(key, "filter_tenant_id")
	}
	return isNamed && hasKey
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
			values = append(values, splitValues(value)...)
		}
	}
	return values
}
