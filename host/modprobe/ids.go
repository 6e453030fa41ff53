package modprobe

import (
	"slices"
	"strings"

	"gpustack/host"
)

// id is what drivers read of an element of ids= (Linux, drivers/vfio/pci/vfio_pci.c and
// drivers/pci/pci-stub.c: sscanf of "%x:%x:%x:%x:%x:%x"). They ignore other elements, and what
// follows it.
var id = host.LazyRegexp(`^(0[xX])?[0-9a-fA-F]+(:(0[xX])?[0-9a-fA-F]+){1,5}`)

// AddIDs returns ids with those elements of a comma-separated list that are not among them, in the
// order of the list.
func AddIDs(ids []string, list string) []string {
	for element := range strings.SplitSeq(list, ",") {
		if found := id().FindString(element); found != "" && !slices.Contains(ids, found) {
			ids = append(ids, found)
		}
	}
	return ids
}
