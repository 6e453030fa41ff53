package nvidia

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"
	"sync"

	"gpustack/host"
)

// multiarch are Debian's names of the architectures that the driver exists for (Multiarch/Tuples).
// A root may have another architecture than the program.
var multiarch = []string{"x86_64-linux-gnu", "aarch64-linux-gnu", "powerpc64le-linux-gnu"}

const (
	loaderFile = "/etc/ld.so.conf"
	maxFolders = 200 // of libraries, in files of an untrusted root
	maxReads   = 4   // of libraries at once
)

// folder is a folder with libraries.
type folder struct {
	name     string
	searched bool // by the loader
}

// folders returns the folders in which the driver's libraries may be, each once: those that
// ldconfig searches, in its order (ldconfig(8); glibc, elf/ldconfig.c: ld.so.conf, then the default
// folders), and the folders of Debian's and RHEL's packages to which links in these lead.
func (r *reader) folders() (found []folder) {
	seen := map[string]bool{}
	add := func(name string, searched bool) {
		at, err := r.root.Real(name)
		if err != nil {
			r.warn(name, err)
			return
		}
		if seen[at] || len(found) == maxFolders {
			return
		}
		seen[at] = true
		found = append(found, folder{name, searched})
	}
	for _, name := range r.loaderFolders(loaderFile, map[string]bool{}) {
		add(name, true)
	}
	var packages []string
	for _, tuple := range multiarch {
		add("/lib/"+tuple, true)
		add("/usr/lib/"+tuple, true)
		packages = append(packages, "/usr/lib/"+tuple+"/nvidia/current", "/usr/lib/"+tuple+"/nvidia")
	}
	for _, name := range []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib"} {
		add(name, true)
	}
	for _, name := range append(packages, "/usr/lib64/nvidia") {
		add(name, false)
	}
	if r.container != "" {
		for _, tuple := range multiarch {
			add(r.container+"/usr/lib/"+tuple, false)
		}
		add(r.container+"/usr/lib64", false)
	}
	return found
}

// loaderFolders returns the folders that ld.so.conf names, with those of the files it includes.
func (r *reader) loaderFolders(file string, seen map[string]bool) (folders []string) {
	if seen[file] || len(seen) == maxFolders {
		return nil
	}
	seen[file] = true
	text, _ := r.text(file)
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.FieldsFunc(line, func(c rune) bool { return strings.ContainsRune(" \t\n:,", c) })
		switch {
		case len(fields) > 1 && fields[0] == "include":
			for _, pattern := range fields[1:] {
				if !path.IsAbs(pattern) {
					pattern = path.Join(path.Dir(file), pattern)
				}
				dir := path.Dir(pattern)
				for _, name := range r.names(dir) {
					if ok, err := path.Match(path.Base(pattern), name); ok && err == nil {
						folders = append(folders, r.loaderFolders(path.Join(dir, name), seen)...)
					}
				}
			}
		case len(fields) > 0 && path.IsAbs(fields[0]):
			folders = append(folders, strings.Split(fields[0], "=")[0]) // "=TYPE" of libc5
		}
	}
	return folders
}

// libraries returns the libraries of compute: links that programs load, and files of a version
// that no link in their folder leads to.
func (r *reader) libraries() []Library {
	var libraries []Library
	for _, f := range r.folders() {
		libraries = append(libraries, r.librariesIn(f)...)
	}
	// A file has up to 30 MB and more than one link, so each is read once, and several at a time.
	read := map[string]*content{}
	var group sync.WaitGroup
	turns := make(chan struct{}, maxReads)
	for _, l := range libraries {
		if l.File == "" || read[l.File] != nil {
			continue
		}
		c := &content{}
		read[l.File] = c
		turns <- struct{}{}
		group.Go(func() {
			c.read(r.root, l.File)
			<-turns
		})
	}
	group.Wait()
	var kept []Library
	for _, l := range libraries {
		c := read[l.File]
		switch {
		case c == nil: // a link that leads nowhere
		case c.foreign:
			continue
		case c.err != nil:
			r.warnOnce(c, l.File, c.err)
		default:
			l.Version, l.Inferred, l.Unconfirmed = c.version, c.inferred, c.unconfirmed
			if c.unconfirmed {
				r.warnOnce(c, l.File, fmt.Errorf("it does not contain the version %s of its name", c.version))
			}
		}
		kept = append(kept, l)
	}
	return kept
}

func (r *reader) warnOnce(c *content, file string, err error) {
	if !c.warned {
		c.warned = true
		r.warn(file, err)
	}
}

// librariesIn returns the libraries in a folder, without their versions.
func (r *reader) librariesIn(f folder) (libraries []Library) {
	linked := map[string]bool{} // files
	var stray []Library
	for _, name := range r.names(f.name) {
		core := coreOf(name)
		stem, suffix, _ := strings.Cut(name, ".so.")
		if core == nil && !isStem(stem) {
			continue
		}
		file, err := r.root.Real(path.Join(f.name, name))
		if err != nil {
			r.warn(path.Join(f.name, name), err)
			continue
		}
		if !r.exists(file) {
			file = ""
		}
		l := Library{Folder: f.name, File: file, Searched: f.searched}
		switch v, ok := ParseVersion(suffix); {
		case core != nil:
			l.Link, linked[file] = name, true
			libraries = append(libraries, l)
		case ok && isDriver(v) && file != "":
			stray = append(stray, l)
		}
	}
	for _, l := range stray {
		if !linked[l.File] {
			linked[l.File] = true
			libraries = append(libraries, l)
		}
	}
	return libraries
}

