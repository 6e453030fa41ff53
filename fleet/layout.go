package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/checklist"
	"gpustack/host/pci"
)

// Layout is an arrangement of GPUs that nodes have in common: products, addresses, NUMA nodes and
// members of IOMMU groups.
type Layout struct {
	Number int        `json:"number"` // from 1
	GPUs   []Function `json:"slots"`  // the GPUs, by address
	Exact  []*Node    // nodes that have exactly the layout, by name
	// the nodes that have it, also those that differ from it
	Nodes []*Node `json:"node_names"`
	// how many of these nodes differ from it in GPUs, NUMA nodes or groups
	OddCount int `json:"odd_count"`
}

// Odd is something in which a node differs from its layout, or for which it needs attention.
type Odd struct {
	Node string `json:"node"` // the hostname
	// the number of its layout; nil for a node without the output of host scan
	Layout *int `json:"layout"`
	What   What `json:"what"` // what is odd; "old report" only with --max-age
	// Address is the function; nil for the node as a whole. An "incomplete" function could not be
	// identified and may be there.
	Address  *pci.Address `json:"address"`
	Expected string       `json:"expected"` // what the layout has, for people
	Found    string       `json:"found"`    // what the node has, for people
}

// What is the kind of an Odd.
type What string

// The kinds, in the order in which those of a node are listed.
const (
	NotADocument  What = "malformed file"
	NoScan        What = "no scan"
	Incomplete    What = "incomplete"
	UseUnknown    What = "use unknown"
	LostCard      What = "lost card"
	AddedCard     What = "added card"
	Moved         What = "moved address"
	OtherProduct  What = "product"
	OtherNUMA     What = "NUMA node"
	OtherGroup    What = "group"
	OtherDriver   What = "driver"
	Console       What = "console"
	Link          What = "link width"
	Firmware      What = "firmware"
	NotReady      What = "not ready"
	RebootPending What = "reboot pending"
	OldReport     What = "old report"
	FutureReport  What = "report from the future"
)

// tolerated is by how much a report may be from the future: clocks of nodes differ.
const tolerated = 5 * time.Minute

// isOdd reports whether a value that so many nodes have is a deviation from one that others have,
// and not another variant that is meant. It is if four times as many have the other one, or if only
// one node has it and several have the other one.
func isOdd(nodes, others int) bool {
	return nodes > 0 && (4*nodes <= others || nodes == 1 && others >= 2)
}

