package cdi

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"tags.cncf.io/container-device-interface/pkg/parser"

	"gpustack/host"
)

// claim is a device of a file that runtimes use.
type claim struct {
	file  *File
	index int // in the file's list
}

// resolve finds the device that each name leads to, as the library does (v1.1.1, Cache.refresh): a
// later folder takes the place of an earlier one, and a name that appears twice in one folder leads
// to no device at all, not even to that of the other folder. The library reports the second only.
func (f *Folders) resolve() {
	claims := map[string][]claim{}
	kinds := map[string][]*File{}
	for i := range f.Files {
		file := &f.Files[i]
		if !file.Used() {
			continue
		}
		kinds[file.Spec.Kind] = append(kinds[file.Spec.Kind], file)
		for n := range file.Spec.Devices {
			name := file.deviceName(n)
			claims[name] = append(claims[name], claim{file, n})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		f.devices = append(f.devices, decide(name, claims[name]))
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		f.otherFolder(kind, kinds[kind])
	}
}

// deviceName returns the qualified name of a device of the file.
func (f *File) deviceName(n int) string {
	vendor, class := parser.ParseQualifier(f.Spec.Kind)
	return parser.QualifiedName(vendor, class, f.Spec.Devices[n].Name)
}

// decide returns the device of a name, and adds the conflicts to the files.
func decide(name string, all []claim) Device {
	d := Device{Name: name}
	for i, c := range all {
		twin := slices.IndexFunc(all, func(o claim) bool { return o.file != c.file && o.file.Priority == c.file.Priority })
		if twin < 0 {
			if i == len(all)-1 {
				d.File = c.file.Path
			} else {
				d.Shadows = append(d.Shadows, c.file.Path)
			}
			continue
		}
		d.Conflicts = append(d.Conflicts, c.file.Path)
		c.file.problem(c.index, Problem{
			Kind: Conflict, Status: host.Fail, Device: name,
			Reason:  fmt.Sprintf("%s also defines the device: runtimes resolve a name that appears twice in a folder to no device", all[twin].file.Path),
			Library: fmt.Sprintf("conflicting device %q", name),
		})
	}
	if len(d.Conflicts) > 0 {
		d.File, d.Shadows = "", nil
	}
	return d
}

// problem adds a problem with the name of a device.
func (f *File) problem(device int, p Problem) {
	p.File, p.Field = f.Path, fmt.Sprintf("devices[%d].name", device)
	f.Problems = append(f.Problems, p)
}

// otherFolder adds, to each file of the first folder, that its kind is used in the other one too.
// No runtime reports it.
func (f *Folders) otherFolder(kind string, files []*File) {
	last := files[len(files)-1]
	for _, file := range files {
		if file.Priority == last.Priority {
			continue
		}
		var others, lost []string
		others = host.Map(host.Filter(files, func(o *File) bool { return o.Priority > file.Priority }),
			func(o *File) string { return o.Path })
		for n := range file.Spec.Devices {
			name := file.deviceName(n)
			if slices.ContainsFunc(f.devices, func(d Device) bool { return d.Name == name && d.File != "" && d.File != file.Path }) {
				lost = append(lost, name)
			}
		}
		p := Problem{File: file.Path, Field: "kind", Kind: Shadowed, Status: host.Warn}
		if len(lost) == 0 {
			p.Reason = fmt.Sprintf("%s is also used in %s, where a device of the same name would take precedence", kind, strings.Join(others, ", "))
		} else {
			p.Device = lost[0]
			p.Reason = fmt.Sprintf("%s is also used in %s, which takes precedence for %s", kind, strings.Join(others, ", "), strings.Join(lost, ", "))
		}
		file.Problems = append(file.Problems, p)
	}
}
