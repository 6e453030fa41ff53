package find

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// newPools returns an empty report about the pools of the compute nodes that options select.
func newPools(o Options) cleanup.PoolReport {
	report := cleanup.PoolReport{Judged: true, Findings: []cleanup.PoolFinding{}}
	if o.Instance != "" || o.Address != "" {
		report.Judged, report.Why = false, "only the rows of one instance or device were selected"
	}
	return report
}

// selects returns whether the options select the compute nodes of a cell.
func (o Options) selects(c novadb.Cell) bool {
	return !c.IsCell0() && (o.Cell == "" || o.Cell == c.Name || o.Cell == c.UUID)
}

// pools compares compute_nodes.pci_stats of the selected compute nodes with their free rows, some
// nodes at a time. The memory is bounded by the number of nodes and of kinds of devices. It is the
// last that is read of a cell: r.services does not keep the services of all hosts.
func (r *reader) pools(ctx context.Context, free *freeRows, report *cleanup.PoolReport) error {
	where, args, err := r.wanted(ctx)
	if err != nil {
		return err
	}
	c := comparer{free: free, known: map[string]comparison{}}
	statement := fmt.Sprintf("SELECT id, pci_stats FROM compute_nodes FORCE INDEX (PRIMARY) WHERE id > ? AND deleted = 0%s ORDER BY id LIMIT %d",
		strings.ReplaceAll(where, "compute_node_id", "id"), batch)
	id := int64(0)
	for n := batch; n == batch; {
		n = 0
		var stats sql.RawBytes
		differ := map[int64]comparison{}
		err := r.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
			if err := rows.Scan(&id, &stats); err != nil {
				return err
			}
			n++
			if with := c.compare(id, stats); with.err != nil || len(with.differences) > 0 {
				differ[id] = with
			}
			return nil
		}, statement, append([]any{id}, args...)...)
		if err != nil {
			return err
		}
		report.Nodes += n - len(differ)
		if err := r.judgePools(ctx, differ, report); err != nil {
			return err
		}
	}
	return nil
}

// judgePools judges the nodes whose pools differ, by their ids.
func (r *reader) judgePools(ctx context.Context, differ map[int64]comparison, report *cleanup.PoolReport) error {
	if len(differ) == 0 {
		return nil
	}
	ids := slices.Sorted(maps.Keys(differ))
	changed, err := r.readChanged(ctx, ids)
	if err != nil {
		return err
	}
	var hosts []string
	for _, id := range ids {
		n, _ := r.nodes.get(id)
		hosts = append(hosts, n.Host)
	}
	clear(r.services)
	if err := r.readServices(ctx, hosts); err != nil {
		return err
	}
	for i, id := range ids {
		n, _ := r.nodes.get(id)
		report.Add(cleanup.NodeStats{Cell: r.cell.Name, Now: r.now, Down: r.options.Down, Node: n, Service: r.services[hosts[i]],
			Differences: differ[id].differences, Err: differ[id].err, Changed: changed[id]})
	}
	return nil
}

// comparison is the result of cleanup.ComparePools.
type comparison struct {
	differences []cleanup.PoolDifference
	err         error
}

// comparer compares pci_stats with free rows. Most nodes have the same text and the same free rows,
// which are compared once.
type comparer struct {
	free  *freeRows
	known map[string]comparison // by pci_stats with the free rows
	text  []byte
}

// compare compares the pci_stats of a node with its free rows.
func (c *comparer) compare(node int64, stats []byte) comparison {
	if stats != nil {
		c.text = c.free.appendText(append(c.text[:0], stats...), node)
		if known, ok := c.known[string(c.text)]; ok {
			return known
		}
	}
	differences, err := cleanup.ComparePools(stats, c.free.of(node))
	if stats != nil && len(c.known) < batch {
		c.known[string(c.text)] = comparison{differences, err}
	}
	return comparison{differences, err}
}

