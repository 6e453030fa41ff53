package check

import (
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/iommu"
)

// firmware checks for the ACPI tables that describe an IOMMU: DMAR, IVRS, VIOT, and IORT with an SMMU.
func (v view) firmware() []host.Finding {
	switch f := v.Firmware; {
	case !f.Seen():
		return unread(f)
	case len(f.Value.Tables) > 0:
		return checklist.Pass("IOMMU tables found: %s", strings.Join(f.Value.Tables, ", "))
	case f.Value.IORTErr != nil && !v.isOn():
		return checklist.Unread(iommu.IORTFile, f.Value.IORTErr)
	case v.isOn():
		return checklist.Pass("no known IOMMU table, but the kernel uses an IOMMU")
	}
	return []host.Finding{{
		Status: host.Fail, File: iommu.TablesDir, Seen: "no IOMMU table (DMAR, IVRS, VIOT, or IORT with an SMMU)",
		Effect: "without an IOMMU, no function can be assigned to a guest",
		Remedy: host.Plain("turn it on in the firmware's setup: VT-d, AMD-Vi, SVM and IOMMU, or SMMU; for a virtual machine, in its definition"),
	}}
}
