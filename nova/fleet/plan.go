package fleet

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// ErrKeep means that nodes cannot be taken out of service without too few GPUs being left.
var ErrKeep = host.WithHint(errors.New("not enough GPUs stay schedulable"),
	"keep fewer with --keep, or free GPUs first: only those that are ready for guests, used by none and on a nova-compute that is enabled and up count")

// Keep is how many GPUs of each product stay schedulable in each zone.
type Keep struct {
	Number  int
	Percent bool // of those that are schedulable now
}

// ParseKeep parses a number, or a number with a percent sign.
func ParseKeep(text string) (Keep, error) {
	digits, percent := strings.CutSuffix(text, "%")
	n, err := strconv.Atoi(digits)
	switch {
	case err != nil || strings.HasPrefix(digits, "+"):
		return Keep{}, fmt.Errorf("%q is neither a number of GPUs nor a percentage", text)
	case n < 0:
		return Keep{}, fmt.Errorf("%q is negative", text)
	case percent && n > 100:
		return Keep{}, fmt.Errorf("%q is more than 100%%", text)
	}
	return Keep{n, percent}, nil
}

// of returns how many of some GPUs are kept.
func (k Keep) of(gpus int) int {
	if k.Percent {
		return (gpus*k.Number + 99) / 100
	}
	return k.Number
}

// String returns the text that ParseKeep parses.
func (k Keep) String() string {
	if k.Percent {
		return fmt.Sprintf("%d%%", k.Number)
	}
	return strconv.Itoa(k.Number)
}

// PlanOptions are the options of a plan.
type PlanOptions struct {
	Zones       Zones
	Map         string // the name of the file with the zones
	Keep        Keep
	BlockedLast bool // nodes that are blocked go into last waves
	MaxAge      time.Duration
	Now         time.Time
}

// Plan is the order in which nodes can be taken out of service.
type Plan struct {
	Waves   []Wave
	Blocked []Blocked // by node; with BlockedLast they are in waves too
	Idle    []Idle    // nodes whose GPUs are not schedulable, by node
	Without []string  // hosts of the map without documents
	Kept    []Kept    // by zone and product
}

// Wave is the nodes that are taken out of service together.
type Wave struct {
	Number int
	Kind   WaveKind
	Nodes  []*Node // by name
	GPUs   []Count // schedulable GPUs that they have, by product
	Left   []Kept  // what stays schedulable meanwhile, by zone and product
}

// WaveKind is which nodes a wave has.
type WaveKind string

// The kinds of waves, in their order.
const (
	Canary  WaveKind = "canary"  // one node of each layout
	Regular WaveKind = "regular" // other nodes without guests
	Last    WaveKind = "blocked" // nodes that are blocked
)

// Blocked is a node that cannot be taken out of service without an effect on guests, or of which
// that is unknown.
type Blocked struct {
	Node      *Node
	Reasons   []string
	Instances []Instance
}

// Idle is a node whose GPUs are not schedulable.
type Idle struct {
	Node   *Node
	Reason string
}

// Count is a number of GPUs of a product.
type Count struct {
	Product
	Name string
	GPUs int
}

// Kept is a product in a zone.
type Kept struct {
	Zone string
	Product
	Name        string
	Schedulable int
	Keep        int // how many of them stay schedulable
}

// share is a number of GPUs of one Kept, which an index stands for.
type share struct{ kept, gpus int }

// Plan returns waves such that in each of them so many GPUs as are to be kept stay schedulable in
// each zone. A GPU is schedulable if it is free and on a host of the map that Nova schedules guests
// to. Nodes return to service as they were before the next wave. Nodes with guests, and those of
// which that is unknown, are blocked.
//
// Errors, for all zones and products at once: ErrKeep, ErrAmbiguous.
func (f Fleet) Plan(o PlanOptions) (Plan, error) {
	of, without, err := o.Zones.place(f.Nodes)
	if err != nil {
		return Plan{}, err
	}
	p := planner{Plan: Plan{Without: without}, o: o, shares: map[*Node][]share{}}
	p.count(f.Nodes, of)
	blocked := map[*Node]bool{}
	for _, n := range f.Nodes {
		if b := o.blocked(n, of); b != nil {
			p.Blocked = append(p.Blocked, *b)
			blocked[n] = true
		}
	}
	if err := p.refused(f.Nodes, blocked); err != nil {
		return Plan{}, err
	}
	layouts := f.Layouts()
	canaries := canaries(layouts, f.Odd(layouts, o.Now, 0), blocked)
	var regular, last []*Node
	for _, n := range f.Nodes {
		switch {
		case blocked[n]:
			last = append(last, n)
		case !slices.Contains(canaries, n):
			regular = append(regular, n)
		}
	}
	p.pack(Canary, canaries)
	p.pack(Regular, regular)
	if o.BlockedLast {
		p.pack(Last, last)
	}
	return p.Plan, nil
}