// Layouts returns the layouts of a fleet, those of most nodes first. A node that differs from a
// layout of many more nodes in cards, addresses, NUMA nodes or groups belongs to that layout.
func (f Fleet) Layouts() []Layout {
	byKey := map[string]*Layout{}
	var all []*Layout
	for _, n := range f.Nodes {
		if n.Scan == nil {
			continue
		}
		gpus := n.GPUs()
		key := layoutKey(gpus)
		l := byKey[key]
		if l == nil {
			l = &Layout{GPUs: gpus}
			byKey[key] = l
			all = append(all, l)
		}
		l.Exact = append(l.Exact, n)
	}
	slices.SortStableFunc(all, func(a, b *Layout) int { return cmp.Compare(len(b.Exact), len(a.Exact)) })
	var layouts []Layout
	var kept []*Layout // those of all that have a row of their own
	for _, l := range all {
		if at := l.belongsTo(kept); at >= 0 {
			layouts[at].Nodes = append(layouts[at].Nodes, l.Exact...)
			continue
		}
		kept = append(kept, l)
		layouts = append(layouts, Layout{Number: len(kept), GPUs: l.GPUs, Exact: l.Exact, Nodes: slices.Clone(l.Exact)})
	}
	for i := range layouts {
		l := &layouts[i]
		slices.SortFunc(l.Nodes, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
		l.OddCount = len(l.Nodes) - len(l.Exact)
	}
	return layouts
}

// layoutKey returns a text that is the same for nodes with the same layout.
func layoutKey(gpus []Function) string {
	var b strings.Builder
	for _, g := range gpus {
		fmt.Fprintf(&b, "%s %s %s %s\n", g.Address, g.Product, numaText(g.NUMANode), g.Group)
	}
	return b.String()
}

// belongsTo returns the index of the layout among others, those of most nodes first, from which a
// layout is a deviation; -1 if it stands for itself.
func (l *Layout) belongsTo(others []*Layout) int {
	best, likeness := -1, 0
	for i, o := range others {
		if !isOdd(len(l.Exact), len(o.Exact)) {
			continue
		}
		if same := l.likeness(o); same > likeness {
			best, likeness = i, same
		}
	}
	return best
}

// likeness returns how much a layout is like another one, 0 if it is not a deviation from it: it
// must have half of the GPUs of the other at the same addresses, or, in a server of the same
// product, anywhere, or none.
func (l *Layout) likeness(o *Layout) int {
	if len(o.GPUs) == 0 {
		return 0
	}
	c := compareGPUs(o.GPUs, l.GPUs)
	server := l.Exact[0].Scan.Server
	sameServer := server != "" && server == o.Exact[0].Scan.Server
	switch {
	case sameServer && len(l.GPUs) == 0:
	case c.foreign: // it has a product that the other does not have
		return 0
	case sameServer && 2*(len(c.same)+len(c.moved)) >= len(o.GPUs):
	case server != "" && o.Exact[0].Scan.Server != "" && !sameServer:
		return 0
	case 2*len(c.same) < len(o.GPUs):
		return 0
	}
	return max(1, 4*len(c.same)+2*len(c.moved)-len(c.lost)-len(c.added))
}

// pair is a GPU of a layout and the same one of a node.
type pair struct{ expected, found Function }

// gpuComparison is how the GPUs of a node differ from those of a layout, or from earlier ones.
type gpuComparison struct {
	same     []pair // same address and product
	moved    []pair // same product at another address
	replaced []pair // another product at the address
	lost     []Function
	added    []Function
	foreign  bool // the node has a product that the layout does not have
}

// compareGPUs compares functions with those that are expected, both by address.
func compareGPUs(expected, found []Function) (c gpuComparison) {
	at := host.By(found, func(f Function) (pci.Address, Function) { return f.Address, f })
	products := map[Product]bool{}
	for _, e := range expected {
		products[e.Product] = true
		f, ok := at[e.Address]
		switch {
		case ok && f.Product == e.Product:
			c.same = append(c.same, pair{e, f})
			delete(at, e.Address)
		default:
			c.lost = append(c.lost, e)
		}
	}
	for _, f := range found {
		if _, left := at[f.Address]; left {
			c.added = append(c.added, f)
		}
		c.foreign = c.foreign || f.isKnown() && !products[f.Product]
	}
	c.moved = c.match(func(e, f Function) bool { return e.Product == f.Product && e.Board == f.Board })
	c.moved = append(c.moved, c.match(func(e, f Function) bool { return e.Product == f.Product })...)
	c.replaced = c.match(func(e, f Function) bool { return e.Address == f.Address })
	return c
}

// match pairs functions that are lost with such that are added, and removes them from both.
func (c *gpuComparison) match(is func(e, f Function) bool) (pairs []pair) {
	c.lost = slices.DeleteFunc(c.lost, func(e Function) bool {
		i := slices.IndexFunc(c.added, func(f Function) bool { return is(e, f) })
		if i < 0 {
			return false
		}
		pairs = append(pairs, pair{e, c.added[i]})
		c.added = slices.Delete(c.added, i, i+1)
		return true
	})
	return pairs
}

// Odd returns what is odd about the nodes of a fleet, by node. Reports that are older than maxAge
// at a time are odd, unless maxAge is 0.
func (f Fleet) Odd(layouts []Layout, now time.Time, maxAge time.Duration) []Odd {
	var all []Odd
	for _, l := range layouts {
		usual := l.usual()
		all = append(all, host.FlatMap(l.Nodes, func(n *Node) []Odd { return l.deviations(n, usual) })...)
	}
	of := map[string]*int{}
	for i := range layouts {
		for _, n := range layouts[i].Nodes {
			of[n.Name] = &layouts[i].Number
		}
	}
	for _, n := range f.Nodes {
		all = append(all, n.attention(of[n.Name])...)
		all = append(all, n.ages(of[n.Name], now, maxAge)...)
	}
	for _, m := range f.Malformed {
		all = append(all, Odd{m.Node, of[m.Node], NotADocument, nil, "a document of gpustack", m.Err.Error()})
	}
	order := []What{NotADocument, NoScan, Incomplete, UseUnknown, LostCard, AddedCard, Moved, OtherProduct, OtherNUMA, OtherGroup, OtherDriver, Console, Link,
		Firmware, NotReady, RebootPending, OldReport, FutureReport}
	slices.SortStableFunc(all, func(a, b Odd) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(slices.Index(order, a.What), slices.Index(order, b.What)))
	})
	return all
}

