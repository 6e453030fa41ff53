// Package container has what containers are offered of a machine: the CDI specs that follow from
// the record of host/machine ([SpecOf]), their files, and what images of containers have
// ([ReadImage]). Checks, prepares and the steps of every boot read it.
//
// It starts no program, and loads no library that it reads.
package container

import (
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/nvidia"
	"gpustack/host/rdma"
)

// Image is what an image of containers has of the driver, CUDA and RDMA, and where its loader
// looks.
type Image struct {
	Name string // as the operator named it
	Err  error  // of reading it

	// Architectures are those that its loaders are built for, as Go names them; none if it has none.
	Architectures []string

	Musl      bool           // its loader is musl's, which does not load libraries of glibc
	Folders   []string       // the loader's default folders that exist, in its order
	Conf      []string       // folders of ld.so.conf and ld.so.conf.d that are no default folders
	Libraries []ImageLibrary // of the driver, by folder
	Runtimes  []ImageRuntime // libcudart, wherever it is
	Verbs     rdma.Verbs
	CM        bool // it has librdmacm
	Family    host.Family
	// Places are the folders that are reached by another name, with that name: "/lib" is "/usr/lib"
	// in a usrmerged image.
	Places map[string]string
}

// ImageLibrary is a library of the driver in an image.
type ImageLibrary struct {
	Path    string         // of the link, or of the file
	Link    string         // libcuda.so.1
	Version nvidia.Version // "" if unknown
	Forward bool           // of forward compatibility (cuda-compat-*): below a folder named compat
}

// ImageRuntime is a CUDA runtime library in an image.
type ImageRuntime struct {
	Path    string
	Release nvidia.Version // of the toolkit: "12.4", or "12" where the file shows no more
}

// Links by which programs load the driver's libraries.
const (
	CUDALink = "libcuda.so.1"
	NVMLLink = "libnvidia-ml.so.1"
)

// Injection is how a spec gives libcuda to a container.
type Injection struct {
	Kind   string // of the spec
	File   string
	Folder string // in the container
	Env    bool   // LD_LIBRARY_PATH of the spec names the folder
	Hooked bool   // a hook of nvidia-ctk regenerates the loader's cache in the container
	Triton bool   // programs that link with libcuda find it
	// Version is that of the libcuda, "" if unknown. Of two in one folder, the cache has the newer.
	Version nvidia.Version
}

// Takes returns the path of the image's own libcuda that a container loads instead of the injected
// one, "" if it loads the injected one. found is false if it finds neither. The answers were
// measured with podman and NVIDIA's libraries in seven kinds of images (docs/containers.md, Tests).
func (i Image) Takes(in Injection) (own string, found bool) {
	older := false // the one that folderOf has returned is older than the injected one
	folderOf := func(dir string) string {
		for _, l := range i.Libraries {
			if l.Link == CUDALink && i.same(path.Dir(l.Path), dir) {
				older = l.Version != "" && l.Version.Compare(in.Version) < 0
				return l.Path
			}
		}
		return ""
	}
	if in.Env {
		return "", true
	}
	// The cache, which ldconfig made of these folders, comes before the default folders.
	for _, dir := range slices.Concat(i.Conf, i.Folders) {
		if own := folderOf(dir); own != "" && (!i.same(dir, in.Folder) || in.Hooked && !older) {
			return own, true // in the same folder without a hook the mount covers it
		}
	}
	return "", in.Hooked || slices.ContainsFunc(i.Folders, func(dir string) bool { return i.same(dir, in.Folder) })
}

// place returns the folder that a name leads to.
func (i Image) place(dir string) string {
	dir = path.Clean(dir)
	for above := dir; above != "/" && above != "."; above = path.Dir(above) {
		if to := i.Places[above]; to != "" {
			return to + strings.TrimPrefix(dir, above)
		}
	}
	return dir
}

// same reports whether two names lead to one folder of the image.
func (i Image) same(a, b string) bool {
	return i.place(a) == i.place(b)
}
