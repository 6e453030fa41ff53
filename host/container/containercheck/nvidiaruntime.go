package containercheck

import (
	"cmp"
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
	Name    string // that the engine gives it
	File    string // of the engine, that names it
	Default bool   // the engine starts containers with it that ask for no other runtime
	// Mode is as its own configuration says: "legacy" by a hook and "jit-cdi" by a spec in memory give
	// containers the driver without a CDI spec, "auto" is one of the two, "cdi" reads specs.
	Mode string
}

// runtimeConf is the configuration of NVIDIA's runtime (nvidia-container-toolkit,
// cmd/nvidia-container-runtime/README.md).
const runtimeConf = "/etc/nvidia-container-runtime/config.toml"

// presetRuntime is the name of the runtime that docker and containerd start containers with unless
// configured otherwise (dockerd(8), default-runtime; containerd, docs/cri/config.md,
// default_runtime_name).
const presetRuntime = "runc"

// readNVIDIARuntimes finds engines that are configured to start containers with NVIDIA's runtime.
// The default runtimes of engines come first.
func readNVIDIARuntimes(root host.Root, versions map[string]nvidia.Version) machine.Look[[]NVIDIARuntime] {
	mode, modeErr := lastSetting(root, "mode", runtimeConf)
	var all []NVIDIARuntime
	var failed error
	add := func(engine, name, file, program, preset string) {
		r := NVIDIARuntime{Engine: engine, Name: name, File: file, Default: name == cmp.Or(preset, presetRuntime)}
		switch base := path.Base(program); {
		case !strings.HasPrefix(base, "nvidia-container-runtime"):
			return
		case strings.HasPrefix(base, "nvidia-container-runtime."): // .legacy and .cdi have a mode of their own
			r.Mode = strings.TrimPrefix(path.Ext(base), ".")
		default:
			r.Mode, failed = cmp.Or(mode.value, "auto"), errors.Join(failed, modeErr)
		}
		all = append(all, r)
	}
	conf, err := docker.ReadConf(root)
	failed = errors.Join(failed, err)
	if conf != nil {
		for name, r := range conf.Runtimes {
			add("docker", name, docker.ConfFile, r.Path, conf.DefaultRuntime)
		}
	}
	files, err := containerdFiles(root, versions)
	failed = errors.Join(failed, err)
	programs, err := runtimeOptions(root, "BinaryName", files...)
	failed = errors.Join(failed, err)
	preset, err := lastSetting(root, "default_runtime_name", files...)
	failed = errors.Join(failed, err)
	for _, p := range programs {
		add("containerd", p.runtime, p.file, p.value, preset.value)
	}
	slices.SortFunc(all, func(a, b NVIDIARuntime) int {
		if a.Default != b.Default && a.Default {
			return -1
		}
		if a.Default != b.Default {
			return 1
		}
		return cmp.Or(strings.Compare(a.Engine, b.Engine), strings.Compare(a.Mode, b.Mode), strings.Compare(a.Name, b.Name))
	})
	return sawFiles(runtimeConf, all, failed)
}

// gives reports whether the runtime gives containers the driver without a CDI spec.
func (r NVIDIARuntime) gives() bool {
	return slices.Contains([]string{"auto", "legacy", "jit-cdi"}, r.Mode)
}

// String names the runtime in a sentence.
func (r NVIDIARuntime) String() string {
	return fmt.Sprintf("NVIDIA's runtime of %s (mode %s)", r.Engine, r.Mode)
}

// containers names the containers that the runtime gives GPUs, as the beginning of a sentence.
func (r NVIDIARuntime) containers() string {
	switch {
	case r.Default:
		return "every container whose NVIDIA_VISIBLE_DEVICES names GPUs gets"
	case r.Engine == "containerd":
		return "containers of pods whose runtime class has the handler " + r.Name + ", and NVIDIA_VISIBLE_DEVICES, get"
	}
	return "containers that are started with --runtime=" + r.Name + " and NVIDIA_VISIBLE_DEVICES get"
}

// injection is how the runtime gives libcuda to containers of an image: in the folder of the
// distribution, whose loader's cache it regenerates (libnvidia-container, src/nvc_container.c,
// copy_config). It also uses libraries of forward compatibility.
func (r NVIDIARuntime) injection(d nvidia.Driver, i container.Image, architecture string) injection {
	in := injection{container.Injection{Kind: r.String(), File: r.File, Folder: "/usr/lib64", Hooked: true}, true}
	multiarch := map[string]string{"amd64": "x86_64-linux-gnu", "arm64": "aarch64-linux-gnu", "ppc64le": "powerpc64le-linux-gnu"}[architecture]
	hasFolder := slices.ContainsFunc(i.Folders, func(dir string) bool { return path.Base(dir) == multiarch })
	if multiarch != "" && (i.Family == host.DebianFamily || hasFolder) {
		in.Folder = "/usr/lib/" + multiarch
	}
	if d.Loaded != nil {
		in.Version = d.Loaded.Version
	}
	return in
}

// givers returns the runtimes of NVIDIA's that give containers the driver without a CDI spec, one
// of each engine and mode.
func (v view) givers() []NVIDIARuntime {
	var all []NVIDIARuntime
	for _, r := range v.NVIDIARuntimes.Value {
		if r.gives() && !slices.ContainsFunc(all, func(o NVIDIARuntime) bool { return o.Engine == r.Engine && o.Mode == r.Mode }) {
			all = append(all, r)
		}
	}
	return all
}
