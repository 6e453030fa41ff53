package cleanup

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
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

// HeldBy is a device of a host that a guest holds.
type HeldBy struct {
	Host, Address string
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
	tx       *sql.Tx
	columns  map[string]bool // table.column, where releases differ
	now      time.Time
	nodes    map[int64]Node
	services map[string]Service // by host
	all      *Databases
	cell     Cell
	options  Options
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
	var after int64
	for {
		devices, err := r.devices(ctx, after)
		if err != nil || len(devices) == 0 {
			return err
		}
		findings, err := r.judge(ctx, devices)
		if err != nil {
			return err
		}
		for _, f := range findings {
			emit(f)
		}
		after = devices[len(devices)-1].ID
	}
}

// begin reads what is the same for all rows.
func (r *reader) begin(ctx context.Context) error {
	r.columns, r.nodes, r.services = map[string]bool{}, map[int64]Node{}, map[string]Service{}
	err := r.query(ctx, "columns", func(rows *sql.Rows) error {
		var name string
		err := rows.Scan(&name)
		r.columns[name] = true
		return err
	}, "SELECT CONCAT(table_name, '.', column_name) FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name IN ('services', 'compute_nodes', 'migrations')")
	if err != nil {
		return err
	}
	// The snapshot begins with the first of Nova's tables that is read.
	err = r.query(ctx, "compute_nodes", func(rows *sql.Rows) error {
		var n Node
		err := rows.Scan(&n.ID, &n.Host, &n.Name, &n.Deleted)
		r.nodes[n.ID] = n
		return err
	}, "SELECT id, COALESCE(host, ''), COALESCE(hypervisor_hostname, ''), deleted <> 0 FROM compute_nodes")
	if err != nil {
		return err
	}
	err = r.query(ctx, "services", func(rows *sql.Rows) error {
		var s Service
		err := rows.Scan(&s.Host, &s.Forced, &s.LastSeen, &s.Reports)
		r.services[s.Host] = s
		return err
	}, "SELECT COALESCE(host, ''), COALESCE("+r.column("services", "forced_down", "0")+", 0) <> 0, COALESCE("+r.column("services", "last_seen_up", "updated_at")+", created_at), report_count FROM services WHERE deleted = 0 AND `binary` = 'nova-compute'")
	if err != nil {
		return err
	}
	return r.query(ctx, "the clock", func(rows *sql.Rows) error { return rows.Scan(&r.now) }, "SELECT UTC_TIMESTAMP(6)")
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

// devices reads the next rows that are not simply free.
func (r *reader) devices(ctx context.Context, after int64) ([]Device, error) {
	where := "deleted = 0 AND id > ?"
	args := []any{after}
	odd := "status <> 'available' OR instance_uuid IS NOT NULL OR request_id IS NOT NULL"
	for _, h := range r.options.Held {
		for _, n := range r.nodes {
			if n.Host == h.Host && !n.Deleted {
				odd += " OR compute_node_id = ? AND address = ?"
				args = append(args, n.ID, h.Address)
			}
		}
	}
	where += " AND (" + odd + ")"
	if o := r.options; o.Host != "" {
		var ids []any
		for _, n := range r.nodes {
			if n.Host == o.Host || n.Name == o.Host {
				ids = append(ids, n.ID)
			}
		}
		if len(ids) == 0 {
			return nil, nil
		}
		where += " AND compute_node_id IN (" + places(len(ids)) + ")"
		args = append(args, ids...)
	}
	if r.options.Instance != "" {
		where, args = where+" AND instance_uuid = ?", append(args, r.options.Instance)
	}
	if r.options.Address != "" {
		where, args = where+" AND address = ?", append(args, r.options.Address)
	}
	var list []Device
	err := r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		d, err := scanDevice(rows)
		list = append(list, d)
		return err
	}, "SELECT "+deviceColumns+" FROM pci_devices WHERE "+where+fmt.Sprintf(" ORDER BY id LIMIT %d", batch), args...)
	return list, err
}

// places are n places of arguments.
func places(n int) string {
	return strings.TrimSuffix(strings.Repeat("?, ", n), ", ")
}

// evidence is what is read for a batch of rows.
type evidence struct {
	instances  map[string]Instance
	migrations map[string][]Migration
	held       map[string][]Held
	other      map[string]string // cell by instance
	mapped     map[string]bool
	incomplete string
	related    []Device
}

func (r *reader) judge(ctx context.Context, devices []Device) ([]Finding, error) {
	e, err := r.read(ctx, devices)
	if err != nil {
		return nil, err
	}
	findings := make([]Finding, 0, len(devices))
	for _, d := range devices {
		f := Facts{Cell: r.cell.Name, Now: r.now, Down: r.options.Down, Proof: r.options.Proof, Incomplete: e.incomplete}
		if n, ok := r.nodes[d.Node]; ok {
			f.Node = &n
			if s, ok := r.services[n.Host]; ok {
				f.Service = &s
			}
			present, known := r.options.Present[n.Host]
			f.Vanished = known && !slices.Contains(present, d.Address)
		}
		if d.Instance != nil {
			if i, ok := e.instances[*d.Instance]; ok {
				f.Instance = &i
			}
			f.OtherCell, f.Mapped = e.other[*d.Instance], e.mapped[*d.Instance]
			f.Migrations, f.Held = e.migrations[*d.Instance], e.held[*d.Instance]
		} else if i, ok := e.instances[r.holder(d)]; ok {
			f.Holder, f.Migrations, f.Held = &i, e.migrations[i.UUID], e.held[i.UUID]
			f.Claim = r.options.Claim
		}
		for _, x := range e.related {
			if x.Node == d.Node && (x.Parent != nil && *x.Parent == d.Address || d.Parent != nil && *d.Parent == x.Address) {
				f.Related = append(f.Related, x)
			}
		}
		findings = append(findings, Classify(d, f))
	}
	return findings, nil
}

