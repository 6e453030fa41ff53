package main

import (
	"slices"
	"strings"

	"gpustack/host/selection"
	"gpustack/nova"
)

// companionsText is what a plan says of companions, by their names.
func companionsText(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "not offered to Nova, because they only share a card or an IOMMU group with a GPU: " + strings.Join(names, ", ") +
		"; they stay bound to VFIO, and a guest gets the GPU without them\n"
}

// preparedCompanions returns the names of the companions among prepared functions.
func preparedCompanions(devices []preparedDevice) (names []string) {
	for _, d := range devices {
		if d.Companion {
			names = append(names, d.Address.String())
		}
	}
	return names
}

// novaCompanions returns the names of the companions of the GPUs of hosts, by product.
func novaCompanions(hosts []nova.Host) (names []string) {
	for _, h := range hosts {
		for _, d := range selection.Companions(h.Devices) {
			if product := ids(d) + " (" + functionKind(d) + ")"; !slices.Contains(names, product) {
				names = append(names, product)
			}
		}
	}
	slices.Sort(names)
	return names
}
