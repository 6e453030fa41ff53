package find

import (
	"context"
	"maps"
	"slices"
	"strings"

	"gpustack/cleanup"
)

// readRenamed reads, for the rows of deleted nodes that their instance is still on, the row of the
// same device on a live node of the same host: after a change of hypervisor_hostname, nova-compute
// makes a new node and deletes the old one. The live node has the name of the deleted one after the
// hypervisor was renamed back.
func (r *reader) readRenamed(ctx context.Context, e *records, devices []cleanup.Device) error {
	old := map[nodeAddress][]cleanup.Device{} // rows of deleted nodes, by live node and address
	for _, d := range devices {
		n, there := r.nodes.get(d.Node)
		if !there || !n.Deleted || n.Odd != "" || d.Instance == nil {
			continue
		}
		if i, known := e.instances[cleanup.KeyOf(*d.Instance)]; !known || i.Deleted || !i.On(n.Host, n.Name) {
			continue
		}
		for _, other := range r.liveNodes(n.Host) {
			at := nodeAddress{other.ID, strings.ToLower(d.Address)}
			old[at] = append(old[at], d)
		}
	}
	e.renamed = map[int64]cleanup.Held{}
	return r.devicesAt(ctx, ownAddress, slices.Collect(maps.Keys(old)), "", nil, func(list []cleanup.Device) error {
		for _, d := range list {
			n, _ := r.nodes.get(d.Node)
			h := cleanup.Held{Device: d, Host: n.Host, NodeName: n.Name}
			for _, o := range old[nodeAddress{d.Node, strings.ToLower(d.Address)}] {
				if h.Node >= e.renamed[o.ID].Node { // of several live nodes, the latest
					e.renamed[o.ID] = h
				}
			}
		}
		return nil
	})
}
