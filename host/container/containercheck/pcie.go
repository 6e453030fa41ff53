package containercheck

import (
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
)

// pcie finds GPUs whose PCIe link has fewer lanes than card and slot support. host check judges
// those for guests.
func (v view) pcie() []host.Finding {
	if !v.Devices.Seen() {
		return checklist.NA("the PCI functions cannot be read")
	}
	var findings []host.Finding
	seen := 0
	for _, d := range v.cards {
		link, isOurs := v.Links[d.Address]
		if !isOurs {
			continue
		}
		if f, narrow := link.Narrow(d.Address); narrow {
			findings = append(findings, f)
		}
		if _, _, _, ok := link.Lanes(); ok {
			seen++
		} else if link.Err != nil {
			findings = append(findings, checklist.Unread(machine.AttributeFile(d.Address, "current_link_width"), link.Err)...)
		}
	}
	if findings == nil && seen == 0 {
		return checklist.NA("the kernel shows no PCIe link of a GPU")
	}
	return checklist.OrPass(findings, "%s with all lanes of card and slot", host.Numbered(seen, "PCIe link"))
}
