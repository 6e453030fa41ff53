package cdi

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	library "tags.cncf.io/container-device-interface/pkg/cdi"
	"tags.cncf.io/container-device-interface/pkg/parser"
	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
)

// judge returns what the library refuses in a spec, in its own words and with the part of the file,
// in the order in which it looks (v1.1.1, Spec.validate), and what older runtimes refuse. The
// library stops at the first one, and names no part.
func judge(file string, spec *specs.Spec) (problems []Problem) {
	refused := func(field, device string, err error) {
		if err != nil {
			problems = append(problems, Problem{File: file, Field: field, Device: device, Kind: Malformed, Status: host.Fail,
				Reason: err.Error(), Library: err.Error(), Skipped: true})
		}
	}
	if hasNull(spec) {
		refused("", "", errors.New("a list has an empty element (null): invalid memory address or nil pointer dereference"))
		problems[0].Library = "invalid memory address or nil pointer dereference" // the library crashes on it
		return problems
	}
	if p := version(spec); p != nil {
		p.File = file
		problems = append(problems, *p)
	}
	refused("kind", "", validKind(spec.Kind))
	edits := func(field, device string, e *specs.ContainerEdits) {
		refused(field, device, (&library.ContainerEdits{ContainerEdits: e}).Validate())
	}
	edits("containerEdits", "", &spec.ContainerEdits)
	names := map[string]bool{}
	for i := range spec.Devices {
		d := &spec.Devices[i]
		field, device := fmt.Sprintf("devices[%d]", i), spec.Kind+"="+d.Name
		refused(field+".name", device, parser.ValidateDeviceName(d.Name))
		if isEmpty(&d.ContainerEdits) {
			refused(field+".containerEdits", device, errors.New("invalid device, empty device edits"))
		}
		edits(field+".containerEdits", device, &d.ContainerEdits)
		if names[d.Name] {
			refused(field+".name", device, fmt.Errorf("invalid spec, multiple device %q", d.Name))
		}
		names[d.Name] = true
	}
	if len(spec.Devices) == 0 {
		refused("devices", "", errors.New("invalid spec, no devices"))
	}
	return problems
}

// hasNull reports whether a list has an empty element, which the library does not expect: the
// program that reads the spec crashes.
func hasNull(spec *specs.Spec) bool {
	null := func(e *specs.ContainerEdits) bool {
		return slices.Contains(e.DeviceNodes, nil) || slices.Contains(e.NetDevices, nil) || slices.Contains(e.Hooks, nil) || slices.Contains(e.Mounts, nil)
	}
	return null(&spec.ContainerEdits) || slices.ContainsFunc(spec.Devices, func(d specs.Device) bool { return null(&d.ContainerEdits) })
}

// readByOldRuntimes are the versions that podman 4.3.1 reads, which is in Debian 12. It skips a
// file of a later version, and reports nothing but that its devices are unresolvable.
var readByOldRuntimes = []string{"0.3.0", "0.4.0", "0.5.0"}

// version returns what is wrong with the version of a spec, or nil.
func version(spec *specs.Spec) *Problem {
	p := Problem{Field: "cdiVersion", Kind: Version, Status: host.Fail, Skipped: true}
	err := specs.ValidateVersion(spec)
	switch {
	case err != nil:
		p.Reason, p.Library = fmt.Sprintf("%q: %v", spec.Version, err), err.Error()
	case slices.Contains(readByOldRuntimes, strings.TrimPrefix(spec.Version, "v")):
		return nil
	default:
		p.Status, p.Skipped = host.Warn, false
		p.Reason = fmt.Sprintf("%s: podman 4.3.1 and other runtimes of its time read versions up to %s and silently skip this file", spec.Version, WrittenVersion)
	}
	return &p
}

func validKind(kind string) error {
	vendor, class := parser.ParseQualifier(kind)
	if err := parser.ValidateVendorName(vendor); err != nil {
		return err
	}
	return parser.ValidateClassName(class)
}

// isEmpty reports whether edits change nothing, as the library sees it.
func isEmpty(e *specs.ContainerEdits) bool {
	return len(e.Env)+len(e.DeviceNodes)+len(e.NetDevices)+len(e.Hooks)+len(e.Mounts)+len(e.AdditionalGIDs) == 0 && e.IntelRdt == nil
}

// isBind reports whether a mount's source is a path on the machine: that of a tmpfs is not.
func isBind(m *specs.Mount) bool {
	return m.Type == "" || m.Type == "none" || m.Type == "bind" || slices.Contains(m.Options, "bind") || slices.Contains(m.Options, "rbind")
}
