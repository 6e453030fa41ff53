package guard

import (
	"errors"
	"path"
	"strings"

	"gpustack/host/pci"
)

const (
	usbDir   = "/sys/bus/usb/devices"
	inputDir = "/sys/class/input"
)

// below returns what hangs below each function of a GPU's card: "USB device 1-1.2, disk sdb", or ""
// for nothing. Root hubs are nothing, and neither are the nodes that the display and the audio
// function of a GPU always have: its DRM devices, its sound card and the inputs that report a
// plugged cable.
func (g *guard) below() (map[pci.Address]string, error) {
	found := map[pci.Address][]string{}
	for i := range g.devices {
		if d := &g.devices[i]; g.devices.GPUOf(d) != nil {
			found[d.Address] = nil
		}
	}
	var errs []error
	for _, class := range []struct{ dir, what string }{
		{usbDir, "USB device"},
		{blockDir, "disk"},
		{netDir, "interface"},
		{"/sys/class/tty", "serial port"},
		{inputDir, "input device"},
	} {
		names, err := g.list(class.dir)
		errs = append(errs, err)
		for _, name := range names {
			target, err := g.device(class.dir, name)
			errs = append(errs, err)
			for element := range strings.SplitSeq(path.Dir(target), "/") {
				a, err := pci.ParseAddress(element)
				if _, ofCard := found[a]; err != nil || !ofCard {
					continue
				}
				isPart, err := g.isPart(class.dir, name, target, len(found[a]) > 0)
				errs = append(errs, err)
				if !isPart {
					found[a] = append(found[a], class.what+" "+name)
				}
			}
		}
	}
	below := make(map[pci.Address]string, len(found))
	for a, devices := range found {
		below[a] = strings.Join(devices, ", ")
	}
	return below, errors.Join(errs...)
}

// isPart reports whether a device is a root hub or a part of a device that is named itself: of a
// USB device, if found has one, a disk, a sound card or an input device.
func (g *guard) isPart(dir, name, target string, found bool) (bool, error) {
	switch {
	case dir == usbDir:
		return strings.HasPrefix(name, "usb") || strings.Contains(name, ":"), nil
	case strings.Contains(target, "/sound/"), found && strings.Contains(target, "/usb"):
		return true, nil
	case dir == blockDir:
		disk, err := g.whole(name, target)
		return disk != name, err
	}
	return dir == inputDir && !strings.HasPrefix(name, "input"), nil
}
