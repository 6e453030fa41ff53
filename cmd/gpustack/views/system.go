package views

import (
	"fmt"
	"strings"

	"gpustack/host"
	"gpustack/host/machine"
)

// hostLine returns a line that describes the machine.
func hostLine(name *string, s machine.System) string {
	var parts []string
	for _, part := range []struct {
		label string
		value *string
	}{{"", name}, {"", s.Distribution}, {"Linux ", s.Kernel}, {"CPU ", s.CPUVendor}, {"boot loader ", s.BootLoader}} {
		if part.value != nil {
			parts = append(parts, part.label+*part.value)
		}
	}
	switch {
	case !s.IOMMU.Enabled.Known():
		parts = append(parts, "IOMMU unknown (not shown by these files)")
	case s.IOMMU.Enabled == host.Yes:
		parts = append(parts, fmt.Sprintf("IOMMU on (groups: %d)", s.IOMMU.Groups))
	default:
		parts = append(parts, "IOMMU off (no groups: nothing can be assigned to a guest)")
	}
	return strings.Join(parts, ", ")
}
