package containercheck

import (
	"fmt"
	"maps"
	"path"
	"slices"

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
	const link = container.CUDALink
	cuda := d.Library(link)
	if cuda == nil {
		f := host.Finding{
			Status: host.Fail, Seen: link + " is not installed on the host",
			Effect: "no spec can give it to a container, and CUDA programs in containers report " + insufficient + ", although nothing is too old",
			Remedy: v.install("the libraries of the driver" + ofLoaded(d) + ": " + container.InstallLibraries(v.Family, d).String()),
		}
		if i := slices.IndexFunc(d.Libraries, func(l nvidia.Library) bool { return l.Link == link && l.File == "" }); i >= 0 {
			f.File, f.Seen = path.Join(d.Libraries[i].Folder, link), link+" leads nowhere"
		}
		return []host.Finding{f}
	}
	findings := v.otherVersions(*cuda)
	if cuda.Version == "" {
		findings = append(findings, host.Finding{
			Status: host.Warn, File: path.Join(cuda.Folder, link), Seen: "the version of " + cuda.File + " is not known",
			Effect: "whether it is the module's is unknown, and specs have no library of the names with the driver's version",
			Remedy: v.install("the libraries of the driver" + ofLoaded(d) + ", as its packages have them"),
		})
	}
	found := 0
	for _, core := range nvidia.CoreLibraries(cuda.Version) {
		name := core.FileName(cuda.Version)
		switch {
		case name == "": // of an unknown version
		case d.Library(name) != nil:
			found++
		case slices.ContainsFunc(d.Libraries, func(l nvidia.Library) bool {
			return l.Link == name && l.File != "" && d.InContainer(l) == d.InContainer(*cuda)
		}): // of another version
		case core.Without != "":
			findings = append(findings, host.Finding{
				Status: host.Warn, Seen: name + " is not installed on the host", Effect: core.Without,
				Remedy: v.install("the complete libraries of the driver" + ofLoaded(d)),
			})
		}
	}
	return checklist.OrPass(findings, "%s of version %s", host.Numbered(found, "library"), cuda.Version)
}

// otherVersions finds libraries of other versions than the loaded module. Beside a driver
// container, specs have none of the machine's own.
func (v view) otherVersions(cuda nvidia.Library) (findings []host.Finding) {
	d := v.Driver.Value
	if d.Loaded == nil {
		return nil
	}
	contained := d.InContainer(cuda)
	isConsumer := slices.ContainsFunc(d.GPUs, nvidia.GPU.IsConsumer)
	other := map[nvidia.Version][]string{}
	for _, l := range d.Libraries {
		switch {
		case !slices.Contains(nvidia.CoreLinks(), l.Link) || !l.Version.Differs(d.Loaded.Version):
		case nvidia.IsForward(l.Folder) && l.Version.Compare(d.Loaded.Version) > 0 && !isConsumer: // of forward compatibility
		case contained && !d.InContainer(l): // containers get none of it
		default:
			other[l.Version] = append(other[l.Version], path.Join(l.Folder, l.Link))
		}
	}
	for _, version := range slices.SortedFunc(maps.Keys(other), nvidia.Version.Compare) {
		files := other[version]
		findings = append(findings, host.Finding{
			Status: host.Fail, File: files[0], Seen: fmt.Sprintf("%s is of version %s, the loaded module is %s", named(files), version, d.Loaded.Version),
			Effect: "programs that load it fail on the host and in containers: " + versionsDiffer + "; " + kernelMismatch,
			Remedy: host.Textf("reboot if the driver was upgraded; otherwise %s", v.install("module and libraries of one version, and remove the others")),
		})
	}
	return findings
}

// install returns the remedy of a part of the driver that is missing. Beside a driver container, a
// package of the machine would be a second driver.
func (v view) install(what string) host.Text {
	if root := v.Driver.Value.Container; root != "" {
		return host.Plain("restart the driver container, whose root is " + root +
			" (of the GPU operator: pod nvidia-driver-daemonset); install no package of the driver beside it")
	}
	return host.Plain("install " + what)
}

func ofLoaded(d nvidia.Driver) string {
	if d.Loaded == nil || d.Loaded.Version == "" {
		return ""
	}
	return ", version " + string(d.Loaded.Version)
}

// named names files in a sentence: the first, and how many others there are.
func named(files []string) string {
	if len(files) == 1 {
		return files[0]
	}
	return fmt.Sprintf("%s (and %d more)", files[0], len(files)-1)
}
