package main

import (
	"path"
	"slices"
	"strings"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host"
	"gpustack/host/cdi"
	"gpustack/host/container/prepare"
	"gpustack/host/rdma"
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
// target: the name of a CDI device, that of container prepare or else the one with the fewest nodes
// besides, or without one the nodes themselves.
func containerDevices(folders cdi.Folders, target ping.Target) []string {
	nodes := []string{rdmaCM}
	if target.Adapter.Verbs != nil {
		nodes = []string{path.Join(rdma.NodesDir, target.Adapter.Verbs.Name), rdmaCM}
	}
	best, least := "", 0
	for _, d := range folders.Devices() {
		edits, err := folders.Inject(d.Name)
		if err != nil || target.Adapter.Verbs == nil {
			continue // container check names the reason
		}
		has := func(file string) bool {
			return slices.ContainsFunc(edits.DeviceNodes, func(n *specs.DeviceNode) bool { return n.Path == file })
		}
		if !has(nodes[0]) || !has(rdmaCM) {
			continue
		}
		if path.Base(d.File) == prepare.HCAFile {
			return []string{d.Name}
		}
		if best == "" || len(edits.DeviceNodes) < least {
			best, least = d.Name, len(edits.DeviceNodes)
		}
	}
	if best != "" {
		return []string{best}
	}
	for i, node := range nodes {
		nodes[i] = node + ":" + node + ":rw"
	}
	return nodes
}

// describe returns how a test's containers were started.
func (c testContainers) describe(devices []string) string {
	return c.Engine + " run --device " + strings.Join(devices, " --device ") + " " + c.Image
}
