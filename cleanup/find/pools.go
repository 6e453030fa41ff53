package find

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// newPools returns an empty report about the pools of the compute nodes that options select.
func newPools(o Options) cleanup.PoolReport {
	report := cleanup.PoolReport{Judged: true, Findings: []cleanup.PoolFinding{}, NotJudged: []cleanup.Unjudged{}}
	if o.Instance != "" || o.Address != "" {
		report.Judged, report.Why = false, "only the rows of one instance or device were selected"
	}
	return report
}

// selects returns whether the options select the compute nodes of a cell.
func (o Options) selects(c novadb.Cell) bool {
	return !c.IsCell0() && (o.Cell == "" || o.Cell == c.Name || o.Cell == c.UUID)
}

// pools compares compute_nodes.pci_stats of the selected compute nodes with their free rows. The
// memory is bounded by the number of nodes and of kinds of devices.
func (r *reader) pools(ctx context.Context, free *freeRows, report *cleanup.PoolReport) error {
	where, args, err := r.wanted(ctx)
	if err != nil {
		return err
	}
	alike := map[string]bool{} // texts of pci_stats with the free rows that match: most nodes have the same
	var text []byte
	var differ []cleanup.NodeStats
	var id int64
	var stats sql.RawBytes
	err = r.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
		if err := rows.Scan(&id, &stats); err != nil {
			return err
		}
		if text = free.appendText(append(text[:0], stats...), id); stats != nil && alike[string(text)] {
			report.Nodes++
			return nil
		}
		n := cleanup.NodeStats{Cell: r.cell.Name, Now: r.now, Down: r.options.Down, Stats: stats, Rows: free.of(id)}
		differences, err := n.Differences()
		if err == nil && len(differences) == 0 {
			if stats != nil && len(alike) < batch {
				alike[string(text)] = true
			}
			report.Nodes++
			return nil
		}
		n.Node, _ = r.nodes.get(id)
		if err != nil {
			report.Add(n) // nothing more is needed to say so
			return nil
		}
		n.Stats = slices.Clone(n.Stats)
		differ = append(differ, n)
		return nil
	}, "SELECT id, pci_stats FROM compute_nodes WHERE deleted = 0"+strings.ReplaceAll(where, "compute_node_id", "id"), args...)
	if err != nil {
		return err
	}
	var hosts []string
	for _, n := range differ {
		hosts = append(hosts, n.Node.Host)
	}
	for some := range slices.Chunk(hosts, batch) {
		if err := r.readServices(ctx, some); err != nil {
			return err
		}
	}
	for _, n := range differ {
		if err := r.readChanged(ctx, &n); err != nil {
			return err
		}
		n.Service = r.services[n.Node.Host]
		report.Add(n)
	}
	return nil
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

type freeOf struct {
	node int64
	kind int32
}

// freeColumn is the text with the keys of a row's pool, and whether the row has an owner.
const freeColumn = "CONCAT_WS('/', vendor_id, product_id, dev_type, COALESCE(numa_node, ''), instance_uuid IS NOT NULL)"

func newFreeRows() *freeRows {
	return &freeRows{known: map[string]int32{}, counts: map[freeOf]int32{}}
}

// aside counts free rows while all rows are streamed.
func (f *freeRows) aside() aside {
	return aside{[]string{"IF(status = '" + cleanup.StatusAvailable + "', " + freeColumn + ", NULL)"}, func(node int64, v values) error {
		if v[0] == nil {
			return nil
		}
		return f.add(node, v[0])
	}}
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
	f.counts[freeOf{node, kind}]++
	return nil
}

// of returns the free rows of a node.
func (f *freeRows) of(node int64) map[cleanup.Pool]cleanup.Free {
	free := map[cleanup.Pool]cleanup.Free{}
	for i, kind := range f.kinds {
		n := int(f.counts[freeOf{node, int32(i)}])
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
		if n := f.counts[freeOf{node, int32(i)}]; n > 0 {
			text = strconv.AppendInt(append(text, ' '), int64(i), 10)
			text = strconv.AppendInt(append(text, ' '), int64(n), 10)
		}
	}
	return text
}

// readChanged fills in when a row of a node changed last, deleted rows among them.
func (r *reader) readChanged(ctx context.Context, n *cleanup.NodeStats) error {
	return r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		var changes [3]sql.NullTime
		err := rows.Scan(&changes[0], &changes[1], &changes[2])
		n.Changed = latest(changes[:]...)
		return err
	}, "SELECT MAX(created_at), MAX(updated_at), MAX(deleted_at) FROM pci_devices WHERE compute_node_id = ?", n.Node.ID)
}
