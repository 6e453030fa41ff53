package container

import (
	"errors"
	"path"
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/edit"
	"gpustack/host/machine"
)

// NamesOf returns the qualified names of a spec's devices.
func NamesOf(spec *specs.Spec) (names []string) {
	if spec == nil {
		return nil
	}
	return host.Map(spec.Devices, func(d specs.Device) string { return spec.Kind + "=" + d.Name })
}

// specFiles returns the paths of all spec files of gpustack: what [PutSpec] and [BootSpec] need to
// be observed.
func specFiles() (files []string) {
	for _, name := range []string{GPUFile, HCAFile} {
		for _, static := range []bool{false, true} {
			files = append(files, SpecFile(machine.ContainerOptions{Static: static}, name))
		}
	}
	return files
}

// PutSpec plans the file of a spec, or without one its removal. A file in the other folder goes:
// runtimes would take one of the two.
func PutSpec(files edit.Files, options machine.ContainerOptions, name string, spec *specs.Spec) (edit.Changes, error) {
	var plan edit.Changes
	for _, static := range []bool{true, false} {
		of := spec
		if static != options.Static {
			of = nil
		}
		c, err := putSpec(files, SpecFile(machine.ContainerOptions{Static: static}, name), of)
		if err != nil {
			return nil, err
		}
		plan = append(plan, c)
	}
	return plan, nil
}

// BootSpec returns the change of the spec that each boot writes, or without one its removal. Files
// in /etc/cdi are no boot's.
func BootSpec(files edit.Files, name string, spec *specs.Spec) (edit.Change, error) {
	return putSpec(files, SpecFile(machine.ContainerOptions{}, name), spec)
}

func putSpec(files edit.Files, file string, spec *specs.Spec) (edit.Change, error) {
	if spec == nil {
		return files.Remove(file)
	}
	purpose := "GPUs for containers"
	if path.Base(file) == HCAFile {
		purpose = "RDMA adapters for containers"
	}
	text, err := cdi.Text(*spec)
	if err != nil {
		return edit.Change{}, err
	}
	c, err := files.Put(file, text, 0o644, false)
	c.Purpose = purpose
	return c, err
}

// ErrNotRecorded is the error of a function that is not recorded for containers.
var ErrNotRecorded = host.WithHint(errors.New("is not recorded for containers"), host.Textf("'%s' shows what is",
	host.NewCommand("container prepare").Flag("dry-run")))

// IsSpec reports whether the path of a spec is one that container prepare, or a boot, writes.
func IsSpec(file string) bool {
	return slices.Contains(specFiles(), file)
}
