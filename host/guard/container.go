package guard

import (
	"slices"
	"strings"
)

// Container is the container that a process runs in, as its control group names it. The zero value
// is none.
type Container struct {
	Engine string // the program whose ps lists it: "podman", "docker", "nerdctl", "crictl"; "" if unknown
	ID     string // 64 hexadecimal digits
}

// String returns the engine and the short id that its ps prints, or "".
func (c Container) String() string {
	if c.ID == "" {
		return ""
	}
	return strings.TrimSpace(c.Engine + " container " + c.ID[:shortID])
}

// hint returns how to end the use of a device by the container.
func (c Container) hint() string {
	if c.Engine == "" {
		return "stop the container " + c.ID[:shortID]
	}
	return "stop the container: " + c.Engine + " stop " + c.ID[:shortID]
}

const (
	shortID = 12 // digits that identify a container in what docker and podman print
	longID  = 64
)

// scopes returns the program that manages containers with a prefix of their control group. With the
// systemd driver the group is PREFIX-ID.scope (podman: libpod/oci_conmon_linux.go; docker: moby
// daemon/daemon_unix.go; containerd: internal/cri/server, getCgroupsPath; CRI-O:
// internal/config/cgmgr/systemd_linux.go), with cgroupfs it is libpod_parent/libpod-ID, docker/ID
// or kubepods/…/podUID/ID.
func scopes(prefix string) (engine string, ok bool) {
	engine, ok = map[string]string{
		"libpod": "podman", "docker": "docker", "nerdctl": "nerdctl", "cri-containerd": "crictl", "crio": "crictl", "": "",
	}[prefix]
	return engine, ok
}

// container returns the innermost container of a process by its control groups (cgroups(7)).
func container(cgroup string) Container {
	for line := range strings.Lines(cgroup) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) < 3 {
			continue
		}
		elements := strings.Split(parts[2], "/")
		for i, e := range slices.Backward(elements) {
			e = strings.TrimSuffix(e, ".scope")
			if len(e) < longID {
				continue
			}
			id, prefix := e[len(e)-longID:], e[:len(e)-longID]
			engine, ok := scopes(strings.TrimSuffix(prefix, "-"))
			if !ok || strings.Trim(id, "0123456789abcdef") != "" {
				continue
			}
			if prefix == "" && i > 0 {
				switch above := elements[i-1]; {
				case above == "docker":
					engine = "docker"
				case strings.HasPrefix(above, "pod"):
					engine = "crictl"
				}
			}
			return Container{engine, id}
		}
	}
	return Container{}
}
