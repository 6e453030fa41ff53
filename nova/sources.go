package nova

import (
	"errors"
	"fmt"
	"path"
	"slices"

	"gpustack/host"
	"gpustack/host/edit"
	"gpustack/nova/conf"
)

// Place is where the configuration is.
type Place struct {
	File   string // nova.conf
	Given  bool   // the operator has named File: files that deployment tools generate are not searched for
	DropIn bool   // new options are written to a file of their own in nova.conf.d
}

// dropInName is the name of our file in nova.conf.d. It sorts last.
const dropInName = "zz-gpustack.conf"

// ours returns the file that gpustack writes in nova.conf.d.
func (p Place) ours() string {
	return path.Join(path.Dir(p.File), dropInDir, dropInName)
}

// sources are the files of a machine as its services read them, and where a plan may write. No step
// of a plan changes them.
type sources struct {
	Side
	place Place
}

// setting is what a step sets in a file, and the programs to restart if that changes the file.
type setting struct {
	file string
	conf.Setting
	programs []string
}

// step is what one step of a plan sets in the files, and what it notes. With an error it sets
// nothing.
type step struct {
	notes
	settings []setting
	err      error
}

// newSources returns files that services read, or without any an empty one that is called main.
func newSources(o Options, main string, files []conf.Source) sources {
	if files == nil {
		files = []conf.Source{{Name: main, File: &conf.File{}}}
	}
	return sources{Side{Role: o.Role, Files: files, Hypervisor: o.Hypervisor}, Place{File: main}}
}

// readSources reads all files that the services read, in their order.
func readSources(root host.Root, o Options, w Want, place Place) (sources, error) {
	names, err := Files(root, place.File, o.Role)
	if err != nil {
		return sources{}, err
	}
	ours := place.ours()
	if place.DropIn && !slices.Contains(names, ours) {
		at := slices.IndexFunc(names, func(n string) bool { // the first file that is read after it
			return FileGroup(n) != "" && (path.Dir(n) != path.Dir(ours) || n > ours)
		})
		if at < 0 {
			at = len(names)
		}
		names = slices.Insert(names, at, ours)
	}
	side, err := SideFiles{o.Role, names}.read(func(name string) (*conf.File, error) {
		f, err := edit.Read(root, name)
		switch {
		case err != nil:
			return nil, err
		case f == nil && name == ours:
			f = &edit.File{Content: []byte(ownHeader)}
		case f == nil && name == place.File:
			return nil, fmt.Errorf("%s: %w", name, errNoConf)
		case f == nil:
			return nil, nil
		}
		if owner, where := o.owner(name, f.Content, w); owner != "" {
			return nil, &OwnedError{File: name, Owner: owner, Where: where}
		}
		return parseConf(name, f.Content)
	})
	side.Hypervisor = o.Hypervisor
	return sources{side, place}, errors.Join(place.strays(root, o), err)
}

// strays returns an error for each file outside /etc/nova that a service may read and that hides a
// file of /etc/nova or sets an option of the plan.
func (p Place) strays(root host.Root, o Options) error {
	if p.File != DefaultConf {
		return nil
	}
	strays, err := Elsewhere(root, o.Role)
	errs := []error{err}
	for _, s := range strays {
		if s.Hides != "" {
			errs = append(errs, fmt.Errorf("%s: hides %s: %w", s.Name, s.Hides, ErrHidden))
			continue
		}
		side, err := ReadSide(root, o.Role, s.Files)
		errs = append(errs, err)
		for _, line := range side.Find(o.Release.names()...) {
			errs = append(errs, fmt.Errorf("%s:%d: sets %s: %w", line.File, line.Line(), line.Key, ErrHidden))
		}
	}
	return errors.Join(errs...)
}

// of returns the files that one of the programs reads.
func (s sources) of(programs ...string) []conf.Source {
	return filesOf(s.Files, s.place.File, programs)
}

