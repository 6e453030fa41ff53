package container

import (
	"errors"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/nvidia"
	"gpustack/host/rdma"
)

// ErrNoLibraries is the error of an image in which nothing can load the driver's libraries.
var ErrNoLibraries = host.WithHint(errors.New("has no libraries: no loader, no libc.so.6, and nothing of CUDA or RDMA"),
	getFolder+"; programs without a loader cannot use GPUs")

// ReadImages reads images for nodes of an architecture, as Go names it. All that cannot be read are
// in the error.
func ReadImages(names []string, architecture string) (images []Image, err error) {
	for _, name := range names {
		i := ReadImage(name, architecture)
		images, err = append(images, i), errors.Join(err, i.Err)
	}
	return images, err
}

// getFolder is how an operator gets the root folder of an image. Its configuration is not in it.
const getFolder = "name the root folder of an image: podman image mount IMAGE; " +
	"or docker create IMAGE, and docker export of that container, unpacked into a folder"

// ReadImage reads the root folder of an image for nodes of an architecture.
func ReadImage(name, architecture string) Image {
	i := Image{Name: name}
	info, err := os.Stat(name)
	if err == nil && !info.IsDir() {
		err = errors.New("is a file, not a folder")
	}
	if err != nil {
		i.Err = host.WithHint(fmt.Errorf("%s: %w", name, host.Cause(err)), getFolder)
		return i
	}
	root, err := host.NewRoot(name)
	if err != nil {
		i.Err = err
		return i
	}
	r := imageReader{root: root.Once(), image: &i, architecture: architecture}
	loaders := architectures(r.root)
	i.Architectures = loaders
	r.read()
	hasVerbs := len(i.Verbs.Libraries()) > 0
	if i.Err == nil && !r.loads && !i.Musl && !hasVerbs && !i.CM && len(i.Libraries)+len(i.Runtimes)+len(loaders) == 0 {
		i.Err = fmt.Errorf("%s: %w", name, ErrNoLibraries)
	}
	return i
}

type imageReader struct {
	root         host.Root
	image        *Image
	architecture string // of the node
	loads        bool   // the image has a libc.so.6
}

// fail adds the error of a file, which is in the image and not on the machine.
func (r *imageReader) fail(file string, err error) {
	r.image.Err = errors.Join(r.image.Err, fmt.Errorf("%s: %s: %w", r.image.Name, file, host.Cause(err)))
}

func (r *imageReader) names(dir string) []string {
	names, err := r.root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		r.fail(dir, err)
	}
	return names
}

// matching returns the entries of a folder with a prefix, as paths.
func (r *imageReader) matching(dir, prefix string) (paths []string) {
	return host.Map(host.Filter(r.names(dir), func(name string) bool { return strings.HasPrefix(name, prefix) }),
		func(name string) string { return path.Join(dir, name) })
}

func (r *imageReader) read() {
	i := r.image
	for _, name := range r.names("/lib") {
		i.Musl = i.Musl || strings.HasPrefix(name, "ld-musl-")
	}
	var places []string
	add := func(to *[]string, dir string) {
		ok, err := r.root.Exists(dir)
		if err != nil {
			r.fail(dir, err)
		}
		place, err := r.root.Real(dir)
		if !ok || err != nil || slices.Contains(places, place) {
			return
		}
		places = append(places, place)
		*to = append(*to, dir)
	}
	for _, dir := range nvidia.DefaultFolders() {
		add(&i.Folders, dir)
	}
	for _, dir := range nvidia.LoaderFolders(r.root, r.fail) {
		add(&i.Conf, dir)
	}
	dirs := slices.Concat(i.Conf, i.Folders, []string{LibraryFolder, "/usr/local/nvidia/lib"})
	for _, cuda := range r.matching("/usr/local", "cuda") {
		dirs = append(dirs, path.Join(cuda, "lib64"), path.Join(cuda, "compat"))
	}
	seen := map[string]bool{}
	for _, dir := range dirs {
		place, err := r.root.Real(dir)
		if err != nil || seen[place] {
			continue
		}
		seen[place] = true
		r.folder(dir)
	}
	r.places(dirs)
	r.runtimes()
	i.Verbs = rdma.ReadVerbs(r.root)
	i.Family = host.ReadFamily(r.root)
}

// places adds the folders that lead to others, and those above them.
func (r *imageReader) places(dirs []string) {
	for _, dir := range slices.Concat(dirs, nvidia.DefaultFolders()) {
		for ; dir != "/" && dir != "."; dir = path.Dir(dir) {
			place, err := r.root.Real(dir)
			if err != nil || place == dir {
				continue
			}
			if r.image.Places == nil {
				r.image.Places = map[string]string{}
			}
			r.image.Places[dir] = place
		}
	}
}

// folder adds the libraries in a folder.
func (r *imageReader) folder(dir string) {
	i := r.image
	for _, name := range r.names(dir) {
		file := path.Join(dir, name)
		switch {
		case name == CUDALink, name == NVMLLink:
			place, err := r.root.Real(file)
			if err != nil {
				r.fail(file, err)
				continue
			}
			if r.foreign(file) {
				continue
			}
			l := ImageLibrary{Path: file, Link: name, Version: nvidia.FileVersion(place), Forward: nvidia.IsForward(dir)}
			if ok, err := r.root.Exists(file); ok || err != nil { // a link that leads nowhere is no library
				i.Libraries = append(i.Libraries, l)
			}
		case name == "libc.so.6":
			r.loads = true
		case strings.HasPrefix(name, "librdmacm.so."):
			i.CM = true
		}
	}
}

// foreign reports whether a library is built for another architecture than the node's: loaders
// ignore it (glibc, elf/dl-load.c, open_verify).
func (r *imageReader) foreign(file string) bool {
	a := architectureOf(r.root, file)
	return a != "" && a != r.architecture
}
