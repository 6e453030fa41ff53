package nova

import (
	"fmt"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
	"strings"
)

// startable returns an error for each reason for which nova-compute, with report_in_placement,
// would refuse to start with the planned files.
func (p *planner) startable() []error {
	var files []conf.Source
	for _, s := range p.inOrder() {
		files = append(files, conf.Source{Name: s.name, File: s.file})
	}
	lines := devspec.Lines(files, p.options.Release.SpecNames())
	machines := []Host{{Devices: p.options.Devices}}
	if len(p.options.Devices) == 0 && len(p.options.Hosts) > 0 {
		machines = p.options.Hosts
	}
	var errs []error
	for i, m := range machines {
		for _, f := range devspec.NewHardware(m.Devices, p.options.Interfaces).ReportFaults(lines) {
			name := ""
			if m.Name != "" {
				name = "host " + m.Name + ": "
			}
			if i > 0 && strings.Contains(f.Seen, "devname") {
				continue // reported for the first machine
			}
			errs = append(errs, fmt.Errorf("%s%s: %w with report_in_placement: %s", name, f.Line.Where(), ErrNotStartable, f.Seen))
		}
	}
	return errs
}
