package machine

import (
	"path"

	"gpustack/host"
	"gpustack/host/pci"
)

// Moved reports whether the network interface of a function is in another network namespace, as
// that of a container: its host driver has made one, and this namespace does not show it.
func Moved(root host.Root, d *pci.Device) (bool, error) {
	const ethernet = 0x0200
	if d == nil || d.Class == nil || *d.Class != ethernet || d.DriverName() == "" || pci.LeavesAlone(d.DriverName()) {
		return false, nil
	}
	dir := path.Join(DevicesDir, d.Address.String(), "net")
	names, err := root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		return false, err
	}
	return len(names) == 0, nil
}
