package cdi

import (
	"path"
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
)

// Giving returns the name of the device that gives a container all of the nodes, and what it
// changes there: the first one of our file with this name, or else the one with the fewest nodes
// besides. The name is "" if there is none. failed is why other devices cannot be used.
func (f Folders) Giving(ours string, nodes ...string) (name string, of specs.ContainerEdits, failed []Problem) {
	all := f.All()
	for _, d := range f.devices {
		at := slices.IndexFunc(all, func(p Problem) bool {
			return p.Status == host.Fail && p.Kind != Stale && (p.Device == d.Name || p.Device == "" && p.File == d.File)
		})
		edits := f.Edits(d.Name)
		if at >= 0 || edits == nil {
			if at >= 0 {
				failed = append(failed, all[at])
			}
			continue
		}
		has := func(file string) bool {
			return slices.ContainsFunc(edits.DeviceNodes, func(n *specs.DeviceNode) bool { return n.Path == file })
		}
		switch {
		case slices.ContainsFunc(nodes, func(file string) bool { return !has(file) }):
		case path.Base(d.File) == ours:
			return d.Name, *edits, failed
		case name == "" || len(edits.DeviceNodes) < len(of.DeviceNodes):
			name, of = d.Name, *edits
		}
	}
	return name, of, failed
}
