package containercheck

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/docker"
	"gpustack/host/machine"
	"gpustack/host/nvidia"
)

// Docker is whether an installed docker reads CDI specs.
type Docker struct {
	Installed bool
	Version   nvidia.Version // of its Debian package, without epoch and revision; "" if unknown
	CDI       *bool          // as its configuration says, nil for the default
	Dirs      []string       // of the specs that it reads, nil for the default
}

func readDocker(root host.Root, versions map[string]string) machine.Look[Docker] {
	var d Docker
	conf, err := docker.ReadConf(root)
	failed := err
	if conf != nil {
		d.CDI, d.Dirs = conf.Features.CDI, conf.CDIDirs
	}
	d.Installed, err = docker.Installed(root)
	failed = errors.Join(failed, err)
	for _, p := range []string{"docker.io", "docker-ce"} {
		if v := versions[p]; v != "" {
			d.Version = version(v)
		}
	}
	return sawFiles(docker.ConfFile, d, failed)
}

// version returns the leading numbers of a package's version.
func version(of string) nvidia.Version {
	return nvidia.Version(of[:len(of)-len(strings.TrimLeft(of, "0123456789."))])
}

// Versions of docker, by the README of the Container Device Interface.
const (
	dockerReads  = nvidia.Version("25.0")
	dockerPreset = nvidia.Version("28.2.0") // reads specs unless configured otherwise
)

// runtimes shows what gives containers GPUs: NVIDIA's runtime or hook, or CDI specs, which a docker
// reads by its version and configuration, and other engines of these years by default.
func (v view) runtimes() []host.Finding {
	if !v.Injectors.Seen() {
		return checklist.Unread(v.Injectors.File, v.Injectors.Err)
	}
	var findings []host.Finding
	for _, i := range v.Injectors.Value {
		f := checklist.Pass("%s gives containers GPUs and the driver without a CDI spec", i)
		f[0].File, f[0].Effect = i.File, "containers get each GPU that NVIDIA_VISIBLE_DEVICES or docker's --gpus names: no role of a GPU keeps it from them"
		findings = append(findings, f...)
	}
	isOfDocker := slices.ContainsFunc(v.Injectors.Value, func(i container.Injector) bool { return i.Engine == "docker" })
	switch specs := v.Containers.Value != nil || len(v.Specs.Files) > 0; {
	case !v.Docker.Seen():
		return append(findings, checklist.Unread(v.Docker.File, v.Docker.Err)...)
	case !v.Docker.Value.Installed, isOfDocker && !specs:
	case !specs:
		findings = append(findings, checklist.NA("no CDI spec is there for docker")...)
	default:
		findings = append(findings, v.Docker.Value.finding(v.Specs.Files))
	}
	if findings == nil {
		return checklist.NA("neither docker nor a runtime or hook of NVIDIA's is configured; podman, containerd and CRI-O read CDI specs")
	}
	return findings
}

// finding returns whether docker reads CDI specs. files are those of the machine.
func (d Docker) finding(files []cdi.File) host.Finding {
	f := host.Finding{
		Status: host.Warn, File: docker.ConfFile, Effect: "containers of docker cannot be given a device by its CDI name",
		Remedy: host.Plain(`"features": {"cdi": true} in ` + docker.ConfFile + ", and a restart of docker.service"),
	}
	isKnown, version := d.Version != "", "docker "+string(d.Version)
	switch {
	case isKnown && d.Version.Compare(dockerReads) < 0:
		f.Seen = fmt.Sprintf("%s is older than %s, and reads no CDI specs", version, dockerReads)
		f.Remedy = host.Plain("a newer docker")
	case d.CDI != nil && *d.CDI, d.CDI == nil && isKnown && d.Version.Compare(dockerPreset) >= 0:
		for _, file := range files {
			dir := path.Dir(file.Path)
			reads := func(given string) bool { return strings.Replace(path.Clean(given), "/var/run/", "/run/", 1) == dir }
			if len(d.Dirs) > 0 && !slices.ContainsFunc(d.Dirs, reads) {
				f.Seen = fmt.Sprintf("cdi-spec-dirs of docker has no %s, which has %s", dir, file.Path)
				f.Remedy = host.Plain("add " + dir + " to cdi-spec-dirs in " + docker.ConfFile + ", and restart docker.service")
				return f
			}
		}
		return checklist.Pass("CDI specs are read by %s", strings.TrimSpace(version))[0]
	case d.CDI != nil:
		f.Seen = strings.TrimSpace(version) + " is configured to read no CDI specs"
	case isKnown:
		f.Seen = version + " reads CDI specs only where it is configured to"
	default:
		f.Seen = fmt.Sprintf("docker is not configured to read CDI specs, "+
			"and which version it is cannot be determined; from %s on it reads them by default", dockerPreset)
	}
	return f
}
