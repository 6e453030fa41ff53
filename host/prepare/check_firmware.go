package prepare

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/boot"
	"gpustack/host/iommu"
)

// firmware looks for the tables by which the firmware offers an IOMMU.
func (v view) firmware() []host.Finding {
	switch f := v.Firmware; {
	case !f.seen():
		return f.blind()
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

// secureBoot tells how far the machine is locked down, which is no hindrance: modules of
// the distribution are signed, and neither VFIO nor driver_override is restricted
// (kernel_lockdown(7)).
func (v view) secureBoot() []host.Finding {
	const harmless = ": VFIO and the kernel's own modules work as always"
	if !v.SecureBoot.seen() {
		if !host.IsAbsent(v.SecureBoot.Err) {
			return v.SecureBoot.blind()
		}
		return na("the firmware has no such setting, or does not show it")
	}
	state := "off"
	if v.SecureBoot.Value {
		state = "on"
	}
	if v.Lockdown.seen() {
		state += ", lockdown " + v.Lockdown.Value
	}
	return pass("%s%s", state, harmless)
}

func (m *Machine) isOn() bool {
	return m.IOMMU.Enabled != nil && *m.IOMMU.Enabled && m.IOMMU.Groups > 0
}

// iommuOn tells whether the kernel uses the IOMMU, and if not why.
func (v view) iommuOn() []host.Finding {
	fail := func(file, seen, remedy string) []host.Finding {
		return one(host.Finding{Status: host.Fail, File: file, Seen: seen, Effect: "no function can be given to a guest", Remedy: remedy})
	}
	const prepare = "gpustack host prepare does so, for the next boot"
	want, _ := boot.WantIOMMU(v.CPUVendor)
	switches := slices.DeleteFunc(want.Change(nil).Add, func(arg string) bool { return !strings.HasSuffix(arg, "=on") })
	missing := lacking(v.Running.Value, switches)
	switch {
	case v.IOMMU.Enabled == nil:
		return na("%s or %s is not there", groupsDir, unitsDir)
	case v.isOn():
		var names []string
		for _, u := range v.Units.Value {
			names = append(names, u.Name)
		}
		return pass("on: %s", strings.Join(append([]string{plural(v.IOMMU.Groups, "group")}, names...), ", "))
	case v.Firmware.seen() && len(v.Firmware.Value.Tables) == 0:
		return na("off, as the firmware offers none")
	case v.phase == pending && (len(v.lacking)+len(v.against) > 0):
		return na("off, until the machine is booted with what is recorded")
	case v.phase == booted && (len(v.lacking)+len(v.against) > 0):
		return na("off, as the kernel's arguments are not those that are recorded")
	case len(v.against) > 0:
		return fail(cmdlineFile, "switched off by an argument of the kernel: "+v.against.String(), "take that out: "+prepare)
	case v.Running.seen() && len(missing) > 0:
		return fail(cmdlineFile, "off, and the kernel was not told to use it: "+strings.Join(missing, " "), "add that: "+prepare)
	}
	const log = "the kernel's log tells why: journalctl -k -g 'DMAR|AMD-Vi|IOMMU|SMMU'"
	if !v.Running.seen() {
		return fail(groupsDir, "off; what the kernel was told is not known", log)
	}
	return fail(groupsDir, "off, though nothing among the kernel's arguments says so", log)
}

// iommuType tells whether the host's own devices are translated too.
func (v view) iommuType() []host.Finding {
	switch {
	case !v.isOn():
		return na("the IOMMU is not on, or not seen")
	case !v.Types.seen():
		return v.Types.blind()
	case len(v.Types.Value) == 0:
		return na("this kernel does not tell")
	}
	var types []string
	for _, t := range slices.Sorted(maps.Keys(v.Types.Value)) {
		types = append(types, fmt.Sprintf("%s of %s", t, plural(v.Types.Value[t], "group")))
	}
	seen := strings.Join(types, ", ")
	asked := slices.Contains(v.Running.Value.Values("iommu"), "pt") || slices.Contains(v.Running.Value.Values("iommu.passthrough"), "1")
	if asked && v.Types.Value["identity"] == 0 && len(v.against) == 0 {
		return one(host.Finding{
			Status: host.Warn, File: groupsDir, Seen: seen + ", though the kernel was told not to translate for the host",
			Effect: "the host's own devices are slower than they need to be",
			Remedy: "the kernel's log tells why: journalctl -k -g 'default domain'",
		})
	}
	return pass("%s", seen)
}

// interrupts tells whether interrupts are remapped, without which VFIO gives nothing to
// guests (Linux, drivers/vfio/vfio_iommu_type1.c, allow_unsafe_interrupts).
func (v view) interrupts() []host.Finding {
	if !v.isOn() {
		return na("the IOMMU is not on, or not seen")
	}
	if v.CPUVendor == "arm" {
		return na("not of this platform: its interrupt controller does it")
	}
	remaps, file, why := v.remaps()
	allowed := v.Unsafe.seen() && v.Unsafe.Value
	f := host.Finding{File: file, Seen: why}
	switch {
	case remaps == nil && v.Firmware.Value.RemapsErr != nil:
		return one(blind(iommu.DMARFile, v.Firmware.Value.RemapsErr))
	case remaps == nil:
		return na("neither a table of the firmware nor a unit tells")
	case *remaps && allowed:
		f.Status, f.File, f.Seen = host.Warn, unsafeFile, why+", and VFIO is told to do without"
		f.Effect = "were it ever off, nobody would notice, and guests could attack the host"
		f.Remedy = "take out allow_unsafe_interrupts: among the kernel's arguments, below /etc/modprobe.d, or asked for with gpustack host prepare"
	case *remaps:
		return pass("%s", why)
	case allowed:
		f.Status = host.Warn
		f.Effect = "VFIO is told to do without: a guest can attack the host through its function's interrupts"
		f.Remedy = "give functions to guests only that are trusted as the host is, or switch it on"
	default:
		f.Status = host.Fail
		f.Effect = "VFIO refuses to give a function to a guest"
		f.Remedy = "switch it on in the firmware's setup; if all guests are trusted as the host is: gpustack host prepare --allow-unsafe-interrupts"
	}
	return one(f)
}

// remaps tells whether interrupts are remapped, as far as that can be seen, and where.
// AMD's IOMMUs all can (AMD I/O Virtualization Technology Specification, Interrupt
// Remapping).
func (m *Machine) remaps() (remaps *bool, file, why string) {
	yes, no := true, false
	for _, arg := range m.Running.Value {
		// Linux, Documentation/admin-guide/kernel-parameters.txt.
		if arg == "intremap=off" || arg == "nointremap" {
			return &no, cmdlineFile, "off by an argument of the kernel: " + arg
		}
	}
	switch m.CPUVendor {
	case "amd", "hygon":
		return &yes, "", "on: AMD's IOMMUs have it"
	case "intel":
	default:
		return nil, "", ""
	}
	if f := m.Firmware.Value.Remaps; f != nil && !*f {
		return &no, iommu.DMARFile, "the firmware says that the platform has none"
	}
	var who []string
	if m.Firmware.Value.Remaps != nil {
		who = append(who, "the firmware")
	}
	units := 0
	for _, u := range m.Units.Value {
		if u.Remaps != nil && !*u.Remaps {
			return &no, unitsDir + "/" + u.Name + "/intel-iommu/ecap", u.Name + " cannot remap interrupts"
		}
		if u.Remaps != nil {
			units++
		}
	}
	if units > 0 {
		who = append(who, plural(units, "unit"))
	}
	if who == nil {
		return nil, "", ""
	}
	return &yes, "", "on, by " + strings.Join(who, " and ")
}

// plural counts in words: 1 group, 2 groups.
func plural(n int, what string) string {
	if n != 1 {
		what += "s"
	}
	return fmt.Sprintf("%d %s", n, what)
}
