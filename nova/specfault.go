package nova

import (
	"errors"
	"fmt"

	"gpustack/host"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// ErrSpec says that Nova rejects a device_spec: nova-compute reads it when it starts
// (nova/compute/manager.py, init_host, since Newton), nova-scheduler for each host
// (nova/scheduler/host_manager.py, HostState, through nova/pci/stats.py, PciDeviceStats).
var ErrSpec = host.WithHint(host.WithCode(errors.New("with this line nova-compute does not start, and nova-scheduler finds no host"),
	host.CodeNotStartable, ""),
	"correct the line or remove it")

// SpecFault is a reason for which Nova rejects or misreads a value of device_spec.
type SpecFault struct {
	Seen, Remedy string
	Item         int  // the index of the spec in the value; -1 for the whole value
	IsTolerated  bool // Nova reads the tag as false, and its services start
}

// booleanSince are the first releases that read each tag as a boolean.
var booleanSince = map[string]Release{"trusted": Rocky, "remote_managed": Yoga, "managed": Epoxy, "live_migratable": Epoxy, "one_time_use": Flamingo}

// SpecFaults returns the reasons for which Nova rejects or misreads a value of device_spec,
// whatever the hardware is.
func SpecFaults(l devspec.Line, r Release) (faults []SpecFault) {
	if !l.IsJSON {
		return []SpecFault{{Seen: "the value of device_spec is not a JSON object", Remedy: "write a JSON object or a list of JSON objects", Item: -1}}
	}
	for _, fault := range l.Faults {
		faults = append(faults, SpecFault{Seen: fmt.Sprintf("a device_spec: %v", fault), Remedy: "correct the device_spec", Item: -1})
	}
	for i, spec := range l.Specs {
		for _, tag := range devspec.BooleanTags {
			value := spec.Object[tag]
			if _, err := devspec.Bool(value); value != nil && err != nil && r >= booleanSince[tag] {
				// Nova reads older tags leniently.
				faults = append(faults, SpecFault{fmt.Sprintf("a device_spec: %s %v", tag, err), "write \"yes\" or \"no\"", i, booleanSince[tag] < Epoxy})
			}
		}
	}
	return faults
}

// rejected returns an error for each fault for which Nova rejects a value of device_spec that a
// program reads and that the plan leaves as it is.
func (p *planner) rejected(values []*value) (errs []error) {
	for _, v := range values {
		for _, f := range SpecFaults(v.line, p.options.Release) {
			if isReplaced := f.Item >= 0 && (v.dropped[f.Item] || v.ours && len(v.line.Specs) == 1); !f.IsTolerated && !isReplaced {
				errs = append(errs, fmt.Errorf("%s: %s: %w", v.where(), f.Seen, ErrSpec))
			}
		}
	}
	return errs
}

// MustReport reports whether nova-compute starts with a spec only with report_in_placement
// (nova/pci/devspec.py, one_time_use).
func MustReport(spec devspec.Spec, r Release) bool {
	return r >= Flamingo && spec.IsOn("one_time_use")
}

// FunctionFaults returns the tags with which nova-compute does not start because of the type of a
// function: remote_managed on PFs (nova/pci/devspec.py, _init_dev_details) and one_time_use on VFs.
func FunctionFaults(h devspec.Hardware, lines []devspec.Line, r Release) []devspec.Fault {
	var found []devspec.Fault
	for _, l := range lines {
		for _, spec := range l.Specs {
			if r < Yoga || !spec.IsOn("remote_managed") || !h.IsPF(spec.Single) {
				continue
			}
			var pf, vf string // products
			for i := range h.Devices {
				switch d := &h.Devices[i]; {
				case d.ProductID == nil:
				case d.Address.String() == spec.Single:
					pf = d.ProductID.String()
				case d.SRIOV.PF != nil && d.SRIOV.PF.String() == spec.Single:
					vf = d.ProductID.String()
				}
			}
			// The address of a PF with the product id of its VFs selects the VFs.
			if spec.Product != vf && (spec.Product == devspec.Anything || spec.Product == pf || vf != "") {
				found = append(found, devspec.Fault{Line: l, Seen: fmt.Sprintf("the device_spec %s has remote_managed, but %s is a PF", conf.Written(spec.Object),
					spec.Single)})
			}
		}
	}
	if r < Flamingo {
		return found
	}
	for i := range h.Devices {
		if first, ok := h.First(lines, &h.Devices[i]); ok && h.Devices[i].SRIOV.PF != nil && first.Spec.IsOn("one_time_use") {
			found = append(found, devspec.Fault{Line: first.Line, Seen: fmt.Sprintf("the device_spec %s has one_time_use, but %s is a VF",
				conf.Written(first.Spec.Object), h.Devices[i].Address)})
		}
	}
	return found
}
