package containercheck

import (
	"errors"
	"fmt"
	"iter"
	"path"
	"slices"
	"strings"
	"syscall"

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
	const controllers = "/sys/fs/cgroup/cgroup.controllers"
	// The root of a hierarchy of version 2 has this file (Linux,
	// Documentation/admin-guide/cgroup-v2.rst).
	unified, err := root.Exists(controllers)
	failed = errors.Join(failed, err)
	found, err := dockerDriver(root)
	add("docker", found, err, unified, "/usr/bin/dockerd", "/usr/sbin/dockerd")
	files, err := containerdFiles(root, versions)
	failed = errors.Join(failed, err)
	found, err = lastSetting(root, "SystemdCgroup", files...)
	options, optionsErr := runtimeOptions(root, "SystemdCgroup", files...)
	failed = errors.Join(failed, optionsErr)
	for _, o := range options {
		if o.value == "true" {
			found = o.setting
		}
	}
	add("containerd", found, err, false, "/usr/bin/containerd", "/usr/local/bin/containerd")
	found, err = lastSetting(root, "cgroup_manager", "/etc/crio/crio.conf", "/etc/crio/crio.conf.d")
	add("crio", found, err, true, "/usr/bin/crio", "/usr/local/bin/crio")
	found, err = lastSetting(root, "cgroup_manager", "/usr/share/containers/containers.conf", "/etc/containers/containers.conf", "/etc/containers/containers.conf.d")
	add("podman", found, err, true, "/usr/bin/podman")

	c.Links, err = root.ReadDir(charDir)
	if !host.IsAbsent(err) {
		failed = errors.Join(failed, err)
	}
	return sawFiles(charDir, c, failed)
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

// settingKeys are all keys that lastSetting is asked for, besides optionKeys: a snapshot contains a
// file once.
var settingKeys = []string{"cgroup_manager", "enable_cdi", "default_runtime_name", "mode"}

// optionKeys are keys that each of containerd's runtimes has one of, in a table of its own.
var optionKeys = []string{"SystemdCgroup", "BinaryName"}

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
	if ok, err := root.Exists(containerdConf); err == nil && !ok { // lastSetting reports the error
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
			place := pattern
			if !path.IsAbs(place) {
				place = path.Join(path.Dir(file), place)
			}
			imported := []string{place}
			if strings.Contains(place, "*") { // otherwise containerd reads a file of that name
				imported, err = matching(root, place)
			}
			if errors.Is(err, path.ErrBadPattern) {
				err = host.OfFile(file, fmt.Errorf("imports: %s: %w", pattern, path.ErrBadPattern))
			}
			failed = errors.Join(failed, err)
			pending = append(pending, imported...)
		}
	}
	return files, failed
}

// matching returns the files that match a pattern, in whichever part of their paths. Like
// filepath.Glob it finds none in what is no folder.
func matching(root host.Root, pattern string) (files []string, err error) {
	dir, base := path.Split(pattern)
	dir = path.Clean(dir)
	dirs := []string{dir}
	if strings.ContainsAny(dir, `*?[\`) {
		if dirs, err = matching(root, dir); err != nil {
			return nil, err
		}
	}
	if _, err := path.Match(base, ""); err != nil {
		return nil, err
	}
	for _, dir := range dirs {
		names, err := root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) && !errors.Is(err, syscall.ENOTDIR) {
			return nil, err
		}
		for _, name := range names {
			if ok, err := path.Match(base, name); ok && err == nil {
				files = append(files, path.Join(dir, name))
			}
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
	for _, key := range optionKeys {
		for keys, value := range tomlValues(data, key) {
			fmt.Fprintf(&kept, "[runtimes.%q.options]\n%s = %q\n", runtimeIn(keys), key, value)
		}
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
			failed = errors.Join(failed, err)
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
			failed = errors.Join(failed, err)
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
func tomlValue(data []byte, key string) (last string) {
	for _, value := range tomlValues(data, key) {
		last = value
	}
	return last
}

var (
	tomlTable = host.LazyRegexp(`^\s*\[\[?([^\[\]]+)\]\]?\s*(#.*)?$`)
	tomlPart  = host.LazyRegexp(`"([^"]*)"|'([^']*)'|([\w-]+)`)
)

// tomlValues yields the values of a key without their quotes, each with its whole key: the parts
// that its table is named by, and those of the line.
func tomlValues(data []byte, key string) iter.Seq2[[]string, string] {
	parts := func(text string) (parts []string) {
		for _, match := range tomlPart().FindAllStringSubmatch(text, -1) {
			parts = append(parts, match[1]+match[2]+match[3])
		}
		return parts
	}
	return func(yield func([]string, string) bool) {
		var table []string
		for line := range strings.Lines(string(data)) {
			if match := tomlTable().FindStringSubmatch(strings.TrimSpace(line)); match != nil {
				table = parts(match[1])
				continue
			}
			name, text, ok := strings.Cut(line, "=")
			keys := parts(name)
			if !ok || len(keys) == 0 || keys[len(keys)-1] != key || strings.HasPrefix(strings.TrimSpace(name), "#") {
				continue
			}
			text, _, _ = strings.Cut(text, "#")
			if !yield(slices.Concat(table, keys), strings.Trim(strings.TrimSpace(text), `"'`)) {
				return
			}
		}
	}
}

// runtimeOption is an option of one of containerd's runtimes.
type runtimeOption struct {
	runtime string // "nvidia", "" in a table that names none
	setting
}

// runtimeIn returns the name of the runtime whose table a key is in:
// plugins."io.containerd.grpc.v1.cri".containerd.runtimes.NAME.options.
func runtimeIn(keys []string) string {
	if i := slices.Index(keys, "runtimes"); i >= 0 && i+2 < len(keys) {
		return keys[i+1]
	}
	return ""
}

// runtimeOptions returns an option of each of containerd's runtimes that has it, by name: the value
// in the last of the files counts, also an empty one.
func runtimeOptions(root host.Root, key string, files ...string) (options []runtimeOption, failed error) {
	for _, file := range files {
		data, err := root.ReadReduced(file, reduced)
		if err != nil && !host.IsAbsent(err) {
			failed = errors.Join(failed, err)
		}
		for keys, value := range tomlValues(data, key) {
			name := runtimeIn(keys)
			options = slices.DeleteFunc(options, func(o runtimeOption) bool { return o.runtime == name })
			options = append(options, runtimeOption{name, setting{value, file}})
		}
	}
	slices.SortFunc(options, func(a, b runtimeOption) int { return strings.Compare(a.runtime, b.runtime) })
	return options, failed
}

// cgroups finds missing /dev/char links of the driver's nodes where a container runtime uses the
// systemd cgroup driver. Without them containers lose their devices while they run: these runtimes
// name each device to systemd by its link, and leave out those without one, so that "systemctl
// daemon-reload" applies a list without them.
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
