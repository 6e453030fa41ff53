package startup

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// KollaFile is the drop-in of every unit of kolla-ansible's containers in podman,
// kolla-NAME-container.service (kolla-ansible, ansible/module_utils/kolla_systemd_worker.py; a
// folder named by the part before a dash is for all units that begin with it, systemd.unit(5)).
const KollaFile = "/etc/systemd/system/kolla-.service.d/gpustack-boot.conf"

const (
	kollaDir    = "/etc/kolla"
	kollaPrefix = "kolla-"
)

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
			if _, err := root.ReadDir(file); below && err == nil {
				found, err := quadlets(root, file, false)
				if err != nil {
					return nil, err
				}
				units = append(units, found...)
			}
			continue
		}
		data, err := root.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, host.Cause(err))
		}
		text := string(data)
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

// before returns the lines of the unit that order it before units of containers, without kolla's,
// which a drop-in orders.
func before(units []string) string {
	units = slices.DeleteFunc(slices.Clone(units), func(u string) bool { return strings.HasPrefix(u, kollaPrefix) })
	if len(units) == 0 {
		return ""
	}
	return "Before=" + strings.Join(units, " ") + "\n"
}

// isKolla reports whether kolla-ansible deploys a machine.
func isKolla(root host.Root, units []string) (bool, error) {
	there, err := root.Exists(kollaDir)
	if err != nil {
		return false, fmt.Errorf("%s: %w", kollaDir, host.Cause(err))
	}
	return there || slices.ContainsFunc(units, func(u string) bool { return strings.HasPrefix(u, kollaPrefix) }), nil
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
	dropIn, err := ifPresent(root, KollaFile)
	if err != nil {
		return nil, err
	}
	ordered := values(text, "Before")
	var unordered []string
	for _, unit := range units {
		after := strings.HasPrefix(unit, kollaPrefix) && slices.Contains(values(dropIn, "After"), Unit)
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
