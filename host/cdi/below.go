package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
)

// nodeState is what the machine has at the path of a device node. Neither a node nor an error means
// that nothing is there.
type nodeState struct {
	node *host.Node
	err  error
}

// fileState is what the machine has at the path of a mount's source or of a hook's program, links
// followed. Neither a mode nor an error means that nothing is there.
type fileState struct {
	present bool
	mode    fs.FileMode
	err     error
}

func (r *reader) node(name string) nodeState {
	state, ok := r.nodes[name]
	if !ok {
		state.node, state.err = r.root.Node(name)
		r.nodes[name] = state
	}
	return state
}

func (r *reader) stat(name string) fileState {
	state, ok := r.paths[name]
	if !ok {
		state.mode, state.present, state.err = r.root.Mode(name)
		r.paths[name] = state
	}
	return state
}

// machine returns the problems of a spec that the library does not see when it reads the file:
// nodes, sources of mounts and programs of hooks that do not exist below the root, and numbers that
// are not those of the node.
func (r *reader) machine(file string, spec *specs.Spec) []Problem {
	v := view{reader: r, file: file}
	v.edits("containerEdits", &spec.ContainerEdits)
	for i := range spec.Devices {
		d := &spec.Devices[i]
		v.device = spec.Kind + "=" + d.Name
		v.edits(fmt.Sprintf("devices[%d].containerEdits", i), &d.ContainerEdits)
	}
	return v.problems
}

// view compares the edits of one file with the machine.
type view struct {
	*reader
	file, device string
	problems     []Problem
}

func (v *view) add(field string, kind Kind, library, format string, args ...any) *Problem {
	v.problems = append(v.problems, Problem{
		File: v.file, Field: field, Device: v.device, Kind: kind, Status: host.Fail, Reason: fmt.Sprintf(format, args...), Library: library,
	})
	return &v.problems[len(v.problems)-1]
}

// what names the devices that edits belong to.
func (v *view) what() string {
	if v.device == "" {
		return "a device of this file"
	}
	return "this device"
}

func (v *view) edits(at string, e *specs.ContainerEdits) {
	for i, n := range e.DeviceNodes {
		field := fmt.Sprintf("%s.deviceNodes[%d]", at, i)
		if v.absolute(field+".path", n.Path) && v.absolute(field+".hostPath", n.HostPath) {
			v.deviceNode(field, n)
		}
	}
	for i, m := range e.Mounts {
		field := fmt.Sprintf("%s.mounts[%d]", at, i)
		v.absolute(field+".containerPath", m.ContainerPath)
		if isBind(m) && v.absolute(field+".hostPath", m.HostPath) {
			v.mount(field+".hostPath", m)
		}
	}
	for i, h := range e.Hooks {
		if field := fmt.Sprintf("%s.hooks[%d].path", at, i); v.absolute(field, h.Path) {
			v.hook(field, h)
		}
	}
}

// absolute reports a path that is relative, and returns whether it is none. The library accepts it;
// what it is relative to differs between runtimes, if they start the container at all.
func (v *view) absolute(field, name string) bool {
	if name == "" || path.IsAbs(name) {
		return true
	}
	v.add(field, Malformed, "", "the path %s is not absolute", name)
	return false
}

// hostPath returns the path of a node on the machine, and the name of the field that contains it.
func hostPath(n *specs.DeviceNode) (name, field string) {
	if n.HostPath != "" {
		return n.HostPath, "hostPath"
	}
	return n.Path, "path"
}

