package check

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/pci"
)

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

// bootVGA checks whether a GPU for guests shows the firmware's console.
func (v view) bootVGA() []host.Finding {
	switch {
	case !v.Devices.Seen():
		return unread(v.Devices)
	case v.undone:
		return checklist.NA("nothing is recorded any more")
	}
	for _, d := range v.Guests {
		f := host.Finding{File: d.ConsoleFile(), Seen: d.Address.String() + " is the firmware's console"}
		switch {
		case !d.IsConsole():
			continue
		case v.phase == unprepared:
			f.Status = host.Fail
			f.Effect = fmt.Sprintf("%s refuses it: the host would lose its console", host.NewCommand("host prepare"))
			f.Remedy = host.Textf("select another primary display in the firmware's setup, or run '%s' for commands that leave it with the host or allow it",
				host.NewCommand("host prepare").Flag("dry-run"))
		case slices.ContainsFunc(v.Running.Value, func(arg string) bool { return slices.Contains(withoutFramebuffer, arg) }):
			return checklist.Pass("%s, but the kernel does not use its framebuffer", f.Seen)
		case removesFramebuffers(v.kernel(), &d):
			return checklist.Pass("%s; on this kernel, VFIO removes the framebuffer from it", f.Seen)
		default:
			f.Status = host.Warn
			f.Effect = "the kernel's framebuffer may use its memory; then a guest with it does not start (can't reserve BAR)"
			f.Remedy = host.Plain("select another primary display in the firmware's setup, or add the kernel argument initcall_blacklist=sysfb_init")
		}
		return []host.Finding{f}
	}
	return checklist.Pass("no function for guests is the firmware's console")
}
