package startup

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"gpustack/host"
	"gpustack/templates"
)

// kollaPrefix begins the names of kolla-ansible's units, kolla-NAME-container.service
// (kolla-ansible, ansible/module_utils/kolla_systemd_worker.py). The boot unit names those of
// nova-compute and libvirt, which are deployed later than gpustack is installed, as a rule. No
// drop-in of all its units orders them: a step that waits for its deadline must not delay the
// databases and message queues of a controller on the same host, or Open vSwitch.
const kollaPrefix = "kolla-"

// unitDirs are the folders of units that an administrator, a deployment tool or a package writes
// (systemd.unit(5)).
var unitDirs = []string{"/etc/systemd/system", "/run/systemd/system", "/usr/local/lib/systemd/system", "/usr/lib/systemd/system", "/lib/systemd/system"}

// quadletDirs are the folders from which podman generates units (podman-systemd.unit(5)).
var quadletDirs = []string{"/etc/containers/systemd", "/run/containers/systemd", "/usr/share/containers/systemd"}

// usesDevices reports whether a name of a unit, container or image is one of nova-compute or
// libvirt: "tripleo_nova_virtqemud", "quay.io/openstack.kolla/nova-compute".
func usesDevices(name string) bool {
	return slices.ContainsFunc([]string{"nova_compute", "nova-compute", "libvirt", "virtqemud", "virtnodedevd"}, func(part string) bool {
		return strings.Contains(name, part)
	})
}

// containerUnits returns the units that run nova-compute or libvirt in containers: those of kolla,
// TripleO and RHOSO, and those of quadlets. Their names are not the same everywhere, so they are
// found by their files.
func containerUnits(root host.Root) (units []string, err error) {
	for _, dir := range unitDirs {
		names, err := root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			return nil, fmt.Errorf("%s: %w", dir, host.Cause(err))
		}
		for _, name := range names {
			deployed := slices.ContainsFunc([]string{kollaPrefix, "tripleo_", "edpm_"}, func(p string) bool { return strings.HasPrefix(name, p) })
			if deployed && path.Ext(name) == ".service" && usesDevices(name) {
				units = append(units, name)
			}
		}
	}
	for _, dir := range quadletDirs {
		found, err := quadlets(root, dir, true)
		if err != nil {
			return nil, err
		}
		units = append(units, found...)
	}
	slices.Sort(units)
	return slices.Compact(units), nil
}

// quadlets returns the units of containers with nova-compute or libvirt in a folder, and with below
// in its folders.
func quadlets(root host.Root, dir string, below bool) (units []string, err error) {
	names, err := root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		return nil, fmt.Errorf("%s: %w", dir, host.Cause(err))
	}
	for _, name := range names {
		file := path.Join(dir, name)
		base, ok := strings.CutSuffix(name, ".container")
		if !ok {
			if !below {
				continue
			}
			found, err := quadlets(root, file, false)
			if errors.Is(err, unix.ENOTDIR) {
				continue
			}
			if err != nil {
				return nil, err
			}
			units = append(units, found...)
			continue
		}
		text, err := ifPresent(root, file) // podman ignores a link to a file that is gone
		if err != nil {
			return nil, err
		}
		if text == "" {
			continue
		}
		uses := usesDevices(base)
		for _, key := range []string{"Image", "ContainerName"} {
			uses = uses || slices.ContainsFunc(values(text, key), usesDevices)
		}
		if named := values(text, "ServiceName"); len(named) > 0 {
			base = named[len(named)-1]
		}
		if uses {
			units = append(units, base+".service")
		}
	}
	return units, nil
}

// values returns the words of a key's values in a unit (systemd.syntax(7)).
func values(text, key string) (words []string) {
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == key {
			words = append(words, strings.Fields(value)...)
		}
	}
	return words
}

// before returns the lines of the unit that order it before units of containers, without those that
// its template names.
func before(units []string) string {
	known := values(templates.BootUnit, "Before")
	units = slices.DeleteFunc(slices.Clone(units), func(u string) bool { return slices.Contains(known, u) })
	if len(units) == 0 {
		return ""
	}
	return "Before=" + strings.Join(units, " ") + "\n"
}

// Unordered returns the units of containers with nova-compute or libvirt that may start before the
// steps of a boot are done.
func Unordered(root host.Root) ([]string, error) {
	units, err := containerUnits(root)
	if err != nil {
		return nil, err
	}
	text, err := ifPresent(root, UnitFile)
	if err != nil {
		return nil, err
	}
	ordered := values(text, "Before")
	var unordered []string
	for _, unit := range units {
		after := false
		for _, dir := range unitDirs {
			own, err := ifPresent(root, path.Join(dir, unit))
			if err != nil {
				return nil, err
			}
			after = after || slices.Contains(values(own, "After"), Unit)
		}
		if !after && !slices.Contains(ordered, unit) {
			unordered = append(unordered, unit)
		}
	}
	return unordered, nil
}

// ifPresent returns the text of a file, or "". A unit that is masked says nothing.
func ifPresent(root host.Root, name string) (string, error) {
	if isMasked(root, name) {
		return "", nil
	}
	data, err := root.ReadFile(name)
	if err != nil && !host.IsAbsent(err) {
		return "", fmt.Errorf("%s: %w", name, host.Cause(err))
	}
	return string(data), nil
}
