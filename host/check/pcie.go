package check

import (
	"gpustack/host"
	"gpustack/host/machine"
)

// pcie warns of GPUs whose PCIe link has fewer lanes than card and slot support; idle GPUs lower
// the speed, which is not judged.
func (v view) pcie() []host.Finding {
	if !v.Devices.Seen() {
		return unread(v.Devices)
	}
	return machine.JudgeLinks(v.Links, "a GPU for guests", machine.SlowCopies)
}
