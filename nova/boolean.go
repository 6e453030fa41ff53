package nova

import "gpustack/nova/conf"

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
