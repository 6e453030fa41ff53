package devspec

import (
	_ "embed" // the standard traits
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

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
