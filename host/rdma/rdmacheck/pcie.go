package rdmacheck

import (
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
)

// pcie finds adapters whose PCIe link has fewer lanes than card and slot support.
func (v view) pcie() []host.Finding {
	if !v.Stack.Seen() {
		return checklist.Unread(v.Stack.File, v.Stack.Err)
	}
	return machine.JudgeLinks(v.Links, "an adapter", "the adapter cannot reach its rate")
}
