package devspec

import (
	"fmt"
	"strings"

	"gpustack/host/pci"
)

// ResourceClass returns the resource class of a product as Placement knows it: that of the tag or
// of the alias, or without one ("") the name that nova-compute derives from the ids
// (pci_placement_translator.py, _get_rc_for_dev).
func ResourceClass(tag string, vendor, product pci.ID) string {
	if tag != "" {
		return custom(tag)
	}
	return strings.ToUpper(fmt.Sprintf("CUSTOM_PCI_%s_%s", vendor, product))
}
