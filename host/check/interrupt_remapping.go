package check

import (
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/iommu"
	"gpustack/host/machine"
)

// interruptRemapping checks whether interrupts are remapped, without which VFIO assigns no devices
// to guests. (Linux, drivers/vfio/vfio_iommu_type1.c, allow_unsafe_interrupts.)
func (v view) interruptRemapping() []host.Finding {
	if !v.isOn() {
		return checklist.NA("the IOMMU is off or not shown")
	}
	if v.CPUVendor == "arm" {
		return checklist.NA("not applicable: the interrupt controller of this platform does it")
	}
	remaps, file, why := v.remaps()
	allowed := v.Unsafe.Seen() && v.Unsafe.Value
	f := host.Finding{File: file, Seen: why}
	switch {
	case !remaps.Known() && v.Firmware.Value.RemapsErr != nil:
		return checklist.Unread(iommu.DMARFile, v.Firmware.Value.RemapsErr)
	case !remaps.Known():
		return checklist.NA("shown neither by a firmware table nor by an IOMMU")
	case remaps == host.Yes && allowed:
		f.Status, f.File, f.Seen = host.Warn, machine.UnsafeFile, why+", and VFIO is configured to work without it"
		f.Effect = "if it were turned off, this would go unnoticed, and guests could attack the host"
		f.Remedy = host.Textf("remove allow_unsafe_interrupts from the kernel arguments, from /etc/modprobe.d, or from the record of %s",
			host.NewCommand("host prepare"))
	case remaps == host.Yes:
		return checklist.Pass("%s", why)
	case allowed:
		f.Status = host.Warn
		f.Effect = "VFIO is configured to work without it: a guest can attack the host through interrupts of its function"
		f.Remedy = host.Plain("assign functions to trusted guests only, or turn it on")
	default:
		f.Status = host.Fail
		f.Effect = "VFIO refuses to assign functions to guests"
		f.Remedy = host.Textf("turn it on in the firmware's setup; if all guests are trusted: %s", host.NewCommand("host prepare").Flag("allow-unsafe-interrupts"))
	}
	return []host.Finding{f}
}

// remaps returns whether interrupts are remapped, with the file that shows
// it and the reason. All IOMMUs of AMD can remap (AMD I/O Virtualization Technology Specification,
// Interrupt Remapping).
func (v view) remaps() (remaps host.Bool, file, why string) {
	for _, arg := range v.Running.Value {
		// Linux, Documentation/admin-guide/kernel-parameters.txt.
		if arg == "intremap=off" || arg == "nointremap" {
			return host.No, machine.CmdlineFile, "turned off by a kernel argument: " + arg
		}
	}
	switch v.CPUVendor {
	case "amd", "hygon":
		return host.Yes, "", "on: all AMD IOMMUs support it"
	case "intel":
	default:
		return host.Unknown, "", ""
	}
	if f := v.Firmware.Value.Remaps; f == host.No {
		return host.No, iommu.DMARFile, "the firmware reports that the platform does not support it"
	}
	var who []string
	if v.Firmware.Value.Remaps.Known() {
		who = append(who, "the firmware")
	}
	units := 0
	for _, u := range v.Units.Value {
		if u.Remaps == host.No {
			return host.No, machine.UnitsDir + "/" + u.Name + "/intel-iommu/ecap", u.Name + " does not support it"
		}
		if u.Remaps.Known() {
			units++
		}
	}
	if units > 0 {
		who = append(who, host.Numbered(units, "unit"))
	}
	if who == nil {
		return host.Unknown, "", ""
	}
	return host.Yes, "", "on, by " + strings.Join(who, " and ")
}
