package nova

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova/conf"
)

const (
	filterPCI     = "PciPassthroughFilter"
	filterNUMA    = "NUMATopologyFilter"
	filterPackage = "nova.scheduler.filters."
	allFilters    = filterPackage + "all_filters" // the function that returns all of Nova's filters
)

// filterModules returns the modules of Nova's filters. The set is that of Nova 26; later releases
// have removed some (gone), and those before it had these and the removed ones.
func filterModules() map[string]string {
	return map[string]string{
		"AggregateImagePropertiesIsolation": "aggregate_image_properties_isolation",
		"AggregateInstanceExtraSpecsFilter": "aggregate_instance_extra_specs",
		"AggregateIoOpsFilter":              "io_ops_filter",
		"AggregateMultiTenancyIsolation":    "aggregate_multitenancy_isolation",
		"AggregateNumInstancesFilter":       "num_instances_filter",
		"AggregateTypeAffinityFilter":       "type_filter",
		"AllHostsFilter":                    "all_hosts_filter",
		"AvailabilityZoneFilter":            "availability_zone_filter",
		"ComputeCapabilitiesFilter":         "compute_capabilities_filter",
		"ComputeFilter":                     "compute_filter",
		"DifferentHostFilter":               "affinity_filter",
		"ImagePropertiesFilter":             "image_props_filter",
		"IoOpsFilter":                       "io_ops_filter",
		"IsolatedHostsFilter":               "isolated_hosts_filter",
		"JsonFilter":                        "json_filter",
		"MetricsFilter":                     "metrics_filter",
		"NUMATopologyFilter":                "numa_topology_filter",
		"NumInstancesFilter":                "num_instances_filter",
		"PciPassthroughFilter":              "pci_passthrough_filter",
		"SameHostFilter":                    "affinity_filter",
		"ServerGroupAffinityFilter":         "affinity_filter",
		"ServerGroupAntiAffinityFilter":     "affinity_filter",
		"SimpleCIDRAffinityFilter":          "affinity_filter",
	}
}

// Filters are the filters of a nova-scheduler.
type Filters struct {
	Enabled   []string // as oslo.config reads the list: an empty item is ""
	Available []string // paths of classes, or of functions that return classes; empty for all of Nova's
	// File and Line are where enabled_filters is set: of the side and 0 if it is not.
	File string
	Line int
}

// Filters returns the filters of the nova-scheduler that reads the files of the side.
func (s Side) Filters(r Release) Filters {
	f := Filters{Enabled: r.DefaultFilters(), File: s.Name()}
	if o, isSet := s.last(r.FilterNames()); isSet {
		f.Enabled, f.File, f.Line = conf.ParseList(o.Value), o.File, o.Line()
	}
	for _, o := range s.Find(r.availableNames()...) {
		f.Available = append(f.Available, o.Value)
	}
	return f
}

// last returns the option with one value that counts: of the last file that has one of the names,
// the last line with the first of these names (oslo_config/cfg.py, _Namespace._get_file_value).
func (s Side) last(names []conf.Name) (o Placed, isSet bool) {
	for _, f := range slices.Backward(s.Files) {
		for _, n := range names {
			if found := f.File.Find(n); len(found) > 0 {
				return Placed{found[len(found)-1], f.Name}, true
			}
		}
	}
	return Placed{}, false
}

