package nova

import (
	"fmt"
	"path"
	"slices"
	"strings"

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
	options []conf.Setting
}

// kolla is what is wanted on machines that kolla-ansible configures.
type kolla struct {
	Options
	want Want
}

// files returns the files in which kolla-ansible reads what is wanted. Each has all values of
// its options, also those that the generated files have now, since it replaces them.
//
// Errors: those of [NewPlan] about the generated files.
func (k kolla) files() (files []kollaFile, err error) {
	r := k.Release
	single := func(name conf.Name, value string) conf.Setting {
		return conf.Setting{Names: []conf.Name{name}, Values: []string{value}}
	}
	if k.Role.Controls() {
		api, err := k.planned(programAPI)
		if err != nil {
			return nil, err
		}
		enabled, available, _ := k.rendered(k.want)
		files = append(files, kollaFile{"nova/nova-api.conf", programAPI, []conf.Setting{api.all(r.AliasNames()[0])}},
			kollaFile{"nova/nova-scheduler.conf", programScheduler, []conf.Setting{
				single(r.FilterNames()[0], strings.Join(enabled, ",")),
				{Names: r.availableNames()[:1], Values: available, Multi: true},
			}})
		if k.Placement && r >= Antelope {
			files = append(files, kollaFile{path: "nova/nova-conductor.conf", reader: programConductor})
			for i := range files {
				files[i].options = append(files[i].options, single(PCIInPlacement, "true"))
			}
		}
	}
	if !k.Role.Computes() {
		return files, nil
	}
	compute, err := k.planned(programCompute)
	if err != nil {
		return nil, err
	}
	aliases, specs := []conf.Setting{compute.all(r.AliasNames()[0])}, []conf.Setting{compute.all(r.SpecNames()[0])}
	file := k.place(compute)
	if k.Placement {
		specs = append(specs, single(ReportInPlacement, "true"))
	}
	if file == kollaHostAll { // nova-api and nova-scheduler of the host read it too
		files = append(files, kollaFile{kollaCompute, programCompute, aliases})
	} else {
		specs = append(aliases, specs...)
	}
	return append(files, kollaFile{file, programCompute, specs}), nil
}

// planned returns the files that kolla-ansible has generated for a program, as a plan leaves them.
// Their lines with an older name of an option are of kolla-ansible's template, where they remain.
func (k kolla) planned(program string) (Side, error) {
	o := k.Options
	if o.Role = Controller; program == programCompute {
		o.Role = Compute
	}
	older := conf.Setting{Names: slices.Concat(k.Release.AliasNames()[1:], k.Release.SpecNames()[1:])} // is removed
	var files []conf.Source
	for _, f := range k.generatedFor(program) {
		file, err := f.File.Set(older)
		if err != nil {
			return Side{}, fmt.Errorf("%s: %w", f.Name, err)
		}
		files = append(files, conf.Source{Name: f.Name, File: file})
	}
	read := newSources(o, kollaDir+program+"/nova.conf", files)
	aliases := planAliases(read, o, k.want.Aliases)
	after, _, err := read.with(aliases, planSpecs(read, o, read.after(aliases), k.want.Specs))
	return after, err
}

// all returns an option of several values with those that the side has.
func (s Side) all(name conf.Name) conf.Setting {
	setting := conf.Setting{Names: []conf.Name{name}, Multi: true}
	for _, o := range s.Find(name) {
		setting.Values = append(setting.Values, o.Value)
	}
	return setting
}

// place returns the file for all device specs: that of one host for specs by address, which
// the generated file may have too, or with tags, else that of all compute hosts.
func (k kolla) place(planned Side) string {
	isOfHost := slices.ContainsFunc(k.want.Specs, func(s Spec) bool {
		return s != Spec{VendorID: s.VendorID, ProductID: s.ProductID} && len(k.Hosts) <= 1
	}) || slices.ContainsFunc(devspec.Lines(planned.Files, k.Release.SpecNames()), func(l devspec.Line) bool {
		return slices.ContainsFunc(l.Specs, func(s devspec.Spec) bool { return !s.Everywhere() })
	})
	switch {
	case !isOfHost:
		return kollaCompute
	case k.Release >= Bobcat:
		return kollaHostCompute
	}
	return kollaHostAll
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
		if err == nil && len(option.Values) > 0 {
			file, err = file.Set(option)
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
	if slices.ContainsFunc(f.options, func(option conf.Setting) bool { return option.Multi && len(option.Values) > 0 }) {
		source := "add those of other files"
		if k.generatedFor(f.reader) != nil {
			source = "those of " + kollaDir + f.reader + "/nova.conf are here too"
		}
		text += "# It replaces all lines of an option: " + source + ".\n"
	}
	return text
}

// path returns where an operator sets what is wanted of a file that kolla-ansible generates, ""
// if nothing of it is for that file.
func (k kolla) path(file string) (string, error) {
	files, err := k.files()
	var paths []string
	for _, f := range files {
		if f.reader == path.Base(path.Dir(file)) {
			paths = append(paths, f.path)
		}
	}
	if paths == nil {
		return "", err
	}
	return strings.Join(paths, " and ") + " in the folder node_custom_config (/etc/kolla/config)", err
}
