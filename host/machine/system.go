package machine

import (
	"gpustack/host/iommu"
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
func NewSystem(m Machine) System {
	return System{
		Kernel: m.Facts.Kernel, Distribution: m.Facts.Distribution,
		CPUVendor: m.Facts.CPUVendor, IOMMU: m.IOMMU, BootLoader: m.Facts.BootLoader,
	}
}
