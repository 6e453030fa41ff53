package prepare

import (
	"errors"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/initramfs"
	"gpustack/host/pci"
)

// preparable says what host prepare would refuse.
func (v view) preparable() []host.Finding {
	switch {
	case v.phase == unseen:
		return na("what is recorded is not known")
	case v.phase != unprepared:
		return na("is prepared")
	case !v.Devices.seen():
		return v.Devices.blind()
	}
	var findings []host.Finding
	consoles := false
	for _, err := range v.Refused {
		f := host.Finding{Status: host.Fail, Seen: err.Error(), Effect: "gpustack host prepare refuses", Remedy: "run 'gpustack host prepare --dry-run' for details"}
		var refusal *Refusal
		var separation *Separation
		switch {
		case bootCommand(err) != "":
			f.Remedy = bootCommand(err)
		case errors.As(err, &refusal):
			if d := v.device(refusal.Address); isConsole(d) {
				consoles = true
				continue // boot_vga reports it
			}
			f.File = fileOf(refusal.Address, "")
		case errors.As(err, &separation) && len(v.Refused) == 1: // else the command is refused too
			f.Remedy = "run 'gpustack host prepare --nvswitch host' or 'gpustack host prepare --nvswitch guest'"
		case errors.Is(err, ErrNoDevice):
			f.File = devicesDir
			f.Effect = "gpustack host prepare selects nothing by default"
			f.Remedy = "run 'gpustack host scan --all' and select functions with --device or --vendor"
		case errors.Is(err, ErrNoBootLoader), errors.Is(err, ErrNoKernel), errors.Is(err, initramfs.ErrNoMaker), errors.Is(err, ErrCPU) && v.CPUVendor == "unknown":
			// A tree that is not whole is no machine that lacks it.
			f.Status, f.Effect, f.Remedy = host.NA, "", ""
		}
		findings = append(findings, f)
	}
	switch {
	case findings == nil && consoles:
		return na("skipped: boot_vga fails")
	case findings == nil:
		return pass("gpustack host prepare selects %s", listAddresses(v.forGuests()))
	}
	return findings
}

func isConsole(d *pci.Device) bool {
	return d != nil && d.BootVGA != nil && *d.BootVGA
}

func listAddresses(devices []pci.Device) string {
	var words []string
	for _, d := range devices {
		words = append(words, d.Address.String())
	}
	return strings.Join(words, " ")
}

// withoutFramebuffer are the arguments that keep the kernel from using the firmware's
// framebuffer (Linux, Documentation/admin-guide/kernel-parameters.txt,
// initcall_blacklist; drivers/firmware/sysfb.c; Documentation/fb/modedb.rst).
var withoutFramebuffer = []string{"initcall_blacklist=sysfb_init", "video=efifb:off", "video=vesafb:off", "video=simplefb:off"}

// removesFramebuffers returns whether VFIO removes the firmware's framebuffer from a function that
// it is bound to, which libvirt ensures before a guest starts: of VGA controllers, from Linux 6.0
// on (drivers/vfio/pci/vfio_pci_core.c, vfio_pci_vga_init).
func removesFramebuffers(release string, d *pci.Device) bool {
	const vga = 0x0300
	major, _, _ := strings.Cut(release, ".")
	n, err := strconv.Atoi(major)
	return err == nil && n >= 6 && d.Class != nil && *d.Class == vga
}

// console looks whether a GPU for guests is the one that the firmware's console is on.
func (v view) console() []host.Finding {
	if !v.Devices.seen() {
		return v.Devices.blind()
	}
	for _, d := range v.forGuests() {
		f := host.Finding{File: fileOf(d.Address, "boot_vga"), Seen: d.Address.String() + " is the console of the firmware"}
		switch {
		case !isConsole(&d):
			continue
		case v.phase == unprepared:
			f.Status = host.Fail
			f.Effect = "gpustack host prepare refuses it: the host would be without a console"
			f.Remedy = "make another display the first in the firmware's setup, or run 'gpustack host prepare --dry-run' for commands that leave it with the host or allow it"
		case slices.ContainsFunc(v.Running.Value, func(arg string) bool { return slices.Contains(withoutFramebuffer, arg) }):
			return pass("%s, and the kernel leaves its framebuffer alone", f.Seen)
		case removesFramebuffers(text(v.Facts.Kernel), &d):
			return pass("%s; on this kernel, VFIO removes the framebuffer from it", f.Seen)
		default:
			f.Status = host.Warn
			f.Effect = "the kernel's framebuffer may hold its memory: then a guest with it does not start (can't reserve BAR)"
			f.Remedy = "make another display the first in the firmware's setup, or add initcall_blacklist=sysfb_init to the kernel's arguments"
		}
		return one(f)
	}
	return pass("no function for guests is the console of the firmware")
}
