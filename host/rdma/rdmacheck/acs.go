package rdmacheck

import (
	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/iommu"
)

// acs warns of kernel arguments that split IOMMU groups.
func (v view) acs() []host.Finding {
	if !v.Arguments.Seen() {
		return checklist.Unread(v.Arguments.File, v.Arguments.Err)
	}
	return checklist.OrPass(iommu.Isolation(cmdlineFile, v.Arguments.Value, nil), "no kernel argument splits IOMMU groups")
}
