package nova

import (
	"fmt"
	"slices"
	"strings"
)

// setLiveMigratable sets live_migratable of an alias's device_spec, if nova-compute starts with it.
func setLiveMigratable(o Options, s *Spec, a Alias) {
	if o.Release < Epoxy {
		return
	}
	switch lacks := o.Hypervisor.LacksLiveMigration(); {
	case len(lacks) == 0:
		s.LiveMigratable = a.LiveMigratable
	case !slices.ContainsFunc(lacks, Part.IsOld):
		s.unwritten = a.LiveMigratable
	}
}

// warnLiveMigratable returns a warning for an alias whose device_spec is written without its
// live_migratable. Nova matches such an alias with tagged devices only (nova/pci/stats.py,
// _filter_pools_for_live_migratable_devices).
func warnLiveMigratable(o Options, a Alias) []string {
	lacks := o.Hypervisor.LacksLiveMigration()
	if !o.Role.Computes() || o.Release < Epoxy || a.LiveMigratable == "" || len(lacks) == 0 {
		return nil
	}
	effect := "no guest with this alias gets a device of this host"
	if !slices.ContainsFunc(lacks, Part.IsOld) {
		effect = "guests with this alias get only devices whose device_spec has it already"
	}
	return []string{fmt.Sprintf("alias %s: live_migratable is not written to device_spec, because %s; %s", a.Name, lacking(lacks), effect)}
}

// lacking returns which parts are too old, or else which versions are unknown.
func lacking(lacks []Part) string {
	var old, lowest, unknown, flags []string
	for _, part := range lacks {
		if part.IsOld() {
			old, lowest = append(old, part.Name+" is "+part.Have.String()), append(lowest, part.Name+" "+part.Lowest.String())
			continue
		}
		unknown, flags = append(unknown, part.Name), append(flags, "--"+strings.ToLower(part.Name))
	}
	switch {
	case len(old) > 0:
		return strings.Join(old, " and ") + ", and nova-compute does not start with it before " + strings.Join(lowest, " and ")
	case len(unknown) == 1:
		return fmt.Sprintf("the version of %s is unknown: %s gives it", unknown[0], flags[0])
	}
	return fmt.Sprintf("the versions of %s are unknown: %s give them", strings.Join(unknown, " and "), strings.Join(flags, " and "))
}

// keepLiveMigratable gives a wanted spec the live_migratable that it lacks because the versions of
// the hypervisor are unknown, if a spec of the same devices has it.
func (p *planner) keepLiveMigratable(all []*value, w Spec) (Spec, error) {
	if w.unwritten == "" {
		return w, nil
	}
	with := w
	with.LiveMigratable = w.unwritten
	planned, err := parsed(with)
	hardware := p.options.hardware()
	if slices.ContainsFunc(specsOf(all), func(s at) bool {
		have := s.spec()
		return HasLiveMigratable(have, p.options.Release) && !slices.Contains(planned.Lost(have), "live_migratable") &&
			hardware.Contains(have, planned) && hardware.Contains(planned, have)
	}) {
		return with, err
	}
	return w, err
}
