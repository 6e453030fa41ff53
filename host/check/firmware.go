package check

import (
	"strings"

	"gpustack/host"
	"gpustack/host/iommu"
)

// firmware looks for the tables by which the firmware offers an IOMMU.
func (v view) firmware() []host.Finding {
	switch f := v.Firmware; {
	case !f.Seen():
		return unread(f)
	case len(f.Value.Tables) > 0:
		return pass("offers an IOMMU: %s", strings.Join(f.Value.Tables, ", "))
	case v.isOn():
		return pass("has no table of an IOMMU that is known here, and yet the kernel uses one")
	}
	return one(host.Finding{
		Status: host.Fail, File: iommu.TablesDir, Seen: "offers no IOMMU: there is no DMAR, IVRS, IORT or VIOT",
		Effect: "without an IOMMU no function can be given to a guest",
		Remedy: "switch it on in the firmware's setup: VT-d, AMD-Vi, SVM and IOMMU, or SMMU; of a virtual machine, in its definition",
	})
}
