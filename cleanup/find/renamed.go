package find

import (
	"context"
	"maps"
	"slices"
	"strings"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// readRenamed reads, for the rows of deleted nodes that their instance is still on, the row of the
// same device on a live node of the same host: after a change of hypervisor_hostname, nova-compute
// makes a new node and deletes the old one. The live node has the name of the deleted one after the
// hypervisor was renamed back.
func (r *reader) readRenamed(ctx context.Context, e *records, devices []cleanup.Device) error {
	wanted := map[int64]map[string][]cleanup.Device{} // rows of deleted nodes, by live node and address
	for _, d := range devices {
		n, there := r.nodes.get(d.Node)
		if !there || !n.Deleted || n.Odd != "" || d.Instance == nil {
			continue
		}
		i, known := e.instances[cleanup.KeyOf(*d.Instance)]
		if !known || i.Deleted {
			continue
		}
		if on, err := r.on(ctx, i, n); err != nil || !on {
			if err != nil {
				return err
			}
			continue
		}
		live, err := r.liveNodes(ctx, n.Host)
		if err != nil {
			return err
		}
		for _, other := range live {
			if wanted[other.ID] == nil {
				wanted[other.ID] = map[string][]cleanup.Device{}
			}
			address := strings.ToLower(d.Address)
			wanted[other.ID][address] = append(wanted[other.ID][address], d)
		}
	}
	e.renamed = map[int64]cleanup.Held{}
	for _, node := range slices.Sorted(maps.Keys(wanted)) {
		n, _ := r.nodes.get(node)
		for some := range slices.Chunk(slices.Sorted(maps.Keys(wanted[node])), batch) {
			list, err := r.devices(ctx, "compute_node_id = ? AND address IN ("+novadb.Places(len(some))+")", append([]any{node}, anys(some)...)...)
			if err != nil {
				return err
			}
			for _, d := range list {
				h := cleanup.Held{Device: d, Host: n.Host, NodeName: n.Name}
				for _, old := range wanted[node][strings.ToLower(d.Address)] {
					var err error
					if h.Own, err = r.on(ctx, e.instances[cleanup.KeyOf(*old.Instance)], n); err != nil {
						return err
					}
					e.renamed[old.ID] = h
				}
			}
		}
	}
	return nil
}

// replaced returns whether an instance is on a live node of a node's host.
func (r *reader) replaced(ctx context.Context, i cleanup.Instance, n cleanup.Node) (bool, error) {
	live, err := r.liveNodes(ctx, n.Host)
	for _, other := range live {
		if on, err := r.on(ctx, i, other); on || err != nil {
			return on, err
		}
	}
	return false, err
}

// liveNodes returns the nodes of a host that are not deleted.
func (r *reader) liveNodes(ctx context.Context, host string) (live []cleanup.Node, err error) {
	hosts, err := r.names.spellings(ctx, "compute_nodes.host", host)
	for _, name := range hosts {
		for _, i := range r.names.nodes[hostNames].find([]byte(name)) {
			if n := r.nodes.at(int(i)); !n.Deleted {
				live = append(live, n)
			}
		}
	}
	return live, err
}
