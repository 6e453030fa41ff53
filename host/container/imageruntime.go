package container

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"gpustack/host"
	"gpustack/host/nvidia"
)

// runtimeName matches the name of a CUDA runtime: libcudart.so.12.4.127 of a toolkit,
// libcudart.so.12 of Python's nvidia-cuda-runtime, libcudart-9335f6a2.so.12 that auditwheel has
// bundled with a Python package such as torch.
var runtimeName = host.LazyRegexp(`^libcudart(-[0-9a-f]+)?\.so(\.([0-9.]+))?$`)

// runtimes adds the CUDA runtimes of the image, in whatever folder they are: Python packages have
// theirs in folders that no loader knows. Links lead to files that are found by themselves. What is
// mounted into the image is no part of it.
func (r *imageReader) runtimes() {
	top := r.root.Path("/")
	place := device(top)
	err := filepath.WalkDir(top, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && file != top && device(file) != place:
			return fs.SkipDir
		case entry.Type().IsRegular():
			if found := runtimeName().FindStringSubmatch(entry.Name()); found != nil {
				r.runtime("/"+filepath.ToSlash(strings.TrimPrefix(strings.TrimPrefix(file, top), "/")), found[3])
			}
		}
		return nil
	})
	if err != nil {
		r.image.Err = errors.Join(r.image.Err, fmt.Errorf("%s: %w", r.image.Name, err))
	}
	slices.SortFunc(r.image.Runtimes, func(a, b ImageRuntime) int { return strings.Compare(a.Path, b.Path) })
}

// device returns the file system of a folder, 0 if it cannot be read.
func device(dir string) uint64 {
	info, err := os.Lstat(dir)
	if err != nil {
		return 0
	}
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Dev
	}
	return 0
}

// runtime adds a CUDA runtime by the version in its name.
func (r *imageReader) runtime(file, version string) {
	if !r.foreign(file) {
		release, _ := nvidia.RuntimeRelease(version)
		r.image.Runtimes = append(r.image.Runtimes, ImageRuntime{file, release})
	}
}
