package find

import (
	"cmp"
	"fmt"

	"gpustack/cleanup"
)

// checkComputeIDs marks instances and migrations whose compute_id or dest_compute_id is not that of
// the compute node that their host and node name. Nova writes them together
// (nova/objects/instance.py and migration.py, since 2023.2), and later releases go by the id.
func (r *reader) checkComputeIDs(e *records) {
	for uuid, i := range e.instances {
		r.checkInstance(&i)
		e.instances[uuid] = i
	}
	for _, migrations := range e.migrations {
		for k := range migrations {
			r.checkDestination(&migrations[k])
		}
	}
}

func (r *reader) checkInstance(i *cleanup.Instance) {
	if i.Compute == nil || i.Deleted || i.Odd != "" {
		return
	}
	if why := r.contradiction(*i.Compute, i.Host, i.Node); why != "" {
		i.Odd = fmt.Sprintf("instance %s has compute_id %d, %s", i.UUID, *i.Compute, why)
	}
}

// checkDestination checks a migration, whose destination may have no name yet.
func (r *reader) checkDestination(m *cleanup.Migration) {
	if m.DestCompute == nil || m.Odd != "" {
		return
	}
	host, node := m.DestHost, m.DestNode
	if n, _ := r.nodes.get(*m.DestCompute); host == "" || node == "" {
		host, node = cmp.Or(host, n.Host), cmp.Or(node, n.Name)
	}
	if why := r.contradiction(*m.DestCompute, &host, &node); why != "" {
		m.Odd = fmt.Sprintf("migration %d has dest_compute_id %d, %s", m.ID, *m.DestCompute, why)
	}
}

// contradiction describes why the compute node with an id is not the one that a row of instances or
// migrations names by host and node, or is a deleted one that lives under another id; "" if neither.
func (r *reader) contradiction(id int64, host, node *string) string {
	n, there := r.nodes.get(id)
	if !there {
		return fmt.Sprintf("which no compute node has; its host is %s and its node %s", quoted(host), quoted(node))
	}
	if !(cleanup.Instance{Host: host, Node: node}).On(n.Host, n.Name) {
		return fmt.Sprintf("which is node %q of host %q, but its host is %s and its node %s", n.Name, n.Host, quoted(host), quoted(node))
	}
	for _, other := range r.liveNodes(n.Host) {
		if n.Deleted && other.Name == n.Name {
			return fmt.Sprintf("which is deleted, but node %q of host %q is compute node %d now", other.Name, other.Host, other.ID)
		}
	}
	return ""
}
