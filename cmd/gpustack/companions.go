package main

import (
	"slices"
	"strings"

	"gpustack/host/pci"
	"gpustack/nova"
)

// isCompanion reports whether a function is bound to VFIO only because it shares a card or an IOMMU
// group with a GPU, as audio functions do. Nova is not offered it: a guest gets the GPU without it.
func isCompanion(d *pci.Device, all pci.Devices) bool {
	if d == nil || d.IsGPU() || d.IsNVSwitch() || d.IsBridge() {
		return false
	}
	return slices.ContainsFunc(all, func(gpu pci.Device) bool {
		return gpu.Candidate && (gpu.Address.SameSlot(d.Address) || d.IOMMUGroup != nil && gpu.IOMMUGroup != nil && *gpu.IOMMUGroup == *d.IOMMUGroup)
	})
}

// companionsText is what a plan says of companions, by their names.
func companionsText(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "not offered to Nova, because they only share a card or an IOMMU group with a GPU: " + strings.Join(names, ", ") +
		"; they stay bound to VFIO, and a guest gets the GPU without them\n"
}

// preparedCompanions returns the companions among the functions that are prepared for guests.
func preparedCompanions(devices []preparedDevice) (names []string) {
	for _, d := range devices {
		if d.Companion {
			names = append(names, d.Address.String())
		}
	}
	return names
}

// novaCompanions returns the companions of the GPUs of hosts, by product.
func novaCompanions(hosts []nova.Host) (names []string) {
	for _, h := range hosts {
		for i := range h.Devices {
			d := &h.Devices[i]
			if product := ids(d) + " (" + functionKind(d) + ")"; isCompanion(d, h.Devices) && !slices.Contains(names, product) {
				names = append(names, product)
			}
		}
	}
	slices.Sort(names)
	return names
}
