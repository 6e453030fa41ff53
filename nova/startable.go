package nova

import (
	"fmt"
	"slices"

	"gpustack/nova/devspec"
)

// startable returns an error for each reason for which nova-compute would refuse to start with the
// planned files on this machine.
func (p *planner) startable() (errs []error) {
	side := Side{Role: Compute, Files: p.readByCompute(), Hypervisor: p.options.Hypervisor}
	var seen []string
	for _, m := range p.options.served() {
		for _, f := range side.StartFaults(devspec.NewHardware(m.Devices, p.options.Interfaces), p.options.Release) {
			prefix, err := "", ErrTag
			if f.OfHost {
				prefix = m.prefix()
			}
			if f.OfReport {
				err = ErrNotStartable
			}
			text := fmt.Sprintf("%s%s", prefix, p.onDisk(f.Line.File, f.Line.Option))
			if !slices.Contains(seen, text+f.Seen) {
				seen, errs = append(seen, text+f.Seen), append(errs, fmt.Errorf("%s: %w: %s", text, err, f.Seen))
			}
		}
	}
	return errs
}
