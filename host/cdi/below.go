package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path"

	"golang.org/x/sys/unix"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
)

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
	isWhole := n.Type != "" && (n.Major != 0 || n.Type == "p") // the library does not look at the machine's
	node, err := v.root.Node(name)
	switch {
	case node == nil && n.Type == "p":
	case node == nil:
		kind, reason := Missing, fmt.Sprintf("device node %s does not exist", name)
		if err != nil {
			reason = fmt.Sprintf("%s cannot be used as a device node: %v", name, host.Cause(err))
			if !errors.Is(err, host.ErrNotNode) {
				kind = Unreadable
			}
		}
		library := fmt.Sprintf("failed to stat CDI host device %q: %v", name, host.Cause(cmp.Or(err, error(unix.ENOENT))))
		if isWhole {
			library = ""
			reason += fmt.Sprintf("; a container gets a node with the numbers %d:%d of the spec, whatever they belong to", n.Major, n.Minor)
		}
		p := v.add(field+"."+part, kind, library, "%s", reason)
		p.Denied, p.Path = errors.Is(err, fs.ErrPermission), name
	case !isWhole && n.Type != "" && n.Type != node.Type:
		v.add(field+".type", Stale, fmt.Sprintf("CDI device (%q, %q), host type mismatch (%s, %s)", n.Path, name, n.Type, node.Type),
			"type %q, but %s is of type %q", n.Type, name, node.Type)
	case n.Major == 0 || n.Type == "p":
	case int64(node.Major) != n.Major || int64(node.Minor) != n.Minor:
		part = "major"
		if int64(node.Major) == n.Major {
			part = "minor"
		}
		v.add(field+"."+part, Stale, "", "device numbers %d:%d, but %s is %d:%d; a container starts without an error and gets the device with the numbers of the spec",
			n.Major, n.Minor, name, node.Major, node.Minor)
	}
}

// mount reports a bind mount whose source does not exist. The runtime finds that out when the
// container starts: the text is that of runc 1.1.5.
func (v *view) mount(field string, m *specs.Mount) {
	if _, present := v.stat(field, m.HostPath); !present {
		v.add(field, Missing, fmt.Sprintf("error mounting %q to rootfs at %q: stat %s: no such file or directory", m.HostPath, m.ContainerPath, m.HostPath),
			"%s does not exist", m.HostPath)
	}
}

// hook reports a hook whose program cannot be started.
func (v *view) hook(field string, h *specs.Hook) {
	text := func(err error) string { return fmt.Sprintf("fork/exec %s: %v", h.Path, err) }
	switch mode, present := v.stat(field, h.Path); {
	case !present:
		v.add(field, Missing, text(unix.ENOENT), "program %s of hook %s does not exist", h.Path, h.HookName)
	case !mode.IsRegular() || mode.Perm()&0o111 == 0:
		v.add(field, Missing, text(unix.EACCES), "%s of hook %s is not an executable file", h.Path, h.HookName)
	}
}

// stat returns the mode of what a path leads to, and whether it exists. What cannot be read is
// reported, and passes for an executable file.
func (v *view) stat(field, name string) (fs.FileMode, bool) {
	mode, present, err := v.root.Mode(name)
	if err != nil {
		v.add(field, Unreadable, "", "cannot determine whether %s exists: %v", name, host.Cause(err)).Denied = errors.Is(err, fs.ErrPermission)
		return 0o111, true
	}
	return mode, present
}
