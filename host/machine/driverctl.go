package machine

import (
	"errors"
	"path"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
)

// DriverctlDir has a file for each function that driverctl binds, pci-ADDRESS with the name of a
// driver or "none": its udev rule and driverctl@.service apply it at every add event, after the
// initramfs (driverctl 0.111, driverctl and 05-driverctl.rules).
const DriverctlDir = "/etc/driverctl.d"

// DriverctlFile returns the file of a function.
func DriverctlFile(a pci.Address) string {
	return path.Join(DriverctlDir, "pci-"+a.String())
}

// readDriverctl returns the drivers of the functions that driverctl binds.
func readDriverctl(root host.Root) (map[pci.Address]string, error) {
	names, err := root.ReadDir(DriverctlDir)
	if host.IsAbsent(err) {
		return nil, nil
	}
	drivers, errs := map[pci.Address]string{}, []error{err}
	for _, name := range names {
		a, err := pci.ParseAddress(strings.TrimPrefix(name, "pci-"))
		if err != nil || name != "pci-"+a.String() {
			continue
		}
		text, err := root.ReadFile(DriverctlFile(a))
		if err != nil {
			errs = append(errs, host.OfFile(DriverctlFile(a), err))
			continue
		}
		drivers[a] = strings.TrimSpace(string(text))
	}
	return drivers, errors.Join(errs...)
}
