package cdi

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	library "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
)

// judgement collects what is wrong with the values of one file. Each value is passed to the
// library's validator of its own, so that all errors of a file are found, with their fields: the
// library stops at the first one and names no field.
type judgement struct {
	file     string
	device   string
	problems []Problem
}

// judge returns what the library refuses in a spec, in the order in which the library looks
// (v1.1.1, Spec.validate), and what older runtimes refuse.
func judge(file string, spec *specs.Spec) []Problem {
	j := judgement{file: file}
	whole := !j.nulls(spec)
	if whole { // MinimumRequiredVersion crashes on them
		j.version(spec)
	}
	j.kind(spec.Kind)
	j.edits("containerEdits", &spec.ContainerEdits)
	names := map[string]int{}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		at := fmt.Sprintf("devices[%d]", i)
		j.device = spec.Kind + "=" + d.Name
		j.refused(at+".name", parser.ValidateDeviceName(d.Name), "%s", deviceNameReason(d.Name))
		if isEmpty(&d.ContainerEdits) {
			j.refused(at+".containerEdits", errors.New("invalid device, empty device edits"), "the device changes nothing in a container")
		}
		j.edits(at+".containerEdits", &d.ContainerEdits)
		if first, ok := names[d.Name]; ok {
			j.refused(at+".name", fmt.Errorf("invalid spec, multiple device %q", d.Name), "the name %q is also that of devices[%d]", d.Name, first)
			continue
		}
		names[d.Name] = i
	}
	j.device = ""
	if len(spec.Devices) == 0 {
		j.refused("devices", errors.New("invalid spec, no devices"), "the file defines no devices")
	}
	return j.problems
}

// refused adds a problem if the library refuses a value, and with it the file.
func (j *judgement) refused(field string, err error, format string, args ...any) {
	if err != nil {
		j.add(Problem{Field: field, Kind: Malformed, Status: host.Fail, Reason: fmt.Sprintf(format, args...), Library: err.Error(), Skipped: true})
	}
}

func (j *judgement) add(p Problem) {
	p.File, p.Device = j.file, j.device
	j.problems = append(j.problems, p)
}

// nulls reports the empty elements of lists, and whether there are any. The library does not expect
// them: the program that reads the spec crashes.
func (j *judgement) nulls(spec *specs.Spec) bool {
	before := len(j.problems)
	null := func(field string) {
		j.add(Problem{
			Field: field, Kind: Malformed, Status: host.Fail, Skipped: true,
			Reason: "an empty element (null) of the list, on which the CDI library crashes", Library: "invalid memory address or nil pointer dereference",
		})
	}
	each := func(at string, e *specs.ContainerEdits) {
		for i, n := range e.DeviceNodes {
			if n == nil {
				null(fmt.Sprintf("%s.deviceNodes[%d]", at, i))
			}
		}
		for i, n := range e.NetDevices {
			if n == nil {
				null(fmt.Sprintf("%s.netDevices[%d]", at, i))
			}
		}
		for i, h := range e.Hooks {
			if h == nil {
				null(fmt.Sprintf("%s.hooks[%d]", at, i))
			}
		}
		for i, m := range e.Mounts {
			if m == nil {
				null(fmt.Sprintf("%s.mounts[%d]", at, i))
			}
		}
	}
	each("containerEdits", &spec.ContainerEdits)
	for i := range spec.Devices {
		each(fmt.Sprintf("devices[%d].containerEdits", i), &spec.Devices[i].ContainerEdits)
	}
	return len(j.problems) > before
}

// readByOldRuntimes are the versions that podman 4.3.1 reads, which is in Debian 12. It skips a
// file of a later version, and reports nothing but that its devices are unresolvable.
var readByOldRuntimes = []string{"0.3.0", "0.4.0", "0.5.0"}

func (j *judgement) version(spec *specs.Spec) {
	version := strings.TrimPrefix(spec.Version, "v")
	needed, err := specs.MinimumRequiredVersion(spec)
	if err == nil {
		err = specs.ValidateVersion(spec)
	}
	p := Problem{Field: "cdiVersion", Kind: Version, Status: host.Fail, Skipped: true}
	switch {
	case err == nil && slices.Contains(readByOldRuntimes, version):
		return
	case err == nil:
		p.Status, p.Skipped = host.Warn, false
		p.Reason = fmt.Sprintf("%s: podman 4.3.1 and other runtimes of its time read versions up to %s and silently skip this file", spec.Version, WrittenVersion)
		if slices.Contains(readByOldRuntimes, needed) {
			p.Reason += "; nothing in it needs more than " + needed
		}
	case spec.Version == "":
		p.Reason, p.Library = "the version is missing", err.Error()
	case specs.ValidateVersion(&specs.Spec{Version: spec.Version}) == nil: // the contents need a later one
		p.Reason = fmt.Sprintf("%s is too low: %s needs %s", spec.Version, needing(spec, needed), needed)
		p.Library = err.Error()
	default:
		p.Reason = fmt.Sprintf("%q is not a version that runtimes read, which are %s to %s", spec.Version, readByOldRuntimes[0], specs.CurrentVersion)
		p.Library = err.Error()
	}
	j.add(p)
}

