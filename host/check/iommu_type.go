package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
)

// iommuType checks whether the IOMMU also translates for the host's own devices.
func (v view) iommuType() []host.Finding {
	switch {
	case !v.isOn():
		return checklist.NA("the IOMMU is off or not shown")
	case !v.Types.Seen():
		return unread(v.Types)
	case len(v.Types.Value) == 0:
		return checklist.NA("not shown by this kernel")
	}
	types := host.Map(slices.Sorted(maps.Keys(v.Types.Value)), func(t string) string {
		return fmt.Sprintf("%s for %s", t, host.Numbered(v.Types.Value[t], "group"))
	})
	seen := strings.Join(types, ", ")
	if v.Running.Value.Passthrough() == host.Yes && v.Types.Value["identity"] == 0 && len(v.against) == 0 {
		return []host.Finding{{
			Status: host.Warn, File: machine.GroupsDir, Seen: seen + ", although passthrough for the host was requested",
			Effect: "DMA by the host's own devices is slower than necessary",
			Remedy: host.Plain("the kernel's log shows why: journalctl -k -g 'default domain'"),
		}}
	}
	return checklist.Pass("%s", seen)
}
