package rdmacheck

import (
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
)

// acs fails on a kernel with pcie_acs_override, which makes it report isolation that the hardware
// does not have.
func (v view) acs() []host.Finding {
	if !v.Arguments.Seen() {
		return checklist.Unread(v.Arguments.File, v.Arguments.Err)
	}
	for _, arg := range v.Arguments.Value {
		if name, _, _ := strings.Cut(arg, "="); name == "pcie_acs_override" {
			return []host.Finding{{
				Status: host.Fail, File: cmdlineFile, Seen: "the running kernel has " + arg,
				Effect: "IOMMU groups look separate although their devices can reach each other's memory: a guest can read and write that of another",
				Remedy: "remove it from the kernel arguments and reboot; select devices of whole groups instead",
			}}
		}
	}
	return checklist.Pass("no pcie_acs_override")
}