func (r *reader) read(ctx context.Context, devices []Device) (evidence, error) {
	e := evidence{instances: map[string]Instance{}, migrations: map[string][]Migration{}, held: map[string][]Held{}, other: map[string]string{}, mapped: map[string]bool{}}
	var uuids []any
	seen := map[string]bool{}
	holders := map[string]bool{} // that need not be instances of Nova's
	for _, d := range devices {
		owner := ""
		if d.Instance != nil {
			owner = *d.Instance
		} else if owner = r.holder(d); owner != "" {
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
		var missing []any
		for _, u := range uuids {
			if _, there := e.instances[u.(string)]; !there && !holders[u.(string)] {
				missing = append(missing, u)
			}
		}
		if len(missing) > 0 {
			r.lookElsewhere(ctx, &e, missing)
		}
	}
	return e, r.readRelated(ctx, &e, devices)
}

// holder is who holds a device that nobody has, by the host's report; "" for none.
func (r *reader) holder(d Device) string {
	n, ok := r.nodes[d.Node]
	if r.options.Proof == nil || !ok {
		return ""
	}
	return r.options.Proof.Holder(n.Host, d.Address, d.changed())
}

func (r *reader) readInstances(ctx context.Context, e *evidence, uuids []any) error {
	return r.query(ctx, "instances", func(rows *sql.Rows) error {
		var i Instance
		var requests, migration *string
		if err := rows.Scan(&i.UUID, &i.Host, &i.Node, &i.VMState, &i.Task, &i.Deleted, &requests, &migration); err != nil {
			return err
		}
		if requests != nil {
			ids, err := parseRequests(*requests)
			if err != nil {
				return fmt.Errorf("instance %s: %w", i.UUID, err)
			}
			n := len(ids)
			i.Asked, i.Request = &n, ids
		}
		if migration != nil {
			context, err := parseContext(*migration)
			if err != nil {
				return fmt.Errorf("instance %s: %w", i.UUID, err)
			}
			i.Context = context
		}
		e.instances[i.UUID] = i
		return nil
	}, "SELECT i.uuid, i.host, i.node, i.vm_state, i.task_state, i.deleted <> 0, x.pci_requests, x.migration_context FROM instances i LEFT JOIN instance_extra x ON x.instance_uuid = i.uuid AND x.deleted = 0 WHERE i.uuid IN ("+places(len(uuids))+")", uuids...)
}

// readMigrations reads those that count: what is not over, and evacuations that
// nova-compute reads when it starts.
func (r *reader) readMigrations(ctx context.Context, e *evidence, uuids []any) error {
	return r.query(ctx, "migrations", func(rows *sql.Rows) error {
		var m Migration
		if err := rows.Scan(&m.ID, &m.UUID, &m.Instance, &m.Type, &m.Status, &m.SourceHost, &m.SourceNode, &m.DestHost, &m.DestNode, &m.CrossCell, &m.Changed); err != nil {
			return err
		}
		e.migrations[m.Instance] = append(e.migrations[m.Instance], m)
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
				return nil // nobody's
			}
			h.Host, h.NodeName = n.Host, n.Name
		}
		e.held[*d.Instance] = append(e.held[*d.Instance], h)
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
		e.mapped[uuid] = true
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
			e.other[uuid] = c.Name
			return err
		}, "SELECT uuid FROM instances WHERE deleted = 0 AND uuid IN ("+places(len(uuids))+")", uuids...))
	}
	if err := errors.Join(errs...); err != nil {
		e.incomplete = strings.ReplaceAll(err.Error(), "\n", ", ")
	}
}

// readRelated reads the functions of the same cards, for those that are blocked.
func (r *reader) readRelated(ctx context.Context, e *evidence, devices []Device) error {
	var nodes, addresses []any
	for _, d := range devices {
		if d.Status != statusUnavailable && d.Status != statusUnclaimable && (d.Instance != nil || r.holder(d) == "") {
			continue
		}
		for _, a := range []*string{&d.Address, d.Parent} {
			if a != nil && !slices.Contains(addresses, any(*a)) {
				addresses = append(addresses, *a)
			}
		}
		if !slices.Contains(nodes, any(d.Node)) {
			nodes = append(nodes, d.Node)
		}
	}
	if len(nodes) == 0 {
		return nil
	}
	args := slices.Concat(nodes, addresses, addresses)
	return r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		d, err := scanDevice(rows)
		e.related = append(e.related, d)
		return err
	}, "SELECT "+deviceColumns+" FROM pci_devices WHERE deleted = 0 AND compute_node_id IN ("+places(len(nodes))+") AND (address IN ("+places(len(addresses))+") OR parent_addr IN ("+places(len(addresses))+"))", args...)
}
