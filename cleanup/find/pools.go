package find

import (
	"context"
	"database/sql"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// Pools compares compute_nodes.pci_stats with the rows of each compute node, in one consistent
// read-only snapshot of each cell. It changes nothing. The memory is bounded by the number of
// nodes and of kinds of devices.
func Pools(ctx context.Context, d *novadb.Databases, o Options) (cleanup.PoolReport, error) {
	report := cleanup.PoolReport{Judged: true, Findings: []cleanup.PoolFinding{}, NotJudged: []cleanup.Unjudged{}}
	if o.Instance != "" || o.Address != "" {
		report.Judged, report.Why = false, "only the rows of one instance or device were selected"
		return report, nil
	}
	for _, c := range d.Cells {
		if !o.selects(c) {
			continue
		}
		if err := poolsIn(ctx, d, c, o, &report); err != nil {
			return report, fmt.Errorf("cell %s: %w", c.Name, err)
		}
	}
	report.Sort()
	return report, nil
}

// selects returns whether the options select the compute nodes of a cell.
func (o Options) selects(c novadb.Cell) bool {
	return !c.IsCell0() && (o.Cell == "" || o.Cell == c.Name || o.Cell == c.UUID)
}

func poolsIn(ctx context.Context, d *novadb.Databases, c novadb.Cell, o Options, report *cleanup.PoolReport) error {
	tx, err := c.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	r, err := newReader(ctx, tx, d, c, o)
	if err != nil {
		return err
	}
	where, args, err := r.wanted(ctx)
	if err != nil {
		return err
	}
	free, err := r.freeRows(ctx, where, args)
	if err != nil {
		return err
	}
	var differ []cleanup.NodeStats
	err = r.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
		var id int64
		var stats sql.RawBytes
		if err := rows.Scan(&id, &stats); err != nil {
			return err
		}
		n := cleanup.NodeStats{Cell: c.Name, Now: r.now, Down: r.options.Down, Node: r.nodes[id], Stats: stats, Rows: free[id]}
		if differences, err := n.Differences(); err == nil && len(differences) == 0 {
			report.Nodes++
			return nil
		}
		if s, ok := r.services[n.Node.Host]; ok {
			n.Service = &s
		}
		n.Stats = slices.Clone(n.Stats)
		differ = append(differ, n)
		return nil
	}, "SELECT id, pci_stats FROM compute_nodes WHERE deleted = 0"+strings.ReplaceAll(where, "compute_node_id", "id")+" ORDER BY id", args...)
	if err != nil {
		return err
	}
	for some := range slices.Chunk(differ, batch) {
		if err := r.readChanged(ctx, some); err != nil {
			return err
		}
		for _, n := range some {
			report.Add(n)
		}
	}
	return nil
}

// freeRows counts the free rows by node and by the keys of a pool. The server joins the
// keys to one text, so that a row costs no allocation: most rows have a text that is known.
func (r *reader) freeRows(ctx context.Context, where string, args []any) (map[int64]map[cleanup.Pool]cleanup.Free, error) {
	counts := map[string]int{}
	err := r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		var key sql.RawBytes
		if err := rows.Scan(&key); err != nil {
			return err
		}
		counts[string(key)]++
		return nil
	}, "SELECT CONCAT_WS('/', compute_node_id, vendor_id, product_id, dev_type, COALESCE(numa_node, ''), instance_uuid IS NOT NULL) FROM pci_devices WHERE deleted = 0 AND status = 'available'"+
		where, args...)
	if err != nil {
		return nil, err
	}
	free := map[int64]map[cleanup.Pool]cleanup.Free{}
	for key, n := range counts {
		parts := strings.Split(key, "/")
		node, err := strconv.ParseInt(parts[0], 10, 64)
		if err != nil || len(parts) != 6 {
			return nil, fmt.Errorf("pci_devices: device %q has a name with a slash", key)
		}
		if free[node] == nil {
			free[node] = map[cleanup.Pool]cleanup.Free{}
		}
		p := cleanup.Pool{Vendor: parts[1], Product: parts[2], Type: parts[3], NUMA: parts[4]}
		sum := free[node][p]
		if parts[5] == "1" {
			sum.Owned += n
		} else {
			sum.Count += n
		}
		free[node][p] = sum
	}
	return free, nil
}

// readChanged fills in when a row of each node changed last, deleted rows among them.
func (r *reader) readChanged(ctx context.Context, nodes []cleanup.NodeStats) error {
	at := map[int64]*cleanup.NodeStats{}
	for i := range nodes {
		at[nodes[i].Node.ID] = &nodes[i]
	}
	return r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		var id int64
		var changes [3]sql.NullTime
		err := rows.Scan(&id, &changes[0], &changes[1], &changes[2])
		at[id].Changed = latest(changes[:]...)
		return err
	}, "SELECT compute_node_id, MAX(created_at), MAX(updated_at), MAX(deleted_at) FROM pci_devices WHERE compute_node_id IN ("+
		novadb.Places(len(at))+") GROUP BY compute_node_id", anys(slices.Sorted(maps.Keys(at)))...)
}
