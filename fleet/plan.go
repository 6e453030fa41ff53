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
	"gpustack/host/checklist"
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

// Goal is when a node that nothing but guests blocks is done: host check says that it is ready, and
// what is set here is so too.
type Goal struct {
	Kernel  string // the release of the running kernel
	Version string // of gpustack
}

// ParseGoal parses "ready", "kernel=RELEASE" or "gpustack=VERSION".
func ParseGoal(text string) (Goal, error) {
	switch what, value, _ := strings.Cut(text, "="); {
	case text == "ready":
		return Goal{}, nil
	case what == "kernel" && value != "":
		return Goal{Kernel: value}, nil
	case what == "gpustack" && value != "":
		return Goal{Version: value}, nil
	}
	return Goal{}, fmt.Errorf("%q is neither ready, kernel=RELEASE nor gpustack=VERSION", text)
}

// String returns the text that ParseGoal parses.
func (g Goal) String() string {
	switch {
	case g.Kernel != "":
		return "kernel=" + g.Kernel
	case g.Version != "":
		return "gpustack=" + g.Version
	}
	return "ready"
}

// reached reports whether the documents of a node show the goal. The kernel must be that of both
// documents: the older one of two may be from before the last boot.
func (g Goal) reached(n *Node) bool {
	c := n.Check
	return c != nil && c.Verdict == checklist.Ready && !c.Reboot &&
		(g.Kernel == "" || c.Kernel == g.Kernel && n.Scan != nil && n.Scan.Kernel == g.Kernel) &&
		(g.Version == "" || strings.TrimPrefix(c.Version, "v") == strings.TrimPrefix(g.Version, "v"))
}

// PlanOptions are the options of a plan.
type PlanOptions struct {
	Zones       Zones
	Map         string // the name of the file with the zones
	Goal        Goal
	Keep        Keep
	MaxNodes    int  // of a wave; 0 for the larger of one and 5 % of all nodes
	All         bool // every wave, and not only the next
	BlockedLast bool // nodes with guests go into last waves
	MaxAge      time.Duration
	Now         time.Time
	// Own reports whether the operator has disabled a compute service, by the reason that Nova keeps.
	Own func(reason string) bool
}

// Plan is the order in which the nodes that are not done can be taken out of service.
type Plan struct {
	Done  int    `json:"done_count"`  // nodes that have reached the goal
	Later int    `json:"later_count"` // nodes that come after these waves
	Waves []Wave `json:"waves"`       // the next one; with --all every one, in their order
	// Blocked are nodes that cannot be taken out of service without an effect on guests, that others have
	// disabled, or of which something is unknown; with --blocked-last those with guests are in waves too.
	Blocked []Blocked `json:"blocked_nodes"`
	// hosts of the map without documents: none of their GPUs counts
	Without []string `json:"hosts_without_documents"`
	Kept    []Kept   `json:"-"` // by zone and product
}

// Wave is the nodes that are taken out of service together.
type Wave struct {
	Number int      `json:"number"`     // from 0
	Kind   WaveKind `json:"kind"`       // which nodes the wave has
	Nodes  []*Node  `json:"node_names"` // the hostnames
	GPUs   []Count  `json:"taken_out"`  // schedulable GPUs of these nodes, by product
	// what stays schedulable meanwhile, by zone and product
	Left []Kept `json:"remaining"`
}

// WaveKind is which nodes a wave has.
type WaveKind string

// The kinds of waves, in their order.
const (
	Interrupted WaveKind = "interrupted" // nodes that the operator has taken out of service before
	Canary      WaveKind = "canary"      // one node of each layout of which none is done
	Regular     WaveKind = "regular"     // other nodes without guests
	Last        WaveKind = "blocked"     // nodes that have guests
)

// Blocked is a node that cannot be taken out of service without an effect on guests, that is not the
// operator's to change, or of which something is unknown.
type Blocked struct {
	Node    string   `json:"node"`    // the hostname
	Reasons []string `json:"reasons"` // what blocks the node, for people
	// UUIDs of its guests, or their names if these are unknown
	Instances []Instance `json:"instances"`

	guestsOnly bool // there is no other reason
}

// Count is a number of GPUs of a product.
type Count struct {
	NamedProduct
	GPUs int `json:"count"` // the number of GPUs
}

// Kept is a product in a zone.
type Kept struct {
	Zone string `json:"zone"` // the availability zone, or the aggregate
	NamedProduct
	Schedulable int `json:"schedulable"` // GPUs that stay schedulable
	Keep        int `json:"to_keep"`     // GPUs that have to stay schedulable
}

// share is a number of GPUs of one Kept, which an index stands for.
type share struct{ kept, gpus int }

