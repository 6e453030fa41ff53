package containercheck

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/docker"
	"gpustack/host/machine"
)

// Cgroups is how the runtimes that are configured below a root create cgroups, and which links
// systemd has to find device nodes by.
type Cgroups struct {
	Drivers []CgroupDriver // one for each runtime that is configured or installed
	// Links are the entries of /dev/char, such as 195:0.
	Links []string
}

// CgroupDriver is the cgroup driver of a runtime.
type CgroupDriver struct {
	Runtime string // "docker"
	Systemd bool
	File    string // where it is set, "" if it is the runtime's default
}

const charDir = "/dev/char"

// readCgroups reads the configuration of each runtime:
//   - docker: exec-opts of daemon.json. Without it dockerd uses systemd where cgroups have version
//     2 and cgroupfs otherwise (moby, daemon/daemon_unix.go, getCgroupDriver).
//   - containerd: SystemdCgroup of the options of runc, false without it (containerd,
//     internal/cri/config).
//   - CRI-O: cgroup_manager, systemd without it (cri-o, docs/crio.conf.5.md).
//   - podman: cgroup_manager, systemd without it (containers-common, containers.conf(5)).
func readCgroups(root host.Root) machine.Look[Cgroups] {
	var c Cgroups
	var failed error
	add := func(runtime string, found setting, err error, preset bool, programs ...string) {
		failed = errors.Join(failed, err)
		installed := found.file != ""
		for _, program := range programs {
			ok, err := root.Exists(program)
			failed = errors.Join(failed, err)
			installed = installed || ok
		}
		if !installed {
			return
		}
		systemd := preset
		if found.value != "" {
			systemd = found.value == "systemd" || found.value == "true"
		}
		c.Drivers = append(c.Drivers, CgroupDriver{runtime, systemd, found.file})
	}
	// The root of a hierarchy of version 2 has this file (Linux,
	// Documentation/admin-guide/cgroup-v2.rst).
	unified, err := root.Exists("/sys/fs/cgroup/cgroup.controllers")
	failed = errors.Join(failed, err)
	found, err := dockerDriver(root)
	add("docker", found, err, unified, "/usr/bin/dockerd", "/usr/sbin/dockerd")
	found, err = lastSetting(root, "SystemdCgroup", "/etc/containerd/config.toml", "/etc/containerd/conf.d")
	add("containerd", found, err, false, "/usr/bin/containerd", "/usr/local/bin/containerd")
	found, err = lastSetting(root, "cgroup_manager", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d")
	add("crio", found, err, true, "/usr/bin/crio", "/usr/local/bin/crio")
	found, err = lastSetting(root, "cgroup_manager", "/usr/share/containers/containers.conf", "/etc/containers/containers.conf", "/etc/containers/containers.conf.d")
	add("podman", found, err, true, "/usr/bin/podman")

	c.Links, err = root.ReadDir(charDir)
	if !host.IsAbsent(err) {
		failed = errors.Join(failed, err)
	}
	return machine.Saw(charDir, c, failed)
}

// setting is a value with the file that sets it.
type setting struct{ value, file string }

// dockerDriver returns the value of native.cgroupdriver in daemon.json.
func dockerDriver(root host.Root) (setting, error) {
	conf, err := docker.ReadConf(root)
	if conf == nil {
		return setting{}, err
	}
	found := setting{file: docker.ConfFile}
	for _, option := range conf.ExecOpts {
		if value, ok := strings.CutPrefix(option, "native.cgroupdriver="); ok {
			found.value = value
		}
	}
	return found, nil
}

// settingKeys are all keys that lastSetting is asked for: a snapshot contains a file once.
var settingKeys = []string{"SystemdCgroup", "cgroup_manager", "enable_cdi"}

// lastSetting returns the last value of a key in TOML files and in the .conf and .toml files of
// folders, in the order in which runtimes read them.
func lastSetting(root host.Root, key string, places ...string) (found setting, failed error) {
	read := func(file string) {
		data, err := root.ReadReduced(file, func(data []byte) []byte { // registries have passwords
			var kept strings.Builder
			for _, key := range settingKeys {
				if value := tomlValue(data, key); value != "" {
					fmt.Fprintf(&kept, "%s = %q\n", key, value)
				}
			}
			return []byte(kept.String())
		})
		switch {
		case host.IsAbsent(err):
		case err != nil:
			failed = errors.Join(failed, fmt.Errorf("%s: %w", file, host.Cause(err)))
		default:
			if value := tomlValue(data, key); value != "" {
				found = setting{value, file}
			} else if found.file == "" {
				found.file = file
			}
		}
	}
	for _, place := range places {
		if ext := path.Ext(place); ext == ".conf" || ext == ".toml" {
			read(place)
			continue
		}
		names, err := root.ReadDir(place)
		if err != nil && !host.IsAbsent(err) {
			failed = errors.Join(failed, fmt.Errorf("%s: %w", place, host.Cause(err)))
		}
		for _, name := range names {
			if ext := path.Ext(name); ext == ".conf" || ext == ".toml" {
				read(path.Join(place, name))
			}
		}
	}
	return found, failed
}

// tomlValue returns the last value of a key without its quotes, in whichever table it is: these
// keys have one meaning in the files that are read.
func tomlValue(data []byte, key string) (value string) {
	for line := range strings.Lines(string(data)) {
		name, text, ok := strings.Cut(line, "=")
		if !ok || strings.Trim(strings.TrimSpace(name), `"'`) != key {
			continue
		}
		text, _, _ = strings.Cut(text, "#")
		value = strings.Trim(strings.TrimSpace(text), `"'`)
	}
	return value
}

// cgroups finds containers that lose their devices while they run: with the systemd cgroup driver,
// runtimes name each device to systemd by its link in /dev/char, and leave out those without one,
// so that "systemctl daemon-reload" applies a list without them.
func (v view) cgroups() []host.Finding {
	if !v.Cgroups.Seen() {
		return checklist.Unread(v.Cgroups.File, v.Cgroups.Err)
	}
	c := v.Cgroups.Value
	if len(c.Drivers) == 0 {
		return checklist.NA("no container runtime is installed")
	}
	var systemd []string
	file := ""
	for _, d := range c.Drivers {
		if d.Systemd {
			systemd = append(systemd, d.Runtime)
			if file == "" {
				file = d.File
			}
		}
	}
	if systemd == nil {
		return checklist.Pass("no runtime uses the systemd cgroup driver")
	}
	if slices.ContainsFunc(c.Links, func(name string) bool { return strings.HasPrefix(name, "195:") }) {
		return checklist.Pass("%s has links to the nodes of the driver", charDir)
	}
	return []host.Finding{{
		Status: host.Warn, File: file,
		Seen: fmt.Sprintf("%s uses the systemd cgroup driver, and %s has no link to a node of the driver (major 195)", strings.Join(systemd, ", "), charDir),
		Effect: `a running container loses its GPUs when an operator runs systemctl daemon-reload: "Failed to initialize NVML: Unknown Error", ` +
			`in CUDA "999 cudaErrorUnknown: unknown error"`,
		Remedy: "create the links at boot by udev: nvidia-ctk system create-dev-char-symlinks --create-all; or use the cgroupfs driver",
	}}
}
