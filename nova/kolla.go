package nova

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// kolla-ansible merges nova.conf of a compute host from its template, nova.conf,
// nova/nova-compute.conf, nova/INVENTORY_HOSTNAME/nova.conf (of every Nova service of that host)
// and, since 17.0.0 (2023.2), nova/INVENTORY_HOSTNAME/nova-compute.conf in the folder
// node_custom_config. A key of a later file replaces all its values (kolla-ansible,
// ansible/roles/nova-cell/tasks/config.yml; ansible/action_plugins/merge_configs.py).
const (
	kollaHost        = "INVENTORY_HOSTNAME"
	kollaCompute     = "nova/nova-compute.conf"
	kollaHostAll     = "nova/" + kollaHost + "/nova.conf"
	kollaHostCompute = "nova/" + kollaHost + "/nova-compute.conf"
)

// kollaFile is a file in the folder node_custom_config of kolla-ansible.
type kollaFile struct {
	path    string
	reader  string // the program whose generated file gets the options
	options []kollaOption
}

// kollaOption is all values of one option.
type kollaOption struct {
	name    conf.Name
	values  []string
	isMulti bool
}

// kolla is what is wanted on machines that kolla-ansible configures.
type kolla struct {
	Options
	want Want
}

// files returns the files in which kolla-ansible reads what is wanted. Each has all values of
// its options, also those that the generated files have now, since it replaces them.
func (k kolla) files() (files []kollaFile, err error) {
	aliases, err := k.aliases()
	if err != nil {
		return nil, err
	}
	inPlacement := kollaOption{PCIInPlacement, []string{"true"}, false}
	isAsked := k.Placement && k.Release >= Antelope
	if k.Role.Controls() {
		of := k.rendered(k.want)
		filters := kollaOption{k.Release.FilterNames()[0], []string{strings.Join(of.enabled, ",")}, false}
		available := kollaOption{k.Release.availableNames()[0], of.available, true}
		files = append(files, kollaFile{"nova/nova-api.conf", programAPI, []kollaOption{aliases(programAPI)}},
			kollaFile{"nova/nova-scheduler.conf", programScheduler, []kollaOption{filters, available}})
		if isAsked {
			files = append(files, kollaFile{path: "nova/nova-conductor.conf", reader: programConductor})
			for i := range files {
				files[i].options = append(files[i].options, inPlacement)
			}
		}
	}
	if !k.Role.Computes() {
		return files, nil
	}
	specs, err := k.specs()
	if err != nil {
		return nil, err
	}
	ofSpecs := []kollaOption{specs}
	if k.Placement {
		ofSpecs = append(ofSpecs, kollaOption{ReportInPlacement, []string{"true"}, false})
	}
	file := k.place(specs)
	if file == kollaHostAll { // nova-api and nova-scheduler of the host read it too
		files = append(files, kollaFile{kollaCompute, programCompute, []kollaOption{aliases(programCompute)}})
	} else {
		ofSpecs = append([]kollaOption{aliases(programCompute)}, ofSpecs...)
	}
	return append(files, kollaFile{file, programCompute, ofSpecs}), nil
}

// place returns the file for all device specs: that of one host for specs by address, which
// the generated file may have too, or with tags, else that of all compute hosts.
func (k kolla) place(all kollaOption) string {
	isOfHost := slices.ContainsFunc(k.want.Specs, func(s Spec) bool {
		return s != Spec{VendorID: s.VendorID, ProductID: s.ProductID} && len(k.Hosts) <= 1
	}) || slices.ContainsFunc(all.values, isByAddress)
	switch {
	case !isOfHost:
		return kollaCompute
	case k.Release >= Bobcat:
		return kollaHostCompute
	}
	return kollaHostAll
}

// isByAddress reports whether a value of device_spec names functions of one host.
func isByAddress(value string) bool {
	return slices.ContainsFunc(conf.ParseObjects(value), func(object map[string]any) bool {
		spec, _ := devspec.Parse(object)
		return !spec.Everywhere()
	})
}

// aliases returns a function that returns the option alias for a program: the aliases that its
// generated file has under other names, and those that are wanted.
func (k kolla) aliases() (func(program string) kollaOption, error) {
	var wanted []string
	for _, a := range k.want.Aliases {
		text, err := conf.FormatJSON(a)
		if err != nil {
			return nil, err
		}
		wanted = append(wanted, text)
	}
	name := k.Release.AliasNames()[0]
	return func(program string) kollaOption {
		var values []string
		for _, existing := range k.generated(program, name) {
			objects := conf.ParseObjects(existing.Value)
			isReplaced := len(objects) == 1 && slices.ContainsFunc(append(namesOfAliases(k.want.Aliases), k.Remove...), func(n string) bool { return n == objects[0]["name"] })
			if !isReplaced {
				values = append(values, onOneLine(existing.Value))
			}
		}
		return kollaOption{name, append(values, wanted...), true}
	}, nil
}

func namesOfAliases(aliases []Alias) (names []string) {
	for _, a := range aliases {
		names = append(names, a.Name)
	}
	return names
}