// serves reports whether all of the programs read a file, however they are started: command lines
// of packages name nova.conf and nova-compute.conf, and no PROGRAM.conf of other programs.
func (s sources) serves(file string, programs []string) bool {
	by := ReadBy(file, s.place.File)
	isSure := by == programCompute || FileGroup(file) != ""
	return by == "" || isSure && !slices.ContainsFunc(programs, func(program string) bool { return program != by })
}

// target returns the file that new options are written to.
func (s sources) target() conf.Source {
	name := s.place.File
	if s.place.DropIn {
		name = s.place.ours()
	}
	return s.Files[slices.IndexFunc(s.Files, func(f conf.Source) bool { return f.Name == name })]
}

// isFixed reports whether a file must stay as it is.
func (s sources) isFixed(file string) bool {
	return s.place.DropIn && file != s.place.ours() || isPackaged(file)
}

// fixed returns the error of an option that would have to change in a file if that must stay as it
// is. what and why describe the change.
func (s sources) fixed(file string, line int, what, why string) error {
	switch {
	case !s.isFixed(file):
		return nil
	case isPackaged(file):
		return fmt.Errorf("%s:%d: %s %s, but the file %w", file, line, what, why, ErrPackaged)
	}
	return fmt.Errorf("%s:%d: %s %s: %w", file, line, what, why, ErrDropIn)
}

// each sets an option for programs in every file of theirs that sets it, so that precedence does
// not matter, to what is wanted instead of its value. If no file that all of them read sets it, the
// target does too.
func (s sources) each(names []conf.Name, want func(have string, set bool) string, same func(have, want string) bool, programs ...string) (st step) {
	set := func(file, value string) {
		st.settings = append(st.settings, setting{file, conf.Setting{Names: names, Values: []string{value}, Same: same}, programs})
	}
	found := false
	packaged, isPackagedSet := "", false // what counts where no other file sets the option
	for _, f := range s.of(programs...) {
		// The first name that is set counts, and of that the last line.
		for _, n := range names {
			options := f.File.Find(n)
			if len(options) == 0 {
				continue
			}
			have := options[len(options)-1]
			if isPackaged(f.Name) {
				packaged, isPackagedSet = have.Value, true
				break
			}
			found = found || s.serves(f.Name, programs)
			value := want(have.Value, true)
			if s.isFixed(f.Name) && (n != names[0] || !same(have.Value, value)) {
				return step{err: s.fixed(f.Name, have.Line(), have.Key, "is set, and which of two values takes effect depends on how Nova is started")}
			}
			set(f.Name, value)
			break
		}
	}
	if !found {
		set(s.target().Name, want(packaged, isPackagedSet))
	}
	return st
}

// setAll sets an option for programs in the files that may change: values has all its values by
// file.
func (s sources) setAll(names []conf.Name, values map[string][]string, programs ...string) (settings []setting) {
	for _, f := range s.of(programs...) {
		if !s.isFixed(f.Name) {
			settings = append(settings, setting{f.Name, conf.Setting{Names: names, Values: values[f.Name], Multi: true, Same: sameButBreaks}, programs})
		}
	}
	return settings
}

// with returns the files with what steps set, and the programs to restart. The error joins those of
// all steps.
func (s sources) with(steps ...step) (after Side, restart []string, err error) {
	after = s.Side
	after.Files = slices.Clone(s.Files)
	var errs []error
	for _, st := range steps {
		errs = append(errs, st.err)
		for _, set := range st.settings {
			f := &after.Files[slices.IndexFunc(after.Files, func(f conf.Source) bool { return f.Name == set.file })]
			file, err := f.File.Set(set.Setting)
			if err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", f.Name, err))
				break
			}
			if file != f.File {
				f.File, restart = file, append(restart, set.programs...)
			}
		}
	}
	return after, restart, errors.Join(errs...)
}

// after returns the files with what one step sets. An error of the step is left to with.
func (s sources) after(st step) Side {
	after, _, _ := s.with(st)
	return after
}

// changes reports whether a step changes a file.
func (s sources) changes(st step) bool {
	return !slices.Equal(s.after(st).Files, s.Files)
}
