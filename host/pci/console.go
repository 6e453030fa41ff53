package pci

import (
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// ConsoleFile returns the file that shows that the firmware's console is on the function, or "".
func (d *Device) ConsoleFile() string {
	if d.BootVGA == host.Yes {
		return path.Join("/", devicesDir, d.Address.String(), bootVGA)
	}
	if d.Framebuffer != nil {
		return *d.Framebuffer
	}
	return ""
}

// ConsoleBy returns the name of what shows that the firmware's console is on the function:
// "boot_vga", "efi-framebuffer.0", "BOOTFB"; "" for nothing.
func (d *Device) ConsoleBy() string {
	switch file := d.ConsoleFile(); file {
	case "":
		return ""
	case "/" + memoryMap:
		return bootFB
	default:
		return path.Base(file)
	}
}

// IsConsole reports whether the function is known to show the firmware's console.
func (d *Device) IsConsole() bool {
	return d.ConsoleFile() != ""
}

// memoryMap lists the regions of memory with their owners (Linux, kernel/resource.c). BOOTFB is the
// framebuffer that the firmware has set up (drivers/firmware/sysfb_simplefb.c).
const (
	memoryMap = "proc/iomem"
	bootFB    = "BOOTFB"
)

// readFramebuffers determines which display functions have the firmware's framebuffer: boot_vga
// exists for VGA controllers only, and names one of them whether the firmware uses it or not. It is a
// device below the function (drivers/firmware/sysfb.c, with the function as its parent since Linux
// 6.9), BOOTFB lies in the function's regions, or its DRM card has boot_display (drivers/gpu/drm/
// drm_sysfs.c).
func (ds Devices) readFramebuffers(root host.Root) {
	var text []byte
	for i := range ds {
		d := &ds[i]
		if !d.whole || !d.IsDisplay() || d.IsVF() {
			continue
		}
		if text == nil {
			text, _ = root.ReadReduced(memoryMap, reduceMap) // without it, the other two are left
		}
		if of := ownerOfFramebuffer(string(text)); of != nil && *of == d.Address {
			d.Framebuffer = new("/" + memoryMap)
		}
		for _, entry := range d.shows {
			name := path.Join("/", devicesDir, d.Address.String(), entry)
			if entry == drmDir {
				if display := bootDisplay(root, name); display != "" {
					d.Framebuffer = &display
				}
			} else if there, err := root.Exists(name); there && err == nil { // recorded, too
				d.Framebuffer = &name
			}
		}
	}
}

// drmDir has the DRM cards of a function.
const drmDir = "drm"

// consoleEntries are what the folder of a function with the firmware's console can have.
var consoleEntries = [...]string{"simple-framebuffer.0", "efi-framebuffer.0", "vesa-framebuffer.0", drmDir}

// bootDisplay returns the file of a folder of cards that names one as the firmware's display, or "".
func bootDisplay(root host.Root, dir string) (found string) {
	cards, _ := root.ReadDir(dir)
	for _, card := range cards {
		name := path.Join(dir, card, "boot_display")
		if value, err := root.ReadFile(name); err == nil && strings.TrimSpace(string(value)) == "1" {
			found = name
		}
	}
	return found
}

// reduceMap returns the lines of the memory map that are PCI functions or the framebuffer.
func reduceMap(text []byte) []byte {
	var kept []string
	for line := range strings.Lines(string(text)) {
		_, owner, _ := strings.Cut(strings.TrimSpace(line), " : ")
		if _, err := ParseAddress(owner); err == nil || owner == bootFB {
			kept = append(kept, line)
		}
	}
	return []byte(strings.Join(kept, ""))
}

// ownerOfFramebuffer returns the function in one of whose regions BOOTFB lies, or nil. Other users
// than root see addresses of zero.
func ownerOfFramebuffer(text string) *Address {
	type region struct {
		first, last uint64
		owner       string
	}
	var regions []region
	for line := range strings.Lines(text) {
		span, owner, _ := strings.Cut(strings.TrimSpace(line), " : ")
		from, to, _ := strings.Cut(span, "-")
		first, firstErr := strconv.ParseUint(from, 16, 64)
		last, lastErr := strconv.ParseUint(to, 16, 64)
		if firstErr == nil && lastErr == nil && last > 0 {
			regions = append(regions, region{first, last, owner})
		}
	}
	fb := slices.IndexFunc(regions, func(r region) bool { return r.owner == bootFB })
	if fb < 0 {
		return nil
	}
	for _, r := range regions {
		if a, err := ParseAddress(r.owner); err == nil && r.first <= regions[fb].first && regions[fb].last <= r.last {
			return &a
		}
	}
	return nil
}
