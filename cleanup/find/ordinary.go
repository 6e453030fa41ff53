package find

import (
	"context"
	"maps"
	"slices"
	"strconv"

	"gpustack/cleanup"
	"gpustack/host"
)

// Nearly all rows of a cloud are ordinary: free, or taken by an instance that has rows of this one
// node, is on it, is not being changed by Nova, has no migration_context, and requests the devices that it
// has there. They are legitimate, whatever else the databases contain
// (cleanup.Classify), so they are only counted. All other rows are doubtful, and are judged one by
// one. Open migrations of the instance do not matter, unless they depend on names or are records
// that Nova does not write: a cloud may have tens of thousands in error.
//
// Each table is read once, in the order in which its rows are on disk. A join, in the server or by
// statements for batches of rows, follows indexes by uuid instead, whose order has nothing to do
// with that of the rows: it takes many times as long as all scans together.

// tally is the state of the search for doubtful rows.
type tally struct {
	*reader
	plain      []bool // of each node, whether ordinary rows may be on it
	owners     owners
	requested  cleanup.Requested
	ids        []int64 // of doubtful rows
	legitimate int
}

// doubtful returns the ids of the live rows that must be judged, in order, and the number of other
// taken rows, which are legitimate. It reads each live row once, and counts those that are free, unless
// free is nil.
func (r *reader) doubtful(ctx context.Context, free *freeRows) (ids []int64, legitimate int, err error) {
	t := &tally{reader: r, owners: owners{}}
	t.plain = r.plainNodes()
	if err := t.readDevices(ctx, free); err != nil {
		return nil, 0, err
	}
	for _, read := range []func(context.Context) error{t.readOpen, t.readOnNode, t.readExtra, t.count} {
		if err := read(ctx); err != nil {
			return nil, 0, err
		}
	}
	slices.Sort(t.ids)
	return slices.Compact(t.ids), t.legitimate, nil
}

// plainNodes returns, for each node, whether ordinary rows may be on it. On others a row depends on
// more than the instance's records: on deleted nodes, on those of hosts with equal names, and on
// those of hosts with a guest report or an inventory.
func (r *reader) plainNodes() []bool {
	reported := host.Set(r.proof.Hosts())
	plain := make([]bool, len(r.nodes.rows))
	for k := range plain {
		n := r.nodes.at(k)
		_, inventory := r.present[n.Host]
		plain[k] = !n.Deleted && n.Odd == "" && n.Host != "" && n.Name != "" && !inventory && !reported[n.Host]
	}
	return plain
}

// readDevices reads the rows of pci_devices.
func (t *tally) readDevices(ctx context.Context, free *freeRows) error {
	s := source{table: "pci_devices", owner: "instance_uuid", columns: ", compute_node_id, status, CRC32(request_id)"}
	if free != nil {
		s.columns += ", IF(status = '" + cleanup.StatusAvailable + "', " + freeColumn + ", NULL)"
	}
	node, index := int64(-1), -1
	return t.stream(ctx, s, func(v values) error {
		switch id, err := number(v[2]); {
		case err != nil:
			return err
		case id != node:
			node, index = id, t.nodes.index(id)
		}
		if kind := v[len(v)-1]; free != nil && kind != nil {
			if err := free.add(node, kind); err != nil {
				return err
			}
		}
		return t.device(v, index)
	})
}

// device notes a row on the node with an index, -1 for none.
func (t *tally) device(v values, node int) error {
	instance, status, request := v[1], v[3], v[4]
	free := string(status) == cleanup.StatusAvailable
	if free && instance == nil && request == nil {
		return nil
	}
	ordinary := false
	if instance != nil && !free {
		owner, canonical, ok := parseUUID(instance)
		ordinary = canonical && node >= 0 && t.plain[node] &&
			(string(status) == cleanup.StatusAllocated || string(status) == cleanup.StatusClaimed)
		if ok {
			sum := int64(0)
			if request != nil {
				var err error
				if sum, err = number(request); err != nil {
					return err
				}
			}
			t.owners.add(owner, int32(node), uint32(sum))
		}
		if ok && !ordinary {
			t.owners.doubt(owner)
		}
	}
	if ordinary {
		return nil
	}
	id, err := number(v[0])
	t.ids = append(t.ids, id)
	return err
}