// deviceNode compares a node with the machine's, as the library does when it starts a container
// (v1.1.1, fillMissingInfo), and its numbers too, which the library takes as they are.
func (v *view) deviceNode(field string, n *specs.DeviceNode) {
	name, part := hostPath(n)
	state := v.node(name)
	if _, err := filled(n, state); err != nil {
		kind := Missing
		if state.err != nil && !errors.Is(state.err, host.ErrNotNode) {
			kind = Unreadable
		}
		reason := fmt.Sprintf("device node %s does not exist", name)
		switch {
		case state.err != nil:
			reason = fmt.Sprintf("%s cannot be used as a device node: %v", name, host.Cause(state.err))
		case state.node != nil:
			kind, part = Stale, "type"
			reason = fmt.Sprintf("type %q, but %s is of type %q", n.Type, name, state.node.Type)
		}
		p := v.add(field+"."+part, kind, err.Error(), "%s", reason)
		p.Denied, p.Path = errors.Is(state.err, fs.ErrPermission), name
		return
	}
	switch {
	case n.Major == 0 || n.Type == "p":
		return
	case state.node == nil:
		v.add(field+"."+part, Missing, "",
			"device node %s does not exist; a container gets a node with the numbers %d:%d of the spec, whatever they belong to", name, n.Major, n.Minor).Path = name
	case int64(state.node.Major) != n.Major || int64(state.node.Minor) != n.Minor:
		part = "major"
		if int64(state.node.Major) == n.Major {
			part = "minor"
		}
		v.add(field+"."+part, Stale, "", "device numbers %d:%d, but %s is %d:%d; a container starts without an error and gets the device with the numbers of the spec",
			n.Major, n.Minor, name, state.node.Major, state.node.Minor)
	}
}

// mount reports a bind mount whose source does not exist. The runtime finds that out when the
// container starts: the text is that of runc 1.1.5.
func (v *view) mount(field string, m *specs.Mount) {
	switch state := v.stat(m.HostPath); {
	case state.err != nil:
		v.add(field, Unreadable, "", "cannot determine whether %s exists: %v", m.HostPath, host.Cause(state.err)).
			Denied = errors.Is(state.err, fs.ErrPermission)
	case !state.present:
		v.add(field, Missing, fmt.Sprintf("error mounting %q to rootfs at %q: stat %s: no such file or directory", m.HostPath, m.ContainerPath, m.HostPath),
			"%s does not exist; containers with %s do not start", m.HostPath, v.what())
	}
}

// hook reports a hook whose program cannot be started.
func (v *view) hook(field string, h *specs.Hook) {
	state := v.stat(h.Path)
	text := func(err error) string { return fmt.Sprintf("fork/exec %s: %v", h.Path, err) }
	switch {
	case state.err != nil:
		v.add(field, Unreadable, "", "cannot determine whether %s exists: %v", h.Path, host.Cause(state.err)).
			Denied = errors.Is(state.err, fs.ErrPermission)
	case !state.present:
		v.add(field, Missing, text(unix.ENOENT), "program %s of hook %s does not exist; containers with %s do not start", h.Path, h.HookName, v.what())
	case !state.mode.IsRegular() || state.mode.Perm()&0o111 == 0:
		v.add(field, Missing, text(unix.EACCES), "%s of hook %s is not an executable file; containers with %s do not start", h.Path, h.HookName, v.what())
	}
}

// filled returns the node that a runtime makes in a container of a node in a spec and of the
// machine's node. The errors are the library's.
func filled(n *specs.DeviceNode, state nodeState) (specs.DeviceNode, error) {
	out := *n
	out.HostPath, _ = hostPath(n)
	minimal := n.Type != "" && (n.Major != 0 || n.Type == "p")
	if state.node == nil {
		switch {
		case minimal:
			return out, nil
		case state.err != nil:
			return out, fmt.Errorf("failed to stat CDI host device %q: %w", out.HostPath, host.Cause(state.err))
		}
		return out, fmt.Errorf("failed to stat CDI host device %q: %w", out.HostPath, unix.ENOENT)
	}
	if out.FileMode == nil {
		mode := state.node.Mode
		out.FileMode = &mode
	}
	if minimal {
		return out, nil
	}
	if out.Type == "" {
		out.Type = state.node.Type
	}
	if out.Type != state.node.Type {
		return out, fmt.Errorf("CDI device (%q, %q), host type mismatch (%s, %s)", out.Path, out.HostPath, out.Type, state.node.Type)
	}
	if out.Type != "p" && out.Major == 0 {
		out.Major, out.Minor = int64(state.node.Major), int64(state.node.Minor)
	}
	return out, nil
}
