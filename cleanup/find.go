package cleanup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// Options narrow what is looked at, and say by what it is judged.
type Options struct {
	Cell     string // a cell's name or uuid; "" for all
	Host     string
	Instance string
	Address  string
	Down     time.Duration       // after which a silent nova-compute is down; 0 for service_down_time's default
	Proof    Proof               // nil: no host has reported
	Present  map[string][]string // addresses of all devices of a host, of hosts whose inventory is known
	Claim    bool                // whether free devices are given to the guests that hold them
	Held     []HeldBy            // what the hosts' reports say is held, so that rows that offer it are found
}

// HeldBy is a device of a host that a guest uses.
type HeldBy struct {
	Host, Address string
	Use
}

// downTime is the default of service_down_time (nova/conf/service.py), in seconds.
const downTime = 60 * time.Second

// batch is how many rows are judged at a time: what is read of a cell is bounded by it,
// and by how many hosts there are.
const batch = 2000

// Summary counts the rows by their verdicts. Free ones that nothing speaks against are
// not looked at.
type Summary struct {
	Stale      int `json:"stale"`
	Suspicious int `json:"suspicious"`
	Unknown    int `json:"unknown"`
	Legitimate int `json:"legitimate"`
}

// ErrNoCell says that no cell has that name.
var ErrNoCell = errors.New("no such cell")

// Find judges the rows of all cells, each in one consistent snapshot that is only read,
// and hands every finding to emit, cell by cell.
func (d *Databases) Find(ctx context.Context, o Options, emit func(Finding)) (Summary, error) {
	var s Summary
	found := false
	for _, c := range d.Cells {
		if c.isCell0() || o.Cell != "" && o.Cell != c.Name && o.Cell != c.UUID {
			continue
		}
		found = true
		err := d.findIn(ctx, c, o, func(f Finding) {
			switch f.Verdict {
			case Stale:
				s.Stale++
			case Suspicious:
				s.Suspicious++
			case Unknown:
				s.Unknown++
			case Legitimate:
				s.Legitimate++
			}
			emit(f)
		})
		if err != nil {
			return s, fmt.Errorf("cell %s: %w", c.Name, err)
		}
	}
	if !found {
		return s, fmt.Errorf("cell %s: %w", o.Cell, ErrNoCell)
	}
	return s, nil
}

// reader reads one cell in one transaction.
type reader struct {
	tx        *sql.Tx
	columns   map[string]bool // table.column, where releases differ
	now       time.Time
	names     *names
	ambiguous map[string][]string // hosts that exist several times, by each of their names
	nodes     map[int64]Node
	services  map[string]Service // by host of compute_nodes
	proof     *located           // nil: no host has reported
	present   map[string]map[string]bool
	held      map[int64]map[string]Use // by node and address
	guests    map[guestOf][]string     // addresses of devices that name a guest
	rivals    map[guestOf][]Device     // those of them that are free, as far as they have been read
	all       *Databases
	cell      Cell
	options   Options
}

// guestOf is a guest of a node's host.
type guestOf struct {
	node  int64
	guest string
}

func (d *Databases) findIn(ctx context.Context, c Cell, o Options, emit func(Finding)) error {
	if o.Down == 0 {
		o.Down = downTime
	}
	tx, err := c.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	r := &reader{tx: tx, all: d, cell: c, options: o}
	if err := r.begin(ctx); err != nil {
		return err
	}
	judge := func(devices []Device) error {
		findings, err := r.judge(ctx, devices)
		for _, f := range findings {
			emit(f)
		}
		return err
	}
	if err := r.eachOdd(ctx, judge); err != nil {
		return err
	}
	return r.eachHeld(ctx, judge)
}

