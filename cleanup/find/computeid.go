package find

import (
	"context"
	"fmt"

	"gpustack/cleanup"
)

// checkComputeIDs marks instances and migrations whose compute_id or dest_compute_id is not that of
// the compute node that their host and node name. Nova writes them together
// (nova/objects/instance.py and migration.py, since 2023.2), and later releases go by the id.
func (r *reader) checkComputeIDs(ctx context.Context, e *records) error {
	for uuid, i := range e.instances {
		if err := r.checkInstance(ctx, &i); err != nil {
			return err
		}
		e.instances[uuid] = i
	}
	for _, migrations := range e.migrations {
		for k := range migrations {
			if err := r.checkDestination(ctx, &migrations[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reader) checkInstance(ctx context.Context, i *cleanup.Instance) error {
	if i.Compute == nil || i.Deleted || i.Odd != "" {
		return nil
	}
	why, err := r.contradiction(ctx, *i.Compute, "instances", i.Host, i.Node)
	if why != "" {
		i.Odd = fmt.Sprintf("instance %s has compute_id %d, %s", i.UUID, *i.Compute, why)
	}
	return err
}

func (r *reader) checkDestination(ctx context.Context, m *cleanup.Migration) error {
	if m.DestCompute == nil || m.Odd != "" {
		return nil
	}
	why, err := r.contradiction(ctx, *m.DestCompute, "migrations", &m.DestHost, &m.DestNode)
	if why != "" {
		m.Odd = fmt.Sprintf("migration %d has dest_compute_id %d, %s", m.ID, *m.DestCompute, why)
	}
	return err
}

// contradiction describes why the compute node with an id is not the one that a row of instances or
// migrations names by host and node; "" if it is.
func (r *reader) contradiction(ctx context.Context, id int64, table string, host, node *string) (string, error) {
	columns := map[string][2]string{"instances": {"instances.host", "instances.node"}, "migrations": {"migrations.dest_compute", "migrations.dest_node"}}[table]
	n, there := r.nodes.get(id)
	text := func(name *string) string {
		if name == nil || *name == "" {
			return "NULL"
		}
		return fmt.Sprintf("%q", *name)
	}
	if !there {
		return fmt.Sprintf("which no compute node has; its host is %s and its node %s", text(host), text(node)), nil
	}
	for k, name := range []*string{host, node} {
		same := name != nil && *name == "" // a migration whose destination has no name yet
		if name != nil && *name != "" {
			var err error
			if same, err = r.names.same(ctx, columns[k], *name, []string{n.Host, n.Name}[k]); err != nil {
				return "", err
			}
		}
		if !same {
			return fmt.Sprintf("which is node %q of host %q, but its host is %s and its node %s", n.Name, n.Host, text(host), text(node)), nil
		}
	}
	return r.reborn(ctx, n)
}

// reborn describes the live node that has the host and the name of a deleted one; "" if there is
// none.
func (r *reader) reborn(ctx context.Context, n cleanup.Node) (string, error) {
	if !n.Deleted {
		return "", nil
	}
	live, err := r.liveNodes(ctx, n.Host)
	for _, other := range live {
		same, sameErr := r.names.same(ctx, "instances.node", n.Name, other.Name)
		if sameErr != nil {
			return "", sameErr
		}
		if same {
			return fmt.Sprintf("which is deleted, but node %q of host %q is compute node %d now", other.Name, other.Host, other.ID), err
		}
	}
	return "", err
}