// ofOwners calls row for the rows of a source that belong to owners, and perhaps for others. With
// few owners it looks their rows up.
func (t *tally) ofOwners(ctx context.Context, s source, row func(values) error) error {
	most, err := t.span(ctx, s.table)
	if err != nil {
		return err
	}
	// A row that is looked up takes at least as long as this many that are read in order.
	const apart = 8
	if int64(len(t.owners))*apart > most {
		return t.stream(ctx, s, row)
	}
	for some := range slices.Chunk(slices.Collect(maps.Keys(t.owners)), batch) {
		if err := t.lookup(ctx, s, anys(some), row); err != nil {
			return err
		}
	}
	return nil
}

// readOpen doubts the owners of migrations that are not over, and of evacuations (those that are
// done are read by nova-compute when it starts), if the verdict on a row of the instance's own node
// may depend on them: on a record that Nova does not write (readMigrations), or on the names of its
// hosts, where hosts with equal names exist. An index has all statuses.
func (t *tally) readOpen(ctx context.Context) error {
	where := "(status IS NULL OR status NOT IN ('confirmed', 'reverted', 'failed', 'completed', 'cancelled'))"
	if len(t.nodes.equal) == 0 {
		// A date before the year 1000 is none, like 0000-00-00.
		where += " AND (COALESCE(status, '') = '' OR COALESCE(updated_at, created_at, '0001-01-01') < '1000-01-01' OR COALESCE(" +
			t.column("migrations", "uuid", "'none'") + ", '') = ''"
		if t.columns["migrations.dest_compute_id"] {
			where += " OR dest_compute_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM compute_nodes n WHERE n.id = dest_compute_id AND n.deleted = 0" +
				" AND n.host = dest_compute AND n.hypervisor_hostname = dest_node)"
		}
		where += ")"
	}
	return t.each(ctx, source{table: "migrations", owner: "instance_uuid", where: where}, "WHERE instance_uuid IS NOT NULL", "", nil, t.open)
}

func (t *tally) open(v values) error {
	if id, _, ok := t.owner(v); ok {
		t.owners.doubt(id)
	}
	return nil
}

// readOnNode notes the owners that are on their rows' node, in a state in which Nova does not
// change their rows.
func (t *tally) readOnNode(ctx context.Context) error {
	return t.ofOwners(ctx, source{table: "instances", owner: "uuid", columns: ", host, node, " + t.column("instances", "compute_id", "NULL"),
		where: "task_state IS NULL AND vm_state IN ('active', 'stopped', 'paused', 'suspended', 'rescued', 'shelved', 'error')",
	}, t.onNode)
}

func (t *tally) onNode(v values) error {
	id, o, ok := t.owner(v)
	if !ok || o.node < 0 {
		return nil
	}
	row, host, name, compute := t.nodes.rows[o.node], v[2], v[3], v[4]
	if string(host) == t.nodes.text(row.host) && string(name) == t.nodes.text(row.name) && (compute == nil || string(compute) == strconv.FormatInt(row.id, 10)) {
		t.owners.see(id, o, seenInstance)
	}
	return nil
}

// readExtra notes the owners that request the devices that they have, and have no
// migration_context. Without any request ids, the number of devices counts.
func (t *tally) readExtra(ctx context.Context) error {
	return t.ofOwners(ctx, source{table: "instance_extra", owner: "instance_uuid", columns: ", pci_requests, migration_context IS NULL"}, t.extra)
}

func (t *tally) extra(v values) error {
	id, o, ok := t.owner(v)
	if !ok {
		return nil
	}
	requests, plain := v[2], string(v[3]) == "1"
	if plain && requests != nil {
		n, ids, ok := t.requested.Of(requests)
		plain = ok && n >= int(o.rows) && ids == o.requests
	}
	if !plain {
		o.state |= doubted
	}
	t.owners.see(id, o, seenExtra)
	return nil
}

// owner returns the owner that a row belongs to, if there is one. It doubts an owner whose uuid the
// row has in another spelling.
func (t *tally) owner(v values) (id uuid, o owner, ok bool) {
	id, canonical, ok := parseUUID(v[1])
	if !ok {
		return id, o, false
	}
	if o, ok = t.owners[id]; ok && !canonical {
		o.state |= doubted
		t.owners[id] = o
	}
	return id, o, ok && canonical
}

// count counts the rows of settled owners, and lists those of the others.
func (t *tally) count(ctx context.Context) error {
	var others []uuid
	for id, o := range t.owners {
		if o.settled() {
			t.legitimate += int(o.rows)
		} else {
			others = append(others, id)
		}
	}
	for some := range slices.Chunk(others, batch) {
		err := t.lookup(ctx, source{table: "pci_devices", owner: "instance_uuid"}, anys(some), func(v values) error {
			id, err := number(v[0])
			t.ids = append(t.ids, id)
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}
