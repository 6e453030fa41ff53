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
	tx       *sql.Tx
	columns  map[string]bool // table.column, where releases differ
	now      time.Time
	nodes    nodes
	services map[string]*cleanup.Service // by host of compute_nodes, as far as it was read; nil: there is none
	proof    cleanup.Proof               // by the names of hosts in this cell
	present  map[string]map[string]bool
	held     map[int64]map[string]cleanup.Use // by node and address
	guests   map[guestOf][]string             // addresses of devices that name a guest
	rivals   map[guestOf][]cleanup.Device     // the free ones of these devices, as far as they were read
	all      *novadb.Databases
	cell     novadb.Cell
	options  Options
}

// guestOf identifies a guest on a node's host.
type guestOf struct {
	node  int64
	guest string
}

// newReader returns a reader that has read what all rows of a cell depend on.
func newReader(ctx context.Context, tx *sql.Tx, d *novadb.Databases, c novadb.Cell, o Options) (*reader, error) {
	o.Down = cmp.Or(o.Down, downTime)
	o.Proof = cmp.Or(o.Proof, cleanup.NoProof())
	r := &reader{tx: tx, all: d, cell: c, options: o, columns: map[string]bool{}, services: map[string]*cleanup.Service{}}
	return r, r.begin(ctx)
}

func (r *reader) begin(ctx context.Context) error {
	collations := map[string]string{}
	err := r.query(ctx, "columns", func(rows *sql.Rows) error {
		var name, collation string
		err := rows.Scan(&name, &collation)
		r.columns[name], collations[name] = true, collation
		return err
	}, "SELECT CONCAT(table_name, '.', column_name), COALESCE(collation_name, '') FROM information_schema.columns "+
		"WHERE table_schema = DATABASE() AND table_name IN ('services', 'compute_nodes', 'migrations', "+
		"'instances', 'instance_actions', 'instance_actions_events')")
	if err != nil {
		return err
	}
	if err := checkCollations(collations); err != nil {
		return err
	}
	// The snapshot begins with the first of Nova's tables that is read.
	if err := r.readNodes(ctx); err != nil {
		return err
	}
	if err := r.locate(ctx); err != nil {
		return err
	}
	err = r.query(ctx, "the clock", func(rows *sql.Rows) error { return rows.Scan(&r.now) }, "SELECT UTC_TIMESTAMP(6)")
	if err != nil {
		return err
	}
	r.proof = r.proof.At(r.now)
	return r.checkOff(ctx)
}

// readServices reads the nova-compute services of hosts of compute_nodes. Of several of one host, the
// one that reported last counts.
func (r *reader) readServices(ctx context.Context, hosts []string) error {
	hosts = slices.DeleteFunc(slices.Clone(hosts), func(host string) bool {
		_, read := r.services[host]
		return read || host == ""
	})
	slices.Sort(hosts)
	if hosts = slices.Compact(hosts); len(hosts) == 0 {
		return nil
	}
	for _, host := range hosts {
		r.services[host] = nil
	}
	return r.query(ctx, "services", func(rows *sql.Rows) error {
		var s cleanup.Service
		err := rows.Scan(&s.Host, &s.Forced, &s.LastSeen, &s.Reports, &s.Disabled)
		if known := r.services[s.Host]; known == nil || known.LastSeen == nil || s.LastSeen != nil && s.LastSeen.After(*known.LastSeen) {
			r.services[s.Host] = &s
		}
		return err
	}, "SELECT "+hostOf("v.host")+", COALESCE("+r.column("services", "forced_down", "0")+", 0) <> 0, COALESCE("+
		r.column("services", "last_seen_up", "v.updated_at")+", v.created_at), v.report_count, "+
		"IF(v.disabled, COALESCE("+r.column("services", "disabled_reason", "''")+", ''), NULL) "+
		"FROM services v WHERE v.deleted = 0 AND v.`binary` = 'nova-compute' AND v.host IN ("+
		novadb.Places(len(hosts))+")", anys(hosts)...)
}

// locate resolves the host names of reports, --host-is-off and inventories to hosts of
// compute_nodes.
func (r *reader) locate(ctx context.Context) (err error) {
	given := append(slices.Collect(maps.Keys(r.options.Present)), r.options.Proof.Hosts()...)
	hosts := map[string]string{} // of compute_nodes, by the given name
	for _, name := range given {
		if _, known := hosts[name]; known {
			continue
		}
		if hosts[name], err = r.spell(ctx, name); err != nil {
			return err
		}
	}
	r.locatePresent(hosts)
	if r.proof, err = r.options.Proof.Spelled(hosts); err == nil {
		r.locateHeld()
	}
	return err
}

func (r *reader) locatePresent(hosts map[string]string) {
	r.present = map[string]map[string]bool{}
	for name, addresses := range r.options.Present {
		host := hosts[name]
		if host == "" {
			continue
		}
		if r.present[host] == nil {
			r.present[host] = map[string]bool{}
		}
		for _, a := range addresses {
			r.present[host][strings.ToLower(a)] = true
		}
	}
}

func (r *reader) locateHeld() {
	r.held, r.guests, r.rivals = map[int64]map[string]cleanup.Use{}, map[guestOf][]string{}, map[guestOf][]cleanup.Device{}
	for _, h := range r.proof.Held() {
		for _, n := range r.liveNodes(h.Host) {
			r.hold(n.ID, h)
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
