package trial

import (
	"path"

	"gpustack/host/cdi"
	"gpustack/host/rdma"
)

const rdmaCM = "/dev/infiniband/rdma_cm"

// containerDevices returns the values of --device that give a container the device nodes of a
// target: the name of a CDI device, or without one the nodes themselves. Why a device cannot be
// used, container check says.
func containerDevices(folders cdi.Folders, target Target) []string {
	nodes := []string{rdmaCM}
	if target.Adapter.Verbs != nil {
		nodes = []string{path.Join(rdma.NodesDir, target.Adapter.Verbs.Name), rdmaCM}
		if name, _, _ := folders.Giving(cdi.HCAFile, nodes...); name != "" {
			return []string{name}
		}
	}
	for i, node := range nodes {
		nodes[i] = node + ":" + node + ":rw"
	}
	return nodes
}
