package find

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
	"gpustack/host"
)

func (r *reader) read(ctx context.Context, devices []cleanup.Device) (records, error) {
	e := records{instances: map[string]cleanup.Instance{}, migrations: map[string][]cleanup.Migration{},
		held: map[string][]cleanup.Held{}, other: map[string]string{}, mapped: map[string]bool{}, purged: map[string]bool{},
		related: map[int64]map[string][]cleanup.Device{}}
	var uuids []any
	var hosts []string
	seen := map[string]bool{}
	owns := map[string]bool{} // instances that rows name; a guest of a report need not be one of Nova
	for _, d := range devices {
		if n, ok := r.nodes.get(d.Node); ok {
			hosts = append(hosts, n.Host)
		}
		owner := ""
		if d.Instance != nil {
			owner = *d.Instance
			owns[owner] = true
		} else {
			owner = r.use(d).Guest
		}
		if owner != "" && !seen[owner] {
			seen[owner] = true
			uuids = append(uuids, owner)
		}
	}
	if err := r.readServices(ctx, hosts); err != nil {
		return e, err
	}
	if len(uuids) > 0 {
		if err := errors.Join(r.readInstances(ctx, &e, uuids), r.readMigrations(ctx, &e, uuids), r.readHeld(ctx, &e, uuids)); err != nil {
			return e, err
		}
		if err := r.readContexts(ctx, &e); err != nil {
			return e, err
		}
		r.checkComputeIDs(&e)
		var missing []any
		for _, u := range uuids {
			if _, there := e.instances[cleanup.KeyOf(u.(string))]; !there && owns[u.(string)] {
				missing = append(missing, u)
			}
		}
		if len(missing) > 0 {
			r.lookElsewhere(ctx, &e, missing)
		}
	}
	return e, errors.Join(r.readRelated(ctx, &e, devices), r.readRivals(ctx, &e, devices), r.readRenamed(ctx, &e, devices))
}

// use returns how a guest uses a device, by the report of the device's host.
func (r *reader) use(d cleanup.Device) cleanup.Use {
	n, ok := r.nodes.get(d.Node)
	if !ok {
		return cleanup.Use{}
	}
	return r.proof.Holder(n.Host, d.Address, d.LastChange())
}

func (r *reader) readInstances(ctx context.Context, e *records, uuids []any) error {
	return r.query(ctx, "instances", func(rows *sql.Rows) error {
		var i cleanup.Instance
		var deleted sql.NullInt64
		var requests, migration *string
		if err := rows.Scan(&i.UUID, &i.Host, &i.Node, &i.Compute, &i.VMState, &i.Task, &deleted, &i.DeletedAt, &i.Changed, &i.Hidden, &requests, &migration); err != nil {
			return err
		}
		var errs []error
		if _, read := e.instances[cleanup.KeyOf(i.UUID)]; read {
			errs = append(errs, errors.New("it has several rows of instance_extra"))
		}
		if i.Deleted = deleted.Int64 != 0; !deleted.Valid {
			errs = append(errs, errors.New("deleted is NULL"))
		}
		if requests != nil {
			var err error
			i.Requests, err = cleanup.ParseRequests(*requests)
			i.Asked, errs = err == nil, append(errs, err)
		}
		if migration != nil {
			var err error
			i.Context, err = cleanup.ParseContext(*migration)
			errs = append(errs, err)
		}
		if err := errors.Join(errs...); err != nil {
			i.Odd = fmt.Sprintf("instance %s: %s", i.UUID, strings.ReplaceAll(err.Error(), "\n", ", "))
		}
		if i.Host != nil {
			i.Odd = cmp.Or(i.Odd, r.nodes.equal[*i.Host])
		}
		e.instances[cleanup.KeyOf(i.UUID)] = i
		return nil
	}, "SELECT i.uuid, "+hostOf("i.host")+", "+nodeOf("i.host", "i.node")+", "+r.column("instances", "compute_id", "NULL")+", i.vm_state, i.task_state, i.deleted, i.deleted_at, COALESCE(i.updated_at, i.created_at), COALESCE("+
		r.column("instances", "hidden", "0")+", 0) <> 0, x.pci_requests, x.migration_context FROM instances i LEFT JOIN instance_extra x ON x.instance_uuid = i.uuid AND x.deleted = 0 WHERE i.uuid IN ("+
		novadb.Places(len(uuids))+")", uuids...)
}