// Plan returns waves of the nodes that are not done, such that in each of them so many GPUs as are to
// be kept stay schedulable in each zone. A GPU is schedulable if it is free and on a host of the map
// that Nova schedules guests to. Nodes return to service as they were before the next wave, so the
// nodes that have not returned are first, alone: until they have, the rest waits. Planned again after
// any interruption, with new documents, a plan goes on.
//
// Errors, for all zones and products at once: ErrKeep, if no node can be taken out of service for that
// reason; ErrOldMap; ErrAmbiguous.
func (f Fleet) Plan(o PlanOptions) (Plan, error) {
	if made := o.Zones.Made; !made.IsZero() && o.old(Origin{Time: made}) != "" {
		return Plan{}, fmt.Errorf("%s: %w: its newest Updated At, %s, is %s", o.Map, ErrOldMap, made.Format(time.RFC3339), o.old(Origin{Time: made}))
	}
	of, without, err := o.Zones.place(f.Nodes)
	if err != nil {
		return Plan{}, err
	}
	if o.MaxNodes == 0 {
		o.MaxNodes = max(1, len(f.Nodes)/20)
	}
	p := planner{Plan: Plan{Without: without}, o: o, shares: map[*Node][]share{}}
	p.count(f.Nodes, of)
	var interrupted, regular, last []*Node
	waits := false
	done := map[*Node]bool{}
	for _, n := range f.Nodes {
		drained := of[n].Disabled && o.Own != nil && o.Own(of[n].Reason)
		b := o.blocked(n, of[n], drained)
		if done[n] = !drained && (b == nil || b.guestsOnly) && o.Goal.reached(n); done[n] {
			p.Done++
			continue
		}
		if b != nil {
			if drained && !b.guestsOnly { // such as a canary that is down with its new kernel
				waits = true
				b.Reasons = append(b.Reasons, "the rest waits until this node of an earlier wave is back")
			}
			p.Blocked = append(p.Blocked, *b)
		}
		switch {
		case b != nil && (!b.guestsOnly || !o.BlockedLast): // in no wave
		case drained:
			interrupted = append(interrupted, n)
		case b != nil:
			last = append(last, n)
		default:
			regular = append(regular, n)
		}
	}
	if interrupted != nil || waits {
		p.pack(Interrupted, interrupted)
		p.Later = len(regular) + len(last)
		return p.next(), nil
	}
	regular, refused := p.spared(regular)
	last, refusedLast := p.spared(last)
	if err := errors.Join(refused, refusedLast); err != nil && len(regular)+len(last) == 0 {
		return Plan{}, err
	}
	layouts := f.Layouts()
	canaries := canaries(layouts, f.Odd(layouts, o.Now, 0), done, regular)
	p.pack(Canary, canaries)
	p.pack(Regular, slices.DeleteFunc(regular, func(n *Node) bool { return slices.Contains(canaries, n) }))
	p.pack(Last, last)
	return p.next(), nil
}

