package containercheck

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/docker"
	"gpustack/host/machine"
	"gpustack/host/nvidia"
)

// Runtime is an installed container runtime, with what decides whether it reads CDI specs.
type Runtime struct {
	Name    string         // "docker"
	Version nvidia.Version // of its Debian package, without epoch and revision; "" if unknown
	CDI     host.Bool      // as its configuration says, Unknown where that says nothing
	File    string         // of the configuration, "" if there is none
}

const (
	dpkgStatus     = "/var/lib/dpkg/status"
	kubeletProgram = "/usr/bin/kubelet"
)

// readRuntimes finds the runtimes whose programs are installed.
func readRuntimes(root host.Root, versions map[string]nvidia.Version, failed error) machine.Look[[]Runtime] {
	var all []Runtime
	add := func(name string, cdi setting, err error, packages []string, programs ...string) {
		failed = errors.Join(failed, err)
		installed := false
		for _, program := range programs {
			ok, err := root.Exists(program)
			failed = errors.Join(failed, err)
			installed = installed || ok
		}
		if !installed {
			return
		}
		r := Runtime{Name: name, File: cdi.file}
		for _, p := range packages {
			if v := versions[p]; v != "" {
				r.Version = v
			}
		}
		if cdi.value != "" {
			r.CDI = host.BoolOf(cdi.value == "true")
		}
		all = append(all, r)
	}
	var found setting
	conf, err := docker.ReadConf(root)
	if conf != nil {
		found.file = docker.ConfFile
		if conf.Features.CDI != nil {
			found.value = fmt.Sprint(*conf.Features.CDI)
		}
	}
	add("docker", found, err, []string{"docker.io", "docker-ce"}, "/usr/bin/dockerd", "/usr/sbin/dockerd")
	hasDocker := len(all) > 0
	kubelet, err := root.Exists(kubeletProgram)
	failed = errors.Join(failed, err)
	if !hasDocker || kubelet { // docker starts containerd, but resolves names of devices itself
		files, err := containerdFiles(root, versions)
		failed = errors.Join(failed, err)
		found, err = lastSetting(root, "enable_cdi", files...)
		add("containerd", found, err, []string{"containerd", "containerd.io"}, "/usr/bin/containerd", "/usr/local/bin/containerd")
	}
	add("podman", setting{}, nil, []string{"podman"}, "/usr/bin/podman")
	add("crio", setting{}, nil, []string{"cri-o"}, "/usr/bin/crio", "/usr/local/bin/crio")
	return sawFiles(dpkgStatus, all, failed)
}

