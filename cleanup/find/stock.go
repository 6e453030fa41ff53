package find

import (
	"context"
	"database/sql"
	"strings"

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
	NUMA          *int
	Name, Project string // of its instance; "" if the cell has none
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
	where, args, err := r.wanted(ctx)
	if err != nil {
		return nil, err
	}
	index := map[int64]int{}
	var hosts []string
	err = r.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
		var id int64
		s := Stock{Cell: r.cell.Name}
		n := &s.Columns
		err := rows.Scan(&id, &s.Host, &s.Node, &s.UUID, &n.PCIStats, &n.Topology, &n.Supported,
			&n.CPURatio, &n.RAMRatio, &n.Hypervisor, &n.HypervisorVersion, &n.CPUInfo)
		index[id] = len(all)
		all, hosts = append(all, s), append(hosts, s.Host)
		return err
	}, "SELECT id, COALESCE(host, ''), COALESCE(hypervisor_hostname, ''), COALESCE(uuid, ''), pci_stats, numa_topology, supported_instances, "+
		"COALESCE(cpu_allocation_ratio, 0), COALESCE(ram_allocation_ratio, 0), COALESCE(hypervisor_type, ''), "+
		"COALESCE(hypervisor_version, 0), COALESCE(cpu_info, '') "+
		"FROM compute_nodes WHERE deleted = 0"+strings.ReplaceAll(where, "compute_node_id", "id"), args...)
	if err = novadb.IgnoreNoName(err); err != nil {
		return nil, err
	}
	clear(r.services)
	if err := r.readServices(ctx, hosts); err != nil {
		return nil, err
	}
	for i := range all {
		all[i].Off = r.services[all[i].Host].Off(r.now, r.options.Down)
	}
	err = r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		var numa *int
		var name, project string
		d, err := scanDevice(rows, &numa, &name, &project)
		if at, live := index[d.Node]; live {
			all[at].Rows = append(all[at].Rows, StockRow{Device: d, NUMA: numa, Name: name, Project: project})
		}
		return err
	}, "SELECT d.*, COALESCE(i.display_name, ''), COALESCE(i.project_id, '') FROM (SELECT "+deviceColumns+
		", numa_node FROM pci_devices WHERE deleted = 0"+where+") d LEFT JOIN instances i ON i.uuid = d.instance_uuid", args...)
	return all, novadb.IgnoreNoName(err)
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
