package check

import (
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/iommu"
	"gpustack/host/machine"
)

// acs warns of kernel arguments that split IOMMU groups, and of bridges above GPUs for guests whose
// access control was switched off after boot.
func (v view) acs() []host.Finding {
	if !v.Running.Seen() {
		return unread(v.Running)
	}
	return checklist.OrPass(iommu.Isolation(machine.CmdlineFile, v.Running.Value, v.SwitchedOff), "no kernel argument splits IOMMU groups")
}
