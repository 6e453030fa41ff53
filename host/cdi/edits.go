package cdi

import (
	"slices"

	library "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Edits returns the edits of a device and of its file as they are written, nil if runtimes do not
// find the device.
func (f Folders) Edits(name string) *specs.ContainerEdits {
	at := slices.IndexFunc(f.devices, func(d Device) bool { return d.Name == name && d.File != "" })
	if at < 0 {
		return nil
	}
	spec, n := f.find(f.devices[at])
	if spec == nil {
		return nil
	}
	edits := library.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
	edits.Append(&library.ContainerEdits{ContainerEdits: &spec.ContainerEdits})
	edits.Append(&library.ContainerEdits{ContainerEdits: &spec.Devices[n].ContainerEdits})
	return edits.ContainerEdits
}

// find returns the spec of a resolved device, and the device's index in it.
func (f Folders) find(d Device) (*specs.Spec, int) {
	for i := range f.Files {
		file := &f.Files[i]
		if file.Path != d.File {
			continue
		}
		for n := range file.Spec.Devices {
			if file.deviceName(n) == d.Name {
				return file.Spec, n
			}
		}
	}
	return nil, 0
}
