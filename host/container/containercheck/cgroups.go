package containercheck

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/host/nvidia"
)

// Cgroups is what decides whether running containers lose device nodes when systemd reloads.
type Cgroups struct {
	Links   []string       // entries of /dev/char, such as 195:0, by which systemd finds nodes
	Systemd int            // its version, 0 if unknown
	Runc    nvidia.Version // of Debian's package, "" if unknown
}

const charDir = "/dev/char"

// systemdDirs have the library of systemd's programs, whose name has the version.
var systemdDirs = []string{"/usr/lib/systemd", "/lib/systemd", "/usr/lib/x86_64-linux-gnu/systemd", "/usr/lib/aarch64-linux-gnu/systemd"}

func readCgroups(root host.Root, versions map[string]string) machine.Look[Cgroups] {
	c := Cgroups{Runc: version(versions["runc"])}
	links, err := root.ReadDir(charDir)
	if err != nil && !host.IsAbsent(err) {
		return machine.Saw(charDir, c, err)
	}
	c.Links = links
	for _, dir := range systemdDirs {
		names, err := root.ReadDir(dir)
		if err != nil && !host.IsAbsent(err) {
			return machine.Saw(dir, c, err)
		}
		for _, name := range names {
			number, _ := strings.CutPrefix(strings.TrimSuffix(name, path.Ext(name)), "libsystemd-shared-")
			number = number[:len(number)-len(strings.TrimLeft(number, "0123456789"))]
			if version, err := strconv.Atoi(number); err == nil {
				c.Systemd = version
			}
		}
	}
	return machine.Saw(charDir, c, nil)
}

// Versions between which, and before which, a reload of systemd takes nodes of the spec from
// containers too (runc, pull requests 3671 and 3708).
const (
	runcDrops, runcKeeps = nvidia.Version("1.1.3"), nvidia.Version("1.1.7")
	systemdKeeps         = 240
)

// cgroups finds what takes GPUs from running containers when systemd reloads: nodes that NVIDIA's
// hook adds behind a runtime whose cgroups systemd makes, and nodes of any spec with some versions
// of runc and systemd. Links in /dev/char, by which systemd finds the nodes, prevent both.
func (v view) cgroups() []host.Finding {
	switch {
	case !v.Cgroups.Seen():
		return checklist.Unread(v.Cgroups.File, v.Cgroups.Err)
	case !v.Injectors.Seen():
		return checklist.Unread(v.Injectors.File, v.Injectors.Err)
	}
	c := v.Cgroups.Value
	if slices.ContainsFunc(c.Links, func(name string) bool { return strings.HasPrefix(name, "195:") }) {
		return checklist.Pass("%s has links to the nodes of the driver", charDir)
	}
	f := host.Finding{
		Status: host.Warn,
		Effect: "a running container loses its GPUs when an operator runs systemctl daemon-reload: " + lost + ", in CUDA " + unknownError,
		Remedy: host.Plain("create the links at boot by udev: nvidia-ctk system create-dev-char-symlinks --create-all; or use the cgroupfs driver"),
	}
	for _, i := range v.Injectors.Value {
		if i.Systemd && i.ByHook(v.Toolkit.Value) {
			f.File, f.Seen = i.File, fmt.Sprintf("%s adds nodes that systemd, which makes the cgroups, does not know of, "+
				"and %s has no link to a node of the driver", i, charDir)
			return []host.Finding{f}
		}
	}
	given := slices.ContainsFunc(v.given, isForGPU) || len(v.Injectors.Value) > 0
	switch {
	case !given:
		return checklist.NA("nothing gives containers a GPU")
	case c.Runc != "" && c.Runc.Compare(runcDrops) >= 0 && c.Runc.Compare(runcKeeps) < 0:
		f.File, f.Seen = host.PackageFile, fmt.Sprintf("runc %s drops device nodes when systemd reloads, and %s has no link to a node of the driver", c.Runc, charDir)
		f.Remedy = host.Textf("%s, or runc %s or later", f.Remedy, runcKeeps)
	case c.Systemd > 0 && c.Systemd < systemdKeeps:
		f.Seen = fmt.Sprintf("systemd %d drops device nodes when it reloads, and %s has no link to a node of the driver", c.Systemd, charDir)
	default:
		return checklist.Pass("nothing is known to take GPUs from running containers when systemd reloads")
	}
	return []host.Finding{f}
}
