package guard

import "gpustack/host"

// containerID matches the id of a container in a control group: PREFIX-ID.scope with the systemd
// driver, a folder with cgroupfs. The short id is what docker and podman print.
var containerID = host.LazyRegexp(`(?m)[/-]([0-9a-f]{12})[0-9a-f]{52}(?:\.scope)?(?:/|$)`)

// container returns the innermost container of a process by its control groups (cgroups(7)), or "".
func container(cgroup string) string {
	found := containerID().FindAllStringSubmatch(cgroup, -1)
	if len(found) == 0 {
		return ""
	}
	return "container " + found[len(found)-1][1]
}