// Faults returns the reasons for which nova-scheduler does not start with the filters
// (nova/scheduler/host_manager.py, _choose_host_filters; nova/loadables.py, get_matching_classes).
// Classes of an operator's own are taken to exist.
func (f Filters) Faults(r Release) (faults []Fault) {
	add := func(remedy, format string, args ...any) {
		faults = append(faults, Fault{Seen: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	for _, path := range f.Available {
		if why := notLoadable(path, r); why != "" {
			add("remove the value, or correct it", "available_filters has %q, which %s", path, why)
		}
	}
	var hidden []string
	for _, name := range f.Enabled {
		_, isNovas := filterModules()[name]
		switch {
		case name == "":
			add("remove the comma", "enabled_filters has an empty item")
		case offers(f.Available, name, r):
		case !r.HasFilter(name):
			add("remove it from the list", "%s has no %s", r, name)
		case isNovas:
			hidden = append(hidden, name)
		default:
			add(ofName(name), "no filter is called %s", name)
		}
	}
	switch len(hidden) {
	case 0:
	case 1:
		add("add available_filters = "+filterPackage+filterModules()[hidden[0]]+"."+hidden[0], "%s is enabled, but no available_filters offers it", hidden[0])
	default:
		add("add available_filters = "+allFilters, "%d filters are enabled, but no available_filters offers them: %s", len(hidden), strings.Join(hidden, ", "))
	}
	return faults
}

// offers reports whether a filter is, or may be, in available_filters. What a function returns that
// is not Nova's is unknown.
func offers(available []string, name string, r Release) bool {
	if len(available) == 0 {
		available = []string{allFilters}
	}
	_, isNovas := filterModules()[name]
	isNovas = isNovas || isGone(name)
	return slices.ContainsFunc(available, func(path string) bool {
		module, last := cutPath(path)
		switch {
		case path == allFilters:
			return isNovas && r.HasFilter(name)
		case isFilterModule(module):
			return last == name && notLoadable(path, r) == ""
		}
		// A function, by its spelling (PEP 8), may return the class.
		return module != "" && last != "" && (last == name || last[:1] == strings.ToLower(last[:1]))
	})
}

// notLoadable returns why nova-scheduler cannot load a value of available_filters, "" if it may.
func notLoadable(path string, r Release) string {
	module, last := cutPath(path)
	known, isNovas := filterModules()[last]
	switch {
	case path == allFilters:
	case path+"." == filterPackage, module == "" || last == "" || strings.ContainsAny(path, ", "):
		return "is not the path of a class or function"
	case !isFilterModule(module):
	case isGone(last) && r.HasFilter(last): // its module is not recorded
	case !isNovas || !r.HasFilter(last) || module != strings.TrimSuffix(filterPackage, ".")+"."+known:
		return fmt.Sprintf("%s does not have", r)
	}
	return ""
}

// cutPath returns the module and the last part of a path of Python.
func cutPath(path string) (module, last string) {
	i := strings.LastIndex(path, ".")
	return path[:max(i, 0)], path[i+1:]
}

// isFilterModule reports whether a module is of Nova's package of filters.
func isFilterModule(module string) bool {
	return strings.HasPrefix(module+".", filterPackage)
}

// ofName returns the remedy for an unknown filter: the one whose name is spelled alike, if any.
func ofName(name string) string {
	for known := range filterModules() {
		if strings.EqualFold(known, name) {
			return "write " + known
		}
	}
	return "correct the name, or add the path of its class to available_filters"
}

// neededFilters returns the filters that aliases need: NUMATopologyFilter where one has a NUMA policy.
func neededFilters(aliases []Alias) []string {
	need := []string{filterPCI}
	if slices.ContainsFunc(aliases, func(a Alias) bool { return a.NUMAPolicy != "" }) {
		need = append(need, filterNUMA)
	}
	return need
}

// with returns enabled filters without empty items and those that the release does not have, and
// with those that are needed.
func (f Filters) with(need []string, r Release) (kept, dropped []string) {
	for _, name := range f.Enabled {
		switch {
		case name == "":
		case !r.HasFilter(name) && !offers(f.Available, name, r):
			dropped = append(dropped, name)
		default:
			kept = append(kept, name)
		}
	}
	for _, name := range need {
		if !slices.Contains(kept, name) {
			kept = append(kept, name)
		}
	}
	return kept, dropped
}

// lacking returns the paths that available_filters needs for filters besides those that it has: by
// default all of Nova's filters are available.
func (f Filters) lacking(need []string) (paths []string) {
	if len(f.Available) == 0 || slices.Contains(f.Available, allFilters) {
		return nil
	}
	for _, name := range need {
		if full := filterPackage + filterModules()[name] + "." + name; !slices.Contains(f.Available, full) {
			paths = append(paths, full)
		}
	}
	return paths
}

// planFilters enables the filters that aliases need, makes them available if the configuration
// restricts them, and removes empty items and filters that the release does not have.
func planFilters(read sources, o Options, wanted []Alias) step {
	aliases := slices.Concat(wanted, o.keptAliases())
	if !o.Role.Controls() || len(aliases)+len(o.HCAs) == 0 {
		return step{}
	}
	r, need := o.Release, neededFilters(aliases)
	now := read.Scheduler().Filters(r)
	var removed []string
	list := func(have string, set bool) string {
		f, separator := Filters{Enabled: r.DefaultFilters(), Available: now.Available}, ","
		if set {
			f.Enabled = conf.ParseList(have)
			if strings.Contains(have, ", ") {
				separator = ", "
			}
		}
		kept, dropped := f.with(need, r)
		for _, name := range dropped {
			if !slices.Contains(removed, name) {
				removed = append(removed, name)
			}
		}
		return strings.Join(kept, separator)
	}
	same := func(have, want string) bool { return slices.Equal(conf.ParseList(have), conf.ParseList(want)) }
	st := read.each(r.FilterNames(), list, same, programScheduler)
	st.Dropped = removed
	if paths := now.lacking(need); paths != nil && st.err == nil {
		target, names := read.target(), r.availableNames()
		values := host.Map(target.File.Find(names...), func(o conf.Option) string { return o.Value })
		st.settings = append(st.settings, setting{target.Name, conf.Setting{Names: names, Values: append(values, paths...), Multi: true}, []string{programScheduler}})
	}
	return st
}

// rendered returns the filters of nova-scheduler of this machine with those that are needed, as a plan
// leaves them in files. Where none was read, they are those of the release. available is empty where
// nothing restricts it; added is its new part.
func (o Options) rendered(w Want) (enabled, available, added []string) {
	now, need := o.SchedulerFiles.Filters(o.Release), neededFilters(slices.Concat(w.Aliases, o.keptAliases()))
	enabled, _ = now.with(need, o.Release)
	if added = now.lacking(need); added != nil {
		available = append(now.Available, added...)
	}
	return enabled, available, added
}
