package selection

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// Joins returns a function that reports whether a function is an RDMA adapter that goes to guests
// with its IOMMU group, because a selected GPU is in it. A recorded one stays with its group after
// its driver, by which it is an adapter, is gone.
func (n Node) Joins(s Selection) func(*pci.Device) bool {
	groups := map[int]bool{}
	for _, a := range s.Selected {
		if gpu := n.Devices.At(a); gpu != nil && gpu.IsGPU() && gpu.IOMMUGroup != nil {
			groups[*gpu.IOMMUGroup] = true
		}
	}
	return func(d *pci.Device) bool {
		if d == nil || d.IOMMUGroup == nil || !groups[*d.IOMMUGroup] {
			return false
		}
		f := n.Recorded.At(d.Address)
		return n.Adapters[d.Address] != nil || f != nil && f.RDMA && f.IsAt(n.Devices)
	}
}

// adapterUses returns the refusals of an RDMA adapter that the host uses, or whose uses cannot be
// determined. A recorded one is refused too, as for other needs: it is the host's until it is
// bound.
func (n Node) adapterUses(a pci.Address) (refusals []*Refusal) {
	adapter := n.Adapters[a]
	if adapter == nil {
		return nil
	}
	for _, need := range adapter.Needs {
		refusals = append(refusals, &Refusal{Address: a, Absolute: need.Absolute, Reason: "the host needs it: " + need.Reason, Code: need.Code})
	}
	if err := adapter.Unread; err != nil {
		reason := strings.ReplaceAll(err.Error(), "\n", "; ")
		refusals = append(refusals, &Refusal{Address: a, Err: err, Code: host.CodeGroup, Reason: fmt.Sprintf(
			"shares IOMMU group %d with a selected device, and cannot determine whether the host uses it: %s", *n.Devices.At(a).IOMMUGroup, reason)})
	}
	return refusals
}

// Joining returns warnings about RDMA adapters that the host loses because they share an IOMMU
// group with a selected GPU, unless they are recorded already. Used ones, whose refusal is lifted,
// are those of Leaving.
func (n Node) Joining(s Selection) (warnings []string) {
	ofCards, joins := n.Devices.Card(s.Selected), n.Joins(s)
	for _, a := range s.All {
		d, adapter := n.Devices.At(a), n.Adapters[a]
		if adapter == nil || !n.IsNew(a) || ofCards(d) || len(n.adapterUses(a)) > 0 || !joins(d) {
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
