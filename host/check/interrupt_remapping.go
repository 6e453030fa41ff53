package check

import (
	"strings"

	"gpustack/host"
	"gpustack/host/iommu"
	"gpustack/host/machine"
)

// interruptRemapping tells whether interrupts are remapped, without which VFIO gives nothing to
// guests (Linux, drivers/vfio/vfio_iommu_type1.c, allow_unsafe_interrupts).
func (v view) interruptRemapping() []host.Finding {
	if !v.isOn() {
		return na("the IOMMU is not on, or not seen")
	}
	if v.CPUVendor == "arm" {
		return na("not of this platform: its interrupt controller does it")
	}
	remaps, file, why := v.remaps()
	allowed := v.Unsafe.Seen() && v.Unsafe.Value
	f := host.Finding{File: file, Seen: why}
	switch {
	case remaps == nil && v.Firmware.Value.RemapsErr != nil:
		return one(blind(iommu.DMARFile, v.Firmware.Value.RemapsErr))
	case remaps == nil:
		return na("neither a table of the firmware nor a unit tells")
	case *remaps && allowed:
		f.Status, f.File, f.Seen = host.Warn, machine.UnsafeFile, why+", and VFIO is told to do without"
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
func (v view) remaps() (remaps *bool, file, why string) {
	yes, no := true, false
	for _, arg := range v.Running.Value {
		// Linux, Documentation/admin-guide/kernel-parameters.txt.
		if arg == "intremap=off" || arg == "nointremap" {
			return &no, machine.CmdlineFile, "off by an argument of the kernel: " + arg
		}
	}
	switch v.CPUVendor {
	case "amd", "hygon":
		return &yes, "", "on: AMD's IOMMUs have it"
	case "intel":
	default:
		return nil, "", ""
	}
	if f := v.Firmware.Value.Remaps; f != nil && !*f {
		return &no, iommu.DMARFile, "the firmware says that the platform has none"
	}
	var who []string
	if v.Firmware.Value.Remaps != nil {
		who = append(who, "the firmware")
	}
	units := 0
	for _, u := range v.Units.Value {
		if u.Remaps != nil && !*u.Remaps {
			return &no, machine.UnitsDir + "/" + u.Name + "/intel-iommu/ecap", u.Name + " cannot remap interrupts"
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
