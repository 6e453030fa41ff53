package cdi

import (
	"path"
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Giving returns the name of the device that gives a container all of the nodes, and what it
// changes there: the first one of our file with this name, or else the one with the fewest nodes
// besides. The name is "" if there is none. failed are the devices that cannot be injected.
func (f Folders) Giving(ours string, nodes ...string) (name string, of specs.ContainerEdits, failed []error) {
	for _, d := range f.devices {
		edits, err := f.Inject(d.Name)
		if err != nil {
			failed = append(failed, err)
			continue
		}
		has := func(file string) bool {
			return slices.ContainsFunc(edits.DeviceNodes, func(n *specs.DeviceNode) bool { return n.Path == file })
		}
		switch {
		case slices.ContainsFunc(nodes, func(file string) bool { return !has(file) }):
		case path.Base(d.File) == ours:
			return d.Name, edits, failed
		case name == "" || len(edits.DeviceNodes) < len(of.DeviceNodes):
			name, of = d.Name, edits
		}
	}
	return name, of, failed
}