// specs returns the option device_spec: the specs that the generated file of nova-compute has,
// and those that are wanted, each before the first one that would shadow it. A wanted spec replaces
// one of its product by ids, and an equal one.
func (k kolla) specs() (kollaOption, error) {
	name := k.Release.SpecNames()[0]
	h := devspec.NewHardware(k.Devices, k.Interfaces)
	type line struct {
		text  string
		specs []devspec.Spec
	}
	var lines []line
	var wanted []devspec.Spec
	for _, s := range k.want.Specs {
		spec, err := parsed(s)
		if err != nil {
			return kollaOption{}, err
		}
		wanted = append(wanted, spec)
	}
	for _, existing := range k.generated(programCompute, name) {
		l := line{text: onOneLine(existing.Value)}
		for _, object := range conf.ParseObjects(existing.Value) {
			spec, _ := devspec.Parse(object)
			l.specs = append(l.specs, spec)
		}
		isReplaced := len(l.specs) == 1 && slices.ContainsFunc(wanted, func(s devspec.Spec) bool {
			isProduct := l.specs[0].Vendor == s.Vendor && l.specs[0].Product == s.Product && l.specs[0].Everywhere()
			return isProduct || h.Contains(s, l.specs[0]) && h.Contains(l.specs[0], s)
		})
		if !isReplaced {
			lines = append(lines, l)
		}
	}
	for i, s := range wanted {
		text, err := conf.FormatJSON(k.want.Specs[i])
		if err != nil {
			return kollaOption{}, err
		}
		at := slices.IndexFunc(lines, func(l line) bool {
			return slices.ContainsFunc(l.specs, func(other devspec.Spec) bool { return h.Contains(other, s) })
		})
		if at < 0 {
			at = len(lines)
		}
		lines = slices.Insert(lines, at, line{text, []devspec.Spec{s}})
	}
	option := kollaOption{name: name, isMulti: true}
	for _, l := range lines {
		option.values = append(option.values, l.text)
	}
	return option, nil
}

// generated returns the values of an option in the file that kolla-ansible has generated for
// a program of this machine, none where the program's file is for other hosts.
func (k kolla) generated(program string, name conf.Name) (values []conf.Option) {
	for _, f := range k.generatedFor(program) {
		values = append(values, f.File.Find(name)...)
	}
	return values
}

// generatedFor returns the files that kolla-ansible has generated for a program of the hosts that
// the plan serves, as far as they are of this machine.
func (k kolla) generatedFor(program string) (files []conf.Source) {
	if program == programCompute && k.elsewhere() != nil {
		return nil
	}
	for _, f := range k.Generated {
		if strings.HasPrefix(f.Name, kollaDir+program+"/") {
			files = append(files, f)
		}
	}
	return files
}

// RenderKolla returns what is wanted as files of kolla-ansible's folder node_custom_config, each
// below a comment with its path.
func RenderKolla(o Options, w Want) (string, error) {
	k := kolla{o, w}
	files, err := k.files()
	if err != nil {
		return "", err
	}
	var parts []string
	for _, f := range files {
		text, err := f.ini()
		if err != nil {
			return "", err
		}
		parts = append(parts, f.comments(k)+text)
	}
	return strings.Join(parts, "\n"), nil
}

func (f kollaFile) ini() (string, error) {
	file, err := conf.Parse(nil)
	for _, option := range f.options {
		if err == nil && len(option.values) > 0 {
			file, err = file.Set(conf.Setting{Names: []conf.Name{option.name}, Values: option.values, Multi: option.isMulti})
		}
	}
	if err != nil {
		return "", err
	}
	return string(file.Bytes()), nil
}

// comments returns what an operator must know of the file.
func (f kollaFile) comments(k kolla) string {
	text := fmt.Sprintf("# For kolla-ansible: %s in the folder node_custom_config.\n", f.path)
	if strings.Contains(f.path, kollaHost) {
		whose := "this host"
		if names := k.elsewhere(); names != nil {
			whose = strings.Join(names, " or ")
		}
		text += "# " + kollaHost + " stands for the name of " + whose + " in kolla-ansible's inventory.\n"
	}
	if slices.ContainsFunc(f.options, func(option kollaOption) bool { return option.isMulti && len(option.values) > 0 }) {
		source := "add those of other files"
		if k.generatedFor(f.reader) != nil {
			source = "those of " + kollaDir + f.reader + "/nova.conf are here too"
		}
		text += "# It replaces all lines of an option: " + source + ".\n"
	}
	return text
}

// ReadGenerated returns the files that deployment tools have generated for the services of a role
// on the machine below root. The error joins those of all files.
func ReadGenerated(root host.Root, role Role) (files []conf.Source, err error) {
	installations, err := generated(root, role)
	errs := []error{err}
	for _, in := range installations {
		side, err := ReadSide(root, in.Role, in.Files)
		errs = append(errs, err)
		if err == nil {
			files = append(files, side.Files...)
		}
	}
	return files, errors.Join(errs...)
}

// path returns where an operator sets what is wanted of a file that kolla-ansible generates, ""
// if nothing of it is for that file.
func (k kolla) path(file string) string {
	files, err := k.files()
	if err != nil {
		return ""
	}
	var paths []string
	for _, f := range files {
		if f.reader == path.Base(path.Dir(file)) {
			paths = append(paths, f.path)
		}
	}
	return strings.Join(paths, " and ")
}
