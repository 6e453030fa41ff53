package nova

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/nova/devspec"
)

// startable returns an error for each reason for which nova-compute would refuse to start with the
// planned files on this machine.
func (p *planner) startable() []error {
	lines := devspec.Lines(p.readByCompute(), p.options.Release.SpecNames())
	isReported := p.options.Release >= Zed && slices.ContainsFunc(p.planned(), reports)
	var errs []error
	add := func(m Host, l devspec.Line, err error, seen string) {
		errs = append(errs, fmt.Errorf("%s%s: %w: %s", m.prefix(), p.onDisk(l.File, l.Option), err, seen))
	}
	for i, m := range p.options.served() {
		h := devspec.NewHardware(m.Devices, p.options.Interfaces)
		for _, f := range FunctionFaults(h, lines, isReported, p.options.Release) {
			add(m, f.Line, ErrTag, f.Seen)
		}
		if !isReported {
			continue
		}
		for _, f := range h.ReportFaults(lines) {
			if i > 0 && strings.Contains(f.Seen, "devname") {
				continue // reported for the first machine
			}
			add(m, f.Line, ErrNotStartable, f.Seen)
		}
	}
	for _, l := range lines {
		for _, part := range p.options.Hypervisor.LacksLiveMigration() {
			if part.IsOld() && slices.ContainsFunc(l.Specs, func(s devspec.Spec) bool { return HasLiveMigratable(s, p.options.Release) }) {
				add(Host{isHere: true}, l, ErrTag, fmt.Sprintf("a device_spec has live_migratable, but %s is %s", part.Name, part.Have))
			}
		}
		if !isReported && slices.ContainsFunc(l.Specs, func(s devspec.Spec) bool { return MustReport(s, p.options.Release) }) {
			add(Host{isHere: true}, l, ErrTag, "a device_spec has one_time_use, but report_in_placement is not set")
		}
	}
	return errs
}
