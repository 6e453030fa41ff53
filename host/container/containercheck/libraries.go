package containercheck

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/container"
	"gpustack/host/nvidia"
)

// libraries checks that the host has the libraries that containers get, all of the version of the
// module: a CDI spec of containers mounts them, and so does NVIDIA's hook.
func (v view) libraries() []host.Finding {
	if why := v.noDriver(); why != nil {
		return why
	}
	d := v.Driver.Value
	const cuda = container.CUDALink
	byLink := map[string][]nvidia.Library{}
	for _, l := range d.Libraries {
		byLink[l.Link] = append(byLink[l.Link], l)
	}
	if byLink[cuda] == nil {
		return []host.Finding{{
			Status: host.Fail, Seen: cuda + " is not installed on the host",
			Effect: "no spec can give it to a container, and CUDA programs in containers report " + insufficient + ", although nothing is too old",
			Remedy: v.install("the libraries of the driver" + ofLoaded(d) + ": " + v.Family.Install(container.DriverPackages(d))),
		}}
	}
	var findings []host.Finding
	if d.Loaded != nil {
		other := map[nvidia.Version][]string{}
		for _, l := range d.Libraries {
			if slices.Contains(nvidia.CoreLinks(), l.Link) && differs(l.Version, d.Loaded.Version) {
				other[l.Version] = append(other[l.Version], path.Join(l.Folder, l.Link))
			}
		}
		for _, version := range versions(other) {
			files := other[version]
			findings = append(findings, host.Finding{
				Status: host.Fail, File: files[0], Seen: fmt.Sprintf("%s is of version %s, the loaded module is %s", named(files), version, d.Loaded.Version),
				Effect: "programs that load it fail on the host and in containers: " + versionsDiffer + "; " + kernelMismatch,
				Remedy: "reboot if the driver was upgraded; otherwise " + v.install("module and libraries of one version, and remove the others"),
			})
		}
	} else if all := versions(byVersion(d.Libraries)); len(all) > 1 {
		findings = append(findings, host.Finding{
			Status: host.Warn, File: path.Join(byLink[cuda][0].Folder, cuda), Seen: "libraries of several versions are installed: " + texts(all),
			Effect: "only those of the module's version work, others report " + versionsDiffer,
			Remedy: "keep the libraries of one version",
		})
	}
	version := byLink[cuda][0].Version
	found := 0
	for _, core := range nvidia.CoreLibraries(version) {
		name := core.FileName(version)
		switch {
		case byLink[name] != nil:
			found++
		case name != "" && core.Without != "" && (!core.Versioned || core.IsOpened(version)):
			findings = append(findings, host.Finding{
				Status: host.Warn, Seen: name + " is not installed on the host", Effect: core.Without,
				Remedy: v.install("the complete libraries of the driver" + ofLoaded(d)),
			})
		}
	}
	return checklist.OrPass(findings, "%s of version %s", host.Numbered(found, "library"), version)
}

// install returns the remedy of a part of the driver that is missing. Beside a driver container, a
// package of the machine would be a second driver.
func (v view) install(what string) host.Text {
	if root := v.Driver.Value.Container; root != "" {
		return host.Text("restart the driver container, whose root is " + root +
			" (of the GPU operator: pod nvidia-driver-daemonset); install no package of the driver beside it")
	}
	return host.Text("install " + what)
}

func ofLoaded(d nvidia.Driver) string {
	if d.Loaded == nil {
		return ""
	}
	return ", version " + string(d.Loaded.Version)
}

// byVersion groups the files of libraries by version.
func byVersion(libraries []nvidia.Library) map[nvidia.Version][]string {
	found := map[nvidia.Version][]string{}
	for _, l := range libraries {
		if l.Version != "" {
			found[l.Version] = append(found[l.Version], path.Join(l.Folder, l.Link))
		}
	}
	return found
}

// versions returns the keys in their order.
func versions[V any](m map[nvidia.Version]V) []nvidia.Version {
	var all []nvidia.Version
	for version := range m {
		all = append(all, version)
	}
	slices.SortFunc(all, nvidia.Version.Compare)
	return all
}

func texts(versions []nvidia.Version) string {
	var all []string
	for _, version := range versions {
		all = append(all, string(version))
	}
	return strings.Join(all, ", ")
}

// named names files in a sentence: the first, and how many others there are.
func named(files []string) string {
	if len(files) == 1 {
		return files[0]
	}
	return fmt.Sprintf("%s (and %d more)", files[0], len(files)-1)
}
