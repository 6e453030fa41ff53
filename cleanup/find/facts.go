package find

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/cleanup"
)

// records are read for a batch of rows. Maps by instance have KeyOf its uuid as their key.
type records struct {
	instances  map[string]cleanup.Instance
	migrations map[string][]cleanup.Migration
	held       map[string][]cleanup.Held
	other      map[string]string // cell by instance
	mapped     map[string]bool
	purged     map[string]bool
	renamed    map[int64]cleanup.Held // by row of a deleted node
	incomplete string
	contexts   map[int64]cleanup.ContextMigration    // by the migration that a context names
	related    map[int64]map[string][]cleanup.Device // by node and address, its own or its parent's
}

func (r *reader) judge(ctx context.Context, devices []cleanup.Device) ([]cleanup.Finding, error) {
	e, err := r.read(ctx, devices)
	if err != nil {
		return nil, err
	}
	findings := make([]cleanup.Finding, 0, len(devices))
	for _, d := range devices {
		f, err := r.facts(ctx, e, d)
		if err != nil {
			return nil, err
		}
		findings = append(findings, cleanup.Classify(d, f))
	}
	return findings, nil
}

// facts returns the facts about a row, relative to its node.
func (r *reader) facts(ctx context.Context, e records, d cleanup.Device) (cleanup.Facts, error) {
	f := cleanup.Facts{Cell: r.cell.Name, Now: r.now, Down: r.options.Down, Busy: r.options.BusyAfter, Token: r.options.Token, Incomplete: e.incomplete}
	if r.proof != nil {
		f.Proof = r.proof
	}
	n, there := r.nodes.get(d.Node)
	if there {
		f.Node = &n
		f.Service = r.services[n.Host]
		present, known := r.present[n.Host]
		f.Vanished = known && !present[strings.ToLower(d.Address)]
		if n.Odd != "" {
			f.Odd = append(f.Odd, n.Odd)
		}
	}
	if err := r.instanceFacts(ctx, &f, e, d, n); err != nil {
		return f, err
	}
	for k := range f.Migrations {
		m := &f.Migrations[k]
		if err := r.seen(ctx, m, n); err != nil {
			return f, err
		}
		if why := m.Doubtful(n.ID); why != "" {
			f.Odd = append(f.Odd, why)
		}
	}
	f.Related = related(e, d)
	f.Card, f.Held = card(e, d), slices.Clone(f.Held)
	for k := range f.Held {
		f.Held[k].Card = card(e, f.Held[k].Device)
	}
	return f, r.ambiguities(ctx, &f, n)
}

// instanceFacts fills in the row's instance, or else the instance whose guest uses the device.
func (r *reader) instanceFacts(ctx context.Context, f *cleanup.Facts, e records, d cleanup.Device, n cleanup.Node) (err error) {
	use := r.use(d)
	owner := cleanup.KeyOf(use.Guest)
	if d.Instance != nil {
		owner = cleanup.KeyOf(*d.Instance)
		f.OtherCell, f.Mapped, f.Purged = e.other[owner], e.mapped[owner], e.purged[owner]
		if h, ok := e.renamed[d.ID]; ok {
			f.Renamed = &h
		}
	}
	i, known := e.instances[owner]
	if d.Instance != nil || known {
		f.Migrations, f.Held = slices.Clone(e.migrations[owner]), e.held[owner]
	}
	if !known {
		return nil
	}
	if i.Odd != "" {
		f.Odd = append(f.Odd, i.Odd)
	}
	if f.Here, err = r.on(ctx, i, n); err != nil {
		return err
	}
	if f.Here && n.Deleted {
		there, err := r.replaced(ctx, i, n)
		if err != nil {
			return err
		}
		f.Here = !there
	}
	if d.Instance == nil {
		f.Holder, f.Claim = &i, r.options.Claim
		f.Rivals = r.rivals[guestOf{d.Node, use.Guest}]
		return nil
	}
	f.Instance = &i
	if f.ContextOf = e.contextOf(i); f.ContextOf != nil && f.ContextOf.Found {
		if err := r.placeMigration(ctx, i, &f.ContextOf.Migration); err != nil {
			return err
		}
	}
	if *d.Instance != i.UUID {
		f.Odd = append(f.Odd, fmt.Sprintf("the row has instance_uuid %q, but the instance has uuid %q", *d.Instance, i.UUID))
	}
	return r.misplaced(ctx, f, n)
}