// begin reads what is the same for all rows.
func (r *reader) begin(ctx context.Context) error {
	r.columns, r.nodes, r.services, r.names = map[string]bool{}, map[int64]Node{}, map[string]Service{}, newNames(r)
	err := r.query(ctx, "columns", func(rows *sql.Rows) error {
		var name string
		var c collation
		err := rows.Scan(&name, &c.charset, &c.name)
		r.columns[name], r.names.collations[name] = true, c
		return err
	}, "SELECT CONCAT(table_name, '.', column_name), COALESCE(character_set_name, ''), COALESCE(collation_name, '') FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name IN ('services', 'compute_nodes', 'migrations', 'instances')")
	if err != nil {
		return err
	}
	// The snapshot begins with the first of Nova's tables that is read.
	err = r.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
		var n Node
		var deleted sql.NullInt64
		err := rows.Scan(&n.ID, &n.Host, &n.Name, &deleted)
		// Nova looks for deleted = 0, and so does not see a row with NULL.
		n.Deleted = !deleted.Valid || deleted.Int64 != 0
		if !deleted.Valid {
			n.odd = fmt.Sprintf("deleted of compute node %d is NULL", n.ID)
		}
		r.nodes[n.ID] = n
		return err
	}, "SELECT id, COALESCE(host, ''), COALESCE(hypervisor_hostname, ''), deleted FROM compute_nodes")
	if err != nil {
		return err
	}
	if err := r.names.load(ctx); err != nil {
		return err
	}
	r.ambiguous = r.names.ambiguous()
	if err := r.readServices(ctx); err != nil {
		return err
	}
	if err := r.locate(ctx); err != nil {
		return err
	}
	return r.query(ctx, "the clock", func(rows *sql.Rows) error { return rows.Scan(&r.now) }, "SELECT UTC_TIMESTAMP(6)")
}

// readServices reads the nova-computes, for each host of compute_nodes. Of several that
// are one host's to the database, the last to report counts.
func (r *reader) readServices(ctx context.Context) error {
	var services []Service
	err := r.query(ctx, "services", func(rows *sql.Rows) error {
		var s Service
		err := rows.Scan(&s.Host, &s.Forced, &s.LastSeen, &s.Reports)
		services = append(services, s)
		return err
	}, "SELECT COALESCE(host, ''), COALESCE("+r.column("services", "forced_down", "0")+", 0) <> 0, COALESCE("+r.column("services", "last_seen_up", "updated_at")+", created_at), report_count FROM services WHERE deleted = 0 AND `binary` = 'nova-compute'")
	if err != nil {
		return err
	}
	for _, s := range services {
		hosts, err := r.names.spellings(ctx, "services.host", s.Host)
		if err != nil {
			return err
		}
		if err := r.otherSpellings(ctx, s.Host, hosts); err != nil {
			return err
		}
		for _, host := range hosts {
			if known, ok := r.services[host]; !ok || known.LastSeen == nil || s.LastSeen != nil && s.LastSeen.After(*known.LastSeen) {
				r.services[host] = s
			}
		}
	}
	return nil
}

