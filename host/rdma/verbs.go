package rdma

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// Verbs are the parts of libibverbs in the file system: what it is configured to load, and which
// libraries exist.
type Verbs struct {
	Drivers []string // of lines "driver NAME" in /etc/libibverbs.d, such as "mlx5"
	Folders []VerbsFolder
	Err     error // of reading the configuration or libraries
}

// VerbsFolder is a folder of libraries with a libibverbs or with libraries for its drivers.
type VerbsFolder struct {
	Dir string // "/usr/lib/x86_64-linux-gnu"
	// Library is the path of libibverbs, "" if the folder has none, and Private its private ABI, 0
	// if the library does not show it.
	Library   string
	Private   int
	Providers []Provider
}

// Provider is the library of a driver. Private is the private ABI in its name.
type Provider struct {
	File    string
	Name    string // "mlx5"
	Private int
}

// DriverDir is the folder of the configuration of libibverbs.
const DriverDir = "/etc/libibverbs.d"

// Libraries returns the folders that have a libibverbs.
func (v Verbs) Libraries() []VerbsFolder {
	return slices.DeleteFunc(slices.Clone(v.Folders), func(f VerbsFolder) bool { return f.Library == "" })
}

// ReadVerbs reads the configuration of libibverbs, of which it reads every file (rdma-core,
// libibverbs/init.c, read_config), and the libraries. root may be that of a container's image.
func ReadVerbs(root host.Root) Verbs {
	var v Verbs
	files, err := root.ReadDir(DriverDir)
	if err != nil && !host.IsAbsent(err) {
		v.Err = err
	}
	for _, name := range files {
		file := path.Join(DriverDir, name)
		data, err := root.ReadFile(file)
		if err != nil {
			v.Err = errors.Join(v.Err, err)
			continue
		}
		for line := range strings.Lines(string(data)) {
			if words := strings.Fields(line); len(words) >= 2 && words[0] == "driver" {
				v.Drivers = append(v.Drivers, words[1])
			}
		}
	}
	for _, dir := range libraryDirs(root) {
		folder, err := readFolder(root, dir)
		v.Err = errors.Join(v.Err, err)
		if folder.Library != "" || folder.Providers != nil {
			v.Folders = append(v.Folders, folder)
		}
	}
	return v
}

// architectures are the names of folders for libraries of one architecture (dpkg-architecture(1),
// DEB_HOST_MULTIARCH).
var architectures = []string{
	"x86_64-linux-gnu", "aarch64-linux-gnu", "powerpc64le-linux-gnu", "s390x-linux-gnu", "riscv64-linux-gnu", "loongarch64-linux-gnu",
	"mips64el-linux-gnuabi64", "i386-linux-gnu", "arm-linux-gnueabihf", "arm-linux-gnueabi",
}

// libraryDirs returns the folders in which distributions and operators install libraries, with the
// folders of single architectures, each once: /lib may be a link to usr/lib.
func libraryDirs(root host.Root) []string {
	var dirs []string
	for _, dir := range []string{"/usr/lib64", "/usr/lib", "/lib64", "/lib", "/usr/local/lib64", "/usr/local/lib"} {
		if ok, err := root.Exists(dir); err == nil && !ok {
			continue
		}
		for _, name := range append([]string{""}, architectures...) {
			folder, err := root.Real(path.Join(dir, name))
			if err != nil || slices.Contains(dirs, folder) {
				continue
			}
			if ok, err := root.Exists(folder); ok || err != nil { // one that cannot be read is reported later
				dirs = append(dirs, folder)
			}
		}
	}
	return dirs
}

const libraryName = "libibverbs.so.1"

func readFolder(root host.Root, dir string) (VerbsFolder, error) {
	folder := VerbsFolder{Dir: dir}
	var failed error
	library := path.Join(dir, libraryName)
	private, err := readPrivate(root, library)
	switch {
	case err == nil:
		folder.Library, folder.Private = library, private
	case !host.IsAbsent(err):
		failed = host.OfFile(library, err)
	}
	inside := path.Join(dir, "libibverbs") // the folder of all distributions and vendors
	names, err := root.ReadDir(inside)
	if err != nil && !host.IsAbsent(err) {
		failed = errors.Join(failed, err)
	}
	for _, name := range names {
		p, ok := parseProvider(name)
		if !ok {
			continue
		}
		p.File = path.Join(inside, name)
		switch ok, err := root.Exists(p.File); { // some are links to a library in the folder above
		case err != nil:
			failed = errors.Join(failed, err)
		case ok:
			folder.Providers = append(folder.Providers, p)
		}
	}
	slices.SortStableFunc(folder.Providers, func(a, b Provider) int { return cmp.Compare(a.Name, b.Name) })
	return folder, failed
}

// parseProvider parses the name of a library such as libmlx5-rdmav34.so.
func parseProvider(name string) (Provider, bool) {
	middle, ok := strings.CutPrefix(name, "lib")
	middle, so := strings.CutSuffix(middle, ".so")
	driver, number, suffix := strings.Cut(middle, "-rdmav")
	private, err := strconv.Atoi(number)
	const before2017 = 2 // no libibverbs of rdma-core loads such a library
	return Provider{Name: driver, Private: private}, ok && so && suffix && err == nil && private > before2017
}

// readPrivate returns the private ABI of a libibverbs: the number of its symbol version
// IBVERBS_PRIVATE_34, which every library for one of its drivers must have been built for
// (rdma-core, libibverbs/libibverbs.map.in, CMakeLists.txt: IBVERBS_PABI_VERSION). A library from
// before 2017 has none.
func readPrivate(root host.Root, library string) (int, error) {
	data, err := root.ReadReduced(library, privateSymbol) // of 130 KB, a snapshot has this
	if err != nil {
		return 0, err
	}
	number, ok := bytes.CutPrefix(privateSymbol(data), []byte(symbolPrefix))
	if !ok {
		return 0, nil
	}
	private, err := strconv.Atoi(string(number))
	if err != nil {
		return 0, fmt.Errorf("not a private ABI: %s%s", symbolPrefix, number)
	}
	return private, nil
}

const symbolPrefix = "IBVERBS_PRIVATE_"

// privateSymbol returns the symbol version of the private ABI, or nil if a library has none.
func privateSymbol(library []byte) []byte {
	start := bytes.Index(library, []byte(symbolPrefix))
	if start < 0 {
		return nil
	}
	end := start + len(symbolPrefix)
	for end < len(library) && library[end] >= '0' && library[end] <= '9' {
		end++
	}
	return library[start:end]
}
