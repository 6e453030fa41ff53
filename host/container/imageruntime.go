package container

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/nvidia"
)

// runtimeName matches the name of a CUDA runtime: libcudart.so.12.4.127 of a toolkit,
// libcudart.so.12 of Python's nvidia-cuda-runtime, libcudart-9335f6a2.so.12 that auditwheel has
// bundled with a Python package such as torch.
var runtimeName = host.LazyRegexp(`^libcudart(-[0-9a-f]+)?\.so(\.([0-9.]+))?$`)

// runtimes adds the CUDA runtimes of the image, in whatever folder they are: Python packages have
// theirs in folders that no loader knows. Links lead to files that are found by themselves. What
// the kernel shows where it is mounted in a root folder is no part of the image.
func (r *imageReader) runtimes() {
	top := r.root.Path("/")
	kernel := []string{r.root.Path("/proc"), r.root.Path("/sys"), r.root.Path("/dev")}
	err := filepath.WalkDir(top, func(file string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains(kernel, file):
			return filepath.SkipDir
		case entry.Type().IsRegular():
			file = "/" + strings.TrimPrefix(strings.TrimPrefix(file, top), "/")
			if found := runtimeName().FindStringSubmatch(entry.Name()); found != nil && !r.foreign(file) {
				release, _ := nvidia.RuntimeRelease(found[3]) // by the version in its name
				r.image.Runtimes = append(r.image.Runtimes, ImageRuntime{file, release})
			}
		}
		return nil
	})
	if err != nil {
		r.image.Err = errors.Join(r.image.Err, fmt.Errorf("%s: %w", r.image.Name, err))
	}
}
