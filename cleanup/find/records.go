package find

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

func (r *reader) read(ctx context.Context, devices []cleanup.Device) (records, error) {
	e := records{instances: map[string]cleanup.Instance{}, migrations: map[string][]cleanup.Migration{},
		held: map[string][]cleanup.Held{}, other: map[string]string{}, mapped: map[string]bool{}, purged: map[string]bool{},
		related: map[int64]map[string][]cleanup.Device{}}
	var uuids []any
	var hosts []string
	seen := map[string]bool{}
	holders := map[string]bool{} // guests, which need not be instances of Nova
	for _, d := range devices {
		if n, ok := r.nodes.get(d.Node); ok {
			hosts = append(hosts, n.Host)
		}
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
		if err := errors.Join(r.checkComputeIDs(ctx, &e), r.place(ctx, &e)); err != nil {
			return e, err
		}
		var missing []any
		for _, u := range uuids {
			if _, there := e.instances[cleanup.KeyOf(u.(string))]; !there && !holders[u.(string)] {
				missing = append(missing, u)
			}
		}
		if len(missing) > 0 {
			r.lookElsewhere(ctx, &e, missing)
		}
	}
	return e, errors.Join(r.readRelated(ctx, &e, devices), r.readRivals(ctx, &e, devices), r.readRenamed(ctx, &e, devices))
}

// place fills in what does not depend on the judged row: which devices are on their instance's
// own node, which instances have arrived on their migration's destination, and the names that
// migrations have for hosts.
func (r *reader) place(ctx context.Context, e *records) error {
	for uuid, held := range e.held {
		for k := range held {
			if err := r.placeHeld(ctx, e.instances[uuid], e.migrations[uuid], &held[k]); err != nil {
				return err
			}
		}
	}
	for uuid, migrations := range e.migrations {
		for k := range migrations {
			if err := r.placeMigration(ctx, e.instances[uuid], &migrations[k]); err != nil {
				return err
			}
		}
	}
	return nil
}

// placeHeld fills in whether a device is on its instance's own node, and which of the instance's
// migrations go from or to its node.
func (r *reader) placeHeld(ctx context.Context, i cleanup.Instance, migrations []cleanup.Migration, h *cleanup.Held) (err error) {
	n, _ := r.nodes.get(h.Node)
	if h.Own, err = r.on(ctx, i, n); err != nil {
		return err
	}
	for _, m := range migrations {
		if err := r.seen(ctx, &m, n); err != nil {
			return err
		}
		if m.From {
			h.From = append(h.From, m.ID)
		}
		if m.To {
			h.To = append(h.To, m.ID)
		}
	}
	return nil
}

// placeMigration fills in the names that a migration has for hosts, and whether its instance has
// arrived on its destination.
func (r *reader) placeMigration(ctx context.Context, i cleanup.Instance, m *cleanup.Migration) error {
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
		return nil
	}
	hosts, err := r.names.spellings(ctx, "instances.host", *i.Host)
	if err != nil {
		return err
	}
	m.Arrived = *i.Host == m.DestHost || slices.ContainsFunc(hosts, func(h string) bool { return slices.Contains(dests, h) })
	return nil
}

// use returns how a guest uses a device, by the report of the device's host.
func (r *reader) use(d cleanup.Device) cleanup.Use {
	n, ok := r.nodes.get(d.Node)
	if r.proof == nil || !ok {
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
		e.instances[cleanup.KeyOf(i.UUID)] = i
		return nil
	}, "SELECT i.uuid, i.host, i.node, "+r.column("instances", "compute_id", "NULL")+", i.vm_state, i.task_state, i.deleted, i.deleted_at, COALESCE(i.updated_at, i.created_at), COALESCE("+
		r.column("instances", "hidden", "0")+", 0) <> 0, x.pci_requests, x.migration_context FROM instances i LEFT JOIN instance_extra x ON x.instance_uuid = i.uuid AND x.deleted = 0 WHERE i.uuid IN ("+
		novadb.Places(len(uuids))+")", uuids...)
}

// readMigrations reads the migrations that are not over, and the evacuations that nova-compute
// reads when it starts.
func (r *reader) readMigrations(ctx context.Context, e *records, uuids []any) error {
	err := r.query(ctx, "migrations", func(rows *sql.Rows) error {
		var m cleanup.Migration
		var changed sql.NullTime
		if err := rows.Scan(&m.ID, &m.UUID, &m.Instance, &m.Type, &m.Status, &m.SourceHost, &m.SourceNode, &m.DestHost,
			&m.DestNode, &m.CrossCell, &changed, &m.DestCompute, &m.Resizes); err != nil {
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
			m.Odd = fmt.Sprintf("migration %d has %s", m.ID, strings.Join(lacks, ", "))
		}
		e.migrations[cleanup.KeyOf(m.Instance)] = append(e.migrations[cleanup.KeyOf(m.Instance)], m)
		return nil
	}, "SELECT id, COALESCE("+r.column("migrations", "uuid", "''")+", ''), instance_uuid, COALESCE("+
		r.column("migrations", "migration_type", "'migration'")+
		", 'migration'), COALESCE(status, ''), COALESCE(source_compute, ''), COALESCE(source_node, ''), COALESCE(dest_compute, ''), COALESCE(dest_node, ''), COALESCE("+
		r.column("migrations", "cross_cell_move", "0")+`, 0) <> 0, COALESCE(updated_at, created_at), `+r.column("migrations", "dest_compute_id", "NULL")+`,
		COALESCE(old_instance_type_id <> new_instance_type_id, 0)
		FROM migrations WHERE deleted = 0 AND instance_uuid IN (`+novadb.Places(len(uuids))+`)
		AND (status IS NULL OR status NOT IN ('confirmed', 'reverted', 'failed', 'completed', 'cancelled', 'done') OR `+
		r.column("migrations", "migration_type", "''")+` = 'evacuation' AND status = 'done')`, uuids...)
	for _, list := range e.migrations {
		slices.SortFunc(list, func(a, b cleanup.Migration) int { return cmp.Compare(a.ID, b.ID) })
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
// by queued_for_delete: the column exists from Rocky on, and is NULL in older rows.
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

// readRelated reads the rows of functions of the same cards.
func (r *reader) readRelated(ctx context.Context, e *records, devices []cleanup.Device) error {
	wanted := r.relatives(e, devices)
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
			}
			return nil
		})
		if err != nil {
			return err
		}
	}
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
