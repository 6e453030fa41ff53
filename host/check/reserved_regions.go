package check

import (
	"fmt"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/gate"
)

// reservedRegions checks whether the firmware requires memory mapped 1:1 for the group of a function
// for guests: the kernel attaches such a group to no guest.
func (v view) reservedRegions() []host.Finding {
	switch {
	case !v.isOn():
		return checklist.NA("the IOMMU is off or not shown")
	case !v.Regions.Seen():
		return unread(v.Regions)
	case !v.Devices.Seen():
		return unread(v.Devices)
	}
	var findings []host.Finding
	reported := map[int]bool{}
	for _, d := range v.Guests {
		region := v.Regions.Value.Of(&d)
		if region == nil || reported[region.Group] {
			continue
		}
		reported[region.Group] = true
		f := host.Finding{
			Status: host.Fail, File: region.File(),
			Seen:   fmt.Sprintf("%s is in group %d, of which the firmware requires %s mapped 1:1", d.Address, region.Group, region.Memory),
			Effect: "the kernel assigns the group to no guest", Remedy: host.Plain(gate.FreeRegion),
		}
		if !region.Refuses {
			f.Status, f.Effect = host.Warn, "kernels since 6.6 assign the group to no guest; a guest with this one may disturb what the firmware uses the memory for"
		}
		findings = append(findings, f)
	}
	return checklist.OrPass(findings, "the firmware requires no 1:1 mapping of a group for guests")
}
