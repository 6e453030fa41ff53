package cloud

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"gpustack/cleanup"
	"gpustack/cleanup/find"
	"gpustack/cleanup/novadb"
	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// errNoDevices says that nothing shows devices.
var errNoDevices = host.WithHint(errors.New("no compute node reports PCI devices to Placement, and no database is given"),
	"give --database URL, or --conf controller=FILE with [api_database]")

// fail notes what could not be read.
func (l *lister) fail(err error) { l.unread = errors.Join(l.unread, err) }

// readCloud reads the hosts, the providers of devices and the servers that have them. The number of
// requests to Nova does not depend on the number of hosts, as its lists have pages; Placement is asked
// twice for each provider of devices. hasRows says that a database is read, too.
func (l *lister) readCloud(ctx context.Context, o *DevicesOptions, hasRows bool) error {
	compute, err := l.connect(ctx)
	if err != nil {
		return err
	}
	if o.Project != "" {
		project, err := compute.Cloud().Project(ctx, o.Project)
		if err != nil {
			return err
		}
		o.Project = project.ID
	}
	if err := l.readPlaces(ctx, compute); err != nil {
		return err
	}
	placement, err := compute.Cloud().Placement()
	if err == nil {
		err = l.readProviders(ctx, placement, o.Host)
	}
	switch {
	case err != nil && !hasRows:
		return err
	case err != nil:
		l.lost = !errors.Is(err, cloud.ErrNoEndpoint)
		l.fail(err)
	case len(l.providers) == 0 && !hasRows && len(l.hosts) == 0 && o.Host == "":
		return errNoDevices
	}
	moves, err := compute.OpenMigrations(ctx)
	if err != nil {
		return err
	}
	for _, m := range moves {
		l.moves[m.UUID] = m.Server
	}
	servers, _, err := compute.FindServers(ctx, "")
	for _, s := range servers {
		isBusy := s.Task != "" || s.Status == "BUILD"
		l.owners[cleanup.KeyOf(s.ID)] = owner{DeviceInstance{s.ID, s.Name, s.Project}, &s.Created, isBusy}
	}
	return err
}

// readPlaces reads the compute nodes and their services.
func (l *lister) readPlaces(ctx context.Context, compute *cloud.Compute) error {
	if err := l.facts.ReadHosts(ctx, compute); err != nil {
		return err
	}
	for _, why := range slices.Sorted(maps.Values(l.facts.Unread)) {
		l.fail(errors.New(why))
	}
	for _, h := range l.facts.Hosts {
		p := &place{host: h.Name, node: h.Node}
		if s := h.Service; s != nil {
			service := cleanup.Service{Forced: s.ForcedDown, LastSeen: &s.Updated}
			if p.zone, p.silent = s.Zone, s.Unknown; !s.Enabled {
				service.Disabled = &s.Reason
			}
			if !s.Up {
				service.LastSeen = nil
			}
			if p.off = service.Off(s.Updated, time.Minute); s.Updated.After(l.now) {
				l.now = s.Updated
			}
		}
		if p.node != "" {
			l.places[p.node] = p
		}
	}
	return nil
}

// readProviders reads what the providers of the devices of a host, "" for all, have and who holds it,
// side by side.
func (l *lister) readProviders(ctx context.Context, placement *cloud.Placement, name string) error {
	all, err := placement.PCIProviders(ctx)
	if err != nil {
		return err
	}
	once, err := placement.OneTimeUse(ctx)
	if err != nil {
		return err
	}
	all = slices.DeleteFunc(all, func(p cloud.Provider) bool { at, _ := l.placeOf(p.Name); return !at.is(name) })
	isOnce := host.Set(host.Map(once, func(p cloud.Provider) string { return p.UUID }))
	for _, p := range all {
		l.providers = append(l.providers, provided{Provider: p, once: isOnce[p.UUID]})
	}
	l.fail(cloud.AskAll(ctx, len(all), "resource providers", func(i int) (err error) {
		l.providers[i].inventories, err = placement.Inventories(ctx, all[i].UUID)
		return err
	}))
	return ctx.Err()
}

// readRows reads the rows of devices, and has them and their pools judged.
func (l *lister) readRows(ctx context.Context, d *novadb.Databases, options find.Options) error {
	options.Present = nova.Present(l.hosts)
	stocks, pools, err := find.Stocks(ctx, d, options)
	if err != nil {
		return err
	}
	zones, err := find.Zones(ctx, d)
	if err != nil {
		return err
	}
	for _, s := range stocks {
		p := l.places[s.Node]
		if p == nil {
			p = &place{host: s.Host, node: s.Node, zone: zones[s.Host], off: s.Off}
			l.places[s.Node] = p
		}
		p.hasRows = true
		for _, r := range s.Rows {
			l.addRow(p, r)
		}
	}
	for _, f := range pools.Findings {
		if at := l.places[f.Node]; f.Verdict == cleanup.Suspicious && at != nil {
			l.contradict(at, "", "pci_stats, which nova-scheduler reads, differs from the rows: "+f.Reason, at.judge())
		}
	}
	return nil
}

// addRow adds the device of a row, in the state that its finding says, or else its status.
func (l *lister) addRow(p *place, r find.StockRow) {
	d := Device{Address: r.Address, Vendor: r.Vendor, ID: r.Product, Since: r.Updated, Sources: []string{"database"},
		kind: pci.DeviceType(r.Type), row: &r.Device}
	if r.Instance != nil {
		d.Instance = &DeviceInstance{*r.Instance, r.Name, r.Project}
	}
	switch f := r.Finding; {
	case f != nil:
		d.State, d.Case, d.Reason, d.Remedy = DeviceState(f.Verdict), f.Case, f.Reason, p.judge()
		if f.Verdict == cleanup.Busy { // for longer than its time
			d.State = DeviceAssigned
		}
	case r.Status == cleanup.StatusAvailable:
		d.State = DeviceFree
	case r.Status == cleanup.StatusClaimed || r.Status == cleanup.StatusAllocated:
		d.State = DeviceAssigned
	default:
		d.State, d.Reason = DeviceDisabled, "a function of the same card is assigned"
	}
	address := r.Address
	if r.Parent != nil && r.Type != cleanup.TypePF && r.Type != cleanup.TypePCI {
		address = *r.Parent // VFs are of the provider of their PF
	}
	l.add(providerName(p.node, address), p, d)
}
