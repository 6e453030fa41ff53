package nvidia

import (
	"path"
	"slices"
	"strings"

	"gpustack/host"
)

// multiarch are Debian's names of the architectures that the driver exists for (Multiarch/Tuples).
// A root may have another architecture than the program.
var multiarch = []string{"x86_64-linux-gnu", "aarch64-linux-gnu"}

const (
	loaderFile = "/etc/ld.so.conf"
	maxFolders = 200 // of libraries, in files of an untrusted root
)

// folders returns the folders in which the driver's libraries may be, each once: those that
// ldconfig searches, in its order (ldconfig(8); glibc, elf/ldconfig.c: ld.so.conf, then the default
// folders), and the folders of Debian's and RHEL's packages to which links in these lead.
func (r *reader) folders() (found []string) {
	seen := map[string]bool{}
	add := func(name string) {
		at, err := r.root.Real(name)
		if err != nil {
			r.warn(name, err)
			return
		}
		if seen[at] || len(found) == maxFolders {
			return
		}
		seen[at] = true
		found = append(found, name)
	}
	for _, name := range slices.Concat(LoaderFolders(r.root, r.warn), DefaultFolders()) {
		add(name)
	}
	for _, tuple := range multiarch {
		add("/usr/lib/" + tuple + "/nvidia/current")
		add("/usr/lib/" + tuple + "/nvidia")
	}
	add("/usr/lib64/nvidia")
	if r.container != "" {
		for _, tuple := range multiarch {
			add(r.container + "/usr/lib/" + tuple)
		}
		add(r.container + "/usr/lib64")
	}
	return found
}

// DefaultFolders returns the folders in which loaders of glibc look without a cache, in their order:
// those of Debian's multiarch, then those of other distributions (ld.so(8); Debian, glibc's
// debian/patches/any/local-ldconfig-multiarch.diff).
func DefaultFolders() (folders []string) {
	for _, tuple := range multiarch {
		folders = append(folders, "/lib/"+tuple, "/usr/lib/"+tuple)
	}
	return append(folders, "/lib64", "/usr/lib64", "/lib", "/usr/lib")
}

// LoaderFolders returns the folders that ld.so.conf(5) below a root names, with those of the files
// it includes. It calls fail for each file that cannot be read.
func LoaderFolders(root host.Root, fail func(file string, err error)) []string {
	return loaderFolders(root, fail, loaderFile, map[string]bool{})
}

func loaderFolders(root host.Root, fail func(file string, err error), file string, seen map[string]bool) (folders []string) {
	if seen[file] || len(seen) == maxFolders {
		return nil
	}
	seen[file] = true
	data, err := root.ReadFile(file)
	if err != nil && !host.IsAbsent(err) {
		fail(file, err)
	}
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(" \t\n:,", c) })
		switch {
		case len(fields) > 1 && fields[0] == "include":
			for _, pattern := range fields[1:] {
				for _, name := range included(root, fail, path.Dir(file), pattern) {
					folders = append(folders, loaderFolders(root, fail, name, seen)...)
				}
			}
		case len(fields) > 0 && path.IsAbs(fields[0]):
			folders = append(folders, strings.Split(fields[0], "=")[0]) // "=TYPE" of libc5
		}
	}
	return folders
}

// included returns the files that a pattern in a file of a folder includes.
func included(root host.Root, fail func(file string, err error), folder, pattern string) (files []string) {
	if !path.IsAbs(pattern) {
		pattern = path.Join(folder, pattern)
	}
	dir := path.Dir(pattern)
	names, err := root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		fail(dir, err)
	}
	for _, name := range names {
		if ok, err := path.Match(path.Base(pattern), name); ok && err == nil {
			files = append(files, path.Join(dir, name))
		}
	}
	return files
}

// libraries returns the libraries of compute: links that programs load, and files of a version
// that no link in their folder leads to. Their versions are those of the files' names: libcuda.so.1
// as a plain file has none.
func (r *reader) libraries() (kept []Library) {
	foreign := map[string]bool{}
	for _, f := range r.folders() {
		for _, l := range r.librariesIn(f) {
			if _, known := foreign[l.File]; !known && l.File != "" {
				head, err := r.root.ReadHead(l.File, len(elfClass32))
				if err != nil {
					r.warn(l.File, err)
				}
				foreign[l.File] = string(head) == elfClass32
			}
			if !foreign[l.File] {
				kept = append(kept, l)
			}
		}
	}
	return kept
}

// elfClass32 is the beginning of a library for 32-bit programs (elf(5)).
const elfClass32 = "\x7fELF\x01"

// librariesIn returns the libraries in a folder.
func (r *reader) librariesIn(folder string) (libraries []Library) {
	for _, name := range r.names(folder) {
		if !isCore(name) {
			continue
		}
		link := path.Join(folder, name)
		file, err := r.root.Real(link)
		if err != nil {
			r.warn(link, err)
			continue
		}
		if !r.exists(file) {
			file = ""
		}
		libraries = append(libraries, Library{Folder: folder, Link: name, File: file, Version: FileVersion(file)})
	}
	return libraries
}

// FileVersion returns the version of the driver in the name of a library's file, "" if it has none.
func FileVersion(file string) Version {
	_, suffix, _ := strings.Cut(path.Base(file), ".so.")
	if v, ok := ParseVersion(suffix); ok && isDriver(v) {
		return v
	}
	return ""
}

// isDriver reports whether a version can be that of a driver: names of files also end with versions
// of an interface, as libnvidia-nvvm.so.4.0.0 of driver 470. Drivers with CUDA 7 and later have
// three digits.
func isDriver(v Version) bool {
	const branchDigits = 3
	return strings.IndexByte(string(v), '.') == branchDigits
}
