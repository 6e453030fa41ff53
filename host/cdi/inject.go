package cdi

import (
	"fmt"
	"path"
	"slices"
	"strings"

	library "tags.cncf.io/container-device-interface/pkg/cdi"
	specs "tags.cncf.io/container-device-interface/specs-go"
)

// Inject returns what a runtime changes in a container that is started with a device: the edits of
// its file and of the device, with the numbers and modes of nodes as this machine has them, and one
// of several nodes, variables or mounts with the same name: the last one. It is the library's
// InjectDevices on values. The errors begin as the library's do, and name the file and field, which
// the library's do not.
func (f Folders) Inject(name string) (specs.ContainerEdits, error) {
	edits := f.Edits(name)
	if edits == nil {
		return specs.ContainerEdits{}, f.unresolvable(name)
	}
	for i, n := range edits.DeviceNodes {
		on, _ := hostPath(n)
		node, err := filled(n, f.nodes[on])
		if err != nil {
			at := slices.IndexFunc(f.devices, func(d Device) bool { return d.Name == name })
			return specs.ContainerEdits{}, fmt.Errorf("failed to inject devices: %w (%s)", err, f.devices[at].File)
		}
		edits.DeviceNodes[i] = &node
	}
	edits.Env = merged(edits.Env)
	edits.DeviceNodes = lastOf(edits.DeviceNodes, func(n *specs.DeviceNode) string { return n.Path })
	edits.Mounts = lastOf(edits.Mounts, func(m *specs.Mount) string { return m.ContainerPath })
	slices.SortStableFunc(edits.Mounts, func(a, b *specs.Mount) int { return depth(a) - depth(b) })
	return *edits, nil
}

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

// lastOf returns a list without the elements whose key stands again later.
func lastOf[T any](list []T, key func(T) string) []T {
	var out []T
	for i, v := range list {
		if !slices.ContainsFunc(list[i+1:], func(o T) bool { return key(o) == key(v) }) {
			out = append(out, v)
		}
	}
	return out
}

// merged returns variables with one of each name: the last value, in the first place.
func merged(env []string) []string {
	var out []string
	at := map[string]int{}
	for _, v := range env {
		name, _, _ := strings.Cut(v, "=")
		if i, ok := at[name]; ok {
			out[i] = v
			continue
		}
		at[name] = len(out)
		out = append(out, v)
	}
	return out
}

// depth returns the number of folders that a mount is in: a runtime mounts a folder before what is
// in it.
func depth(m *specs.Mount) int {
	return strings.Count(path.Clean(m.ContainerPath), "/")
}

// unresolvable returns why a name leads to no device: the problems of the files that name it, or of
// those whose devices are not known because the file is skipped.
func (f Folders) unresolvable(name string) error {
	err := fmt.Errorf("unresolvable CDI devices %s", name)
	var why []string
	for _, p := range f.All() {
		if p.Device == name && (p.Kind == Conflict || p.Skipped) {
			why = append(why, p.String())
		}
	}
	if len(why) == 0 {
		for _, p := range f.All() {
			if p.Skipped || p.Kind == Unreadable && p.Field == "" {
				why = append(why, p.String())
			}
		}
	}
	switch len(why) {
	case 0:
		return err
	case 1:
		return fmt.Errorf("%w: %s", err, why[0])
	}
	return fmt.Errorf("%w: %s (and %d more)", err, why[0], len(why)-1)
}
