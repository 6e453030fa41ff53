package selection

import (
	"slices"

	"gpustack/host/pci"
)

// IsCompanion reports whether a function is bound to VFIO only because it shares a card or an IOMMU
// group with a GPU, as audio functions do. Nova is not offered it: a guest gets the GPU without it.
func IsCompanion(d *pci.Device, all pci.Devices) bool {
	if d == nil || d.IsGPU() || d.IsNVSwitch() || d.IsBridge() {
		return false
	}
	return slices.ContainsFunc(all, func(gpu pci.Device) bool {
		return gpu.IsGPU() && !gpu.IsManagementConsole() && !gpu.IsVF() &&
			(gpu.Address.SameSlot(d.Address) || d.IOMMUGroup != nil && gpu.IOMMUGroup != nil && *gpu.IOMMUGroup == *d.IOMMUGroup)
	})
}

// Companions returns the companions among the functions of a machine, in their order.
func Companions(all pci.Devices) (companions []*pci.Device) {
	for i := range all {
		if d := &all[i]; IsCompanion(d, all) {
			companions = append(companions, d)
		}
	}
	return companions
}