// deviations returns how a node differs from its layout.
func (l Layout) deviations(n *Node, usual usual) (all []Odd) {
	add := func(what What, at pci.Address, expected, found string) {
		all = append(all, Odd{n.Name, &l.Number, what, &at, expected, found})
	}
	c := compareGPUs(l.GPUs, n.GPUs())
	for _, g := range c.lost {
		if n.Scan.Complete {
			add(LostCard, g.Address, g.Title(), "none")
		} else {
			add(Incomplete, g.Address, g.Title(), unknownText)
		}
	}
	for _, g := range c.added {
		add(AddedCard, g.Address, "none", g.Title())
	}
	for _, p := range c.moved {
		add(Moved, p.found.Address, p.expected.Address.String(), p.found.Address.String())
	}
	for _, p := range c.replaced {
		what := OtherProduct
		if !p.found.isKnown() {
			what = Incomplete
		}
		add(what, p.found.Address, p.expected.Title(), p.found.Title())
	}
	for _, p := range c.same {
		if has, is := numaText(p.expected.NUMANode), numaText(p.found.NUMANode); has != is {
			add(OtherNUMA, p.found.Address, has, is)
		}
		if !slices.Equal(p.found.Group, p.expected.Group) {
			add(OtherGroup, p.found.Address, groupText(p.expected.Group), groupText(p.found.Group))
		}
	}
	expected := host.By(slices.Concat(c.same, c.moved, c.replaced), func(p pair) (pci.Address, pci.Address) { return p.found.Address, p.expected.Address })
	for _, g := range n.GPUs() {
		place, ok := expected[g.Address]
		if !ok {
			continue
		}
		if other, is := usual.drivers[place].oddly(g.Driver); is {
			add(OtherDriver, g.Address, driverText(other), driverText(g.Driver))
		}
		if n := usual.consoles[place]; g.Console && isOdd(n, len(l.Nodes)-n) {
			add(Console, g.Address, "no console among the GPUs", "the firmware's console")
		}
	}
	if other, is := usual.firmware[n.Scan.Server].oddly(n.Scan.Firmware); is && n.Scan.Firmware != "" {
		all = append(all, Odd{n.Name, &l.Number, Firmware, nil, other, n.Scan.Firmware})
	}
	if n.Check != nil && n.Check.Verdict == checklist.NotPrepared {
		if other, is := usual.verdicts.oddly(string(n.Check.Verdict)); is {
			all = append(all, Odd{n.Name, &l.Number, NotReady, nil, other, string(n.Check.Verdict)})
		}
	}
	return all
}

// usual is what most nodes of a layout have.
type usual struct {
	drivers  map[pci.Address]counted // of each GPU
	firmware map[string]counted      // of each product of server
	verdicts counted
	consoles map[pci.Address]int
}

// counted are values, with the number of nodes that have each.
type counted map[string]int

// oddly returns the value that most nodes have if another one is a deviation from it.
func (c counted) oddly(value string) (most string, is bool) {
	for _, other := range slices.Sorted(maps.Keys(c)) {
		if most == "" && c[most] == 0 || c[other] > c[most] {
			most = other
		}
	}
	return most, most != value && isOdd(c[value], c[most])
}

