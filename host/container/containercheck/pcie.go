package containercheck

import (
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
)

// pcie warns of GPUs, apart from those for guests, whose PCIe link has fewer lanes than card and
// slot support. host check judges those for guests.
func (v view) pcie() []host.Finding {
	if !v.Devices.Seen() {
		return checklist.NA("the PCI functions cannot be read")
	}
	return machine.JudgeLinks(v.Links, "a GPU", machine.SlowCopies)
}
