package devspec

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova/conf"
)

// Fault is a reason for which nova-compute refuses to start: the value that causes it, and texts
// for the operator.
type Fault struct {
	Line   Line
	Seen   string
	Remedy host.Text
	OfHost bool // because of functions that the host has
}

// Reported is a function that nova-compute reports to Placement, with the spec that matches it.
type Reported struct {
	Device *pci.Device
	Line   Line
	Spec   Spec
}

// First returns the first spec of lines that matches a function, which gives the function its tags.
// ok is false if no spec matches.
func (h Hardware) First(lines []Line, d *pci.Device) (r Reported, ok bool) {
	for _, l := range lines {
		for _, s := range l.Specs {
			if h.Matches(s, d) {
				return Reported{d, l, s}, true
			}
		}
	}
	return Reported{}, false
}

// ReportFaults returns the reasons for which nova-compute with report_in_placement refuses to start
// (nova/compute/pci_placement_translator.py): specs by interface name, specs for a PF and for its
// VFs, and VFs of one PF with several resource classes or several sets of traits. Only functions
// that the machine has are considered.
func (h Hardware) ReportFaults(lines []Line) []Fault {
	var found []Fault
	for _, l := range lines {
		for _, s := range l.Specs {
			if s.Devname {
				found = append(found, Fault{Line: l, Remedy: host.Plain("select the function by address"),
					Seen: fmt.Sprintf("the device_spec %s has a devname, which is not supported with report_in_placement", conf.Written(s.Object))})
			}
		}
	}
	pfs, vfs := map[pci.Address]Reported{}, map[pci.Address][]Reported{}
	for i := range h.Devices {
		r, ok := h.First(lines, &h.Devices[i])
		if !ok || r.Spec.IsNetwork() {
			continue
		}
		if pf := h.Devices[i].SRIOV.PF; pf != nil {
			vfs[*pf] = append(vfs[*pf], r)
		} else {
			pfs[h.Devices[i].Address] = r
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(vfs), pci.Address.Compare) {
		all := vfs[address]
		if pf, both := pfs[address]; both {
			seen := fmt.Sprintf("the device_spec %s matches the PF %s", conf.Written(pf.Spec.Object), address)
			if other := conf.Written(all[0].Spec.Object); other != conf.Written(pf.Spec.Object) {
				seen += fmt.Sprintf(", and %s its VF %s", other, all[0].Device.Address)
			} else {
				seen += fmt.Sprintf(" and its VF %s", all[0].Device.Address)
			}
			found = append(found, Fault{all[0].Line, seen, host.Plain("select functions by address: either the PF or its VFs"), true})
		}
		for _, kind := range []struct {
			what string
			of   func(Reported) string
		}{{"resource class", Reported.Class}, {"set of traits", Reported.Traits}} {
			i := slices.IndexFunc(all, func(r Reported) bool { return kind.of(r) != kind.of(all[0]) })
			if i < 0 {
				continue
			}
			found = append(found, Fault{all[i].Line, fmt.Sprintf("VFs of the PF %s have more than one %s: %s has %s, %s has %s",
				address, kind.what, all[0].Device.Address, OrNone(kind.of(all[0])), all[i].Device.Address, OrNone(kind.of(all[i]))),
				host.Plain("give all VFs of the PF the same resource_class and traits"), true})
		}
	}
	return found
}

// OrNone returns a text, or "none" for an empty one.
func OrNone(s string) string {
	if s == "" {
		return "none"
	}
	return s
}

// Class returns the resource class that nova-compute gives the function
// (pci_placement_translator.py, _get_rc_for_dev).
func (r Reported) Class() string {
	if class, _ := r.Spec.Object["resource_class"].(string); class != "" {
		return className(class)
	}
	return strings.ToUpper(fmt.Sprintf("CUSTOM_PCI_%s_%s", r.Device.VendorID, r.Device.ProductID))
}

// Traits returns the traits of the function's resource provider, sorted and joined by commas.
func (r Reported) Traits() string {
	text, _ := r.Spec.Object["traits"].(string)
	if text == "" {
		return ""
	}
	var traits []string
	for t := range strings.SplitSeq(text, ",") {
		traits = append(traits, traitName(t))
	}
	slices.Sort(traits)
	return strings.Join(slices.Compact(traits), ",")
}

// HasTraits reports whether another function has all traits of this one. always are the traits that
// nova-compute gives the other one beside those of its device_spec.
func (r Reported) HasTraits(other Reported, always []string) bool {
	have := append(strings.Split(other.Traits(), ","), always...)
	for t := range strings.SplitSeq(r.Traits(), ",") {
		if t != "" && !slices.Contains(have, t) {
			return false
		}
	}
	return true
}
