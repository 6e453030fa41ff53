package check

import (
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
)

// pcie finds GPUs whose PCIe link has fewer lanes than card and slot support.
func (v view) pcie() []host.Finding {
	if !v.Devices.Seen() {
		return unread(v.Devices)
	}
	var findings []host.Finding
	seen := 0
	for _, d := range v.ForGuests() {
		if !d.IsGPU() || d.IsVF() {
			continue
		}
		link := v.Links[d.Address]
		if f, narrow := link.Narrow(d.Address); narrow {
			findings = append(findings, f)
		}
		switch _, _, _, ok := link.Lanes(); {
		case ok:
			seen++
		case link.Err != nil:
			findings = append(findings, checklist.Unread(machine.AttributeFile(d.Address, "current_link_width"), link.Err)...)
		}
	}
	if findings == nil && seen == 0 {
		return checklist.NA("the kernel shows no PCIe link of a GPU for guests")
	}
	return checklist.OrPass(findings, "%s with all lanes of card and slot", host.Numbered(seen, "PCIe link"))
}
