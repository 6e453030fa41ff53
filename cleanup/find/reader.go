package find

import (
	"cmp"
	"context"
	"database/sql"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

// reader reads one cell in one transaction.
type reader struct {
	tx        *sql.Tx
	columns   map[string]bool // table.column, where releases differ
	now       time.Time
	names     *names
	ambiguous map[string][]string // hosts with equal names, by each of these names
	nodes     nodes
	services  map[string]*cleanup.Service // by host of compute_nodes, as far as it was read; nil: there is none
	proof     *located                    // nil: no host has reported
	present   map[string]map[string]bool
	held      map[int64]map[string]cleanup.Use // by node and address
	guests    map[guestOf][]string             // addresses of devices that name a guest
	rivals    map[guestOf][]cleanup.Device     // the free ones of these devices, as far as they were read
	all       *novadb.Databases
	cell      novadb.Cell
	options   Options
}

// guestOf identifies a guest on a node's host.
type guestOf struct {
	node  int64
	guest string
}

// newReader returns a reader that has read what all rows of a cell depend on.
func newReader(ctx context.Context, tx *sql.Tx, d *novadb.Databases, c novadb.Cell, o Options) (*reader, error) {
	o.Down = cmp.Or(o.Down, downTime)
	r := &reader{tx: tx, all: d, cell: c, options: o, columns: map[string]bool{}, services: map[string]*cleanup.Service{}}
	r.names = newNames(r)
	return r, r.begin(ctx)
}

func (r *reader) begin(ctx context.Context) error {
	err := r.query(ctx, "columns", func(rows *sql.Rows) error {
		var name string
		var c collation
		err := rows.Scan(&name, &c.charset, &c.name)
		r.columns[name], r.names.collations[name] = true, c
		return err
	}, "SELECT CONCAT(table_name, '.', column_name), COALESCE(character_set_name, ''), COALESCE(collation_name, '') FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name IN ('services', 'compute_nodes', 'migrations', 'instances', 'instance_actions', 'instance_actions_events')")
	if err != nil {
		return err
	}
	// The snapshot begins with the first of Nova's tables that is read.
	if err := r.readNodes(ctx); err != nil {
		return err
	}
	if err := r.names.load(ctx); err != nil {
		return err
	}
	r.ambiguous = r.names.ambiguous()
	if err := r.nameServices(ctx); err != nil {
		return err
	}
	if err := r.locate(ctx); err != nil {
		return err
	}
	err = r.query(ctx, "the clock", func(rows *sql.Rows) error { return rows.Scan(&r.now) }, "SELECT UTC_TIMESTAMP(6)")
	if err != nil {
		return err
	}
	if r.proof != nil {
		r.proof.Proof = r.proof.At(r.now)
	}
	return r.checkOff(ctx)
}

// nameServices finds the hosts whose nova-compute may work on the nodes of others too. Cells have
// as many services as compute nodes, so that no more is read of them before a row is judged.
func (r *reader) nameServices(ctx context.Context) error {
	var others []string
	err := r.query(ctx, "services", func(rows *sql.Rows) error {
		var host sql.RawBytes
		err := rows.Scan(&host)
		if !r.names.only(host) {
			others = append(others, string(host))
		}
		return err
	}, "SELECT host FROM services WHERE deleted = 0 AND `binary` = 'nova-compute' AND host <> ''")
	if err != nil {
		return err
	}
	for _, service := range others {
		own, err := r.names.spellings(ctx, "services.host", service)
		if err != nil {
			return err
		}
		if err := r.otherSpellings(ctx, service, own); err != nil {
			return err
		}
	}
	return nil
}

// readServices reads the nova-compute services of hosts of compute_nodes. Of several whose host
// names the database treats as equal, the one that reported last counts.
func (r *reader) readServices(ctx context.Context, hosts []string) error {
	hosts = slices.DeleteFunc(slices.Clone(hosts), func(host string) bool {
		_, read := r.services[host]
		return read || host == ""
	})
	slices.Sort(hosts)
	if hosts = slices.Compact(hosts); len(hosts) == 0 {
		return nil
	}
	services, err := r.servicesOf(ctx, hosts)
	if err != nil {
		return err
	}
	for _, host := range hosts {
		r.services[host] = nil
	}
	for _, s := range services {
		spellings, err := r.names.spellings(ctx, "services.host", s.Host)
		if err != nil {
			return err
		}
		for _, host := range spellings {
			known, wanted := r.services[host]
			if wanted && (known == nil || known.LastSeen == nil || s.LastSeen != nil && s.LastSeen.After(*known.LastSeen)) {
				r.services[host] = &s
			}
		}
	}
	return nil
}

// servicesOf returns the nova-compute services whose host the database treats as equal to one of
// hosts.
func (r *reader) servicesOf(ctx context.Context, hosts []string) (services []cleanup.Service, err error) {
	err = r.query(ctx, "services", func(rows *sql.Rows) error {
		var s cleanup.Service
		err := rows.Scan(&s.Host, &s.Forced, &s.LastSeen, &s.Reports)
		services = append(services, s)
		return err
	}, "SELECT host, COALESCE("+r.column("services", "forced_down", "0")+", 0) <> 0, COALESCE("+
		r.column("services", "last_seen_up", "updated_at")+", created_at), report_count FROM services WHERE deleted = 0 AND `binary` = 'nova-compute' AND host IN ("+
		novadb.Places(len(hosts))+")", anys(hosts)...)
	if err == nil || novadb.IgnoreNoName(err) != nil || len(hosts) == 1 {
		return services, novadb.IgnoreNoName(err)
	}
	// The character set of services.host does not have the name of at least one of the hosts.
	services = nil
	for _, host := range hosts {
		of, err := r.servicesOf(ctx, []string{host})
		if err != nil {
			return nil, err
		}
		services = append(services, of...)
	}
	return services, nil
}

// otherSpellings marks hosts as ambiguous that equal a service's host only by the collation of
// another column: the service's nova-compute may work on their nodes too.
func (r *reader) otherSpellings(ctx context.Context, service string, own []string) error {
	for _, column := range columnsOf(hostNames) {
		hosts, err := r.names.spellings(ctx, column, service)
		if err != nil {
			return err
		}
		for _, host := range hosts {
			if !slices.Contains(own, host) && r.ambiguous[host] == nil && r.names.exists(host) {
				r.ambiguous[host] = []string{host, service}
			}
		}
	}
	return nil
}

// locate resolves the host names of reports, --host-is-off and inventories to hosts of
// compute_nodes.
func (r *reader) locate(ctx context.Context) error {
	given := slices.Collect(maps.Keys(r.options.Present))
	if r.options.Proof != nil {
		given = append(given, r.options.Proof.Hosts()...)
	}
	for _, h := range r.options.Held {
		given = append(given, h.Host)
	}
	hosts := map[string][]string{} // of compute_nodes, by the given name
	for _, name := range given {
		if _, known := hosts[name]; known {
			continue
		}
		spellings, err := r.names.spellings(ctx, "compute_nodes.host", name)
		if err != nil {
			return err
		}
		hosts[name] = spellings
	}
	r.locatePresent(hosts)
	r.locateHeld(hosts)
	return r.locateProof(hosts)
}

func (r *reader) locateProof(hosts map[string][]string) error {
	if r.options.Proof == nil {
		return nil
	}
	r.proof = &located{r.options.Proof, map[string][]string{}}
	for _, name := range r.options.Proof.Hosts() {
		for _, host := range hosts[name] {
			r.proof.names[host] = append(r.proof.names[host], name)
		}
	}
	return r.proof.contradiction()
}

func (r *reader) locatePresent(hosts map[string][]string) {
	r.present = map[string]map[string]bool{}
	for name, addresses := range r.options.Present {
		for _, host := range hosts[name] {
			if r.present[host] == nil {
				r.present[host] = map[string]bool{}
			}
			for _, a := range addresses {
				r.present[host][strings.ToLower(a)] = true
			}
		}
	}
}

func (r *reader) locateHeld(hosts map[string][]string) {
	r.held, r.guests, r.rivals = map[int64]map[string]cleanup.Use{}, map[guestOf][]string{}, map[guestOf][]cleanup.Device{}
	if len(r.options.Held) == 0 {
		return
	}
	ids := map[string][]int64{}
	for n := range r.nodes.all() {
		if !n.Deleted {
			ids[n.Host] = append(ids[n.Host], n.ID)
		}
	}
	for _, h := range r.options.Held {
		for _, host := range hosts[h.Host] {
			for _, id := range ids[host] {
				r.hold(id, h)
			}
		}
	}
	for id, held := range r.held {
		for address, use := range held {
			if use.Named {
				g := guestOf{id, use.Guest}
				r.guests[g] = append(r.guests[g], address)
			}
		}
	}
}

// hold notes that a guest uses a device of a node. A guest that names the device is preferred.
func (r *reader) hold(node int64, h cleanup.HeldBy) {
	if r.held[node] == nil {
		r.held[node] = map[string]cleanup.Use{}
	}
	if known := r.held[node][h.Address]; known.Guest == "" || !known.Named {
		r.held[node][h.Address] = h.Use
	}
}

// column returns the name of a column, or otherwise in releases without the column.
func (r *reader) column(table, name, otherwise string) string {
	if r.columns[table+"."+name] {
		return name
	}
	return otherwise
}

// query runs a statement in the reader's transaction and calls scan for each row.
func (r *reader) query(ctx context.Context, what string, scan func(*sql.Rows) error, statement string, args ...any) error {
	return novadb.Query(ctx, r.tx, what, scan, statement, args...)
}

func anys[T any](list []T) []any {
	all := make([]any, len(list))
	for i, v := range list {
		all[i] = v
	}
	return all
}
