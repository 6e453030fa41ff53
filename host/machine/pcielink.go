package machine

import (
	"fmt"
	"maps"
	"slices"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/pci"
)

// JudgeLinks returns the findings of the check of PCIe links, which host check has for GPUs for
// guests, container check for other GPUs, and rdma check for adapters. whose names them where none
// shows a link, and effect is that of too few lanes.
func JudgeLinks(links map[pci.Address]pci.PCIeLink, whose, effect string) []host.Finding {
	var findings []host.Finding
	seen := 0
	for _, a := range slices.SortedFunc(maps.Keys(links), pci.Address.Compare) {
		link := links[a]
		now, most, slot, ok := link.Lanes()
		switch {
		case ok:
			seen++
			findings = append(findings, narrow(a, now, most, slot, effect)...)
		case link.Err != nil:
			findings = append(findings, checklist.Unread(AttributeFile(a, linkWidth), link.Err)...)
		}
	}
	if findings == nil && seen == 0 {
		return checklist.NA("the kernel shows no PCIe link of %s", whose)
	}
	return checklist.OrPass(findings, "%s with all lanes of card and slot", host.Numbered(seen, "PCIe link"))
}

// SlowCopies is the effect of a GPU's link with too few lanes.
const SlowCopies = "copies between host and GPU are slower by that factor"

// linkWidth is the attribute with the number of lanes in use.
const linkWidth = "current_link_width"

// narrow returns the finding of a function whose link has fewer lanes than both the card and its
// slot support, such as one that is not seated well; none for a card in a slot with fewer lanes.
// slot is 0 if it is unknown. The speed is not judged: idle GPUs lower it.
func narrow(a pci.Address, now, most, slot int, effect string) []host.Finding {
	limit := most
	if slot > 0 {
		limit = min(limit, slot)
	}
	if now >= limit {
		return nil
	}
	f := host.Finding{
		Status: host.Warn, File: AttributeFile(a, linkWidth),
		Seen:   fmt.Sprintf("%s: the PCIe link has %d of %d lanes", a, now, limit),
		Effect: effect,
		Remedy: host.Plain("seat the card and its riser again, then: lspci -vv -s " + a.String()),
	}
	if slot > 0 {
		f.Seen = fmt.Sprintf("%s: the PCIe link has %s; the card supports %d, the slot %d", a, host.Numbered(now, "lane"), most, slot)
	}
	return []host.Finding{f}
}
