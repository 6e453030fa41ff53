package nova

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host/pci"
)

// specFault is what makes nova-compute refuse to start, with the value that shows it.
type specFault struct {
	line specLine
	seen string
}

// reported is a function that nova-compute reports to Placement, and its spec.
type reported struct {
	device *pci.Device
	line   specLine
	spec   deviceSpec
}

// first returns the spec that gives a function its tags.
func (h hardware) first(lines []specLine, d *pci.Device) (reported, bool) {
	for _, l := range lines {
		for _, s := range l.specs {
			if h.matches(s, d) {
				return reported{d, l, s}, true
			}
		}
	}
	return reported{}, false
}

// reportFaults returns what nova-compute with report_in_placement refuses to start with
// (nova/compute/pci_placement_translator.py): specs by interface name, a PF beside its
// VFs, and VFs of one PF in several resource classes or with several sets of traits. It
// sees only functions that are there, h.
func (h hardware) reportFaults(lines []specLine) []specFault {
	var found []specFault
	for _, l := range lines {
		for _, s := range l.specs {
			if s.devname {
				found = append(found, specFault{l, fmt.Sprintf("the device_spec %s has a devname, which report_in_placement does not support", written(s.object))})
			}
		}
	}
	pfs, vfs := map[pci.Address]reported{}, map[pci.Address][]reported{}
	for i := range h.devices {
		r, ok := h.first(lines, &h.devices[i])
		if !ok || truthy(r.spec.object["physical_network"]) { // Neutron's, which are not reported
			continue
		}
		if pf := h.devices[i].SRIOV.PF; pf != nil {
			vfs[*pf] = append(vfs[*pf], r)
		} else {
			pfs[h.devices[i].Address] = r
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(vfs), pci.Address.Compare) {
		all := vfs[address]
		if pf, both := pfs[address]; both {
			seen := fmt.Sprintf("the device_spec %s matches the PF %s", written(pf.spec.object), address)
			if other := written(all[0].spec.object); other != written(pf.spec.object) {
				seen += fmt.Sprintf(", and %s its VF %s", other, all[0].device.Address)
			} else {
				seen += fmt.Sprintf(" and its VF %s", all[0].device.Address)
			}
			found = append(found, specFault{all[0].line, seen})
		}
		for _, kind := range []struct {
			what string
			of   func(reported) string
		}{{"resource class", reported.class}, {"set of traits", reported.traits}} {
			i := slices.IndexFunc(all, func(r reported) bool { return kind.of(r) != kind.of(all[0]) })
			if i < 0 {
				continue
			}
			found = append(found, specFault{all[i].line, fmt.Sprintf("VFs of the PF %s have more than one %s: %s has %s, %s has %s",
				address, kind.what, all[0].device.Address, orNone(kind.of(all[0])), all[i].device.Address, orNone(kind.of(all[i])))})
		}
	}
	return found
}

func orNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// class returns the resource class that nova-compute gives the function
// (pci_placement_translator.py, _get_rc_for_dev).
func (r reported) class() string {
	if class, _ := r.spec.object["resource_class"].(string); class != "" {
		return custom(class)
	}
	return strings.ToUpper(fmt.Sprintf("CUSTOM_PCI_%s_%s", r.device.VendorID, r.device.ProductID))
}

// traits returns the traits of the function's provider, sorted.
func (r reported) traits() string {
	text, _ := r.spec.object["traits"].(string)
	if text == "" {
		return ""
	}
	var traits []string
	for t := range strings.SplitSeq(text, ",") {
		traits = append(traits, custom(t))
	}
	slices.Sort(traits)
	return strings.Join(slices.Compact(traits), ",")
}

// custom writes the name of a resource class or trait as Placement knows it. Standard
// names are not distinguished from custom ones.
func custom(name string) string {
	name = strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(name))
	return "CUSTOM_" + strings.TrimPrefix(name, "CUSTOM_")
}

// startable returns an error if nova-compute would refuse to start with the planned
// files, because it is to report its devices.
func (p *planner) startable() []error {
	var files []SideFile
	for _, s := range p.inOrder() {
		files = append(files, SideFile{s.name, s.file})
	}
	lines := p.options.Release.specLines(files)
	machines := []Host{{Devices: p.options.Here}}
	if len(p.options.Here) == 0 && len(p.options.Hosts) > 0 {
		machines = p.options.Hosts
	}
	var errs []error
	for i, m := range machines {
		for _, f := range newHardware(m.Devices, p.options.Interfaces).reportFaults(lines) {
			name := ""
			if m.Name != "" {
				name = "host " + m.Name + ": "
			}
			if i > 0 && strings.Contains(f.seen, "devname") {
				continue // said already
			}
			errs = append(errs, fmt.Errorf("%s%s: %w with report_in_placement: %s", name, f.line.where(), ErrNotStartable, f.seen))
		}
	}
	return errs
}
