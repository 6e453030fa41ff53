package machine

import (
	"gpustack/host/iommu"
)

// System is what a machine runs.
type System struct {
	// the running kernel's release, as uname -r prints it
	Kernel *string `json:"kernel"`
	// ID and VERSION_ID of os-release: "ubuntu 22.04"
	Distribution *string `json:"distribution"`
	// "intel", "amd", "hygon", "arm", or the CPU's vendor_id in lower case
	CPUVendor *string     `json:"cpu_vendor"`
	IOMMU     iommu.State `json:"iommu"` // the IOMMU
	// "grub", "grub-bls" (GRUB with Boot Loader Specification entries) or "systemd-boot"
	BootLoader *string `json:"boot_loader"`
}

// NewSystem returns what a machine runs that was observed by [ObserveScan] or [ObserveCheck].
func NewSystem(m Machine) System {
	return System{
		Kernel: m.Facts.Kernel, Distribution: m.Facts.Distribution,
		CPUVendor: m.Facts.CPUVendor, IOMMU: m.IOMMU, BootLoader: m.Facts.BootLoader,
	}
}