// isDriver reports whether a version can be that of a driver: names of files also end with versions
// of an interface, as libnvidia-nvvm.so.4.0.0 of driver 470. Drivers with CUDA 7 and later have
// three digits.
func isDriver(v Version) bool {
	const branchDigits = 3
	return strings.IndexByte(string(v), '.') == branchDigits
}

// withVersion are the libraries that contain their version as a string that ends with a zero. The
// others contain none, or only as the end of another string.
var withVersion = []string{"libcuda", "libnvidia-ml", "libnvidia-cfg", "libnvcuvid"}

// content is what a library's file shows of its version.
type content struct {
	version               Version
	inferred, unconfirmed bool
	foreign               bool // for 32-bit programs
	err                   error
	warned                bool
}

// read reads a file. A snapshot contains its version as a line of text.
func (c *content) read(root host.Root, file string) {
	f, err := root.Open(file)
	if err != nil {
		c.err = err
		return
	}
	defer f.Close() //nolint:errcheck // only read from
	head := make([]byte, elfClassEnd)
	n, err := io.ReadFull(f, head)
	if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.EOF) {
		c.err = err
		return
	}
	head = head[:n]
	kept := head
	if c.foreign = string(head) == elfClass32; !c.foreign {
		var found Version
		stem, suffix, _ := strings.Cut(path.Base(file), ".so.")
		v, ok := ParseVersion(suffix)
		switch named := ok && isDriver(v); {
		case named && slices.Contains(withVersion, stem):
			c.version = v
			var info fs.FileInfo
			if info, c.err = f.Stat(); c.err != nil {
				return
			}
			if ok, c.err = contains(f, info.Size(), v); ok {
				found = v
			}
			c.unconfirmed = c.err == nil && !ok
		case named:
			c.version = v
		case slices.Contains(withVersion, stem):
			found, c.err = largest(io.MultiReader(bytes.NewReader(head), f))
			c.version, c.inferred = found, found != ""
		}
		if found != "" {
			kept = []byte(found + "\n")
		}
	}
	if c.err == nil {
		root.Record(file, kept)
	}
}

// The first bytes of a 32-bit library (elf(5)).
const (
	elfClassEnd = 5
	elfClass32  = "\x7fELF\x01"
)

// Files are read in parts of partSize bytes, each with overlap bytes of the one before it: more
// than a version has.
const (
	partSize = 256 << 10
	overlap  = 32
)

// contains reports whether a file contains a version as a string that ends with a zero, and that
// is not the end of a longer one. It begins at the end of the file: there the libraries of drivers
// since 535 have it, 2 of 29 MB from the end of libcuda.
func contains(r io.ReaderAt, size int64, v Version) (bool, error) {
	text := []byte(v + "\x00")
	buf := make([]byte, 1+partSize+overlap)
	for end := size; ; end -= partSize {
		start := max(end-partSize-overlap, 0)
		part := buf[:1+end-start]
		if _, err := r.ReadAt(part[1:], start); err != nil && !errors.Is(err, io.EOF) {
			return false, err
		}
		if part[0] = 0; start > 0 {
			part = part[1:]
		}
		if end == size {
			part = ended(part)
		}
		for rest := part; ; {
			i := bytes.Index(rest, text)
			if i < 0 {
				break
			}
			if i > 0 && !ofVersion(rest[i-1]) {
				return true, nil
			}
			rest = rest[i+1:]
		}
		if start == 0 {
			return false, nil
		}
	}
}

// ended returns the last part of a file with a zero after it. Where it is a line of text, as in a
// snapshot, the zero replaces the end of the line.
func ended(part []byte) []byte {
	return append(bytes.TrimRight(part, "\n"), 0)
}

// largest returns the largest driver's version that r contains as a string that ends with a zero,
// or "".
func largest(r io.Reader) (found Version, err error) {
	buf := make([]byte, overlap+partSize)
	kept := 1 // bytes at the beginning of buf from the end of the previous part, at first a zero
	for {
		n, err := io.ReadFull(r, buf[kept:])
		last := errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
		if err != nil && !last {
			return "", err
		}
		part := buf[:kept+n]
		if last {
			return maxVersion(ended(part), found), nil
		}
		found = maxVersion(part, found)
		kept = copy(buf, part[len(part)-overlap:])
	}
}

// maxVersion returns the largest of v and the versions of drivers in data, after its first byte,
// that end with a zero.
func maxVersion(data []byte, v Version) Version {
	const longest = 20
	for i := 0; ; i++ {
		n := bytes.IndexByte(data[i:], 0)
		if n < 0 {
			return v
		}
		i += n
		start := i
		for start > 0 && i-start < longest && ofVersion(data[start-1]) {
			start--
		}
		if start == 0 || ofVersion(data[start-1]) {
			continue
		}
		if found, ok := ParseVersion(string(data[start:i])); ok && isDriver(found) && found.Compare(v) > 0 {
			v = found
		}
	}
}

func ofVersion(c byte) bool {
	return c == '.' || '0' <= c && c <= '9'
}