// next returns the plan with the next wave alone, unless all are wanted.
func (p *planner) next() Plan {
	if !p.o.All && len(p.Waves) > 1 {
		for _, w := range p.Waves[1:] {
			p.Later += len(w.Nodes)
		}
		p.Waves = p.Waves[:1]
	}
	slices.SortFunc(p.Blocked, func(a, b Blocked) int { return strings.Compare(a.Node, b.Node) })
	return p.Plan
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
		if !place.schedulable() || p.o.old(n.origins()...) != "" {
			free = nil
		}
		schedulable[n] = free
		for product, name := range names {
			for _, zone := range place.Zones {
				k := inZone{zone, product}
				if found[k] == nil {
					found[k] = &Kept{Zone: zone, NamedProduct: NamedProduct{product, name}}
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
			names[g.Product] = g.Name
		}
		if use == Free {
			free[g.Product]++
		}
	}
	return names, free
}

// old returns why what documents show does not count: one is too old, or from the future. It
// returns "" if it counts.
func (o PlanOptions) old(documents ...Origin) string {
	for _, of := range documents {
		switch {
		case of.isOld(o.Now, o.MaxAge):
			return "older than " + o.MaxAge.String()
		case of.isFuture(o.Now):
			return "from the future"
		}
	}
	return ""
}

// blocked returns why a node is blocked, nil if it is not. drained is whether the operator has taken
// it out of service.
func (o PlanOptions) blocked(n *Node, place ZoneHost, drained bool) *Blocked {
	b := Blocked{Node: n.Name}
	add := func(is bool, format string, args ...any) {
		if is {
			b.Reasons = append(b.Reasons, fmt.Sprintf(format, args...))
		}
	}
	add(place.Name == "", "not in %s: its %s is unknown", o.Map, o.Zones.By)
	add(place.Name != "" && place.Zones == nil, "in no aggregate of %s", o.Map)
	add(place.Down, "nova-compute is down")
	add(place.Disabled && !drained, "nova-compute is disabled by others: %s", cmp.Or(place.Reason, "no reason is given"))
	for _, file := range n.Malformed {
		add(true, "%s is malformed", file)
	}
	add(n.Scan == nil, "no output of host scan: its GPUs are unknown")
	add(n.Scan != nil && !n.Scan.Complete, "host scan could not identify all functions")
	add(n.Guests == nil, "no output of host guests: its guests are unknown")
	add(n.Guests != nil && !n.Guests.Complete, "the output of host guests is incomplete: its guests are unknown")
	old := o.old(n.origins()...)
	add(old != "", "its documents are %s", old)
	b.guestsOnly = b.Reasons == nil
	if n.Guests != nil {
		b.Instances = n.Guests.Instances
		switch {
		case len(b.Instances) > 0:
			add(true, "%s", host.Numbered(len(b.Instances), "guest"))
		case len(n.Guests.Used) > 0:
			add(true, "a process has functions open")
		case slices.ContainsFunc(n.GPUs(), func(g Function) bool { return n.Use(g) == InGuests }):
			add(true, "host scan shows a GPU in use")
		}
	}
	if b.Reasons == nil {
		return nil
	}
	return &b
}

// spared returns the nodes that can be taken out of service, each alone. The others are blocked; the
// error has them for each product and zone of which too few GPUs would stay schedulable.
func (p *planner) spared(nodes []*Node) (spared []*Node, err error) {
	tooLarge := make([][]string, len(p.Kept))
	for _, n := range nodes {
		var reasons []string
		for _, s := range p.shares[n] {
			if k := p.Kept[s.kept]; s.gpus > max(k.Schedulable-k.Keep, 0) {
				tooLarge[s.kept] = append(tooLarge[s.kept], fmt.Sprintf("%s (%s)", n.Name, host.Numbered(s.gpus, "GPU")))
				reasons = append(reasons, fmt.Sprintf("%s: %s can be spared", p.at(k), k.spare()))
			}
		}
		switch i := slices.IndexFunc(p.Blocked, func(b Blocked) bool { return b.Node == n.Name }); {
		case reasons == nil:
			spared = append(spared, n)
		case i >= 0:
			p.Blocked[i].Reasons = append(p.Blocked[i].Reasons, reasons...)
		default:
			p.Blocked = append(p.Blocked, Blocked{Node: n.Name, Reasons: reasons})
		}
	}
	var errs []error
	for i, k := range p.Kept {
		if tooLarge[i] != nil {
			errs = append(errs, fmt.Errorf("%s: %w: %s can be spared, which is too few for %s", p.at(k), ErrKeep, k.spare(),
				host.Shortened(tooLarge[i], namesInText)))
		}
	}
	return spared, errors.Join(errs...)
}

func (p *planner) at(k Kept) string { return fmt.Sprintf("%s %s: %s", p.o.Zones.By, k.Zone, k.Title()) }

// spare returns how many GPUs can be spared, for people.
func (k Kept) spare() string {
	return fmt.Sprintf("%d of %d", max(k.Schedulable-k.Keep, 0), k.Schedulable)
}

// canaries returns one of some nodes for each layout that has one and of which none is done: one that
// is not odd, if there is one.
func canaries(layouts []Layout, odd []Odd, done map[*Node]bool, nodes []*Node) (chosen []*Node) {
	isOdd, is := host.Set(host.Map(odd, func(o Odd) string { return o.Node })), host.Set(nodes)
	for _, l := range layouts {
		candidates := slices.DeleteFunc(slices.Clone(l.Exact), func(n *Node) bool { return !is[n] })
		if len(candidates) == 0 || slices.ContainsFunc(l.Exact, func(n *Node) bool { return done[n] }) {
			continue
		}
		at := max(0, slices.IndexFunc(candidates, func(n *Node) bool { return !isOdd[n.Name] }))
		chosen = append(chosen, candidates[at])
	}
	return chosen
}

// pack adds waves with nodes: each node to the first wave of the kind that has room for it, those
// with most schedulable GPUs first. A wave of canaries may have more nodes than others.
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
		return (kind == Canary || len(waves[w].Nodes) < p.o.MaxNodes) && !slices.ContainsFunc(p.shares[n], func(s share) bool {
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
				counts[k.Product] = &Count{NamedProduct: k.NamedProduct}
			}
			counts[k.Product].GPUs += s.gpus
		}
	}
	w.GPUs = host.Map(slices.SortedFunc(maps.Keys(counts), Product.compare), func(p Product) Count { return *counts[p] })
	for i, k := range p.Kept {
		k.Schedulable -= used[i]
		w.Left = append(w.Left, k)
	}
}