// related returns the rows of the device's parent and children.
func related(e records, d cleanup.Device) (list []cleanup.Device) {
	return slices.DeleteFunc(card(e, d), func(x cleanup.Device) bool {
		return (x.Parent == nil || !strings.EqualFold(*x.Parent, d.Address)) && (d.Parent == nil || !strings.EqualFold(*d.Parent, x.Address))
	})
}

// card returns the rows of the device's parent, of the parent's other children, and of the device's
// own children.
func card(e records, d cleanup.Device) (list []cleanup.Device) {
	for _, a := range []*string{&d.Address, d.Parent} {
		if a == nil {
			continue
		}
		for _, x := range e.related[d.Node][strings.ToLower(*a)] {
			if x.ID != d.ID && !slices.ContainsFunc(list, func(known cleanup.Device) bool { return known.ID == x.ID }) {
				list = append(list, x)
			}
		}
	}
	return list
}

// on returns whether an instance is on a node.
func (r *reader) on(ctx context.Context, i cleanup.Instance, n cleanup.Node) (bool, error) {
	if i.Host == nil || i.Node == nil {
		return false, nil
	}
	host, err := r.names.same(ctx, "instances.host", *i.Host, n.Host)
	if err != nil || !host {
		return false, err
	}
	return r.names.same(ctx, "instances.node", *i.Node, n.Name)
}

// misplaced makes a row unknown if its instance is on the host of the row, or of another row of
// the instance, but on no live node of that host: a hypervisor_hostname has changed, or a live
// migration did not find its node and wrote NULL (nova/compute/manager.py,
// post_live_migration_at_destination). Nova's query by node then misses the instance, but
// nova-compute, which queries by host, starts its guest there again.
func (r *reader) misplaced(ctx context.Context, f *cleanup.Facts, n cleanup.Node) error {
	i := f.Instance
	if i.Deleted || i.Host == nil {
		return nil
	}
	hosts, err := r.names.spellings(ctx, "instances.host", *i.Host)
	if err != nil {
		return err
	}
	hosts = append([]string{*i.Host}, hosts...)
	lost := !f.Here && slices.Contains(hosts, n.Host) || slices.ContainsFunc(f.Held, func(h cleanup.Held) bool {
		return !h.Own && slices.Contains(hosts, h.Host)
	})
	if !lost {
		return nil
	}
	for other := range r.nodes.all() {
		if on, err := r.on(ctx, *i, other); err != nil || on && !other.Deleted {
			return err
		}
	}
	f.Odd = append(f.Odd, lostText(*i))
	return nil
}

// lost returns whether an instance is on the host of a node, but on no live node of that host.
func (r *reader) lost(ctx context.Context, i cleanup.Instance, n cleanup.Node) (bool, error) {
	if i.Host == nil {
		return false, nil
	}
	if same, err := r.names.same(ctx, "instances.host", *i.Host, n.Host); err != nil || !same {
		return false, err
	}
	there, err := r.replaced(ctx, i, n)
	return !there, err
}

// lostText says that an instance is on no live node of its host.
func lostText(i cleanup.Instance) string {
	node := "NULL"
	if i.Node != nil {
		node = fmt.Sprintf("%q", *i.Node)
	}
	return fmt.Sprintf("instance %s is on host %q, but its node is %s, which is not a node of that host", i.UUID, *i.Host, node)
}

// seen fills in whether a node is the source or the destination of a migration.
func (r *reader) seen(ctx context.Context, m *cleanup.Migration, n cleanup.Node) error {
	var errs [4]error
	var toHost, fromNode, toNode bool
	m.FromHost, errs[0] = r.names.same(ctx, "migrations.source_compute", m.SourceHost, n.Host)
	fromNode, errs[1] = r.names.same(ctx, "migrations.source_node", m.SourceNode, n.Name)
	toHost, errs[2] = r.names.same(ctx, "migrations.dest_compute", m.DestHost, n.Host)
	toNode, errs[3] = r.names.same(ctx, "migrations.dest_node", m.DestNode, n.Name)
	m.From, m.To = m.FromHost && fromNode, toHost && toNode
	return errors.Join(errs[:]...)
}

// ambiguities makes a row unknown that depends on one of several existing hosts with equal names.
func (r *reader) ambiguities(ctx context.Context, f *cleanup.Facts, n cleanup.Node) error {
	if len(r.ambiguous) == 0 {
		return nil
	}
	type name struct{ column, host string }
	all := []name{{"compute_nodes.host", n.Host}}
	for _, i := range []*cleanup.Instance{f.Instance, f.Holder} {
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
				reason := fmt.Sprintf("hosts %s exist, whose names the database treats as equal", strings.Join(quoted(several), " and "))
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
