package check

import (
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/machine"
)

// iommu tells whether the kernel uses the IOMMU, and if not why.
func (v view) iommu() []host.Finding {
	fail := func(file, seen, remedy string) []host.Finding {
		return one(host.Finding{Status: host.Fail, File: file, Seen: seen, Effect: "no function can be given to a guest", Remedy: remedy})
	}
	const prepare = "gpustack host prepare does so, for the next boot"
	want, _ := boot.WantIOMMU(v.CPUVendor)
	switches := slices.DeleteFunc(want.Change(nil).Add, func(arg string) bool { return !strings.HasSuffix(arg, "=on") })
	missing := v.Running.Value.Lacking(switches)
	switch {
	case v.IOMMU.Enabled == nil:
		return na("%s or %s is not there", machine.GroupsDir, machine.UnitsDir)
	case v.isOn():
		var names []string
		for _, u := range v.Units.Value {
			names = append(names, u.Name)
		}
		return pass("on: %s", strings.Join(append([]string{plural(v.IOMMU.Groups, "group")}, names...), ", "))
	case v.Firmware.Seen() && len(v.Firmware.Value.Tables) == 0:
		return na("off, as the firmware offers none")
	case v.phase == pending && (len(v.lacking)+len(v.against) > 0):
		return na("off, until the machine is booted with what is recorded")
	case v.phase == booted && (len(v.lacking)+len(v.against) > 0):
		return na("off, as the kernel's arguments are not those that are recorded")
	case len(v.against) > 0:
		return fail(machine.CmdlineFile, "switched off by an argument of the kernel: "+v.against.String(), "take that out: "+prepare)
	case v.Running.Seen() && len(missing) > 0:
		return fail(machine.CmdlineFile, "off, and the kernel was not told to use it: "+strings.Join(missing, " "), "add that: "+prepare)
	}
	const log = "the kernel's log tells why: journalctl -k -g 'DMAR|AMD-Vi|IOMMU|SMMU'"
	if !v.Running.Seen() {
		return fail(machine.GroupsDir, "off; what the kernel was told is not known", log)
	}
	return fail(machine.GroupsDir, "off, though nothing among the kernel's arguments says so", log)
}

func (v view) isOn() bool {
	return v.IOMMU.Enabled != nil && *v.IOMMU.Enabled && v.IOMMU.Groups > 0
}