// needing returns the first field for which a spec needs a version. Which one needs what is the
// library's to say: it is asked for each field alone.
func needing(spec *specs.Spec, needed string) string {
	type part struct {
		field string
		alone specs.Spec
	}
	parts := []part{{"kind", specs.Spec{Kind: spec.Kind}}, {"annotations", specs.Spec{Annotations: spec.Annotations}}}
	edits := func(at string, e *specs.ContainerEdits) {
		add := func(field string, alone specs.ContainerEdits) {
			parts = append(parts, part{at + "." + field, specs.Spec{ContainerEdits: alone}})
		}
		add("netDevices", specs.ContainerEdits{NetDevices: e.NetDevices})
		add("intelRdt", specs.ContainerEdits{IntelRdt: e.IntelRdt})
		add("additionalGids", specs.ContainerEdits{AdditionalGIDs: e.AdditionalGIDs})
		for i, n := range e.DeviceNodes {
			add(fmt.Sprintf("deviceNodes[%d].hostPath", i), specs.ContainerEdits{DeviceNodes: []*specs.DeviceNode{n}})
		}
		for i, m := range e.Mounts {
			add(fmt.Sprintf("mounts[%d].type", i), specs.ContainerEdits{Mounts: []*specs.Mount{m}})
		}
	}
	for i := range spec.Devices {
		d, at := &spec.Devices[i], fmt.Sprintf("devices[%d]", i)
		parts = append(parts, part{at + ".name", specs.Spec{Devices: []specs.Device{{Name: d.Name}}}},
			part{at + ".annotations", specs.Spec{Devices: []specs.Device{{Annotations: d.Annotations}}}})
		edits(at+".containerEdits", &d.ContainerEdits)
	}
	edits("containerEdits", &spec.ContainerEdits)
	for _, p := range parts {
		if alone, err := specs.MinimumRequiredVersion(&p.alone); err == nil && alone == needed {
			return p.field
		}
	}
	return "the content"
}

// ValidKind returns an error unless a kind is one that the library accepts: VENDOR/CLASS.
func ValidKind(kind string) error {
	j := judgement{}
	j.kind(kind)
	if len(j.problems) == 0 && strings.Contains(kind[strings.Index(kind, "/")+1:], ".") {
		return fmt.Errorf("CDI kind %q: a dot in the class needs version 0.6.0, which podman 4.3.1 does not read", kind)
	}
	if len(j.problems) > 0 {
		return fmt.Errorf("CDI kind %s (%s)", j.problems[0].Reason, j.problems[0].Library)
	}
	return nil
}

func (j *judgement) kind(kind string) {
	vendor, class := parser.ParseQualifier(kind)
	if vendor == "" {
		j.refused("kind", parser.ValidateVendorName(vendor), "%q is not of the form VENDOR/CLASS", kind)
		return
	}
	const form = "letters, digits, '-', '_' and '.', a letter first and a letter or digit last"
	j.refused("kind", parser.ValidateVendorName(vendor), "%q: the vendor %q is not a name of %s", kind, vendor, form)
	j.refused("kind", parser.ValidateClassName(class), "%q: the class %q is not a name of %s", kind, class, form)
	if len(vendor) == 1 || len(class) == 1 {
		j.add(Problem{
			Field: "kind", Kind: Version, Status: host.Warn, Library: "slice bounds out of range [1:0]",
			Reason: fmt.Sprintf("%q: podman 4.3.1 crashes on a vendor or class of one character", kind),
		})
	}
}

func deviceNameReason(name string) string {
	if name == "" {
		return "the device has no name"
	}
	return fmt.Sprintf("%q is not a name of letters, digits, '-', '_', '.' and ':', a letter or digit first and last", name)
}