// packageVersions returns the upstream versions of runtimes that Debian's package manager has
// installed (deb-version(7)). On a machine without it there are none. The list of packages is read
// as a stream, and only what is used of it is recorded.
func packageVersions(root host.Root) (map[string]nvidia.Version, error) {
	names := []string{"docker.io", "docker-ce", "containerd", "containerd.io", "podman", "cri-o"}
	f, err := root.Open(dpkgStatus)
	if host.IsAbsent(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close() //nolint:errcheck // only read from
	versions := map[string]nvidia.Version{}
	var kept strings.Builder
	name, installed := "", false
	lines := bufio.NewReader(f)
	for {
		line, err := lines.ReadString('\n')
		key, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch key {
		case "Package":
			name, installed = value, false
		case "Status":
			installed = strings.HasSuffix(value, " installed")
		case "Version":
			if !installed || !slices.Contains(names, name) {
				break
			}
			fmt.Fprintf(&kept, "Package: %s\nStatus: install ok installed\nVersion: %s\n\n", name, value)
			if _, after, ok := strings.Cut(value, ":"); ok {
				value = after
			}
			versions[name] = nvidia.Version(value[:len(value)-len(strings.TrimLeft(value, "0123456789."))])
		}
		if errors.Is(err, io.EOF) {
			root.Record(dpkgStatus, []byte(kept.String()))
			return versions, nil
		}
		if err != nil {
			return nil, host.OfFile(dpkgStatus, err)
		}
	}
}

// Versions of runtimes, by the README of the Container Device Interface.
const (
	podmanReads    = nvidia.Version("4.1")
	dockerReads    = nvidia.Version("25.0")
	dockerPreset   = nvidia.Version("28.2.0") // reads specs unless configured otherwise
	containerReads = nvidia.Version("1.7")
	containerdOn   = nvidia.Version("2.0") // the same of containerd
)

// runtimes finds installed container runtimes that read no CDI specs, by their configuration and
// the versions of Debian's packages.
func (v view) runtimes() []host.Finding {
	if !v.Runtimes.Seen() {
		return checklist.Unread(v.Runtimes.File, v.Runtimes.Err)
	}
	if len(v.Runtimes.Value) == 0 {
		return checklist.NA("no container runtime is installed")
	}
	var read, instead []string
	var findings []host.Finding
	warn := func(r Runtime, seen string, remedy host.Text) {
		findings = append(findings, host.Finding{
			Status: host.Warn, File: r.File, Seen: seen,
			Effect: "containers of " + r.Name + " cannot be given a device by its CDI name", Remedy: remedy,
		})
	}
	for _, r := range v.Runtimes.Value {
		giver := slices.IndexFunc(v.givers(), func(g NVIDIARuntime) bool { return g.Engine == r.Name })
		name := r.Name
		if r.Version != "" {
			name += " " + string(r.Version)
		}
		first, preset := podmanReads, podmanReads
		var how host.Text
		switch r.Name {
		case "docker":
			first, preset = dockerReads, dockerPreset
			how = `"features": {"cdi": true} in ` + docker.ConfFile + ", and a restart of docker.service"
		case "containerd":
			first, preset = containerReads, containerdOn
			how = "enable_cdi = true for the CRI plugin in /etc/containerd/config.toml, or in a file that its imports name, and a restart of containerd.service"
		case "crio":
			first, preset = "", ""
		}
		old := r.Version != "" && r.Version.Compare(first) < 0
		reads := r.CDI == host.Yes && !old || !r.CDI.Known() && !old && (preset == "" || r.Version != "" && r.Version.Compare(preset) >= 0)
		needless := !reads && v.Containers.Value == nil && len(v.Specs.Value.Files) == 0
		switch {
		case needless && !v.NVIDIARuntimes.Seen() && (r.Name == "docker" || r.Name == "containerd"):
			findings = append(findings, checklist.Unread(v.NVIDIARuntimes.File, v.NVIDIARuntimes.Err)...)
		case needless && giver >= 0:
			instead = append(instead, name)
		case r.CDI == host.No:
			warn(r, name+" is configured to read no CDI specs", how)
		case old && r.Name == "docker":
			warn(r, fmt.Sprintf("%s is older than %s, and reads no CDI specs", name, first),
				host.Textf("a newer one, or the flags that '%s' prints", host.NewCommand("container prepare").Flag("print", "docker")))
		case old:
			warn(r, fmt.Sprintf("%s is older than %s, and reads no CDI specs", name, first), host.Text("a newer "+r.Name))
		case r.CDI.Known(), preset == "", r.Version != "" && r.Version.Compare(preset) >= 0:
			read = append(read, name)
		case r.Version != "":
			warn(r, fmt.Sprintf("%s reads CDI specs only where it is configured to", name), how)
		case r.Name == "podman":
			read = append(read, name+", if it is "+string(first)+" or later")
		default:
			warn(r, fmt.Sprintf("%s is not configured to read CDI specs, and which version it is cannot be determined; from %s on it reads them by default",
				name, preset), how)
		}
	}
	switch {
	case findings != nil:
		return findings
	case read == nil:
		return checklist.Pass("NVIDIA's runtime gives containers of %s the driver; no CDI spec is read", strings.Join(instead, ", "))
	}
	return checklist.Pass("CDI specs are read by %s", strings.Join(read, ", "))
}
