package nova

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/nova/conf"
)

// Release is a release of Nova: the major number of its version, 26 for Zed.
type Release int

// Releases at which something changes, by what nova's repository says at their
// tags.
const (
	mitaka  Release = 13
	ocata   Release = 15 // options move to their groups (4e5ed1c489, 7d0381c91a)
	pike    Release = 16
	queens  Release = 17
	rocky   Release = 18
	train   Release = 20
	vict    Release = 22
	wallaby Release = 23
	xena    Release = 24 // old names of filter options go (50a7a3050a)
	yoga    Release = 25
	zed     Release = 26 // device_spec, report_in_placement (14e68ac6e9, 06389f8d84)
	r2023_1 Release = 27 // pci_in_placement (2cb1eedeaf)
	r2023_2 Release = 28
	r2025_1 Release = 31 // managed, live_migratable (03915cd59d, f9c5f50376)
	r2025_2 Release = 32 // one_time_use (28a266461a)
	newest  Release = 33
)

// releaseNames are the names of releases from Mitaka on, later ones by year with
// the code name behind.
var releaseNames = []string{
	"mitaka", "newton", "ocata", "pike", "queens", "rocky", "stein", "train", "ussuri", "victoria", "wallaby", "xena", "yoga", "zed",
	"2023.1 antelope", "2023.2 bobcat", "2024.1 caracal", "2024.2 dalmatian", "2025.1 epoxy", "2025.2 flamingo", "2026.1 gazpacho",
}

// ReleaseNames returns the names that ParseRelease takes, oldest first.
func ReleaseNames() []string {
	var names []string
	for _, n := range releaseNames {
		name, _, _ := strings.Cut(n, " ")
		names = append(names, name)
	}
	return names
}

// ParseRelease reads a release's name, or for later ones its code name.
func ParseRelease(name string) (Release, error) {
	for i, n := range releaseNames {
		if slices.Contains(strings.Fields(n), strings.ToLower(name)) {
			return mitaka + Release(i), nil
		}
	}
	return 0, fmt.Errorf("unknown release %q", name)
}

func (r Release) String() string {
	if i := int(r - mitaka); i >= 0 && i < len(releaseNames) {
		return ReleaseNames()[i]
	}
	return fmt.Sprintf("version %d", int(r))
}

// Options by their names per release, the one to write first, then older ones that
// the release reads too. Values under all of them add up.

func (r Release) aliasNames() []conf.Name {
	old := conf.Name{Section: "DEFAULT", Key: "pci_alias"}
	if r < ocata {
		return []conf.Name{old}
	}
	return []conf.Name{{Section: "pci", Key: "alias"}, old}
}

func (r Release) specNames() []conf.Name {
	names := []conf.Name{{Section: "pci", Key: "device_spec"}, {Section: "pci", Key: "passthrough_whitelist"}, {Section: "DEFAULT", Key: "pci_passthrough_whitelist"}}
	switch {
	case r < ocata:
		return names[2:]
	case r < zed:
		return names[1:]
	}
	return names
}

// filterNames do not add up: the first that is set counts.
func (r Release) filterNames() []conf.Name {
	return r.schedulerNames("enabled_filters", "scheduler_default_filters")
}

func (r Release) availableNames() []conf.Name {
	return r.schedulerNames("available_filters", "scheduler_available_filters")
}

func (r Release) schedulerNames(key, oldKey string) []conf.Name {
	now, old := conf.Name{Section: "filter_scheduler", Key: key}, conf.Name{Section: "DEFAULT", Key: oldKey}
	switch {
	case r < ocata:
		return []conf.Name{old}
	case r < xena:
		return []conf.Name{now, old}
	}
	return []conf.Name{now}
}

var (
	reportInPlacement = conf.Name{Section: "pci", Key: "report_in_placement"}
	pciInPlacement    = conf.Name{Section: "filter_scheduler", Key: "pci_in_placement"}
)

// names are all that a plan may set.
func (r Release) names() []conf.Name {
	return slices.Concat(r.aliasNames(), r.specNames(), r.filterNames(), r.availableNames(), []conf.Name{reportInPlacement, pciInPlacement})
}

// defaultFilters are enabled where nothing is set (nova/conf/scheduler.py; until
// Newton nova/scheduler/host_manager.py).
func (r Release) defaultFilters() []string {
	filters := []string{"ComputeFilter", "ComputeCapabilitiesFilter", "ImagePropertiesFilter", "ServerGroupAntiAffinityFilter", "ServerGroupAffinityFilter"}
	switch {
	case r < pike:
		return append([]string{"RetryFilter", "AvailabilityZoneFilter", "RamFilter", "DiskFilter"}, filters...)
	case r < train:
		return append([]string{"RetryFilter", "AvailabilityZoneFilter"}, filters...)
	case r < xena:
		return append([]string{"AvailabilityZoneFilter"}, filters...)
	}
	return filters
}

// gone are filters that releases no longer have, by the first that has not. With
// the name of one nova-scheduler does not start (SchedulerHostFilterNotFound).
var gone = map[string]Release{
	"TrustedFilter": queens, "TypeAffinityFilter": queens,
	"ExactCoreFilter": rocky, "ExactDiskFilter": rocky, "ExactRamFilter": rocky,
	"CoreFilter": train, "DiskFilter": train, "RamFilter": train,
	"RetryFilter": vict, "AggregateCoreFilter": vict, "AggregateDiskFilter": vict, "AggregateRamFilter": vict,
	"AvailabilityZoneFilter": r2023_2,
}

// hasFilter tells whether the release is not known to lack a filter.
func (r Release) hasFilter(name string) bool {
	since, known := gone[name]
	return !known || r < since
}
