package container

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/docker"
	"gpustack/host/nvidia"
)

// Injector gives containers GPUs and the driver without a CDI spec: NVIDIA's runtime, with which an
// engine is configured to start containers, or NVIDIA's hook of podman and CRI-O.
type Injector struct {
	Engine string // "docker", "containerd", "k3s", "rke2", "crio", "podman"
	Name   string // that the engine gives the runtime; "" for a hook
	File   string // of the engine, that names it
	// Mode is as the runtime's own configuration says: "legacy" by a hook and "jit-cdi" by a spec in
	// memory give containers the driver without a CDI spec, "auto" is one of the two, "cdi" reads specs.
	Mode string
	// Systemd reports whether the engine has systemd make the cgroups of its containers.
	Systemd bool
}

const (
	// runtimeConf is the configuration of NVIDIA's runtime (nvidia-container-toolkit,
	// cmd/nvidia-container-runtime/README.md).
	runtimeConf = "/etc/nvidia-container-runtime/config.toml"

	// runtimeProgramName is NVIDIA's runtime; .legacy and .cdi have a mode of their own.
	runtimeProgramName = "nvidia-container-runtime"

	// legacyMode is that of the hook, which adds nodes that the runtime knows nothing of.
	legacyMode = "legacy"
)

// hookProgram is NVIDIA's hook.
const hookProgram = "/usr/bin/nvidia-container-runtime-hook"

// hookFiles are where packages install NVIDIA's hook for podman and CRI-O (oci-hooks(5)).
var hookFiles = []string{"/usr/share/containers/oci/hooks.d/oci-nvidia-hook.json", "/etc/containers/oci/hooks.d/oci-nvidia-hook.json"}

// criConf is where an engine of Kubernetes names its runtimes.
type criConf struct {
	engine, file     string
	more             []string // patterns of files that it reads too
	program, cgroups string   // keys of a runtime's program, and of the cgroup driver
	systemd          bool     // systemd is the driver without the key
}

// criConfs returns the engines whose configuration is TOML. k3s and RKE2 write that of their
// containerd themselves (k3s documentation, "Advanced Options").
func criConfs() []criConf {
	containerd := func(engine, file string) criConf {
		return criConf{engine, file, nil, "BinaryName", "SystemdCgroup", false}
	}
	return []criConf{
		containerd("containerd", "/etc/containerd/config.toml"),
		containerd("k3s", "/var/lib/rancher/k3s/agent/etc/containerd/config.toml"),
		containerd("rke2", "/var/lib/rancher/rke2/agent/etc/containerd/config.toml"),
		{"crio", "/etc/crio/crio.conf", []string{"/etc/crio/crio.conf.d/*"}, "runtime_path", "cgroup_manager", true},
	}
}

// ReadInjectors finds what gives containers GPUs without a CDI spec.
func ReadInjectors(root host.Root) (all []Injector, failed error) {
	own, modeErr := readTOML(root, runtimeConf)
	add := func(i Injector, program string) {
		switch base := path.Base(program); {
		case !strings.HasPrefix(base, runtimeProgramName):
			return
		case strings.HasPrefix(base, runtimeProgramName+"."):
			i.Mode = strings.TrimPrefix(path.Ext(base), ".")
		default:
			i.Mode, failed = cmp.Or(own.last("mode"), "auto"), errors.Join(failed, modeErr)
		}
		if i.Mode != "cdi" {
			all = append(all, i)
		}
	}
	err := addDocker(root, add)
	failed = errors.Join(failed, err)
	for _, c := range criConfs() {
		read, err := c.read(root)
		failed = errors.Join(failed, err)
		for _, r := range read.runtimes(c.program) {
			systemd := cmp.Or(read.of(r.name, c.cgroups), read.last(c.cgroups))
			add(Injector{Engine: c.engine, Name: r.name, File: r.file,
				Systemd: systemd == "systemd" || systemd == "true" || systemd == "" && c.systemd}, r.value)
		}
	}
	for _, file := range hookFiles {
		ok, err := root.Exists(file)
		failed = errors.Join(failed, err)
		if ok {
			all = append(all, Injector{Engine: "podman", File: file, Mode: legacyMode, Systemd: true})
			break
		}
	}
	slices.SortFunc(all, func(a, b Injector) int {
		return cmp.Or(strings.Compare(a.Engine, b.Engine), strings.Compare(a.Mode, b.Mode), strings.Compare(a.Name, b.Name))
	})
	all = slices.CompactFunc(all, func(a, b Injector) bool { return a.Engine == b.Engine && a.Mode == b.Mode })
	return all, failed
}

// addDocker adds what docker starts containers with: NVIDIA's runtimes, and NVIDIA's hook, which
// --gpus adds where dockerd finds it (moby, daemon/nvidia_linux.go).
func addDocker(root host.Root, add func(i Injector, program string)) error {
	conf, failed := docker.ReadConf(root)
	installed, err := docker.Installed(root)
	if failed = errors.Join(failed, err); conf == nil && !installed {
		return failed
	}
	conf = cmp.Or(conf, &docker.Conf{})
	// Without the option dockerd uses systemd where cgroups have version 2 (moby,
	// daemon/daemon_unix.go, getCgroupDriver), whose root has this file.
	systemd, err := root.Exists("/sys/fs/cgroup/cgroup.controllers")
	failed = errors.Join(failed, err)
	for _, option := range conf.ExecOpts {
		if value, ok := strings.CutPrefix(option, "native.cgroupdriver="); ok {
			systemd = value == "systemd"
		}
	}
	hook, err := root.Exists(hookProgram)
	hook = hook && installed
	for name, r := range conf.Runtimes {
		add(Injector{Engine: "docker", Name: name, File: docker.ConfFile, Systemd: systemd}, r.Path)
		hook = hook && !strings.HasPrefix(path.Base(r.Path), runtimeProgramName)
	}
	if hook {
		add(Injector{Engine: "docker", File: hookProgram, Systemd: systemd}, runtimeProgramName+"."+legacyMode)
	}
	return errors.Join(failed, err)
}

// String names the injector in a sentence.
func (i Injector) String() string {
	if i.Name == "" {
		return "NVIDIA's hook of " + i.Engine
	}
	return fmt.Sprintf("NVIDIA's runtime of %s (mode %s)", i.Engine, i.Mode)
}

// ByHook reports whether nodes are added behind the runtime, which then does not name them to the
// cgroup: always in mode legacy, and in mode auto before NVIDIA Container Toolkit 1.18.0.
func (i Injector) ByHook(t Toolkit) bool {
	const spec = nvidia.Version("1.18.0") // by a spec in memory from here on
	return i.Mode == legacyMode || i.Mode == "auto" && t.Refresh == "" && t.Version.Compare(spec) < 0
}
