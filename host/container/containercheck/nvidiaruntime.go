package containercheck

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/container"
	"gpustack/host/docker"
	"gpustack/host/machine"
	"gpustack/host/nvidia"
)

// NVIDIARuntime is NVIDIA's runtime, which an engine is configured to start containers with.
type NVIDIARuntime struct {
	Engine  string // "docker", "containerd"
	File    string // of the engine, that names it
	Default bool   // the engine starts all containers with it
	// Mode is as its own configuration says: "legacy" by a hook and "jit-cdi" by a spec in memory give
	// containers the driver without a CDI spec, "auto" is one of the two, "cdi" reads specs.
	Mode string
}

// runtimeConf is the configuration of NVIDIA's runtime (nvidia-container-toolkit,
// cmd/nvidia-container-runtime/README.md).
const runtimeConf = "/etc/nvidia-container-runtime/config.toml"

// readNVIDIARuntimes finds engines that are configured to start containers with NVIDIA's runtime.
func readNVIDIARuntimes(root host.Root, versions map[string]nvidia.Version) machine.Look[[]NVIDIARuntime] {
	mode, failed := lastSetting(root, "mode", runtimeConf)
	if mode.value == "" {
		mode.value = "auto"
	}
	var all []NVIDIARuntime
	add := func(engine, file, program string, preset bool) {
		r := NVIDIARuntime{Engine: engine, File: file, Default: preset, Mode: mode.value}
		switch name := path.Base(program); {
		case !strings.HasPrefix(name, "nvidia-container-runtime"):
			return
		case strings.HasPrefix(name, "nvidia-container-runtime."): // .legacy and .cdi have a mode of their own
			r.Mode = strings.TrimPrefix(path.Ext(name), ".")
		}
		if !slices.ContainsFunc(all, func(o NVIDIARuntime) bool { return o.Engine == engine && o.Mode == r.Mode }) {
			all = append(all, r)
		}
	}
	conf, err := docker.ReadConf(root)
	failed = errors.Join(failed, err)
	if conf != nil {
		for name, r := range conf.Runtimes {
			add("docker", docker.ConfFile, r.Path, conf.DefaultRuntime == name)
		}
	}
	files, err := containerdFiles(root, versions)
	failed = errors.Join(failed, err)
	program, err := lastSetting(root, "BinaryName", files...)
	failed = errors.Join(failed, err)
	preset, err := lastSetting(root, "default_runtime_name", files...)
	failed = errors.Join(failed, err)
	add("containerd", program.file, program.value, preset.value == "nvidia")
	slices.SortFunc(all, func(a, b NVIDIARuntime) int { return strings.Compare(a.Engine+a.Mode, b.Engine+b.Mode) })
	return machine.Saw(runtimeConf, all, failed)
}

// gives reports whether the runtime gives containers the driver without a CDI spec.
func (r NVIDIARuntime) gives() bool {
	return slices.Contains([]string{"auto", "legacy", "jit-cdi"}, r.Mode)
}

// String names the runtime in a sentence.
func (r NVIDIARuntime) String() string {
	return fmt.Sprintf("NVIDIA's runtime of %s (mode %s)", r.Engine, r.Mode)
}

// injection is how the runtime gives libcuda: in the folder of the loader, whose cache it
// regenerates.
func (r NVIDIARuntime) injection(d nvidia.Driver) container.Injection {
	in := container.Injection{Kind: r.String(), File: r.File, Folder: "/usr/lib/x86_64-linux-gnu", Hooked: true}
	if d.Loaded != nil {
		in.Version = d.Loaded.Version
	}
	return in
}

// givers returns the runtimes of NVIDIA's that give containers the driver without a CDI spec.
func (v view) givers() []NVIDIARuntime {
	return slices.DeleteFunc(slices.Clone(v.NVIDIARuntimes.Value), func(r NVIDIARuntime) bool { return !r.gives() })
}
