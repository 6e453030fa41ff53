package cdi

import (
	"maps"
	"slices"

	"tags.cncf.io/container-device-interface/pkg/parser"
)

// resolve finds the device that each name leads to, as the library does (v1.1.1, Cache.refresh): a
// later folder takes the place of an earlier one, and a name that stands twice in one folder leads
// to no device at all, not even to that of the other folder.
func (f *Folders) resolve() {
	type claim struct {
		file     string
		priority int
	}
	claims := map[string][]claim{}
	for _, file := range f.Files {
		if !file.Used() {
			continue
		}
		vendor, class := parser.ParseQualifier(file.Spec.Kind)
		for _, d := range file.Spec.Devices {
			name := parser.QualifiedName(vendor, class, d.Name)
			claims[name] = append(claims[name], claim{file.Path, file.Priority})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(claims)) {
		all := claims[name]
		d := Device{Name: name}
		for i, c := range all {
			same := slices.ContainsFunc(all, func(o claim) bool { return o != c && o.priority == c.priority })
			switch {
			case same:
				d.Conflicts = append(d.Conflicts, c.file)
			case i == len(all)-1:
				d.File = c.file
			default:
				d.Shadows = append(d.Shadows, c.file)
			}
		}
		if len(d.Conflicts) > 0 {
			d.File, d.Shadows = "", nil
		}
		f.devices = append(f.devices, d)
	}
}