// readMigrations reads the migrations that are not over, and the evacuations that nova-compute
// reads when it starts.
func (r *reader) readMigrations(ctx context.Context, e *records, uuids []any) error {
	list, err := r.migrations(ctx, "deleted = 0 AND instance_uuid IN ("+novadb.Places(len(uuids))+`)
		AND (status IS NULL OR status NOT IN ('confirmed', 'reverted', 'failed', 'completed', 'cancelled', 'done') OR `+
		r.column("migrations", "migration_type", "''")+` = 'evacuation' AND status = 'done')`, uuids...)
	for _, m := range list {
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
			m.Odd = fmt.Sprintf("migration %d has %s", m.ID, strings.Join(lacks, ", "))
		}
		e.migrations[cleanup.KeyOf(m.Instance)] = append(e.migrations[cleanup.KeyOf(m.Instance)], m.Migration)
	}
	return err
}

func (r *reader) readHeld(ctx context.Context, e *records, uuids []any) error {
	err := r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		d, err := scanDevice(rows)
		if err != nil {
			return err
		}
		h := cleanup.Held{Device: d}
		if n, ok := r.nodes.get(d.Node); ok {
			if n.Deleted {
				return nil // no nova-compute loads it
			}
			h.Host, h.NodeName = n.Host, n.Name
		}
		e.held[cleanup.KeyOf(*d.Instance)] = append(e.held[cleanup.KeyOf(*d.Instance)], h)
		return nil
	}, "SELECT "+deviceColumns+" FROM pci_devices WHERE deleted = 0 AND status IN ('claimed', 'allocated') AND instance_uuid IN ("+
		novadb.Places(len(uuids))+")", uuids...)
	for _, list := range e.held {
		slices.SortFunc(list, func(a, b cleanup.Held) int { return cmp.Compare(a.ID, b.ID) })
	}
	return err
}

// lookElsewhere looks in the API database and in other cells for instances that this cell does
// not have. Databases that cannot be read make the rows of these instances unknown.
func (r *reader) lookElsewhere(ctx context.Context, e *records, uuids []any) {
	if r.all.API == nil {
		e.incomplete = "the API database is not configured, so other cells could not be read"
		return
	}
	errs := []error{r.readMappings(ctx, e, uuids), r.all.Unread()}
	for _, c := range r.all.All() {
		if c.Name == r.cell.Name && c.UUID == r.cell.UUID {
			continue
		}
		errs = append(errs, novadb.Query(ctx, c.DB, "instances of cell "+c.Name, func(rows *sql.Rows) error {
			var uuid string
			err := rows.Scan(&uuid)
			e.other[cleanup.KeyOf(uuid)] = c.Name
			return err
		}, "SELECT uuid FROM instances WHERE deleted = 0 AND uuid IN ("+novadb.Places(len(uuids))+")", uuids...))
	}
	if err := errors.Join(errs...); err != nil {
		e.incomplete = strings.ReplaceAll(err.Error(), "\n", ", ")
	}
}

