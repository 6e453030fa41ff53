package views

import (
	"strings"
)

// companionsText is what a plan says of companions, by their names.
func companionsText(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "bound with a GPU, but not offered to Nova: " + strings.Join(names, ", ")
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