// otherSpellings notes a service whose host only another column calls equal to a host of
// compute_nodes: its nova-compute may work on that node as well.
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
	of := map[string][]string{} // hosts of compute_nodes, by the name that they are given
	find := func(name string) error {
		if _, known := of[name]; known {
			return nil
		}
		hosts, err := r.names.spellings(ctx, "compute_nodes.host", name)
		of[name] = hosts
		return err
	}
	if r.options.Proof != nil {
		r.proof = &located{r.options.Proof, map[string][]string{}}
		for _, name := range r.options.Proof.Hosts() {
			if err := find(name); err != nil {
				return err
			}
			for _, host := range of[name] {
				r.proof.names[host] = append(r.proof.names[host], name)
			}
		}
		if err := r.proof.contradiction(); err != nil {
			return err
		}
	}
	r.present = map[string]map[string]bool{}
	for name, addresses := range r.options.Present {
		if err := find(name); err != nil {
			return err
		}
		for _, host := range of[name] {
			if r.present[host] == nil {
				r.present[host] = map[string]bool{}
			}
			for _, a := range addresses {
				r.present[host][strings.ToLower(a)] = true
			}
		}
	}
	ids := map[string][]int64{}
	for _, n := range r.nodes {
		if !n.Deleted {
			ids[n.Host] = append(ids[n.Host], n.ID)
		}
	}
	r.held, r.guests, r.rivals = map[int64]map[string]Use{}, map[guestOf][]string{}, map[guestOf][]Device{}
	for _, h := range r.options.Held {
		if err := find(h.Host); err != nil {
			return err
		}
		for _, host := range of[h.Host] {
			for _, id := range ids[host] {
				if r.held[id] == nil {
					r.held[id] = map[string]Use{}
				}
				if known := r.held[id][h.Address]; known.Guest == "" || !known.Named {
					r.held[id][h.Address] = h.Use
				}
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
	return nil
}

// column names a column, or what stands for it in releases that do not have it.
func (r *reader) column(table, name, otherwise string) string {
	if r.columns[table+"."+name] {
		return name
	}
	return otherwise
}

// query runs a statement and scans each row.
func (r *reader) query(ctx context.Context, what string, scan func(*sql.Rows) error, statement string, args ...any) error {
	return query(ctx, r.tx, what, scan, statement, args...)
}

type querier interface {
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

func query(ctx context.Context, q querier, what string, scan func(*sql.Rows) error, statement string, args ...any) error {
	rows, err := q.QueryContext(ctx, statement, args...)
	if err != nil {
		return explain(what, err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	for rows.Next() {
		if err := scan(rows); err != nil {
			return explain(what, err)
		}
	}
	if err := rows.Err(); err != nil {
		return explain(what, err)
	}
	return nil
}

const deviceColumns = "id, compute_node_id, address, vendor_id, product_id, dev_type, status, instance_uuid, request_id, parent_addr, updated_at"

func scanDevice(rows *sql.Rows) (d Device, err error) {
	err = rows.Scan(&d.ID, &d.Node, &d.Address, &d.Vendor, &d.Product, &d.Type, &d.Status, &d.Instance, &d.Request, &d.Parent, &d.Updated)
	return d, err
}

// odd is the condition of rows that are not simply free.
const odd = "(status <> 'available' OR instance_uuid IS NOT NULL OR request_id IS NOT NULL)"

// eachOdd reads the rows that are not simply free, batch by batch.
func (r *reader) eachOdd(ctx context.Context, judge func([]Device) error) error {
	where, args, err := r.wanted(ctx)
	if err != nil {
		return err
	}
	for after := int64(0); ; {
		devices, err := r.devices(ctx, "id > ? AND "+odd+where+fmt.Sprintf(" ORDER BY id LIMIT %d", batch), append([]any{after}, args...)...)
		if err != nil || len(devices) == 0 {
			return err
		}
		if err := judge(devices); err != nil {
			return err
		}
		after = devices[len(devices)-1].ID
	}
}

// eachHeld reads the rows that are simply free, and of which reports say that guests use
// the devices. They are looked up by node and address, as the index has them.
func (r *reader) eachHeld(ctx context.Context, judge func([]Device) error) error {
	where, args, err := r.wanted(ctx)
	if err != nil {
		return err
	}
	var free []Device
	for _, node := range slices.Sorted(maps.Keys(r.held)) {
		for some := range slices.Chunk(slices.Sorted(maps.Keys(r.held[node])), batch) {
			devices, err := r.devices(ctx, "compute_node_id = ? AND address IN ("+places(len(some))+") AND NOT "+odd+where+" ORDER BY id", slices.Concat([]any{node}, anys(some), args)...)
			if err != nil {
				return err
			}
			if free = append(free, devices...); len(free) < batch {
				continue
			}
			if err := judge(free); err != nil {
				return err
			}
			free = nil
		}
	}
	if len(free) == 0 {
		return nil
	}
	return judge(free)
}

// wanted is the condition of rows that the options do not leave out.
func (r *reader) wanted(ctx context.Context) (where string, args []any, err error) {
	if r.options.Host != "" {
		hosts, err := r.names.spellings(ctx, "compute_nodes.host", r.options.Host)
		if err != nil {
			return "", nil, err
		}
		nodes, err := r.names.spellings(ctx, "compute_nodes.hypervisor_hostname", r.options.Host)
		if err != nil {
			return "", nil, err
		}
		ids := []any{int64(0)} // no node has it
		for _, id := range slices.Sorted(maps.Keys(r.nodes)) {
			if n := r.nodes[id]; slices.Contains(hosts, n.Host) || slices.Contains(nodes, n.Name) {
				ids = append(ids, id)
			}
		}
		where, args = where+" AND compute_node_id IN ("+places(len(ids))+")", append(args, ids...)
	}
	if r.options.Instance != "" {
		where, args = where+" AND instance_uuid = ?", append(args, r.options.Instance)
	}
	if r.options.Address != "" {
		where, args = where+" AND address = ?", append(args, r.options.Address)
	}
	return where, args, nil
}

// devices reads live rows.
func (r *reader) devices(ctx context.Context, where string, args ...any) (list []Device, err error) {
	err = r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		d, err := scanDevice(rows)
		list = append(list, d)
		return err
	}, "SELECT "+deviceColumns+" FROM pci_devices WHERE deleted = 0 AND "+where, args...)
	return list, err
}

func anys[T any](list []T) []any {
	all := make([]any, len(list))
	for i, v := range list {
		all[i] = v
	}
	return all
}

// places are n places of arguments.
func places(n int) string {
	return strings.TrimSuffix(strings.Repeat("?, ", n), ", ")
}

// evidence is what is read for a batch of rows. Instances are by keyOf their uuids.
type evidence struct {
	instances  map[string]Instance
	migrations map[string][]Migration
	held       map[string][]Held
	other      map[string]string // cell by instance
	mapped     map[string]bool
	incomplete string
	related    map[int64]map[string][]Device // by node and address, its own or its parent's
}

// keyOf is a uuid as Nova writes it. The database, which is asked for uuids, does not
// tell letter case apart, nor trailing blanks.
func keyOf(uuid string) string {
	return strings.ToLower(strings.TrimRight(uuid, " "))
}

func (r *reader) judge(ctx context.Context, devices []Device) ([]Finding, error) {
	e, err := r.read(ctx, devices)
	if err != nil {
		return nil, err
	}
	findings := make([]Finding, 0, len(devices))
	for _, d := range devices {
		f, err := r.facts(ctx, e, d)
		if err != nil {
			return nil, err
		}
		findings = append(findings, Classify(d, f))
	}
	return findings, nil
}

// facts are what was read of a row, seen from its node.
func (r *reader) facts(ctx context.Context, e evidence, d Device) (Facts, error) {
	f := Facts{Cell: r.cell.Name, Now: r.now, Down: r.options.Down, Incomplete: e.incomplete}
	if r.proof != nil {
		f.Proof = r.proof
	}
	n, there := r.nodes[d.Node]
	if there {
		f.Node = &n
		if s, ok := r.services[n.Host]; ok {
			f.Service = &s
		}
		present, known := r.present[n.Host]
		f.Vanished = known && !present[strings.ToLower(d.Address)]
		if n.odd != "" {
			f.Odd = append(f.Odd, n.odd)
		}
	}
	owner, use := "", r.use(d)
	if d.Instance != nil {
		owner = keyOf(*d.Instance)
		f.OtherCell, f.Mapped = e.other[owner], e.mapped[owner]
	} else {
		owner = keyOf(use.Guest)
	}
	i, known := e.instances[owner]
	switch {
	case known && d.Instance != nil:
		f.Instance = &i
	case known:
		f.Holder, f.Claim = &i, r.options.Claim
		f.Rivals = r.rivals[guestOf{d.Node, use.Guest}]
	}
	if d.Instance != nil || known {
		f.Migrations, f.Held = slices.Clone(e.migrations[owner]), e.held[owner]
	}
	if known {
		if i.odd != "" {
			f.Odd = append(f.Odd, i.odd)
		}
		if d.Instance != nil && *d.Instance != i.UUID {
			f.Odd = append(f.Odd, fmt.Sprintf("the row has instance_uuid %q, and the instance uuid %q", *d.Instance, i.UUID))
		}
		var err error
		if f.Here, err = r.on(ctx, i, n); err != nil {
			return f, err
		}
		if d.Instance != nil {
			if err := r.misplaced(ctx, &f, n); err != nil {
				return f, err
			}
		}
	}
	for k := range f.Migrations {
		m := &f.Migrations[k]
		if err := r.seen(ctx, m, n); err != nil {
			return f, err
		}
		if m.odd != "" && (m.From || m.To || m.FromHost) {
			f.Odd = append(f.Odd, m.odd)
		}
	}
	for _, a := range []*string{&d.Address, d.Parent} {
		if a == nil {
			continue
		}
		for _, x := range e.related[d.Node][strings.ToLower(*a)] {
			if x.ID != d.ID && (x.Parent != nil && strings.EqualFold(*x.Parent, d.Address) || d.Parent != nil && strings.EqualFold(*d.Parent, x.Address)) {
				f.Related = append(f.Related, x)
			}
		}
	}
	return f, r.ambiguities(ctx, &f, n)
}

// on returns whether an instance is on a node.
func (r *reader) on(ctx context.Context, i Instance, n Node) (bool, error) {
	if i.Host == nil || i.Node == nil {
		return false, nil
	}
	host, err := r.names.same(ctx, "instances.host", *i.Host, n.Host)
	if err != nil || !host {
		return false, err
	}
	return r.names.same(ctx, "instances.node", *i.Node, n.Name)
}

// misplaced adds, to what makes a row unknown, that its instance is on the host of the row,
// or of another of the instance's rows, and on no live node of that host: a
// hypervisor_hostname has changed, or a live migration did not find its node and wrote NULL
// (nova/compute/manager.py, post_live_migration_at_destination). Nova's query for the node
// then misses an instance that nova-compute, which looks for its host, starts there again.
func (r *reader) misplaced(ctx context.Context, f *Facts, n Node) error {
	i := f.Instance
	if i.Deleted || i.Host == nil {
		return nil
	}
	hosts, err := r.names.spellings(ctx, "instances.host", *i.Host)
	if err != nil {
		return err
	}
	hosts = append([]string{*i.Host}, hosts...)
	lost := !f.Here && slices.Contains(hosts, n.Host) || slices.ContainsFunc(f.Held, func(h Held) bool {
		return !h.own && slices.Contains(hosts, h.Host)
	})
	if !lost {
		return nil
	}
	for _, other := range r.nodes {
		if on, err := r.on(ctx, *i, other); err != nil || on && !other.Deleted {
			return err
		}
	}
	node := "NULL"
	if i.Node != nil {
		node = fmt.Sprintf("%q", *i.Node)
	}
	f.Odd = append(f.Odd, fmt.Sprintf("instance %s is on host %q, and its node is %s, which is no node of that host", i.UUID, *i.Host, node))
	return nil
}

// seen fills in where a migration goes from and to, seen from a node.
func (r *reader) seen(ctx context.Context, m *Migration, n Node) error {
	var errs [4]error
	var toHost, fromNode, toNode bool
	m.FromHost, errs[0] = r.names.same(ctx, "migrations.source_compute", m.SourceHost, n.Host)
	fromNode, errs[1] = r.names.same(ctx, "migrations.source_node", m.SourceNode, n.Name)
	toHost, errs[2] = r.names.same(ctx, "migrations.dest_compute", m.DestHost, n.Host)
	toNode, errs[3] = r.names.same(ctx, "migrations.dest_node", m.DestNode, n.Name)
	m.From, m.To = m.FromHost && fromNode, toHost && toNode
	return errors.Join(errs[:]...)
}

// ambiguities adds, to what makes a row unknown, the existing hosts of equal names that
// the row depends on.
func (r *reader) ambiguities(ctx context.Context, f *Facts, n Node) error {
	if len(r.ambiguous) == 0 {
		return nil
	}
	type name struct{ column, host string }
	all := []name{{"compute_nodes.host", n.Host}}
	for _, i := range []*Instance{f.Instance, f.Holder} {
		if i != nil && i.Host != nil {
			all = append(all, name{"instances.host", *i.Host})
		}
	}
	for _, m := range f.Migrations {
		all = append(all, name{"migrations.source_compute", m.SourceHost}, name{"migrations.dest_compute", m.DestHost})
	}
	for _, h := range f.Held {
		all = append(all, name{"compute_nodes.host", h.Host})
	}
	for _, a := range all {
		hosts, err := r.names.spellings(ctx, a.column, a.host)
		if err != nil {
			return err
		}
		for _, host := range hosts {
			if several := r.ambiguous[host]; several != nil {
				reason := fmt.Sprintf("hosts %s exist, and the database compares their names as equal", strings.Join(quoted(several), " and "))
				if !slices.Contains(f.Odd, reason) {
					f.Odd = append(f.Odd, reason)
				}
			}
		}
	}
	return nil
}

func quoted(list []string) (all []string) {
	for _, s := range list {
		all = append(all, fmt.Sprintf("%q", s))
	}
	return all
}

func (r *reader) read(ctx context.Context, devices []Device) (evidence, error) {
	e := evidence{instances: map[string]Instance{}, migrations: map[string][]Migration{}, held: map[string][]Held{}, other: map[string]string{}, mapped: map[string]bool{}, related: map[int64]map[string][]Device{}}
	var uuids []any
	seen := map[string]bool{}
	holders := map[string]bool{} // that need not be instances of Nova's
	for _, d := range devices {
		owner := ""
		if d.Instance != nil {
			owner = *d.Instance
		} else if owner = r.use(d).Guest; owner != "" {
			holders[owner] = true
		}
		if owner != "" && !seen[owner] {
			seen[owner] = true
			uuids = append(uuids, owner)
		}
	}
	if len(uuids) > 0 {
		if err := errors.Join(r.readInstances(ctx, &e, uuids), r.readMigrations(ctx, &e, uuids), r.readHeld(ctx, &e, uuids)); err != nil {
			return e, err
		}
		if err := r.place(ctx, &e); err != nil {
			return e, err
		}
		var missing []any
		for _, u := range uuids {
			if _, there := e.instances[keyOf(u.(string))]; !there && !holders[u.(string)] {
				missing = append(missing, u)
			}
		}
		if len(missing) > 0 {
			r.lookElsewhere(ctx, &e, missing)
		}
	}
	return e, errors.Join(r.readRelated(ctx, &e, devices), r.readRivals(ctx, &e, devices))
}

// place fills in what does not depend on the row that is judged: which devices are on
// their instance's own node, which migrations have come to their end, and of which hosts
// the migrations speak.
func (r *reader) place(ctx context.Context, e *evidence) error {
	for uuid, held := range e.held {
		i := e.instances[uuid]
		for k := range held {
			var err error
			if held[k].own, err = r.on(ctx, i, r.nodes[held[k].Node]); err != nil {
				return err
			}
		}
	}
	for uuid, migrations := range e.migrations {
		i := e.instances[uuid]
		for k := range migrations {
			m := &migrations[k]
			sources, err := r.names.spellings(ctx, "migrations.source_compute", m.SourceHost)
			if err != nil {
				return err
			}
			dests, err := r.names.spellings(ctx, "migrations.dest_compute", m.DestHost)
			if err != nil {
				return err
			}
			r.proof.alias(m.SourceHost, sources)
			r.proof.alias(m.DestHost, dests)
			if i.Host == nil {
				continue
			}
			hosts, err := r.names.spellings(ctx, "instances.host", *i.Host)
			if err != nil {
				return err
			}
			m.Arrived = *i.Host == m.DestHost || slices.ContainsFunc(hosts, func(h string) bool { return slices.Contains(dests, h) })
		}
	}
	return nil
}

// use returns how a guest uses a device, by the report of the device's host.
func (r *reader) use(d Device) Use {
	n, ok := r.nodes[d.Node]
	if r.proof == nil || !ok {
		return Use{}
	}
	return r.proof.Holder(n.Host, d.Address, d.changed())
}

func (r *reader) readInstances(ctx context.Context, e *evidence, uuids []any) error {
	return r.query(ctx, "instances", func(rows *sql.Rows) error {
		var i Instance
		var deleted sql.NullInt64
		var requests, migration *string
		if err := rows.Scan(&i.UUID, &i.Host, &i.Node, &i.VMState, &i.Task, &deleted, &requests, &migration); err != nil {
			return err
		}
		var errs []error
		if i.Deleted = deleted.Int64 != 0; !deleted.Valid {
			errs = append(errs, errors.New("deleted is NULL"))
		}
		if requests != nil {
			var err error
			i.Requests, err = parseRequests(*requests)
			i.Asked, errs = err == nil, append(errs, err)
		}
		if migration != nil {
			var err error
			i.Context, err = parseContext(*migration)
			errs = append(errs, err)
		}
		if err := errors.Join(errs...); err != nil {
			i.odd = fmt.Sprintf("instance %s: %s", i.UUID, strings.ReplaceAll(err.Error(), "\n", ", "))
		}
		e.instances[keyOf(i.UUID)] = i
		return nil
	}, "SELECT i.uuid, i.host, i.node, i.vm_state, i.task_state, i.deleted, x.pci_requests, x.migration_context FROM instances i LEFT JOIN instance_extra x ON x.instance_uuid = i.uuid AND x.deleted = 0 WHERE i.uuid IN ("+places(len(uuids))+")", uuids...)
}

// readMigrations reads those that count: what is not over, and evacuations that
// nova-compute reads when it starts.
func (r *reader) readMigrations(ctx context.Context, e *evidence, uuids []any) error {
	return r.query(ctx, "migrations", func(rows *sql.Rows) error {
		var m Migration
		var changed sql.NullTime
		if err := rows.Scan(&m.ID, &m.UUID, &m.Instance, &m.Type, &m.Status, &m.SourceHost, &m.SourceNode, &m.DestHost, &m.DestNode, &m.CrossCell, &changed); err != nil {
			return err
		}
		m.Changed = changed.Time
		var lacks []string
		if m.UUID == "" && r.columns["migrations.uuid"] {
			lacks = append(lacks, "no uuid")
		}
		if m.Status == "" {
			lacks = append(lacks, "no status")
		}
		if m.Changed.IsZero() {
			lacks = append(lacks, "no time of its last change")
		}
		if len(lacks) > 0 {
			m.odd = fmt.Sprintf("migration %d has %s", m.ID, strings.Join(lacks, ", "))
		}
		e.migrations[keyOf(m.Instance)] = append(e.migrations[keyOf(m.Instance)], m)
		return nil
	}, "SELECT id, COALESCE("+r.column("migrations", "uuid", "''")+", ''), instance_uuid, COALESCE("+r.column("migrations", "migration_type", "'migration'")+", 'migration'), COALESCE(status, ''), COALESCE(source_compute, ''), COALESCE(source_node, ''), COALESCE(dest_compute, ''), COALESCE(dest_node, ''), COALESCE("+r.column("migrations", "cross_cell_move", "0")+`, 0) <> 0, COALESCE(updated_at, created_at)
		FROM migrations WHERE deleted = 0 AND instance_uuid IN (`+places(len(uuids))+`)
		AND (status IS NULL OR status NOT IN ('confirmed', 'reverted', 'failed', 'completed', 'cancelled', 'done') OR `+r.column("migrations", "migration_type", "''")+` = 'evacuation' AND status = 'done') ORDER BY id`, uuids...)
}

func (r *reader) readHeld(ctx context.Context, e *evidence, uuids []any) error {
	return r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		d, err := scanDevice(rows)
		if err != nil {
			return err
		}
		h := Held{Device: d}
		if n, ok := r.nodes[d.Node]; ok {
			if n.Deleted {
				return nil // no nova-compute loads it
			}
			h.Host, h.NodeName = n.Host, n.Name
		}
		e.held[keyOf(*d.Instance)] = append(e.held[keyOf(*d.Instance)], h)
		return nil
	}, "SELECT "+deviceColumns+" FROM pci_devices WHERE deleted = 0 AND status IN ('claimed', 'allocated') AND instance_uuid IN ("+places(len(uuids))+") ORDER BY id", uuids...)
}

// lookElsewhere looks for instances that this cell does not have. What cannot be read
// makes them unknown, and is said with each.
func (r *reader) lookElsewhere(ctx context.Context, e *evidence, uuids []any) {
	if r.all.API == nil {
		e.incomplete = "the API database is not known, so that other cells could not be asked"
		return
	}
	err := query(ctx, r.all.API, "nova_api.instance_mappings", func(rows *sql.Rows) error {
		var uuid string
		err := rows.Scan(&uuid)
		e.mapped[keyOf(uuid)] = true
		return err
	}, "SELECT instance_uuid FROM instance_mappings WHERE instance_uuid IN ("+places(len(uuids))+")", uuids...)
	errs := append([]error{err}, r.all.unread...)
	for _, c := range slices.Concat(r.all.Cells, r.all.others) {
		if c.Name == r.cell.Name && c.UUID == r.cell.UUID {
			continue
		}
		errs = append(errs, query(ctx, c.DB, "instances of cell "+c.Name, func(rows *sql.Rows) error {
			var uuid string
			err := rows.Scan(&uuid)
			e.other[keyOf(uuid)] = c.Name
			return err
		}, "SELECT uuid FROM instances WHERE deleted = 0 AND uuid IN ("+places(len(uuids))+")", uuids...))
	}
	if err := errors.Join(errs...); err != nil {
		e.incomplete = strings.ReplaceAll(err.Error(), "\n", ", ")
	}
}

// readRelated reads the functions of the same cards, of rows that are blocked, and of
// free ones that a guest uses.
func (r *reader) readRelated(ctx context.Context, e *evidence, devices []Device) error {
	wanted := map[int64]map[string]bool{}
	for _, d := range devices {
		if d.Status != statusUnavailable && d.Status != statusUnclaimable && (d.Instance != nil || r.use(d).Guest == "") {
			continue
		}
		if wanted[d.Node] == nil {
			wanted[d.Node] = map[string]bool{}
		}
		for _, a := range []*string{&d.Address, d.Parent} {
			if a != nil {
				wanted[d.Node][strings.ToLower(*a)] = true
			}
		}
	}
	for _, node := range slices.Sorted(maps.Keys(wanted)) {
		e.related[node] = map[string][]Device{}
		addresses := anys(slices.Sorted(maps.Keys(wanted[node])))
		args := append([]any{node}, addresses...)
		// One statement for each, so that each has its index.
		for _, column := range []string{"address", "parent_addr"} {
			list, err := r.devices(ctx, "compute_node_id = ? AND "+column+" IN ("+places(len(addresses))+")", args...)
			if err != nil {
				return err
			}
			for _, d := range list {
				key := d.Address
				if column == "parent_addr" {
					key = *d.Parent
				}
				key = strings.ToLower(key)
				e.related[node][key] = append(e.related[node][key], d)
			}
		}
	}
	return nil
}

// readRivals reads the free devices of the guests that use one of these: to several that
// fit one request, it is not known which of them Nova had given.
func (r *reader) readRivals(ctx context.Context, e *evidence, devices []Device) error {
	wanted := map[int64][]string{}
	for _, d := range devices {
		if d.Instance != nil {
			continue
		}
		g := guestOf{d.Node, r.use(d).Guest}
		if _, read := r.rivals[g]; read || len(r.guests[g]) < 2 {
			continue
		}
		if _, known := e.instances[keyOf(g.guest)]; !known {
			continue
		}
		r.rivals[g] = []Device{}
		wanted[d.Node] = append(wanted[d.Node], r.guests[g]...)
	}
	for _, node := range slices.Sorted(maps.Keys(wanted)) {
		for some := range slices.Chunk(wanted[node], batch) {
			list, err := r.devices(ctx, "compute_node_id = ? AND address IN ("+places(len(some))+") AND NOT "+odd+" ORDER BY id", append([]any{node}, anys(some)...)...)
			if err != nil {
				return err
			}
			for _, d := range list {
				if use := r.use(d); use.Named {
					g := guestOf{node, use.Guest}
					r.rivals[g] = append(r.rivals[g], d)
				}
			}
		}
	}
	return nil
}
