package cdi

import (
	"fmt"
	"slices"

	library "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Inject returns what a runtime changes in a container that is started with a device: the edits of
// its file and of the device, with the numbers and modes of nodes as this machine has them. It is
// the library's InjectDevices on values. The errors begin as the library's do.
func (f Folders) Inject(name string) (specs.ContainerEdits, error) {
	at := slices.IndexFunc(f.devices, func(d Device) bool { return d.Name == name && d.File != "" })
	if at < 0 {
		return specs.ContainerEdits{}, fmt.Errorf("unresolvable CDI devices %s", name)
	}
	edits := &library.ContainerEdits{ContainerEdits: &specs.ContainerEdits{}}
	for _, file := range f.Files {
		if file.Path != f.devices[at].File {
			continue
		}
		edits.Append(&library.ContainerEdits{ContainerEdits: &file.Spec.ContainerEdits})
		for _, d := range file.Spec.Devices {
			vendor, class := parser.ParseQualifier(file.Spec.Kind)
			if parser.QualifiedName(vendor, class, d.Name) == name {
				edits.Append(&library.ContainerEdits{ContainerEdits: &d.ContainerEdits})
			}
		}
	}
	for i, n := range edits.DeviceNodes {
		name, _ := hostPath(n)
		node, err := filled(n, f.nodes[name])
		if err != nil {
			return specs.ContainerEdits{}, fmt.Errorf("failed to inject devices: %w", err)
		}
		edits.DeviceNodes[i] = &node
	}
	return *edits.ContainerEdits, nil
}
