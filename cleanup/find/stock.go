package find

import (
	"context"
	"database/sql"
	"slices"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// Stock is the devices of a compute node as its cell's database has them.
type Stock struct {
	Cell    string
	Host    string
	Node    string // hypervisor_hostname
	UUID    string // of the node, also in Placement; "" before Mitaka
	Off     string // why nova-scheduler does not use the host, see [cleanup.Service.Off]
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

// Stocks reads the compute nodes of all cells with their rows of devices, and compares their pools with
// these rows. Options.Host selects one host; other selections do not apply. The judgements of rows and
// pools are those of [RowsAndPools].
func Stocks(ctx context.Context, d *novadb.Databases, o Options) (all []Stock, pools cleanup.PoolReport, err error) {
	pools = newPools(o)
	for _, c := range d.Cells {
		if c.IsCell0() {
			continue
		}
		err := inCell(ctx, d, c, o, func(r *reader) error {
			found := map[int64]*cleanup.Finding{}
			if err := r.find(ctx, func(f cleanup.Finding) {
				if f.Listed() {
					found[f.Device.ID] = &f
				}
			}, func(int) {}, &pools); err != nil {
				return err
			}
			in, err := r.stocks(ctx)
			for i := range in {
				for k := range in[i].Rows {
					in[i].Rows[k].Finding = found[in[i].Rows[k].ID]
				}
			}
			all = append(all, in...)
			return err
		})
		if err != nil {
			return nil, pools, err
		}
	}
	pools.Sort()
	return all, pools, nil
}

// stocks reads the compute nodes of a cell, of one host or of all.
func (r *reader) stocks(ctx context.Context) (all []Stock, err error) {
	where, args := "", []any{}
	if host := r.options.Host; host != "" {
		where, args = " AND (host = ? OR hypervisor_hostname = ?)", append(args, host, host)
	}
	index := map[int64]int{}
	err = r.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
		var id int64
		s := Stock{Cell: r.cell.Name}
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
	var hosts []string
	for _, s := range all {
		hosts = append(hosts, s.Host)
	}
	clear(r.services)
	if err := r.readServices(ctx, hosts); err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Off = r.services[all[i].Host].Off(r.now, r.options.Down)
	}
	nodes := ""
	if where != "" {
		nodes = " AND compute_node_id IN (SELECT id FROM compute_nodes WHERE deleted = 0" + where + ")"
	}
	err = r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		var numa *int
		d, err := scanDevice(rows, &numa)
		if at, live := index[d.Node]; live {
			all[at].Rows = append(all[at].Rows, StockRow{Device: d, NUMA: numa})
		}
		return err
	}, "SELECT "+deviceColumns+", numa_node FROM pci_devices WHERE deleted = 0"+nodes, args...)
	return all, novadb.IgnoreNoName(err)
}

// Owner is an instance that has devices.
type Owner struct {
	Name, Project string
	Busy          bool // Nova is building it, or changes it
}

// Owners returns the instances of all cells with these uuids.
func Owners(ctx context.Context, d *novadb.Databases, uuids []string) (map[string]Owner, error) {
	owners := map[string]Owner{}
	for _, c := range d.All() {
		for some := range slices.Chunk(uuids, batch) {
			err := novadb.Query(ctx, c.DB, "instances", func(rows *sql.Rows) error {
				var uuid string
				var o Owner
				err := rows.Scan(&uuid, &o.Name, &o.Project, &o.Busy)
				owners[cleanup.KeyOf(uuid)] = o
				return err
			}, "SELECT uuid, COALESCE(display_name, ''), COALESCE(project_id, ''), task_state IS NOT NULL OR COALESCE(vm_state, 'building') = 'building' "+
				"FROM instances WHERE uuid IN ("+novadb.Places(len(some))+")", anys(some)...)
			if err != nil {
				return nil, err
			}
		}
	}
	return owners, nil
}

// Zones returns the availability zones of hosts that aggregates name, nil if the API database is not
// read. Other hosts are in the zone of default_availability_zone.
func Zones(ctx context.Context, d *novadb.Databases) (zones map[string]string, err error) {
	if d.API == nil {
		return nil, nil
	}
	zones = map[string]string{}
	err = novadb.Query(ctx, d.API, "nova_api.aggregates", func(rows *sql.Rows) error {
		var host, zone string
		err := rows.Scan(&host, &zone)
		zones[host] = zone
		return err
	}, "SELECT h.host, m.value FROM aggregate_hosts h JOIN aggregate_metadata m ON m.aggregate_id = h.aggregate_id "+
		"WHERE m.`key` = 'availability_zone' AND h.host IS NOT NULL AND m.value IS NOT NULL")
	return zones, err
}
