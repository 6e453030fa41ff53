package main

import (
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/rdma/ping"
)

// imageName are the characters of an image's name, tag and digest (distribution's reference
// grammar), none of which a shell interprets.
var imageName = host.LazyRegexp(`^[0-9A-Za-z][0-9A-Za-z._:/@+-]*$`)

// testContainers is how rdma test starts rping in containers (docs/json.md).
type testContainers struct {
	Image  string `json:"image"`
	Engine string `json:"engine"`
}

// checkImage adds an error unless name can be an image's name.
func (f *faults) checkImage(name string) {
	if !imageName().MatchString(name) {
		f.add(&usageError{"--container " + quoted(name) + ": is no name of an image", "the name, tag or id by which podman images or docker images lists it"})
	}
}

const rdmaCM = "/dev/infiniband/rdma_cm"

// containerDevices returns the values of --device that give a container the device nodes of a
// target: the name of a CDI device, of our kind if there is one, otherwise the nodes themselves.
func containerDevices(folders cdi.Folders, target ping.Target) []string {
	verbs := ""
	if target.Adapter.Verbs != nil {
		verbs = "/dev/infiniband/" + target.Adapter.Verbs.Name
	}
	var found []string
	for _, d := range folders.Devices() {
		edits, err := folders.Inject(d.Name)
		if err != nil {
			continue // container check names the reason
		}
		has := func(path string) bool {
			return slices.ContainsFunc(edits.DeviceNodes, func(n *specs.DeviceNode) bool { return n.Path == path })
		}
		if verbs != "" && has(verbs) && has(rdmaCM) {
			found = append(found, d.Name)
		}
	}
	own := func(name string) bool { return strings.HasPrefix(name, cdi.DefaultHCAKind+"=") }
	switch i := slices.IndexFunc(found, own); {
	case i >= 0:
		return found[i : i+1]
	case len(found) > 0:
		return found[:1]
	}
	nodes := []string{rdmaCM + ":" + rdmaCM + ":rw"}
	if verbs != "" {
		nodes = append([]string{verbs + ":" + verbs + ":rw"}, nodes...)
	}
	return nodes
}

// describe returns how a test's containers were started.
func (c testContainers) describe(devices []string) string {
	return c.Engine + " run --device " + strings.Join(devices, " --device ") + " " + c.Image
}
