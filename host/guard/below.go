package guard

import (
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

const (
	usbDir   = "/sys/bus/usb/devices"
	inputDir = "/sys/class/input"
)

// Below returns what hangs below a function: "USB device 1-1.2, disk sdb", or "" for
// nothing. Root hubs are nothing, and neither are the nodes that the display and the audio function
// of a GPU always have: its DRM devices, its sound card and the inputs that report a plugged
// cable.
func Below(root host.Root, a pci.Address) (string, error) {
	g := guard{root: root}
	var found []string
	for _, class := range []struct{ dir, what string }{
		{usbDir, "USB device"},
		{blockDir, "disk"},
		{netDir, "interface"},
		{"/sys/class/tty", "serial port"},
		{inputDir, "input device"},
	} {
		names, err := g.list(class.dir)
		if err != nil {
			return "", err
		}
		for _, name := range names {
			target, err := g.device(class.dir, name)
			if err != nil {
				return "", err
			}
			isPart, err := g.isPart(class.dir, name, target, len(found) > 0)
			if err != nil {
				return "", err
			}
			if isPart || !isBelow(target, a) {
				continue
			}
			found = append(found, class.what+" "+name)
		}
	}
	return strings.Join(found, ", "), nil
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

// isBelow reports whether a directory of sysfs is below that of a function.
func isBelow(target string, a pci.Address) bool {
	return strings.Contains(target, "/"+a.String()+"/")
}
