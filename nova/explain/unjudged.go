package explain

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/nova"
	"gpustack/nova/conf"
)

// Filters of nova-scheduler by what they read. Those of links and those that no request of a flavor
// concerns are in neither list.
const (
	filterPCI      = "PciPassthroughFilter"
	filterNUMA     = "NUMATopologyFilter"
	filterExtra    = "AggregateInstanceExtraSpecsFilter"
	filterTenants  = "AggregateMultiTenancyIsolation"
	filterImages   = "AggregateImagePropertiesIsolation"
	filterType     = "AggregateTypeAffinityFilter"
	filterIsolated = "IsolatedHostsFilter"
	filterImage    = "ImagePropertiesFilter"
)

// ofLoad are filters that judge a host by its load, whatever the guest requests, and filters of
// scheduler hints, which Nova does not show. They are listed, and do not keep a host from "can".
var ofLoad = []string{
	"IoOpsFilter", "NumInstancesFilter", "MetricsFilter", "AggregateIoOpsFilter", "AggregateNumInstancesFilter",
	"JsonFilter", "DifferentHostFilter", "SameHostFilter", "SimpleCIDRAffinityFilter",
}

// judgedSpecs are extra specs that only links, Placement or the hypervisor read, and prefixes of such.
var judgedSpecs = []string{nova.RequestKey, policySpec, "hw:hide_hypervisor_id", "quota:*", "hw_rng:*", "resources:*", "trait:*"}

// threadsTrait stands for hw:cpu_thread_policy, which nova-api rejects without dedicated CPUs,
// beside what Placement reads (nova/virt/hardware.py, _get_hyperthreading_trait).
const threadsTrait = "trait:HW_CPU_HYPERTHREADING"

// hypervisorProperties are properties of images that Nova knows and only the hypervisor reads.
var hypervisorProperties = []string{
	"os_distro", "os_version", "os_type", "os_admin_user", "os_require_quiesce", "hw_machine_type", "hw_firmware_type", "hw_disk_bus", "hw_scsi_model",
	"hw_vif_model", "hw_rng_model", "hw_qemu_guest_agent", "hw_video_model", "hw_video_ram", "hw_cdrom_bus", "hw_input_bus", "hw_pointer_model",
	"img_hide_hypervisor_id", "img_config_drive", "os_command_line", "hw_boot_menu", "hw_time_hpet", "img_block_device_mapping", "img_root_device_name",
}

// legacyProperties are properties without a prefix that Nova knows (nova/objects/image_meta.py).
var legacyProperties = []string{"architecture", "hypervisor_type", "vm_mode", "hypervisor_version_requires"}

func is(list []string, key string) bool {
	return slices.ContainsFunc(list, func(known string) bool {
		prefix, isPrefix := strings.CutSuffix(known, "*")
		return known == key || isPrefix && strings.HasPrefix(key, prefix)
	})
}

// unjudged returns what of the request, of the host and of the options some part of Nova compares
// that no link judges, side by side and without a verdict; nil for nothing.
func (j *judge) unjudged(h Host) (words []string) {
	if specs := j.unjudgedSpecs(); specs != nil {
		words = append(words, "flavor "+strings.Join(specs, ", "))
	}
	if properties := j.unjudgedProperties(); properties != nil {
		words = append(words, "image "+strings.Join(properties, ", "))
	}
	if g := j.facts.Group; g != nil {
		words = append(words, fmt.Sprintf("server group %s, %s, with %d on the host and %s", g.Name, g.Policy, g.Members[h.Name], g.elsewhere(h.Name)))
	}
	if why, unread := j.facts.Unread[Groups]; unread {
		words = append(words, "server group: "+why)
	}
	words = append(words, j.unjudgedOptions()...)
	if keys := j.unjudgedAggregates(h); keys != nil {
		words = append(words, keys...)
	}
	if j.facts.numaNodes() > 0 {
		words = append(words, h.layout())
	}
	return words
}

// elsewhere counts the members of a group on other hosts.
func (g ServerGroup) elsewhere(name string) string {
	n := 0
	for on, members := range g.Members {
		if on != name {
			n += members
		}
	}
	return fmt.Sprintf("%d elsewhere", n)
}

func (j *judge) unjudgedSpecs() (list []string) {
	for _, key := range slices.Sorted(maps.Keys(j.facts.Flavor.ExtraSpecs)) {
		value := j.facts.Flavor.ExtraSpecs[key]
		isJudged := is(judgedSpecs, key) && !slices.Contains(layoutSpecs, key) && key != threadsTrait ||
			key == "hide_hypervisor_id" && !j.enables(filterExtra)
		if key == policySpec {
			isJudged = slices.Contains(policies, value)
		}
		if !isJudged {
			list = append(list, key+"="+value)
		}
	}
	return list
}

func (j *judge) unjudgedProperties() (list []string) {
	if j.facts.Image == nil {
		return nil
	}
	for _, key := range slices.Sorted(maps.Keys(j.facts.Image.Properties)) {
		value := j.facts.Image.Properties[key]
		isKnown := slices.Contains(legacyProperties, key) || key == threadsTrait || is([]string{"hw_*", "img_*", "os_*"}, key)
		if key == policyProperty { // nova-api rejects one that differs from the flavor's
			of := j.facts.Flavor.ExtraSpecs[policySpec]
			isKnown = !slices.Contains(policies, value) || of != "" && of != value
		}
		if isKnown && !slices.Contains(hypervisorProperties, key) {
			list = append(list, key+"="+value)
		}
	}
	return list
}

