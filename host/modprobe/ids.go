package modprobe

import (
	"slices"
	"strings"
)

// AddIDs returns ids with those elements of a comma-separated list that are not among them, in the
// order of the list.
func AddIDs(ids []string, list string) []string {
	for id := range strings.SplitSeq(list, ",") {
		if id != "" && !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}
