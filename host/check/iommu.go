package check

import (
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/iommu"
	"gpustack/host/machine"
)

// iommu checks whether the kernel uses the IOMMU, and if not, why.
func (v view) iommu() []host.Finding {
	fail := func(file, seen string, remedy host.Text) []host.Finding {
		return []host.Finding{{Status: host.Fail, File: file, Seen: seen, Effect: "no function can be assigned to a guest", Remedy: remedy}}
	}
	prepare := host.Textf("%s does this for the next boot", host.NewCommand("host prepare"))
	if v.phase == unprepared && len(v.refusals()) > 0 {
		prepare = host.Textf("'%s' names the commands that do this for the next boot", host.NewCommand("host prepare").Flag("dry-run"))
	}
	want, _ := v.WantIOMMU()
	switches := slices.DeleteFunc(want.Change(nil).Add, func(arg string) bool { return !strings.HasSuffix(arg, "=on") })
	missing := v.Running.Value.Lacking(switches)
	switch {
	case !v.IOMMU.Enabled.Known():
		return checklist.NA("%s or %s is missing", machine.GroupsDir, machine.UnitsDir)
	case v.isOn():
		names := host.Map(v.Units.Value, func(u iommu.Unit) string { return u.Name })
		return checklist.Pass("on: %s", strings.Join(append([]string{host.Numbered(v.IOMMU.Groups, "group")}, names...), ", "))
	case v.Firmware.Seen() && len(v.Firmware.Value.Tables) == 0 && v.Firmware.Value.IORTErr == nil:
		return checklist.NA("off: the firmware has no IOMMU table")
	case v.phase == pending && (!v.Running.Seen() || len(v.lacking)+len(v.against) > 0):
		return checklist.NA("off until the machine is booted with the recorded arguments")
	case v.phase == booted && (len(v.lacking)+len(v.against) > 0):
		return checklist.NA("off: the running kernel lacks the recorded arguments")
	case len(v.against) > 0:
		return fail(machine.CmdlineFile, "turned off by a kernel argument: "+v.against.String(), host.Textf("remove it: %s", prepare))
	case v.Running.Seen() && len(missing) > 0:
		return fail(machine.CmdlineFile, "off: kernel argument missing: "+strings.Join(missing, " "), host.Textf("add it: %s", prepare))
	}
	const log = "the kernel's log shows why: journalctl -k -g 'DMAR|AMD-Vi|IOMMU|SMMU'"
	if !v.Running.Seen() {
		for _, e := range normal(v.Entries.Value) { // as host prepare, which removes it
			if against := v.contradicting(e.Args); len(against) > 0 {
				return fail(e.File, "off; the entry of "+e.Kernel+" has "+against.String(), host.Textf("remove it: %s", prepare))
			}
		}
		return fail(machine.GroupsDir, "off; the kernel arguments are unknown", host.Plain(log))
	}
	return fail(machine.GroupsDir, "off, although no kernel argument turns it off", host.Plain(log))
}

func (v view) isOn() bool {
	return v.IOMMU.Enabled == host.Yes && v.IOMMU.Groups > 0
}
