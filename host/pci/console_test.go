package pci_test

import (
	"strings"
	"testing"

	"gpustack/host/hosttest"
)

// TestConsole: boot_vga, a framebuffer below the function, BOOTFB in its regions and boot_display each
// show that a display function of any class is the firmware's console (github.com/NVIDIA/OpenShell
// 1780; Linux, Documentation/ABI/testing/sysfs-class-drm and drivers/firmware/sysfb.c).
func TestConsole(t *testing.T) {
	const (
		at      = "sys/bus/pci/devices/0000:c5:00.0/"
		regions = "-- proc/iomem --\n9000000000-9fffffffff : PCI Bus 0000:c0\n  9000000000-901fffffff : 0000:c5:00.0\n    9000000000-90007e8fff : %\n9020000000-902fffffff : 0000:c6:00.0\n"
	)
	for _, test := range []struct {
		name, class, more, want string
	}{
		{"nothing", "0300", "", ""},
		{"a VGA controller that is not enabled", "0300", "-- " + at + "boot_vga --\n0\n", ""},
		{"boot_vga", "0300", "-- " + at + "boot_vga --\n1\n", "boot_vga"},
		{"a framebuffer below a 3D controller", "0302", "-- " + at + "simple-framebuffer.0/modalias --\nplatform:simple-framebuffer\n", "simple-framebuffer.0"},
		{"efifb, and boot_vga of another", "0300", "-- " + at + "boot_vga --\n0\n-- " + at + "efi-framebuffer.0/modalias --\nplatform:efi-framebuffer\n", "efi-framebuffer.0"},
		{"BOOTFB in a display controller, as of Strix Halo", "0380", strings.Replace(regions, "%", "BOOTFB", 1), "BOOTFB"},
		{"BOOTFB in another function", "0380", strings.NewReplacer("c6:", "c5:", "c5:", "c6:", "%", "BOOTFB").Replace(regions), ""},
		{"the driver's framebuffer in its region", "0380", strings.Replace(regions, "%", "amdgpu", 1), ""},
		{"addresses that only root sees", "0380", "-- proc/iomem --\n00000000-00000000 : 0000:c5:00.0\n  00000000-00000000 : BOOTFB\n", ""},
		{"boot_display", "0380", "-- " + at + "drm/card1/boot_display --\n1\n", "boot_display"},
		{"boot_display of none", "0380", "-- " + at + "drm/card1/boot_display --\n0\n", ""},
		{"a NIC", "0200", "-- " + at + "simple-framebuffer.0/modalias --\n\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			tree := "-- " + at + "class --\n0x" + test.class + "00\n-- " + at + "vendor --\n0x1002\n-- " + at + "device --\n0x1586\n" + test.more
			devices := hosttest.Devices(t, hosttest.Lay(t, tree))
			if d := devices[0]; d.ConsoleBy() != test.want || d.IsConsole() != (test.want != "") {
				t.Errorf("%q, console: %v, want %q", d.ConsoleBy(), d.IsConsole(), test.want)
			}
		})
	}
}
