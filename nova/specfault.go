package nova

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// booleanSince are the first releases that read each tag as a boolean.
var booleanSince = map[string]Release{"trusted": Rocky, "remote_managed": Yoga, "managed": Epoxy, "live_migratable": Epoxy, "one_time_use": Flamingo}

// SpecFaults returns the reasons for which Nova rejects or misreads a value of device_spec,
// whatever the hardware is.
func SpecFaults(l devspec.Line, r Release) (faults []Fault) {
	if names := conf.References(l.Option.Value); len(names) > 0 {
		return []Fault{{
			Seen: fmt.Sprintf("the value of device_spec refers to %s, which oslo.config replaces", options(names)), Remedy: "write $$ for a dollar sign",
		}}
	}
	if !l.IsJSON {
		return []Fault{{Seen: "the value of device_spec is not a JSON object", Remedy: "write a JSON object or a list of JSON objects"}}
	}
	for _, fault := range l.Faults {
		faults = append(faults, Fault{Seen: fmt.Sprintf("a device_spec: %v", fault), Remedy: "correct the device_spec"})
	}
	for _, spec := range l.Specs {
		for _, tag := range devspec.BooleanTags {
			value := spec.Object[tag]
			if _, err := devspec.Bool(value); value != nil && err != nil && r >= booleanSince[tag] {
				// Nova reads older tags leniently.
				faults = append(faults, Fault{fmt.Sprintf("a device_spec: %s %v", tag, err), "write \"yes\" or \"no\"", booleanSince[tag] < Epoxy})
			}
		}
	}
	return faults
}

// TagFaults returns the tags of a value of device_spec with which nova-compute starts, but fails
// each time that it updates the resources of its host: lists and objects, which its pools cannot
// have (nova/pci/stats.py, to_device_pools_obj; not of resource_class and traits since 2023.1), and
// with report_in_placement a resource_class or traits that is not a string
// (nova/compute/pci_placement_translator.py). [SpecFaults] has those that Nova rejects.
func TagFaults(l devspec.Line, isReported bool, r Release) (faults []Fault) {
	for _, spec := range l.Specs {
		for _, tag := range spec.TagNames() {
			_, isText := spec.Object[tag].(string)
			ofPlacement := tag == "resource_class" || tag == "traits"
			isRead := isReported && r >= Zed && ofPlacement && spec.IsTruthy(tag) && !spec.IsNetwork()
			isPooled := (!ofPlacement || r < Antelope) && isNested(spec.Object[tag])
			if isText || !isRead && !isPooled || isRejected(tag, spec.Object[tag], r) {
				continue
			}
			faults = append(faults, Fault{Seen: fmt.Sprintf("a device_spec: %s is %s, not a string", tag, conf.Written(spec.Object[tag])),
				Remedy: "write a string, of several traits separated by commas"})
		}
	}
	return faults
}

// isNested reports whether a value of JSON is a list or an object.
func isNested(value any) bool {
	switch value.(type) {
	case []any, map[string]any:
		return true
	}
	return false
}

// isRejected reports whether Nova rejects a device_spec because of a tag.
func isRejected(tag string, value any, r Release) bool {
	since, isBoolean := booleanSince[tag]
	_, err := devspec.Bool(value)
	return isBoolean && since >= Epoxy && r >= since && err != nil
}

// StartFaults returns the reasons for which nova-compute does not start with its device specs on a
// host, besides those of [SpecFaults].
func (s Side) StartFaults(h devspec.Hardware, r Release) (faults []devspec.Fault) {
	s = s.Compute()
	lines, isReported := devspec.Lines(s.Files, r.SpecNames()), r >= Zed && s.IsOn(ReportInPlacement)
	faults = functionFaults(h, lines, isReported, r)
	if isReported {
		faults = append(faults, h.ReportFaults(lines)...)
	}
	for _, l := range lines {
		for _, part := range s.Hypervisor.LacksLiveMigration() {
			if part.IsOld() && slices.ContainsFunc(l.Specs, func(s devspec.Spec) bool { return HasLiveMigratable(s, r) }) {
				faults = append(faults, devspec.Fault{Line: l, Seen: fmt.Sprintf("a device_spec has live_migratable, but %s is %s", part.Name, part.Have),
					Remedy: host.Textf("upgrade %s to %s, or remove live_migratable", part.Name, part.Lowest)})
			}
		}
		// nova/pci/devspec.py, one_time_use
		if !isReported && r >= Flamingo && slices.ContainsFunc(l.Specs, func(s devspec.Spec) bool { return s.IsOn("one_time_use") }) {
			faults = append(faults, devspec.Fault{Line: l, Seen: "a device_spec has one_time_use, but report_in_placement is not set",
				Remedy: host.Textf("run %s", Configure(Compute).Flag("placement"))})
		}
	}
	return faults
}

// functionFaults returns the tags with which nova-compute does not start because of a function:
// remote_managed on PFs and on interfaces that do not exist (nova/pci/devspec.py,
// _init_dev_details), and with report_in_placement one_time_use on VFs, whatever its value is
// (nova/compute/pci_placement_translator.py, add_child).
func functionFaults(h devspec.Hardware, lines []devspec.Line, isReported bool, r Release) []devspec.Fault {
	var found []devspec.Fault
	for _, l := range lines {
		for _, spec := range l.Specs {
			switch isRemote := r >= Yoga && spec.IsOn("remote_managed"); {
			case isRemote && h.LacksInterface(spec):
				found = append(found, devspec.Fault{OfHost: true, Line: l, Seen: fmt.Sprintf("the device_spec %s has remote_managed, but this machine has no such interface",
					conf.Written(spec.Object)), Remedy: host.Plain("remove remote_managed, or correct the devname")})
				continue
			case !isRemote || !h.IsPF(spec.Single):
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
				found = append(found, devspec.Fault{OfHost: true, Line: l, Seen: fmt.Sprintf("the device_spec %s has remote_managed, but %s is a PF", conf.Written(spec.Object),
					spec.Single), Remedy: host.Plain("remove remote_managed, or select VFs")})
			}
		}
	}
	if r < Flamingo || !isReported {
		return found
	}
	for i := range h.Devices {
		first, ok := h.First(lines, &h.Devices[i])
		if _, isSet := first.Spec.Object["one_time_use"]; ok && isSet && h.Devices[i].SRIOV.PF != nil && !first.Spec.IsNetwork() {
			found = append(found, devspec.Fault{OfHost: true, Line: first.Line, Seen: fmt.Sprintf("the device_spec %s has one_time_use, but %s is a VF",
				conf.Written(first.Spec.Object), h.Devices[i].Address), Remedy: host.Plain("remove one_time_use: select the whole PF for guests that may use a device once")})
		}
	}
	return found
}

// TraitsBeside returns the traits that nova-compute of the release gives a device in Placement
// beside those that its device_spec names (nova/compute/pci_placement_translator.py).
func (r Release) TraitsBeside(spec devspec.Spec) []string {
	traits := []string{"COMPUTE_MANAGED_PCI_DEVICE"}
	if r >= Hibiscus {
		traits = append(traits, "OWNER_NOVA")
		if spec.IsOn("live_migratable") {
			traits = append(traits, "HW_PCI_LIVE_MIGRATABLE")
		}
	}
	return traits
}
