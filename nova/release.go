package nova

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/nova/conf"
)

// Release is a release of Nova: the major number of its version, 26 for Zed.
type Release int

// Releases in which something relevant changed, from the tags of nova's repository.
const (
	Mitaka   Release = 13
	Newton   Release = 14
	Ocata    Release = 15 // options move to their groups (4e5ed1c489, 7d0381c91a)
	Pike     Release = 16
	Queens   Release = 17
	Rocky    Release = 18
	Stein    Release = 19 // a device in use outlives its device_spec (26c41eccad)
	Train    Release = 20
	Victoria Release = 22
	Wallaby  Release = 23
	Xena     Release = 24 // old names of filter options go (50a7a3050a)
	Yoga     Release = 25
	Zed      Release = 26 // device_spec, report_in_placement (14e68ac6e9, 06389f8d84)
	Antelope Release = 27 // pci_in_placement (2cb1eedeaf)
	Bobcat   Release = 28
	// Dalmatian's oslo.policy enforces the default policies of 2023.1 (oslo.policy 4.4.0).
	Dalmatian Release = 30
	Epoxy     Release = 31 // managed, live_migratable (03915cd59d, f9c5f50376)
	Flamingo  Release = 32 // one_time_use (28a266461a)
	Gazpacho  Release = 33
	// Hibiscus changes no option of PCI devices and no filter. Devices in Placement get more traits
	// (TraitsBeside). Its prefilter owner_nova_filter requires OWNER_NOVA of compute nodes and PCI
	// devices, but only once every nova-compute reports it (nova/scheduler/request_filter.py).
	Hibiscus Release = 34
	Newest           = Hibiscus
)

// releaseNames are the names of releases from Mitaka on; later ones have a number and a code name.
var releaseNames = []string{
	"mitaka", "newton", "ocata", "pike", "queens", "rocky", "stein", "train", "ussuri", "victoria", "wallaby", "xena", "yoga", "zed",
	"2023.1 antelope", "2023.2 bobcat", "2024.1 caracal", "2024.2 dalmatian", "2025.1 epoxy", "2025.2 flamingo", "2026.1 gazpacho", "2026.2 hibiscus",
}

// ReleaseNames returns the names that ParseRelease accepts, oldest first, without code names that
// come after a number.
func ReleaseNames() []string {
	var names []string
	for _, n := range releaseNames {
		name, _, _ := strings.Cut(n, " ")
		names = append(names, name)
	}
	return names
}

// calendarName matches the names of releases since 2023.1: two a year, with one number each
// (governance/reference/release-naming.rst of OpenStack).
var calendarName = host.LazyRegexp(`^(20[0-9]{2})\.([12])$`)

// ParseRelease returns the release with a name, such as zed, 2023.1 or antelope, or with the major
// number of Nova's version, such as 26. Releases that are newer than [Newest] are accepted; see
// [Release.Known].
func ParseRelease(name string) (Release, error) {
	for i, n := range releaseNames {
		if slices.Contains(strings.Fields(n), strings.ToLower(name)) {
			return Mitaka + Release(i), nil
		}
	}
	if m := calendarName().FindStringSubmatch(name); m != nil {
		year, _ := strconv.Atoi(m[1]) // four digits
		r := Antelope + Release(2*(year-firstCalendarYear)) + Release(m[2][0]-'1')
		if r > Newest {
			return r, nil
		}
	}
	if n, err := strconv.Atoi(name); err == nil && n >= int(Mitaka) && n < firstCalendarYear {
		return Release(n), nil
	}
	return 0, fmt.Errorf("unknown release %q", name)
}

// firstCalendarYear is the year of Antelope, 2023.1.
const firstCalendarYear = 2023

func (r Release) String() string {
	switch i := int(r - Mitaka); {
	case i >= 0 && i < len(releaseNames):
		return ReleaseNames()[i]
	case r > Newest:
		n := int(r - Antelope)
		return fmt.Sprintf("%d.%d", firstCalendarYear+n/2, n%2+1)
	}
	return fmt.Sprintf("version %d", int(r))
}

// MarshalText returns what String returns.
func (r Release) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// Known returns the release whose options are used for r: r itself, or [Newest] for a newer one,
// with a warning that says so.
func (r Release) Known() (known Release, warnings []string) {
	if r <= Newest {
		return r, nil
	}
	return Newest, []string{fmt.Sprintf("Nova %s (version %d) is newer than %s, the newest release that gpustack knows: its options are taken to be those of %s",
		r, int(r), Newest, Newest)}
}

