package views

import (
	"fmt"
	"strings"

	"gpustack/host/iommu"
	"gpustack/host/machine"
)

// System is what a machine runs.
type System struct {
	Kernel       *string     `json:"kernel"`
	Distribution *string     `json:"distribution"`
	CPUVendor    *string     `json:"cpu_vendor"`
	IOMMU        iommu.State `json:"iommu"`
	BootLoader   *string     `json:"boot_loader"`
}

// NewSystem returns what a machine runs that was observed for [machine.Facts] and [machine.IOMMU].
func NewSystem(m machine.Machine) System {
	return System{
		Kernel: m.Facts.Kernel, Distribution: m.Facts.Distribution,
		CPUVendor: m.Facts.CPUVendor, IOMMU: m.IOMMU, BootLoader: m.Facts.BootLoader,
	}
}

// HostLine returns a line that describes the machine.
func HostLine(name *string, s System) string {
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
	case s.IOMMU.Enabled == nil:
		parts = append(parts, "IOMMU unknown (not shown by these files)")
	case *s.IOMMU.Enabled:
		parts = append(parts, fmt.Sprintf("IOMMU on (groups: %d)", s.IOMMU.Groups))
	default:
		parts = append(parts, "IOMMU off (no groups: nothing can be assigned to a guest)")
	}
	return strings.Join(parts, ", ")
}
