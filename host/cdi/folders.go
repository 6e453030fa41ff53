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
	DefaultGPUKind = "gpustack.local/gpu"
	DefaultHCAKind = "gpustack.local/hca"
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
	varRunFolder  = "/var/run/cdi"
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
	nodes   map[string]nodeState // by path on the machine: every node that a spec names
}

// Device is a device that a runtime can be asked for by name, or a name that leads to none.
type Device struct {
	Name      string   // qualified, as in "nvidia.com/gpu=0"
	File      string   // the file that wins; "" if Conflicts is not empty
	Shadows   []string // files of an earlier folder with the same name
	Conflicts []string // files of one folder with the same name: runtimes remove the device
}

// Read reads and judges the specs of a machine. Folders that do not exist are empty ones. A folder
// or file that cannot be read is a problem of its own, and the error is only for a root that cannot
// be used at all.
func Read(root host.Root) (Folders, error) {
	r := reader{root: root, nodes: map[string]nodeState{}, paths: map[string]fileState{}}
	dirs, err := r.folders()
	if err != nil {
		return Folders{}, err
	}
	for priority, dir := range dirs {
		if !r.folder(dir, priority, dirs[priority+1:]) {
			break
		}
	}
	r.files()
	r.out.nodes = r.nodes
	r.out.resolve()
	return r.out, nil
}

// reader reads specs, and asks for each path that they name once.
type reader struct {
	root  host.Root
	out   Folders
	nodes map[string]nodeState
	paths map[string]fileState
}

// folders returns the folders that runtimes read. A tree without /var/run is taken for a machine
// whose /var/run leads to /run.
func (r *reader) folders() ([]string, error) {
	linked, err := r.root.Real("var/run")
	if err != nil {
		return nil, err
	}
	if linked == "/run" {
		return []string{StaticFolder, DynamicFolder}, nil
	}
	present, err := r.root.Exists("var/run")
	if err != nil {
		return nil, err
	}
	if !present {
		return []string{StaticFolder, DynamicFolder}, nil
	}
	if names, err := r.root.ReadDir(DynamicFolder); err == nil {
		for _, name := range names {
			r.out.Problems = append(r.out.Problems, Problem{
				File: path.Join(DynamicFolder, name), Kind: Ignored, Status: host.Warn, Skipped: true,
				Reason: "runtimes read /var/run/cdi, and /var/run is not a link to /run on this machine",
			})
		}
	}
	return []string{StaticFolder, varRunFolder}, nil
}

// folder adds the files of a folder, which are read later. It reports whether runtimes go on to the
// next folders: they stop at one that they cannot read (CDI library v1.1.1, scanSpecDirs), which is
// another matter than a permission that this process does not have.
func (r *reader) folder(dir string, priority int, next []string) bool {
	names, err := r.root.ReadDir(dir)
	if host.IsAbsent(err) {
		return true
	}
	if err != nil {
		p := Problem{File: dir, Kind: Unreadable, Status: host.Fail, Reason: fmt.Sprintf("the folder cannot be read: %v", host.Cause(err))}
		p.Denied = errors.Is(err, fs.ErrPermission)
		stops := !p.Denied
		if stops && len(next) > 0 {
			p.Reason += "; runtimes stop here and do not read " + strings.Join(next, ", ")
		}
		r.out.Problems = append(r.out.Problems, p)
		return !stops
	}
	for _, name := range names {
		file := path.Join(dir, name)
		switch ext := path.Ext(name); {
		case ext == ".json" || ext == ".yaml":
			if !r.isDir(file) {
				r.out.Files = append(r.out.Files, File{Path: file, Priority: priority})
			}
		case slices.Contains([]string{".yml", ".json", ".yaml"}, strings.ToLower(ext)):
			r.out.Problems = append(r.out.Problems, Problem{
				File: file, Kind: Ignored, Status: host.Warn, Skipped: true,
				Reason: fmt.Sprintf("runtimes read .yaml and .json files only and silently ignore %s", ext),
			})
		}
	}
	return true
}

// isDir reports whether a name in a folder of specs is a folder itself, which runtimes ignore. A
// link to a folder is none to them, but a file that cannot be read.
func (r *reader) isDir(file string) bool {
	dir, err := r.root.OpenDir(path.Dir(file))
	if err != nil {
		return false
	}
	defer dir.Close() //nolint:errcheck // only read from
	sub, target, err := dir.Enter(path.Base(file))
	if err != nil {
		return false
	}
	return sub.Close() == nil && target == ""
}

// Devices returns the devices of all files that runtimes use, sorted by name.
func (f Folders) Devices() []Device {
	return slices.Clone(f.devices)
}

// All returns every problem: those of folders, then those of files.
func (f Folders) All() []Problem {
	all := slices.Clone(f.Problems)
	for _, file := range f.Files {
		all = append(all, file.Problems...)
	}
	return all
}
