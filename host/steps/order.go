package steps

import (
	"errors"
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
	for _, dir := range host.UnitDirs() {
		names, err := root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			return nil, err
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
		return nil, err
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
		if root.IsMask(file) {
			continue
		}
		data, err := root.ReadReduced(file, reducedQuadlet)
		if err != nil && !host.IsAbsent(err) {
			return nil, err
		}
		text := string(data)
		if text == "" { // podman ignores a link to a file that is gone
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

// reducedQuadlet returns what is read of a quadlet: its environment may have secrets.
func reducedQuadlet(data []byte) []byte {
	reduced := []byte("[Container]\n")
	for _, line := range assignments(string(data)) {
		name, _, _ := strings.Cut(line, "=")
		if slices.Contains([]string{"Image", "ContainerName", "ServiceName"}, strings.TrimSpace(name)) {
			reduced = append(reduced, line+"\n"...)
		}
	}
	return reduced
}

// values returns the words of a key's values in a unit (systemd.syntax(7)).
func values(text, key string) (words []string) {
	for _, line := range assignments(text) {
		if name, value, ok := strings.Cut(line, "="); ok && strings.TrimSpace(name) == key {
			words = append(words, strings.Fields(value)...)
		}
	}
	return words
}

// assignments returns the lines of a unit without comments, each together with those by which a
// backslash at its end continues it. A comment has no backslash, and does not end a line.
func assignments(text string) (lines []string) {
	whole := ""
	for line := range strings.Lines(text) {
		line = strings.TrimSuffix(line, "\n")
		if begin := strings.TrimSpace(line); begin != "" && strings.ContainsAny(begin[:1], "#;") {
			continue
		}
		bare := strings.TrimRight(line, `\`)
		if (len(line)-len(bare))%2 == 1 {
			whole += line[:len(line)-1] + " "
			continue
		}
		lines, whole = append(lines, whole+line), ""
	}
	return append(lines, whole)
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
	own, err := unitText(root, Unit)
	if err != nil {
		return nil, err
	}
	ordered := values(own, "Before")
	var unordered []string
	for _, unit := range units {
		text, err := unitText(root, unit)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(values(text, "After"), Unit) && !slices.Contains(ordered, unit) {
			unordered = append(unordered, unit)
		}
	}
	return unordered, nil
}

// unitText returns the file of a unit and its drop-ins, as far as no other file replaces them, or
// "". Drop-ins add dependencies and cannot remove any, so their order is not needed
// (systemd.unit(5)).
func unitText(root host.Root, unit string) (string, error) {
	var files []string
	for _, dir := range host.UnitDirs() {
		file := path.Join(dir, unit)
		there, err := root.Exists(file)
		if err != nil {
			return "", err
		}
		if there || root.IsMask(file) {
			files = append(files, file)
			break
		}
	}
	parts, err := dropIns(root, unit)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, file := range append(files, parts...) {
		part, err := ifPresent(root, file)
		if err != nil {
			return "", err
		}
		text.WriteString(part + "\n")
	}
	return text.String(), nil
}

// dropIns returns the drop-ins of a service, which are those of its name, of the prefixes of its
// name and of all services: of files with the same name the first one.
func dropIns(root host.Root, unit string) (files []string, err error) {
	names := []string{unit}
	stem := strings.TrimSuffix(unit, ".service")
	for i := strings.LastIndexByte(stem, '-'); i > 0; i = strings.LastIndexByte(stem[:i], '-') {
		names = append(names, stem[:i]+"-.service")
	}
	var dirs []string
	for _, top := range host.UnitDirs() {
		dirs = append(dirs, host.Map(names, func(name string) string { return path.Join(top, name+".d") })...)
	}
	dirs = append(dirs, host.Map(host.UnitDirs(), func(top string) string { return path.Join(top, "service.d") })...)
	seen := map[string]bool{}
	for _, dir := range dirs {
		found, err := root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			return nil, err
		}
		for _, name := range found {
			if path.Ext(name) == ".conf" && !seen[name] {
				seen[name] = true
				files = append(files, path.Join(dir, name))
			}
		}
	}
	return files, nil
}

// ifPresent returns the text of a file, or "". A unit that is masked says nothing.
func ifPresent(root host.Root, name string) (string, error) {
	if root.IsMask(name) {
		return "", nil
	}
	data, err := host.IfPresent(root.ReadFile(name))
	return string(data), err
}
