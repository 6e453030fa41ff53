package main

import (
	"slices"

	"gpustack/cmd/gpustack/views"
	"gpustack/host/selection"
	"gpustack/nova"
)

// novaCompanions returns the names of the companions of the GPUs of hosts, by product.
func novaCompanions(hosts []nova.Host) (names []string) {
	for _, h := range hosts {
		for _, d := range selection.Companions(h.Devices) {
			if product := views.IDs(d) + " (" + views.FunctionKind(d) + ")"; !slices.Contains(names, product) {
				names = append(names, product)
			}
		}
	}
	slices.Sort(names)
	return names
}
