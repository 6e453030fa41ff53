package selection

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host/gate"
)

// Joining returns warnings about RDMA adapters that the host loses because they share an IOMMU
// group with a selected GPU, unless they are recorded already. Used ones, whose refusal is lifted,
// are those of Leaving.
func (n Node) Joining(s gate.Selection) (warnings []string) {
	ofCards, joins, needed := n.Devices.Card(s.Selected), n.Joins(s), n.Needed()
	for _, a := range s.All {
		d, adapter := n.Devices.At(a), n.Adapters[a]
		if adapter == nil || !n.IsNew(a) || ofCards(d) || needed[a] || len(n.AdapterUses(gate.Leaving{Address: a, Kind: s.Kind})) > 0 || !joins(d) {
			continue
		}
		stops := ""
		if names := slices.Concat(adapter.Devices, adapter.Interfaces); len(names) > 0 {
			stops = ", with " + strings.Join(names, " and ")
		}
		warnings = append(warnings, fmt.Sprintf("%s: the RDMA adapter leaves the host at the next boot%s: it shares IOMMU group %d with a selected GPU",
			a, stops, *d.IOMMUGroup))
	}
	return warnings
}
