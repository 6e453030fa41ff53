package find

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"gpustack/cleanup"
	"gpustack/host"
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
		findings = append(findings, cleanup.Classify(d, r.facts(e, d)))
	}
	return findings, nil
}

// facts returns the facts about a row, relative to its node.
func (r *reader) facts(e records, d cleanup.Device) cleanup.Facts {
	f := cleanup.Facts{Cell: r.cell.Name, Now: r.now, Down: r.options.Down, Busy: r.options.BusyAfter, Token: r.options.Token, Incomplete: e.incomplete,
		Proof: r.proof}
	n, there := r.nodes.get(d.Node)
	if there {
		f.Node = &n
		f.Service = r.services[n.Host]
		present, known := r.present[n.Host]
		f.Vanished = known && !present[strings.ToLower(d.Address)]
		addOdd(&f, n.Odd)
	}
	r.instanceFacts(&f, e, d, n)
	for _, m := range f.Migrations {
		addOdd(&f, cmp.Or(m.Doubtful(n), r.nodes.equal[m.SourceHost], r.nodes.equal[m.DestHost]))
	}
	f.Card, f.Held = r.card(e, d), slices.Clone(f.Held)
	for k := range f.Held {
		f.Held[k].Card = r.card(e, f.Held[k].Device)
		addOdd(&f, r.nodes.equal[f.Held[k].Host])
	}
	return f
}

// instanceFacts fills in the row's instance, or else the instance whose guest uses the device.
func (r *reader) instanceFacts(f *cleanup.Facts, e records, d cleanup.Device, n cleanup.Node) {
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
		f.Migrations, f.Held = e.migrations[owner], e.held[owner]
	}
	if !known {
		return
	}
	addOdd(f, i.Odd)
	f.Here = i.On(n.Host, n.Name) && (!n.Deleted || !r.lives(i, n.Host))
	if d.Instance == nil {
		f.Holder, f.Claim = &i, r.options.Claim
		f.Rivals = r.rivals[guestOf{d.Node, use.Guest}]
		return
	}
	f.Instance, f.ContextOf = &i, e.contextOf(i)
	if *d.Instance != i.UUID {
		f.Odd = append(f.Odd, fmt.Sprintf("the row has instance_uuid %q, but the instance has uuid %q", *d.Instance, i.UUID))
	}
	r.misplaced(f, n)
}

// card returns the rows of the device's parent, of the parent's other children, and of the device's
// own children.
func (r *reader) card(e records, d cleanup.Device) (list []cleanup.Device) {
	n, _ := r.nodes.get(d.Node)
	for _, a := range []*string{&d.Address, d.Parent} {
		if a == nil {
			continue
		}
		for _, x := range e.related[d.Node][strings.ToLower(*a)] {
			if x.ID != d.ID && !slices.ContainsFunc(list, func(known cleanup.Device) bool { return known.ID == x.ID }) {
				i, known := e.instances[cleanup.KeyOf(host.Value(x.Instance))]
				x.OnNode = known && i.Odd == "" && !i.Deleted && i.On(n.Host, n.Name)
				list = append(list, x)
			}
		}
	}
	return list
}

// misplaced makes a row unknown if its instance is on the host of the row, or of another row of
// the instance, but on no live node of that host: a hypervisor_hostname has changed, or a live
// migration did not find its node and wrote NULL (nova/compute/manager.py,
// post_live_migration_at_destination). Nova's query by node then misses the instance, but
// nova-compute, which queries by host, starts its guest there again.
func (r *reader) misplaced(f *cleanup.Facts, n cleanup.Node) {
	i := f.Instance
	if i.Deleted || i.Host == nil {
		return
	}
	lost := !f.Here && *i.Host == n.Host || slices.ContainsFunc(f.Held, func(h cleanup.Held) bool {
		return *i.Host == h.Host && !i.On(h.Host, h.NodeName)
	})
	if lost && !r.lives(*i, *i.Host) {
		f.Odd = append(f.Odd, lostText(*i))
	}
}

// lostText says that an instance is on no live node of its host.
func lostText(i cleanup.Instance) string {
	return fmt.Sprintf("instance %s is on host %q, but its node is %s, which is not a node of that host", i.UUID, *i.Host, quoted(i.Node))
}

// quoted returns the name of a host or node as part of a sentence.
func quoted(name *string) string {
	if name == nil || *name == "" {
		return "NULL"
	}
	return fmt.Sprintf("%q", *name)
}

// addOdd notes why a row is unknown, unless that is "" or is noted already: several records may be of
// hosts with equal names.
func addOdd(f *cleanup.Facts, why string) {
	if why != "" && !slices.Contains(f.Odd, why) {
		f.Odd = append(f.Odd, why)
	}
}
