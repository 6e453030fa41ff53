package find

import (
	"context"
	"database/sql"
	"fmt"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// Stock is the devices of a compute node as its cell's database has them.
type Stock struct {
	Cell    string
	Host    string
	Node    string // hypervisor_hostname
	UUID    string // of the node, also in Placement; "" before Mitaka
	Rows    []StockRow
	Columns NodeColumns
}

// NodeColumns are columns of compute_nodes as filters of nova-scheduler read them: JSON, or nil for
// NULL. Ratios that are NULL or 0 are those of nova.conf.
type NodeColumns struct {
	PCIStats, Topology, Supported []byte // pci_stats, numa_topology and supported_instances
	CPURatio, RAMRatio            float64
	Hypervisor                    string
	HypervisorVersion             int
	CPUInfo                       string
}

// StockRow is a live row of pci_devices.
type StockRow struct {
	cleanup.Device
	NUMA *int
	// Finding is the judgement of the row, if it is stale, suspicious or unknown; nil for others.
	Finding *cleanup.Finding
}

// Stocks reads the compute nodes of all cells with their rows of devices. Options.Host selects one
// host; other selections do not apply. The judgements of rows are those of [Rows], in a snapshot of
// their own: a row that has changed since has none.
func Stocks(ctx context.Context, d *novadb.Databases, o Options) (all []Stock, err error) {
	type place struct {
		cell string
		id   int64
	}
	found := map[place]*cleanup.Finding{}
	if _, err := Rows(ctx, d, o, func(f cleanup.Finding) {
		if f.Listed() {
			found[place{f.Cell, f.Device.ID}] = &f
		}
	}); err != nil {
		return nil, err
	}
	for _, c := range d.Cells {
		if c.IsCell0() {
			continue
		}
		in, err := stocks(ctx, c, o.Host)
		if err != nil {
			return nil, fmt.Errorf("cell %s: %w", c.Name, err)
		}
		for i := range in {
			for k := range in[i].Rows {
				row := &in[i].Rows[k]
				if f := found[place{c.Name, row.ID}]; f != nil && f.Device.Status == row.Status {
					row.Finding = f
				}
			}
		}
		all = append(all, in...)
	}
	return all, nil
}

// stocks reads the compute nodes of a cell, of one host or of all, in one snapshot.
func stocks(ctx context.Context, c novadb.Cell, host string) (all []Stock, err error) {
	tx, err := c.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	where, args := "", []any{}
	if host != "" {
		where, args = " AND (host = ? OR hypervisor_hostname = ?)", append(args, host, host)
	}
	index := map[int64]int{}
	err = novadb.Query(ctx, tx, "compute_nodes", func(rows *sql.Rows) error {
		var id int64
		s := Stock{Cell: c.Name}
		n := &s.Columns
		err := rows.Scan(&id, &s.Host, &s.Node, &s.UUID, &n.PCIStats, &n.Topology, &n.Supported,
			&n.CPURatio, &n.RAMRatio, &n.Hypervisor, &n.HypervisorVersion, &n.CPUInfo)
		index[id] = len(all)
		all = append(all, s)
		return err
	}, "SELECT id, COALESCE(host, ''), COALESCE(hypervisor_hostname, ''), COALESCE(uuid, ''), pci_stats, numa_topology, supported_instances, "+
		"COALESCE(cpu_allocation_ratio, 0), COALESCE(ram_allocation_ratio, 0), COALESCE(hypervisor_type, ''), "+
		"COALESCE(hypervisor_version, 0), COALESCE(cpu_info, '') "+
		"FROM compute_nodes WHERE deleted = 0"+where, args...)
	if err = novadb.IgnoreNoName(err); err != nil {
		return nil, err
	}
	nodes := ""
	if host != "" {
		nodes = " AND compute_node_id IN (SELECT id FROM compute_nodes WHERE deleted = 0" + where + ")"
	}
	err = novadb.Query(ctx, tx, "pci_devices", func(rows *sql.Rows) error {
		var numa *int
		d, err := scanDevice(rows, &numa)
		if at, live := index[d.Node]; live {
			all[at].Rows = append(all[at].Rows, StockRow{Device: d, NUMA: numa})
		}
		return err
	}, "SELECT "+deviceColumns+", numa_node FROM pci_devices WHERE deleted = 0"+nodes, args...)
	return all, novadb.IgnoreNoName(err)
}