// freeRows counts free rows by node and by the keys of a pool. A row costs no allocation: the
// server joins the keys to one text, of which a cloud has few.
type freeRows struct {
	kinds  []freeKind
	known  map[string]int32 // indexes of kinds, by their text
	counts map[freeOf]int32
}

type freeKind struct {
	pool  cleanup.Pool
	owned bool // whether the rows have an owner
}

// freeOf has no more bits than a node's id in the database, for a cloud has 100,000 nodes.
type freeOf struct{ node, kind int32 }

// freeColumn is the text with the keys of a row's pool, and whether the row has an owner.
const freeColumn = "CONCAT_WS('/', vendor_id, product_id, dev_type, COALESCE(numa_node, ''), instance_uuid IS NOT NULL)"

func newFreeRows() *freeRows {
	return &freeRows{known: map[string]int32{}, counts: map[freeOf]int32{}}
}

// read counts the free rows that the options select.
func (f *freeRows) read(ctx context.Context, r *reader) error {
	where, args, err := r.wanted(ctx)
	if err != nil {
		return err
	}
	return r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		var node int64
		var text sql.RawBytes
		if err := rows.Scan(&node, &text); err != nil {
			return err
		}
		return f.add(node, text)
	}, "SELECT compute_node_id, "+freeColumn+" FROM pci_devices WHERE deleted = 0 AND status = '"+cleanup.StatusAvailable+"'"+where, args...)
}

// add counts a free row by the value of freeColumn.
func (f *freeRows) add(node int64, text []byte) error {
	kind, known := f.known[string(text)]
	if !known {
		parts := strings.Split(string(text), "/")
		const keys = 5
		if len(parts) != keys {
			return fmt.Errorf("device %q has a key with a slash", text)
		}
		kind = int32(len(f.kinds))
		f.known[string(text)] = kind
		f.kinds = append(f.kinds, freeKind{cleanup.Pool{Vendor: parts[0], Product: parts[1], Type: parts[2], NUMA: parts[3]}, parts[4] == "1"})
	}
	if int64(int32(node)) != node {
		return fmt.Errorf("compute node %d: the id is not one of Nova's", node)
	}
	f.counts[freeOf{int32(node), kind}]++
	return nil
}

// of returns the free rows of a node.
func (f *freeRows) of(node int64) map[cleanup.Pool]cleanup.Free {
	free := map[cleanup.Pool]cleanup.Free{}
	for i, kind := range f.kinds {
		n := int(f.counts[freeOf{int32(node), int32(i)}])
		if n == 0 {
			continue
		}
		sum := free[kind.pool]
		if kind.owned {
			sum.Owned += n
		} else {
			sum.Count += n
		}
		free[kind.pool] = sum
	}
	return free
}

// appendText appends the free rows of a node as text.
func (f *freeRows) appendText(text []byte, node int64) []byte {
	for i := range f.kinds {
		if n := f.counts[freeOf{int32(node), int32(i)}]; n > 0 {
			text = strconv.AppendInt(append(text, ' '), int64(i), 10)
			text = strconv.AppendInt(append(text, ' '), int64(n), 10)
		}
	}
	return text
}

// readChanged returns when a row of each node changed last, deleted rows among them.
func (r *reader) readChanged(ctx context.Context, nodes []int64) (map[int64]time.Time, error) {
	// With a thousand values in an IN, MariaDB makes a table of them
	// (in_predicate_conversion_threshold), and sorts the rows in another, instead of reading them
	// in the order of the index.
	const most = 900
	changed := map[int64]time.Time{}
	for some := range slices.Chunk(nodes, most) {
		err := r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
			var node int64
			var changes [3]sql.NullTime
			err := rows.Scan(&node, &changes[0], &changes[1], &changes[2])
			changed[node] = latest(changes[:]...)
			return err
		}, "SELECT compute_node_id, MAX(created_at), MAX(updated_at), MAX(deleted_at) FROM pci_devices WHERE compute_node_id IN ("+
			novadb.Places(len(some))+") GROUP BY compute_node_id", anys(some)...)
		if err != nil {
			return nil, err
		}
	}
	return changed, nil
}