// planner makes a plan.
type planner struct {
	Plan
	o      PlanOptions
	shares map[*Node][]share // the schedulable GPUs of each node
}

// inZone is a product in a zone.
type inZone struct {
	zone string
	Product
}

// count counts the schedulable GPUs of each product in each zone. A product of which Nova has no
// GPU in a zone is not counted.
func (p *planner) count(nodes []*Node, of map[*Node]ZoneHost) {
	found := map[inZone]*Kept{}
	schedulable := map[*Node]map[Product]int{}
	for _, n := range nodes {
		place, ok := of[n]
		if !ok {
			continue
		}
		names, free := n.forGuests()
		if reason := cmp.Or(place.Idle, p.o.old(n)); reason != "" {
			p.Idle = append(p.Idle, Idle{n, reason})
			free = nil
		}
		schedulable[n] = free
		for product, name := range names {
			for _, zone := range place.Zones {
				k := inZone{zone, product}
				if found[k] == nil {
					found[k] = &Kept{Zone: zone, Product: product, Name: name}
				}
				found[k].Schedulable += free[product]
			}
		}
	}
	index := p.list(found)
	for n, free := range schedulable {
		for _, product := range slices.SortedFunc(maps.Keys(free), Product.compare) {
			for _, zone := range of[n].Zones {
				p.shares[n] = append(p.shares[n], share{index[inZone{zone, product}], free[product]})
			}
		}
	}
}

// list adds products in zones to the plan, by zone and product, and returns their indices in it.
func (p *planner) list(found map[inZone]*Kept) map[inZone]int {
	index := map[inZone]int{}
	for _, k := range slices.SortedFunc(maps.Keys(found), func(a, b inZone) int {
		return cmp.Or(cmp.Compare(a.zone, b.zone), a.compare(b.Product))
	}) {
		kept := *found[k]
		kept.Keep = p.o.Keep.of(kept.Schedulable)
		index[k] = len(p.Kept)
		p.Kept = append(p.Kept, kept)
	}
	return index
}

// forGuests returns the products of the GPUs that a node does not keep for the host or containers,
// each with its name, and how many of these GPUs are free. A GPU that VFIO has but whose IOMMU
// group is blocked is for guests: Nova offers it, and guests that get it fail.
func (n *Node) forGuests() (names map[Product]string, free map[Product]int) {
	names, free = map[Product]string{}, map[Product]int{}
	for _, g := range n.GPUs() {
		use := n.Use(g)
		stranded := g.State == selection.Blocked && pci.LeavesAlone(g.Driver)
		if use == WithHost && !stranded || use == InContainer {
			continue
		}
		if _, ok := names[g.Product]; !ok {
			names[g.Product] = cmp.Or(g.Alias, g.Name)
		}
		if use == Free {
			free[g.Product]++
		}
	}
	return names, free
}

// old returns the reason why what is known of a node's GPUs and guests does not count: it is too
// old. It returns "" if it is not.
func (o PlanOptions) old(n *Node) string {
	if n.isOld(o.Now, o.MaxAge) {
		return "its documents are older than " + o.MaxAge.String()
	}
	return ""
}

// blocked returns why a node is blocked, nil if it is not.
func (o PlanOptions) blocked(n *Node, of map[*Node]ZoneHost) *Blocked {
	b := Blocked{Node: n}
	if _, ok := of[n]; !ok {
		b.Reasons = append(b.Reasons, fmt.Sprintf("not in %s: its %s is unknown", o.Map, o.Zones.By))
	}
	switch {
	case n.Scan == nil:
		b.Reasons = append(b.Reasons, "no output of host scan: its GPUs are unknown")
	case !n.Scan.Complete:
		b.Reasons = append(b.Reasons, "host scan could not identify all functions")
	}
	if n.Guests == nil {
		b.Reasons = append(b.Reasons, "no output of host guests: its guests are unknown")
		return &b
	}
	b.Instances = n.Guests.Instances
	switch {
	case len(b.Instances) > 0:
		b.Reasons = append(b.Reasons, host.Numbered(len(b.Instances), "guest"))
	case len(n.Guests.Used) > 0:
		b.Reasons = append(b.Reasons, "a process has functions open")
	case slices.ContainsFunc(n.GPUs(), func(g Function) bool { return n.Use(g) == InGuests }):
		b.Reasons = append(b.Reasons, "host scan shows a GPU in use")
	}
	if !n.Guests.Complete {
		b.Reasons = append(b.Reasons, "the output of host guests is incomplete: its guests are unknown")
	}
	if old := o.old(n); old != "" {
		b.Reasons = append(b.Reasons, old)
	}
	if b.Reasons == nil {
		return nil
	}
	return &b
}

