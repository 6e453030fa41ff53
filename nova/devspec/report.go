package devspec

import (
	_ "embed" // the standard traits
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

// Line is one value of device_spec in a file. It is one spec or a list of specs.
type Line struct {
	File   string
	Option conf.Option
	First  int // the number of its first spec among all specs, from 1
	Specs  []Spec
	Faults []error // each makes nova-compute refuse to start
	IsJSON bool    // false: the value is neither a JSON object nor a list of them
}

// Lines returns the values of device_spec in the order in which Nova reads them: file by file,
// and within a file the values of the oldest name first, wherever they stand (oslo.config,
// cfg.py, _Namespace._get_file_value). names are those of the option, the current name first.
func Lines(files []conf.Source, names []conf.Name) []Line {
	var lines []Line
	n := 1
	for _, f := range files {
		for _, name := range slices.Backward(names) {
			for _, o := range f.File.Find(name) {
				objects := conf.ParseObjects(o.Value)
				line := Line{File: f.Name, Option: o, First: n, IsJSON: objects != nil}
				for _, object := range objects {
					spec, faults := Parse(object)
					line.Specs = append(line.Specs, spec)
					line.Faults = append(line.Faults, faults...)
				}
				n += len(objects)
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// Where returns the file and the line of the value, as FILE:LINE.
func (l Line) Where() string {
	return fmt.Sprintf("%s:%d", l.File, l.Option.Line())
}

// ResourceClass returns the resource class of a product as Placement knows it: that of the tag or
// of the alias, or without one ("") the name that nova-compute derives from the ids
// (pci_placement_translator.py, get_resource_class).
func ResourceClass(tag string, vendor, product pci.ID) string {
	if tag != "" {
		return className(tag)
	}
	return strings.ToUpper(fmt.Sprintf("CUSTOM_PCI_%s_%s", vendor, product))
}

// customPrefix is what the names of an operator's resource classes and traits begin with.
const customPrefix = "CUSTOM_"

// standardClasses are the resource classes of os-resource-classes 1.1.0 (STANDARDS).
var standardClasses = []string{
	"DISK_GB", "FPGA", "IPV4_ADDRESS", "MEMORY_MB", "MEM_ENCRYPTION_CONTEXT", "NET_BW_EGR_KILOBIT_PER_SEC",
	"NET_BW_IGR_KILOBIT_PER_SEC", "NET_PACKET_RATE_EGR_KILOPACKET_PER_SEC", "NET_PACKET_RATE_IGR_KILOPACKET_PER_SEC", "NET_PACKET_RATE_KILOPACKET_PER_SEC", "NUMA_CORE", "NUMA_MEMORY_MB",
	"NUMA_SOCKET", "NUMA_THREAD", "PCI_DEVICE", "PCPU", "PGPU", "SRIOV_NET_VF",
	"VCPU", "VGPU", "VGPU_DISPLAY_HEAD",
}

// standardTraits are the traits of os-traits, as Nova 26 to 34 have them. A name that only a later
// os-traits has is a custom one to an older Nova.
//
//go:embed traits.txt
var standardTraits string

// className returns the name of a resource class as Placement knows it
// (pci_placement_translator.py, _normalize_resource_class): standard names stay.
func className(name string) string {
	name = strings.ToUpper(name)
	if slices.Contains(standardClasses, name) || strings.HasPrefix(name, customPrefix) {
		return name
	}
	return customPrefix + normalized(name)
}

// traitName returns the name of a trait as Placement knows it (pci_placement_translator.py,
// _normalize_traits): standard names stay, if they are written in upper case.
func traitName(name string) string {
	if name != "" && strings.Contains("\n"+standardTraits, "\n"+name+"\n") {
		return name
	}
	if name = strings.ToUpper(name); strings.HasPrefix(name, customPrefix) {
		return name
	}
	return customPrefix + normalized(name)
}

// others matches what the name of a custom resource class or trait cannot contain.
var others = host.LazyRegexp(`[^0-9A-Z]+`)

// normalized writes a name in upper case as normalize_name of os-traits and os-resource-classes do.
func normalized(upper string) string {
	return others().ReplaceAllString(upper, "_")
}

// IDsOf returns the ids in the name that nova-compute gives a resource class without resource_class, see
// [ResourceClass].
func IDsOf(class string) (vendor, product pci.ID, ok bool) {
	before, after, _ := strings.Cut(strings.TrimPrefix(class, customPrefix+"PCI_"), "_")
	vendor, vendorErr := pci.ParseID(strings.ToLower(before))
	product, productErr := pci.ParseID(strings.ToLower(after))
	return vendor, product, vendorErr == nil && productErr == nil
}