// isEmpty reports whether edits change nothing, as the library sees it.
func isEmpty(e *specs.ContainerEdits) bool {
	return len(e.Env)+len(e.DeviceNodes)+len(e.NetDevices)+len(e.Hooks)+len(e.Mounts)+len(e.AdditionalGIDs) == 0 && e.IntelRdt == nil
}

func (j *judgement) edits(at string, e *specs.ContainerEdits) {
	for i, v := range e.Env {
		j.refused(fmt.Sprintf("%s.env[%d]", at, i), library.ValidateEnv([]string{v}), "%q is not of the form NAME=VALUE", v)
	}
	for i, n := range e.DeviceNodes {
		if n != nil {
			j.deviceNode(fmt.Sprintf("%s.deviceNodes[%d]", at, i), n)
		}
	}
	for i, h := range e.Hooks {
		if h != nil {
			j.hook(fmt.Sprintf("%s.hooks[%d]", at, i), h)
		}
	}
	for i, m := range e.Mounts {
		if m != nil {
			j.mount(fmt.Sprintf("%s.mounts[%d]", at, i), m)
		}
	}
	if e.IntelRdt != nil {
		j.refused(at+".intelRdt.closID", (&library.IntelRdt{IntelRdt: e.IntelRdt}).Validate(), "%q is not a name of a resctrl group", e.IntelRdt.ClosID)
	}
	if !slices.Contains(e.NetDevices, nil) {
		j.refused(at+".netDevices", library.ValidateNetDevices(e.NetDevices), "a network device has no name, or a name appears twice")
	}
}

func (j *judgement) deviceNode(at string, n *specs.DeviceNode) {
	try := func(one specs.DeviceNode) error {
		return (&library.DeviceNode{DeviceNode: &one}).Validate()
	}
	j.refused(at+".path", try(specs.DeviceNode{Path: n.Path}), "the path in the container is missing")
	name := cmp.Or(n.Path, n.HostPath, "/")
	j.refused(at+".type", try(specs.DeviceNode{Path: name, Type: n.Type}), "%q is not a type of device nodes (b, c, u, p)", n.Type)
	j.refused(at+".permissions", try(specs.DeviceNode{Path: name, Permissions: n.Permissions}), "%q does not consist of r, w and m", n.Permissions)
	j.absolute(at+".path", n.Path)
	j.absolute(at+".hostPath", n.HostPath)
}

func (j *judgement) hook(at string, h *specs.Hook) {
	try := func(one specs.Hook) error {
		return (&library.Hook{Hook: &one}).Validate()
	}
	names := []string{library.PrestartHook, library.CreateRuntimeHook, library.CreateContainerHook, library.StartContainerHook, library.PoststartHook, library.PoststopHook}
	j.refused(at+".hookName", try(specs.Hook{HookName: h.HookName, Path: "/"}), "%q is not a hook of the OCI runtime specification (%s)",
		h.HookName, strings.Join(names, ", "))
	known := library.PrestartHook
	if slices.Contains(names, h.HookName) {
		known = h.HookName
	}
	j.refused(at+".path", try(specs.Hook{HookName: known, Path: h.Path}), "the path of the program is missing")
	for i, v := range h.Env {
		j.refused(fmt.Sprintf("%s.env[%d]", at, i), try(specs.Hook{HookName: known, Path: "/", Env: []string{v}}), "%q is not of the form NAME=VALUE", v)
	}
	j.absolute(at+".path", h.Path)
}

func (j *judgement) mount(at string, m *specs.Mount) {
	try := func(one specs.Mount) error {
		return (&library.Mount{Mount: &one}).Validate()
	}
	j.refused(at+".hostPath", try(specs.Mount{HostPath: m.HostPath, ContainerPath: "/"}), "the path on the host is missing")
	j.refused(at+".containerPath", try(specs.Mount{HostPath: "/", ContainerPath: m.ContainerPath}), "the path in the container is missing")
	if isBind(m) {
		j.absolute(at+".hostPath", m.HostPath)
	}
	j.absolute(at+".containerPath", m.ContainerPath)
}

// absolute reports a path that is relative. The library accepts it; what it is relative to differs
// between runtimes (OCI runtime specification 1.2, config.md: hooks and destinations are absolute).
func (j *judgement) absolute(field, name string) {
	if name != "" && !path.IsAbs(name) {
		j.add(Problem{Field: field, Kind: Malformed, Status: host.Fail, Reason: fmt.Sprintf("the path %s is not absolute", name)})
	}
}

// isBind reports whether a mount's source is a path on the machine: that of a tmpfs is not.
func isBind(m *specs.Mount) bool {
	return m.Type == "" || m.Type == "none" || m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}