// reads returns those of the names of an option that the release reads.
func (r Release) reads(names ...conf.Name) []conf.Name {
	ignored := r.Ignored()
	return slices.DeleteFunc(names, func(n conf.Name) bool { return slices.Contains(ignored, n) })
}

// AliasNames returns the names of the option alias that the release reads, the current one first.
// The values of all names count.
func (r Release) AliasNames() []conf.Name {
	return r.reads(conf.Name{Section: "pci", Key: "alias"}, conf.Name{Section: "DEFAULT", Key: "pci_alias"})
}

// SpecNames returns the names of the option device_spec that the release reads, the current one
// first. The values of all names count.
func (r Release) SpecNames() []conf.Name {
	return r.reads(conf.Name{Section: "pci", Key: "device_spec"}, conf.Name{Section: "pci", Key: "passthrough_whitelist"},
		conf.Name{Section: "DEFAULT", Key: "pci_passthrough_whitelist"})
}

// FilterNames returns the names of the option enabled_filters, the current one first. The first
// name that is set counts.
func (r Release) FilterNames() []conf.Name {
	return r.reads(conf.Name{Section: "filter_scheduler", Key: "enabled_filters"}, conf.Name{Section: "DEFAULT", Key: "scheduler_default_filters"})
}

func (r Release) availableNames() []conf.Name {
	return r.reads(conf.Name{Section: "filter_scheduler", Key: "available_filters"},
		conf.Name{Section: "DEFAULT", Key: "scheduler_available_filters"})
}

// Options of PCI devices in Placement: whether nova-compute reports devices, and whether
// nova-scheduler asks for them.
var (
	ReportInPlacement = conf.Name{Section: "pci", Key: "report_in_placement"}
	PCIInPlacement    = conf.Name{Section: "filter_scheduler", Key: "pci_in_placement"}
)

// names returns every option that a plan may set.
func (r Release) names() []conf.Name {
	return slices.Concat(r.AliasNames(), r.SpecNames(), r.FilterNames(), r.availableNames(), []conf.Name{ReportInPlacement, PCIInPlacement})
}

// DefaultFilters returns the filters that are enabled if the option is not set
// (nova/conf/scheduler.py; until Newton nova/scheduler/host_manager.py).
func (r Release) DefaultFilters() []string {
	filters := []string{"ComputeFilter", "ComputeCapabilitiesFilter", "ImagePropertiesFilter", "ServerGroupAntiAffinityFilter", "ServerGroupAffinityFilter"}
	switch {
	case r < Pike:
		return append([]string{"RetryFilter", "AvailabilityZoneFilter", "RamFilter", "DiskFilter"}, filters...)
	case r < Train:
		return append([]string{"RetryFilter", "AvailabilityZoneFilter"}, filters...)
	case r < Xena:
		return append([]string{"AvailabilityZoneFilter"}, filters...)
	}
	return filters
}

// gone are filters that were removed, with the first release without them. nova-scheduler does not
// start with the name of such a filter (SchedulerHostFilterNotFound).
var gone = map[string]Release{
	"TrustedFilter": Queens, "TypeAffinityFilter": Queens,
	"ExactCoreFilter": Rocky, "ExactDiskFilter": Rocky, "ExactRamFilter": Rocky,
	"CoreFilter": Train, "DiskFilter": Train, "RamFilter": Train,
	"RetryFilter": Victoria, "AggregateCoreFilter": Victoria, "AggregateDiskFilter": Victoria, "AggregateRamFilter": Victoria,
	"AvailabilityZoneFilter": Bobcat,
}

// isGone reports whether a filter was removed from Nova in some release.
func isGone(name string) bool {
	_, is := gone[name]
	return is
}

// OwnsFilter reports whether a filter is one of Nova's own in the release.
func (r Release) OwnsFilter(name string) bool {
	_, isNovas := filterModules()[name]
	return (isNovas || isGone(name)) && r.HasFilter(name)
}

// HasFilter reports whether a filter is not known to be missing from the release.
func (r Release) HasFilter(name string) bool {
	since, known := gone[name]
	return !known || r < since
}

