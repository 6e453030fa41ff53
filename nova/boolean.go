package nova

import (
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/nova/conf"
)

// ErrBoolean says that a service fails when it reads an option.
var ErrBoolean = host.WithHint(errors.New("is not a boolean"), "write true or false alone: a comment behind a value is part of it")

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

// booleans returns an error for each planned value that is not a boolean.
func (p *planner) booleans() (errs []error) {
	for _, f := range p.side().BooleanFaults(p.options.Release) {
		errs = append(errs, fmt.Errorf("%s:%d: %s = %s %w", f.At.File, f.At.Line(), f.At.Key, f.At.Value, ErrBoolean))
	}
	return errs
}