// unjudgedOptions returns options of nova-scheduler with which the request filters or a filter
// compare the guest or the host, and filters that are not Nova's own.
func (j *judge) unjudgedOptions() (list []string) {
	f := j.facts
	options := []string{"limit_tenants_to_placement_aggregate"}
	if f.Image != nil {
		options = append(options, "image_metadata_prefilter", "query_placement_for_image_type_support")
	}
	for _, key := range options {
		if f.isOn(nova.Side.Scheduler, conf.Name{Section: "scheduler", Key: key}) {
			list = append(list, "[scheduler] "+key)
		}
	}
	set := map[string]string{"isolated_hosts": filterIsolated}
	if f.Image != nil {
		set["image_properties_default_architecture"], set["isolated_images"] = filterImage, filterIsolated
	}
	for _, option := range slices.Sorted(maps.Keys(set)) {
		if value := j.schedulerOption(option); value != "" && j.enables(set[option]) {
			list = append(list, "[filter_scheduler] "+option+"="+value)
		}
	}
	for _, e := range j.filters {
		for _, name := range e.names {
			if word := name + ", which is not Nova's own (" + e.from + ")"; !f.Release.OwnsFilter(name) && !slices.Contains(list, word) {
				list = append(list, word)
			}
		}
	}
	return list
}

// unjudgedAggregates returns the keys of aggregates of a host that an enabled filter or request
// filter compares with the request.
func (j *judge) unjudgedAggregates(h Host) (list []string) {
	isIsolating := j.facts.isOn(nova.Side.Scheduler, conf.Name{Section: "scheduler", Key: "enable_isolated_aggregate_filtering"})
	isOfExtra := func(string) bool { return true }
	reads := map[string]func(key string) bool{
		filterExtra:   isOfExtra,
		filterTenants: func(key string) bool { return strings.HasPrefix(key, "filter_tenant_id") },
		filterImages:  func(key string) bool { return j.facts.Image != nil && key != "availability_zone" },
		filterType:    func(key string) bool { return strings.HasPrefix(key, "instance_type") },
	}
	if len(j.scopedSpecs()) == 0 {
		delete(reads, filterExtra)
	}
	maps.DeleteFunc(reads, func(filter string, _ func(string) bool) bool { return !j.enables(filter) })
	if isIsolating {
		reads["enable_isolated_aggregate_filtering"] = func(key string) bool { return strings.HasPrefix(key, "trait:") }
	}
	if why, unread := j.facts.Unread[Aggregates]; unread && len(reads) > 0 {
		return []string{"aggregates: " + why}
	}
	for _, i := range j.memberOf[h.Name] {
		a := j.facts.Aggregates[i]
		var keys []string
		for _, key := range slices.Sorted(maps.Keys(a.Metadata)) {
			for _, reads := range reads {
				if reads(key) {
					keys = append(keys, key+"="+a.Metadata[key])
					break
				}
			}
		}
		if keys != nil {
			list = append(list, "aggregate "+a.Name+" "+strings.Join(keys, ", "))
		}
	}
	return list
}

// scopedSpecs returns the extra specs that AggregateInstanceExtraSpecsFilter compares.
func (j *judge) scopedSpecs() (keys []string) {
	for key := range j.facts.Flavor.ExtraSpecs {
		if space, _, isScoped := strings.Cut(key, ":"); !isScoped || space == "aggregate_instance_extra_specs" {
			keys = append(keys, key)
		}
	}
	return keys
}

// enables reports whether a controller enables a filter.
func (j *judge) enables(filter string) bool {
	return slices.ContainsFunc(j.filters, func(e enabledFilters) bool { return slices.Contains(e.names, filter) })
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

// layout returns the NUMA nodes of a host with their CPUs and memory, as nova-compute has reported
// them.
func (h Host) layout() string {
	const none = "NUMA nodes of the host unknown"
	if h.Stock == nil || h.Stock.Node == nil {
		return none
	}
	var read struct {
		Data struct {
			Cells []struct {
				Data struct {
					ID     int   `json:"id"`
					Shared []int `json:"cpuset"`
					Pinned []int `json:"pinned_cpus"`
					Own    []int `json:"pcpuset"`
					Memory int   `json:"memory"`
					Used   int   `json:"memory_usage"`
				} `json:"nova_object.data"`
			} `json:"cells"`
		} `json:"nova_object.data"`
	}
	if json.Unmarshal(h.Stock.Node.Topology, &read) != nil || len(read.Data.Cells) == 0 {
		return none
	}
	var words []string
	for _, c := range read.Data.Cells {
		words = append(words, fmt.Sprintf("NUMA node %d of the host: %d shared CPUs, %d dedicated, %d of them pinned, %d of %d MiB in use", c.Data.ID,
			len(c.Data.Shared), len(c.Data.Own), len(c.Data.Pinned), c.Data.Used, c.Data.Memory))
	}
	return strings.Join(words, "; ")
}
