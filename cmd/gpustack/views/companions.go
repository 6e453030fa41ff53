package views

import (
	"strings"
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