// readBy lists option names that only some releases read: from since on, and before until. Names
// that no release reads (0, 0) are frequent mistakes.
var readBy = []struct {
	name         conf.Name
	since, until Release
	instead      string
}{
	{conf.Name{Section: "pci", Key: "alias"}, Ocata, Newest + 1, "[DEFAULT] pci_alias"},
	{conf.Name{Section: "pci", Key: "passthrough_whitelist"}, Ocata, Newest + 1, "[DEFAULT] pci_passthrough_whitelist"},
	{conf.Name{Section: "pci", Key: "device_spec"}, Zed, Newest + 1, "[pci] passthrough_whitelist"},
	{ReportInPlacement, Zed, Newest + 1, ""},
	{PCIInPlacement, Antelope, Newest + 1, ""},
	{conf.Name{Section: "filter_scheduler", Key: "enabled_filters"}, Ocata, Newest + 1, "[DEFAULT] scheduler_default_filters"},
	{conf.Name{Section: "filter_scheduler", Key: "available_filters"}, Ocata, Newest + 1, "[DEFAULT] scheduler_available_filters"},
	{conf.Name{Section: "DEFAULT", Key: "scheduler_default_filters"}, Mitaka, Xena, "[filter_scheduler] enabled_filters"},
	{conf.Name{Section: "DEFAULT", Key: "scheduler_available_filters"}, Mitaka, Xena, "[filter_scheduler] available_filters"},
	{conf.Name{Section: "pci", Key: "pci_alias"}, 0, 0, "[pci] alias"},
	{conf.Name{Section: "pci", Key: "pci_passthrough_whitelist"}, 0, 0, "[pci] passthrough_whitelist"},
	{conf.Name{Section: "DEFAULT", Key: "passthrough_whitelist"}, 0, 0, "[pci] passthrough_whitelist"},
	{conf.Name{Section: "DEFAULT", Key: "alias"}, 0, 0, "[pci] alias"},
	{conf.Name{Section: "DEFAULT", Key: "device_spec"}, 0, 0, "[pci] device_spec"},
	{conf.Name{Section: "DEFAULT", Key: "enabled_filters"}, 0, 0, "[filter_scheduler] enabled_filters"},
}

// Ignored returns the names of options of PCI devices and filters that the release does not read.
// Nova ignores lines of such an option without a message.
func (r Release) Ignored() (names []conf.Name) {
	for _, n := range readBy {
		if r < n.since || r >= n.until {
			names = append(names, n.name)
		}
	}
	return names
}

// Instead returns the name that the release reads in place of one of Ignored, "" if it has no such
// option. An unknown release reads none.
func (r Release) Instead(ignored conf.Name) string {
	name := ignored.String()
	for range readBy {
		for _, n := range readBy {
			if n.name.String() == name && (r < n.since || r >= n.until) {
				name = n.instead
				break
			}
		}
	}
	return name
}

// planIgnored removes the lines of options that the release does not read. In a file that must
// stay as it is, they are a warning.
func planIgnored(read sources, r Release) (st step) {
	for _, f := range read.Files {
		for _, name := range r.Ignored() {
			found, isFixed := f.File.Find(name), read.isFixed(f.Name)
			for _, o := range found {
				if isFixed {
					st.Warnings = append(st.Warnings, fmt.Sprintf("%s:%d: %s is not an option of %s: Nova silently ignores it", f.Name, o.Line(), name, r))
				} else {
					st.Removed = append(st.Removed, fmt.Sprintf("%s:%d: %s = %s (%s ignores it)", f.Name, o.Line(), name, onOneLine(o.Value), r))
				}
			}
			if len(found) > 0 && !isFixed {
				st.settings = append(st.settings, setting{file: f.Name, Setting: conf.Setting{Names: []conf.Name{name}}})
			}
		}
	}
	return st
}

// BooleanFault is a boolean option with another value. The services start with it, and fail when
// they read it (oslo_config/cfg.py, ConfigFileValueError).
type BooleanFault struct {
	At     Placed
	Effect string // continues a sentence that begins with "Nova"
}

// BooleanFaults returns those of the options for Placement, as the services of the side read them.
func (s Side) BooleanFaults(r Release) (faults []BooleanFault) {
	add := func(view Side, n conf.Name, effect string) {
		if o, isSet := view.last([]conf.Name{n}); isSet && !conf.IsBool(o.Value) {
			faults = append(faults, BooleanFault{o, effect})
		}
	}
	if s.Role.Computes() && r >= Zed {
		add(s.Compute(), ReportInPlacement, "fails each update of the resources of the host, and never reports its devices")
	}
	if s.Role.Controls() && r >= Antelope {
		add(s.Scheduler(), PCIInPlacement, "fails each request for a guest")
	}
	return faults
}
