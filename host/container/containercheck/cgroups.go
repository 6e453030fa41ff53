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
	"gpustack/host/nvidia"
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
func readCgroups(root host.Root, versions map[string]nvidia.Version) machine.Look[Cgroups] {
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
	files, err := containerdFiles(root, versions)
	failed = errors.Join(failed, err)
	found, err = lastSetting(root, "SystemdCgroup", files...)
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
var settingKeys = []string{"SystemdCgroup", "cgroup_manager", "enable_cdi", "BinaryName", "default_runtime_name", "mode"}

// Files of containerd.
const (
	containerdConf    = "/etc/containerd/config.toml"
	containerdFolder  = "/etc/containerd/conf.d"
	containerdImports = nvidia.Version("2.2.0") // from here on without a configuration the folder is read
)

// containerdFiles returns the files that containerd reads, the last one of which decides: its
// configuration and those that "imports" of a file names, relative to its folder. conf.d is read
// only so, and by default only from 2.2.0 on if there is no configuration
// (containerd-config.toml(5); containerd, pull request 12323).
func containerdFiles(root host.Root, versions map[string]nvidia.Version) (files []string, failed error) {
	pending := []string{containerdConf}
	if ok, err := root.Exists(containerdConf); err == nil && !ok {
		pending = nil
		for _, p := range []string{"containerd", "containerd.io"} {
			if v := versions[p]; v != "" && v.Compare(containerdImports) >= 0 {
				pending, failed = matching(root, containerdFolder+"/*.toml")
			}
		}
	}
	const most = 100 // files that import each other end here
	for len(pending) > 0 && len(files) < most {
		file := pending[0]
		pending = pending[1:]
		if slices.Contains(files, file) {
			continue
		}
		files = append(files, file)
		data, err := root.ReadReduced(file, reduced)
		if err != nil {
			continue // lastSetting reports it
		}
		for _, pattern := range tomlArray(data, "imports") {
			if !path.IsAbs(pattern) {
				pattern = path.Join(path.Dir(file), pattern)
			}
			imported, err := matching(root, pattern)
			failed = errors.Join(failed, err)
			pending = append(pending, imported...)
		}
	}
	return files, failed
}

// matching returns the files in a folder that match a pattern.
func matching(root host.Root, pattern string) (files []string, err error) {
	dir := path.Dir(pattern)
	names, err := root.ReadDir(dir)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, host.Cause(err))
	}
	for _, name := range names {
		if ok, err := path.Match(path.Base(pattern), name); ok && err == nil {
			files = append(files, path.Join(dir, name))
		}
	}
	return files, nil
}

// reduced returns of a configuration only what is used: registries have passwords.
func reduced(data []byte) []byte {
	var kept strings.Builder
	for _, key := range settingKeys {
		if value := tomlValue(data, key); value != "" {
			fmt.Fprintf(&kept, "%s = %q\n", key, value)
		}
	}
	if imports := tomlArray(data, "imports"); imports != nil {
		fmt.Fprintf(&kept, "imports = [%s]\n", `"`+strings.Join(imports, `", "`)+`"`)
	}
	return []byte(kept.String())
}

var tomlString = host.LazyRegexp(`"([^"]*)"|'([^']*)'`)

// tomlArray returns the strings of an array, which may be on several lines.
func tomlArray(data []byte, key string) (values []string) {
	text := ""
	for line := range strings.Lines(string(data)) {
		line, _, _ = strings.Cut(line, "#")
		if name, value, ok := strings.Cut(line, "="); text == "" && ok && strings.TrimSpace(name) == key {
			line = value
		} else if text == "" {
			continue
		}
		if text += line; strings.Contains(line, "]") {
			break
		}
	}
	for _, match := range tomlString().FindAllStringSubmatch(text, -1) {
		values = append(values, match[1]+match[2])
	}
	return values
}

// lastSetting returns the last value of a key in TOML files and in the .conf and .toml files of
// folders, in the order in which runtimes read them.
func lastSetting(root host.Root, key string, places ...string) (found setting, failed error) {
	read := func(file string) {
		data, err := root.ReadReduced(file, reduced)
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
