package cdi

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
)

// Kinds of the specs that gpustack writes. They are its own: beside nvidia-cdi-refresh, the same
// kind in /etc/cdi would be shadowed by /run/cdi, and in the same folder both would be lost.
const (
	GPUKind = "gpustack.local/gpu"
	HCAKind = "gpustack.local/hca"
)

// Names of the files of the specs that gpustack writes, one for each kind of device.
const (
	GPUFile = "gpustack-gpu.json"
	HCAFile = "gpustack-hca.json"
)

// The folders of specs, in the order in which a later one takes a device's place (CDI library
// v1.1.1, DefaultSpecDirs). The library names the second one /var/run/cdi; /var/run is a link to
// /run (file-hierarchy(7)), so both names are one folder, and the short one stands in results.
const (
	StaticFolder  = "/etc/cdi" // survives a boot
	DynamicFolder = "/run/cdi" // written at every boot
)

// File is one file of specs.
type File struct {
	Path     string
	Priority int         // of its folder: a higher one takes a device's place
	Spec     *specs.Spec // nil if the file cannot be parsed
	Problems []Problem   // in the order of the file
}

// Used reports whether runtimes use the file's devices.
func (f File) Used() bool {
	return f.Spec != nil && !slices.ContainsFunc(f.Problems, func(p Problem) bool { return p.Skipped })
}

// Folders is what both folders contain, and what the specs need of the machine.
type Folders struct {
	Files    []File    // those that runtimes read, in the order of their folders and names
	Problems []Problem // of folders, and of files that runtimes ignore

	devices []Device
}

// Device is a device that a runtime can be asked for by name, or a name that leads to none.
type Device struct {
	Name      string   // qualified, as in "nvidia.com/gpu=0"
	File      string   // the file that wins; "" if Conflicts is not empty
	Shadows   []string // files of an earlier folder with the same name
	Conflicts []string // files of one folder with the same name: runtimes remove the device
}

// Read reads and judges the specs of a machine. Folders that do not exist are empty ones. A folder
// or file that cannot be read is a problem of its own.
func Read(root host.Root) Folders {
	r := reader{root: root}
	for priority, dir := range []string{StaticFolder, DynamicFolder} {
		r.folder(dir, priority)
	}
	r.files()
	r.out.resolve()
	return r.out
}

// reader reads specs.
type reader struct {
	root host.Root
	out  Folders
}

// folder adds the files of a folder, which are read later.
func (r *reader) folder(dir string, priority int) {
	names, err := r.root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		r.out.Problems = append(r.out.Problems, Problem{File: dir, Kind: Unreadable, Status: host.Fail, Denied: errors.Is(err, fs.ErrPermission),
			Reason: fmt.Sprintf("the folder cannot be read: %v", host.Cause(err))})
	}
	for _, name := range names {
		file := path.Join(dir, name)
		mode, _, err := r.root.Mode(file)
		switch ext := path.Ext(name); {
		case err == nil && mode.IsDir(): // which runtimes ignore
		case ext == ".json" || ext == ".yaml":
			r.out.Files = append(r.out.Files, File{Path: file, Priority: priority})
		case slices.Contains([]string{".yml", ".json", ".yaml"}, strings.ToLower(ext)):
			r.out.Problems = append(r.out.Problems, Problem{
				File: file, Kind: Ignored, Status: host.Warn, Skipped: true,
				Reason: fmt.Sprintf("runtimes read .yaml and .json files only and silently ignore %s", ext),
			})
		}
	}
}

// Devices returns the devices of all files that runtimes use, sorted by name.
func (f Folders) Devices() []Device {
	return slices.Clone(f.devices)
}

// All returns every problem: those of folders, then those of files.
func (f Folders) All() []Problem {
	all := slices.Clone(f.Problems)
	all = append(all, host.FlatMap(f.Files, func(file File) []Problem { return file.Problems })...)
	return all
}
