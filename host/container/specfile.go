package container

import (
	"errors"
	"path"

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
	for _, d := range spec.Devices {
		names = append(names, spec.Kind+"="+d.Name)
	}
	return names
}

// PutSpec plans the file of a spec, or without one its removal. A file in the other folder goes:
// runtimes would take one of the two.
func PutSpec(root host.Root, options machine.ContainerOptions, name string, spec *specs.Spec) (edit.Plan, error) {
	var plan edit.Plan
	for _, static := range []bool{true, false} {
		of := spec
		if static != options.Static {
			of = nil
		}
		c, err := putSpec(root, SpecFile(machine.ContainerOptions{Static: static}, name), of)
		if err != nil {
			return nil, err
		}
		plan = append(plan, c)
	}
	return plan, nil
}

// BootSpec returns the change of the spec that each boot writes, or without one its removal. Files
// in /etc/cdi are no boot's.
func BootSpec(root host.Root, name string, spec *specs.Spec) (edit.Change, error) {
	return putSpec(root, SpecFile(machine.ContainerOptions{}, name), spec)
}

func putSpec(root host.Root, file string, spec *specs.Spec) (edit.Change, error) {
	if spec == nil {
		return edit.Remove(root, file)
	}
	text, err := cdi.Text(*spec)
	if err != nil {
		return edit.Change{}, err
	}
	return edit.Put(root, file, text, 0o644, false)
}

// Errors of options that the machine cannot satisfy.
var (
	// ErrNoGPU is the error of --device for a function that is no GPU of NVIDIA's.
	ErrNoGPU = host.WithHint(errors.New("is no GPU of NVIDIA's"), "'gpustack host scan' lists the GPUs; --hca adds RDMA adapters")
	// ErrNoHCA is the error of --hca for a function without an RDMA device.
	ErrNoHCA = host.WithHint(errors.New("has no RDMA device"), "'gpustack rdma scan' lists the adapters; its driver has to be loaded")
	// ErrNotRecorded is the error of --remove for a function that is not recorded for containers.
	ErrNotRecorded = host.WithHint(errors.New("is not recorded for containers"), "'gpustack container prepare --dry-run' shows what is")
	// ErrForGuests is the error of a function that is for guests.
	ErrForGuests = host.WithHint(host.WithCode(errors.New("is for guests"), host.CodeRole, ""),
		"take it from guests first: gpustack host prepare --remove ADDRESS")
	// ErrVFsForGuests is the error of an adapter whose VFs are for guests.
	ErrVFsForGuests = host.WithHint(host.WithCode(errors.New("is recorded by rdma prepare for guests"), host.CodeRole, ""),
		"give containers an adapter of their own, or one of its VFs: gpustack rdma prepare --device ADDRESS --vfs NUMBER --for containers")
	// ErrUnbound is the error of a GPU that is not bound to NVIDIA's driver.
	ErrUnbound = host.WithHint(errors.New("is not bound to NVIDIA's driver"),
		"bind it first: 'gpustack host release --device ADDRESS' for one on vfio-pci, else load the module nvidia")
	// ErrNoModule is the error of a machine whose running kernel has no module of NVIDIA's.
	ErrNoModule = host.WithHint(errors.New("the running kernel has no module of NVIDIA's driver"),
		"install the driver for it, or boot a kernel that has it; 'gpustack container check' lists the modules")
	// ErrMIG is the error of a GPU that is divided into MIG instances.
	ErrMIG = host.WithHint(errors.New("is divided into MIG instances"),
		"describe the instances with nvidia-ctk cdi generate, or switch MIG off: nvidia-smi -i ADDRESS -mig 0")
	// ErrBlacklisted is the error of a configuration that keeps NVIDIA's driver from being loaded.
	ErrBlacklisted = host.WithHint(errors.New("keeps NVIDIA's driver from being loaded at boot"),
		"remove the line")
	// ErrBlacklistArgument is the error of a kernel argument that does.
	ErrBlacklistArgument = host.WithHint(errors.New("keeps NVIDIA's driver from being loaded at boot"),
		"remove the argument from the boot loader's configuration, and reboot")
	// ErrOwnBlacklist is the error of such a line that host prepare wrote, when no GPU stayed.
	ErrOwnBlacklist = host.WithHint(errors.New("keeps NVIDIA's driver from being loaded at boot"),
		"run: gpustack host prepare; it removes the line, because a GPU stays with the host")
	// ErrBoard is the error of a part of a board with NVSwitches.
	ErrBoard = host.WithHint(host.WithCode(errors.New("is part of a board with NVSwitches, whose GPUs work together only"), host.CodeNVSwitch, ""),
		"add all GPUs of the board with --device")
	// ErrNoAdapter is the error of umad nodes without an adapter.
	ErrNoAdapter = host.WithHint(errors.New("--umad is for adapters, and none is for containers"), "add one with --hca")
	// ErrOtherKind is the error of a kind that would rename functions which are recorded already.
	ErrOtherKind = host.WithHint(errors.New("--kind would change the name by which containers are started with it"),
		"name it too, to change its name with the others; or leave --kind out")
	// ErrKindTaken is the error of a kind that a spec of another program has.
	ErrKindTaken = host.WithHint(host.WithCode(errors.New("has this kind too: runtimes take one of the specs, or neither"), host.CodeOtherOwner, ""),
		"give another --kind")
)

// IsBootSpec reports whether the path of a spec is one that each boot writes.
func IsBootSpec(file string) bool {
	return IsSpec(file) && path.Dir(file) == cdi.DynamicFolder
}

// IsSpec reports whether the path of a spec is one that container prepare, or a boot, writes.
func IsSpec(file string) bool {
	for _, name := range []string{GPUFile, HCAFile} {
		for _, static := range []bool{false, true} {
			if file == SpecFile(machine.ContainerOptions{Static: static}, name) {
				return true
			}
		}
	}
	return false
}