// readMappings reads which instances are mapped to a cell, and which of these the API has deleted,
// by queued_for_delete: the column exists from Rocky on, and is NULL in older rows. Such a mapping is no
// sign of an instance that exists.
func (r *reader) readMappings(ctx context.Context, e *records, uuids []any) error {
	deleted := "0"
	err := novadb.Query(ctx, r.all.API, "nova_api columns", func(rows *sql.Rows) error {
		return rows.Scan(&deleted)
	}, "SELECT column_name FROM information_schema.columns WHERE table_schema = DATABASE() AND table_name = 'instance_mappings' AND column_name = 'queued_for_delete'")
	if err != nil {
		return err
	}
	return novadb.Query(ctx, r.all.API, "nova_api.instance_mappings", func(rows *sql.Rows) error {
		var uuid string
		var purged bool
		err := rows.Scan(&uuid, &purged)
		e.mapped[cleanup.KeyOf(uuid)], e.purged[cleanup.KeyOf(uuid)] = !purged, purged
		return err
	}, "SELECT instance_uuid, COALESCE("+deleted+", 0) <> 0 FROM instance_mappings WHERE instance_uuid IN ("+novadb.Places(len(uuids))+")", uuids...)
}

// readRelated reads the rows of functions of the same cards, and their instances.
func (r *reader) readRelated(ctx context.Context, e *records, devices []cleanup.Device) error {
	wanted := r.relatives(e, devices)
	owners := map[string]any{}
	for _, column := range []string{ownAddress, parentAddress} {
		err := r.devicesAt(ctx, column, wanted, "", nil, func(list []cleanup.Device) error {
			for _, d := range list {
				key := d.Address
				if column == parentAddress {
					key = *d.Parent
				}
				if e.related[d.Node] == nil {
					e.related[d.Node] = map[string][]cleanup.Device{}
				}
				e.related[d.Node][strings.ToLower(key)] = append(e.related[d.Node][strings.ToLower(key)], d)
				owner := cleanup.KeyOf(host.Value(d.Instance))
				if _, read := e.instances[owner]; !read && d.Instance != nil {
					owners[owner] = *d.Instance
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
	for some := range slices.Chunk(slices.Collect(maps.Values(owners)), batch) {
		if err := r.readInstances(ctx, e, some); err != nil {
			return err
		}
	}
	r.checkComputeIDs(e)
	return nil
}

// relatives returns the addresses of the cards whose other functions matter: those of blocked rows,
// of free rows whose device a guest uses, and of PFs, VFs and vdpa devices that a repair may free.
func (r *reader) relatives(e *records, devices []cleanup.Device) (wanted []nodeAddress) {
	want := func(d cleanup.Device) {
		for _, a := range []*string{&d.Address, d.Parent} {
			if a != nil {
				wanted = append(wanted, nodeAddress{d.Node, strings.ToLower(*a)})
			}
		}
	}
	for _, d := range devices {
		blocked := d.Status == cleanup.StatusUnavailable || d.Status == cleanup.StatusUnclaimable
		if d.SRIOV() || blocked || d.Instance == nil && r.use(d).Guest != "" {
			want(d)
		}
	}
	for _, held := range e.held {
		for _, h := range held {
			if h.SRIOV() {
				want(h.Device)
			}
		}
	}
	return wanted
}

// readRivals reads the free devices that are used by the same guests as these devices: if several
// match one request, it is unknown which of them Nova had assigned.
func (r *reader) readRivals(ctx context.Context, e *records, devices []cleanup.Device) error {
	var wanted []nodeAddress
	for _, d := range devices {
		if d.Instance != nil {
			continue
		}
		g := guestOf{d.Node, r.use(d).Guest}
		if _, read := r.rivals[g]; read || len(r.guests[g]) < 2 {
			continue
		}
		if _, known := e.instances[cleanup.KeyOf(g.guest)]; !known {
			continue
		}
		r.rivals[g] = []cleanup.Device{}
		for _, address := range r.guests[g] {
			wanted = append(wanted, nodeAddress{d.Node, address})
		}
	}
	return r.devicesAt(ctx, ownAddress, wanted, " AND NOT "+odd, nil, func(free []cleanup.Device) error {
		for _, d := range free {
			if use := r.use(d); use.Named {
				g := guestOf{d.Node, use.Guest}
				r.rivals[g] = append(r.rivals[g], d)
			}
		}
		return nil
	})
}
