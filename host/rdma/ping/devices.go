package ping

import (
	"path"
	"slices"

	specs "tags.cncf.io/container-device-interface/specs-go"

	"gpustack/host/cdi"
	"gpustack/host/rdma"
)

const rdmaCM = "/dev/infiniband/rdma_cm"

// containerDevices returns the values of --device that give a container the device nodes of a
// target: the name of a CDI device, that of container prepare or else the one with the fewest nodes
// besides, or without one the nodes themselves.
func containerDevices(folders cdi.Folders, target Target) []string {
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
		if path.Base(d.File) == cdi.HCAFile {
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