// usual counts what the nodes of a layout have.
func (l Layout) usual() usual {
	u := usual{drivers: map[pci.Address]counted{}, firmware: map[string]counted{}, verdicts: counted{}, consoles: map[pci.Address]int{}}
	for _, n := range l.Nodes {
		c := compareGPUs(l.GPUs, n.GPUs())
		for _, p := range slices.Concat(c.same, c.moved, c.replaced) {
			if u.drivers[p.expected.Address] == nil {
				u.drivers[p.expected.Address] = counted{}
			}
			u.drivers[p.expected.Address][p.found.Driver]++
			if p.found.Console {
				u.consoles[p.expected.Address]++
			}
		}
		if n.Scan.Firmware != "" {
			if u.firmware[n.Scan.Server] == nil {
				u.firmware[n.Scan.Server] = counted{}
			}
			u.firmware[n.Scan.Server][n.Scan.Firmware]++
		}
		if n.Check != nil {
			u.verdicts[string(n.Check.Verdict)]++
		}
	}
	return u
}

// attention returns why a node needs attention, whatever the others are like.
func (n *Node) attention(layout *int) (all []Odd) {
	add := func(what What, expected, found string) {
		all = append(all, Odd{n.Name, layout, what, nil, expected, found})
	}
	switch {
	case n.Scan == nil:
		add(NoScan, "the output of host scan", "none")
	case !n.Scan.Complete:
		add(Incomplete, "all functions identified", "class, ids or IOMMU group of a function could not be read")
	}
	if count := n.unknown(); count > 0 {
		found := "use of " + host.Numbered(count, "GPU") + " unknown"
		switch {
		case n.Guests == nil:
			add(UseUnknown, "a complete output of host guests", "none: "+found)
		case !n.Guests.Complete:
			add(UseUnknown, "a complete output of host guests", "an incomplete one: "+found)
		default:
			add(UseUnknown, "the state of each GPU in the output of host scan", found)
		}
	}
	c := n.Check
	if c == nil {
		return all
	}
	for _, link := range c.Links {
		add(Link, "all lanes of card and slot", link)
	}
	switch c.Verdict {
	case checklist.NotReady, checklist.Drifted, checklist.Unknown:
		found := string(c.Verdict)
		if c.Failed != nil {
			found += ": " + strings.Join(c.Failed, ", ")
		}
		add(NotReady, string(checklist.Ready), found)
	}
	if c.Reboot || c.Verdict == checklist.PendingReboot {
		add(RebootPending, string(checklist.Ready), string(c.Verdict))
	}
	return all
}

// ages returns which documents of a node are too old, or from the future.
func (n *Node) ages(layout *int, now time.Time, maxAge time.Duration) (all []Odd) {
	for _, of := range n.origins() {
		found := of.Name + ": " + of.Time.UTC().Format(time.RFC3339)
		switch {
		case of.isOld(now, maxAge):
			all = append(all, Odd{n.Name, layout, OldReport, nil, "at most " + maxAge.String() + " old", found})
		case of.isFuture(now):
			all = append(all, Odd{n.Name, layout, FutureReport, nil, "not after " + now.Format(time.RFC3339), found})
		}
	}
	return all
}

// isOld reports whether a document is older than maxAge, unless that is 0.
func (o Origin) isOld(now time.Time, maxAge time.Duration) bool {
	return maxAge > 0 && now.Sub(o.Time) > maxAge
}

// isFuture reports whether a document is from the future.
func (o Origin) isFuture(now time.Time) bool { return o.Time.After(now.Add(tolerated)) }

// isOld reports whether a document that the use of the node's GPUs is known from is older than
// maxAge, unless that is 0.
func (n *Node) isOld(now time.Time, maxAge time.Duration) bool {
	return n.Scan != nil && n.Scan.isOld(now, maxAge) || n.Guests != nil && n.Guests.isOld(now, maxAge)
}

// unknownText stands for what a document does not show.
const unknownText = "unknown"

func numaText(node *int) string {
	if node == nil {
		return "none"
	}
	return fmt.Sprint(*node)
}

func driverText(driver string) string { return cmp.Or(driver, "none") }

func groupText(addresses []pci.Address) string {
	return cmp.Or(pci.Joined(addresses, " "), "none")
}
