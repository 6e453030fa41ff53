package nova

import (
	"fmt"

	"gpustack/nova/conf"
)

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

// Ignored is the name of an option of PCI devices or filters that a release does not read.
type Ignored struct {
	Name    conf.Name
	Instead string // the name that the release reads, "" if it has no such option
}

// Ignored returns the names that the release does not read. Nova ignores lines of such an option
// without a message.
func (r Release) Ignored() (names []Ignored) {
	for _, n := range readBy {
		if r < n.since || r >= n.until {
			names = append(names, Ignored{n.name, n.instead})
		}
	}
	return names
}

// ignoredNames returns the names of Ignored.
func (r Release) ignoredNames() (names []conf.Name) {
	for _, n := range r.Ignored() {
		names = append(names, n.Name)
	}
	return names
}

// removeIgnored removes the lines of options that the release does not read. In a file that must
// stay as it is, they are a warning.
func (p *planner) removeIgnored() error {
	for _, s := range p.sources {
		for _, name := range p.options.Release.ignoredNames() {
			found := s.before.Find(name)
			for _, o := range found {
				if p.isFixed(s) {
					p.plan.Warnings = append(p.plan.Warnings, fmt.Sprintf("%s:%d: %s is not an option of %s: Nova silently ignores it",
						s.name, o.Line(), name, p.options.Release))
				} else {
					p.plan.Removed = append(p.plan.Removed, fmt.Sprintf("%s:%d: %s = %s", s.name, o.Line(), name, onOneLine(o.Value)))
				}
			}
			if len(found) == 0 || p.isFixed(s) {
				continue
			}
			if err := p.set(s, conf.Setting{Names: []conf.Name{name}}); err != nil {
				return err
			}
		}
	}
	return nil
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
		if found := view.Find(n); len(found) > 0 && !conf.IsBool(found[len(found)-1].Value) {
			faults = append(faults, BooleanFault{found[len(found)-1], effect})
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