// refused returns an error for each product and zone of which too few GPUs would stay schedulable.
func (p *planner) refused(nodes []*Node, blocked map[*Node]bool) error {
	var errs []error
	tooLarge := make([][]string, len(p.Kept))
	for _, n := range nodes {
		if blocked[n] && !p.o.BlockedLast {
			continue
		}
		for _, s := range p.shares[n] {
			if k := p.Kept[s.kept]; k.Schedulable >= k.Keep && s.gpus > k.Schedulable-k.Keep {
				tooLarge[s.kept] = append(tooLarge[s.kept], fmt.Sprintf("%s (%s)", n.Name, host.Numbered(s.gpus, "GPU")))
			}
		}
	}
	for i, k := range p.Kept {
		at := fmt.Sprintf("%s %s: %s", p.o.Zones.By, k.Zone, k.title())
		switch {
		case k.Schedulable < k.Keep:
			errs = append(errs, fmt.Errorf("%s: %w: %d are now, %d are to be kept", at, ErrKeep, k.Schedulable, k.Keep))
		case tooLarge[i] != nil:
			errs = append(errs, fmt.Errorf("%s: %w: %d of %d can be spared, which is too few for %s",
				at, ErrKeep, k.Schedulable-k.Keep, k.Schedulable, host.Shortened(tooLarge[i], namesInText)))
		}
	}
	return errors.Join(errs...)
}

func (k Kept) title() string {
	return Function{Product: k.Product, Name: k.Name}.Title()
}

// canaries returns a node of each layout that has one which is not blocked: one that is not odd, if
// there is one.
func canaries(layouts []Layout, odd []Odd, blocked map[*Node]bool) (chosen []*Node) {
	isOdd := map[string]bool{}
	for _, o := range odd {
		isOdd[o.Node] = true
	}
	for _, l := range layouts {
		candidates := slices.DeleteFunc(slices.Clone(l.Exact), func(n *Node) bool { return blocked[n] })
		if i := slices.IndexFunc(candidates, func(n *Node) bool { return !isOdd[n.Name] }); i >= 0 {
			chosen = append(chosen, candidates[i])
		} else if len(candidates) > 0 {
			chosen = append(chosen, candidates[0])
		}
	}
	return chosen
}

// pack adds waves with nodes: each node to the first wave of the kind that has room for it, those
// with most schedulable GPUs first.
func (p *planner) pack(kind WaveKind, nodes []*Node) {
	size := func(n *Node) (gpus int) {
		for _, s := range p.shares[n] {
			gpus += s.gpus
		}
		return gpus
	}
	nodes = slices.Clone(nodes)
	slices.SortStableFunc(nodes, func(a, b *Node) int { return cmp.Compare(size(b), size(a)) })
	var waves []Wave
	var used [][]int // schedulable GPUs of each wave, by Kept
	fits := func(w int, n *Node) bool {
		return !slices.ContainsFunc(p.shares[n], func(s share) bool {
			k := p.Kept[s.kept]
			return used[w][s.kept]+s.gpus > k.Schedulable-k.Keep
		})
	}
	for _, n := range nodes {
		w := 0
		for w < len(waves) && !fits(w, n) {
			w++
		}
		if w == len(waves) {
			waves = append(waves, Wave{Number: len(p.Waves) + w, Kind: kind})
			used = append(used, make([]int, len(p.Kept)))
		}
		waves[w].Nodes = append(waves[w].Nodes, n)
		for _, s := range p.shares[n] {
			used[w][s.kept] += s.gpus
		}
	}
	for w := range waves {
		waves[w].finish(p, used[w])
	}
	p.Waves = append(p.Waves, waves...)
}

// finish adds to a wave what its nodes have and what is left.
func (w *Wave) finish(p *planner, used []int) {
	slices.SortFunc(w.Nodes, func(a, b *Node) int { return cmp.Compare(a.Name, b.Name) })
	counts := map[Product]*Count{}
	for _, n := range w.Nodes {
		products := map[Product]bool{} // a node may be in several aggregates
		for _, s := range p.shares[n] {
			k := p.Kept[s.kept]
			if products[k.Product] {
				continue
			}
			products[k.Product] = true
			if counts[k.Product] == nil {
				counts[k.Product] = &Count{Product: k.Product, Name: k.Name}
			}
			counts[k.Product].GPUs += s.gpus
		}
	}
	for _, product := range slices.SortedFunc(maps.Keys(counts), Product.compare) {
		w.GPUs = append(w.GPUs, *counts[product])
	}
	for i, k := range p.Kept {
		k.Schedulable -= used[i]
		w.Left = append(w.Left, k)
	}
}
