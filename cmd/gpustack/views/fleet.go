package views

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/fleet"
	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova/explain"
)

// FleetShow is the output of fleet show (docs/json.md).
type FleetShow struct {
	Schema    int            `json:"schema"`
	NodeCount int            `json:"node_count"` // nodes with a document of any kind
	Odd       []fleet.Odd    `json:"odd"`        // what is odd about nodes, by node
	Layouts   []fleet.Layout `json:"layouts"`    // those of most nodes first
	Products  []fleet.Total  `json:"products"`   // the GPUs of each product, by use
	// hosts with several documents of one kind; documents of other commands
	Warnings []string `json:"warnings"`
}

// NewFleetShow returns the report of a fleet. now is the time that the age of its documents is
// counted to.
func NewFleetShow(f fleet.Fleet, maxAge time.Duration, now time.Time) FleetShow {
	layouts := f.Layouts()
	return FleetShow{
		Schema: 1, NodeCount: len(f.Nodes), Odd: f.Odd(layouts, now, maxAge), Layouts: layouts,
		Products: f.Totals(now, maxAge), Warnings: f.Warnings,
	}
}

// Print prints odd nodes, layouts and the use of GPUs.
func (r FleetShow) Print(u *term.UI) {
	odd := map[string]bool{}
	rows := host.Map(r.Odd, func(o fleet.Odd) []string {
		return []string{unlessShown(odd, o.Node), Text(o.Layout), string(o.What), Text(o.Address), o.Expected, o.Found}
	})
	gpus := 0
	for _, p := range r.Products {
		gpus += p.All
	}
	u.Printf("%s, %s, %s; odd: %s\n", host.Numbered(r.NodeCount, "node"), host.Numbered(gpus, "GPU"), host.Numbered(len(r.Layouts), "layout"),
		host.Numbered(len(odd), "node"))
	tableBelow(u, []string{"ODD NODE", "LAYOUT", "WHAT", "FUNCTION", "EXPECTED", "SEEN"}, rows)
	tableBelow(u, []string{"LAYOUT", "COUNT", "GPUS", "ADDRESSES", "IOMMU GROUPS", "NODES"}, host.Map(r.Layouts, func(l fleet.Layout) []string {
		return []string{fmt.Sprint(l.Number), fmt.Sprint(len(l.Nodes)), products(l), places(l), groups(l), foldNodes(l.Nodes)}
	}))
	unknown := 0
	tableBelow(u, []string{"PRODUCT", "NAME", "GPUS", "FREE", "IN GUESTS", "IN CONTAINERS", "WITH THE HOST", "UNKNOWN"},
		host.Map(r.Products, func(p fleet.Total) []string {
			unknown += p.Unknown
			row := []string{p.String(), orDash(p.Name)}
			for _, n := range []int{p.All, p.Free, p.InGuests, p.InContainer, p.WithHost, p.Unknown} {
				row = append(row, fmt.Sprint(n))
			}
			return row
		}))
	if unknown > 0 {
		u.Printf("unknown: a complete report of '%s' says which GPUs guests use\n", u.Command(host.NewCommand("host guests").Flag("o", "json").Elsewhere()))
	}
}

// unlessShown returns the name of a node for its first row, and "" for the others.
func unlessShown(shown map[string]bool, node string) string {
	if shown[node] {
		return ""
	}
	shown[node] = true
	return node
}

// products returns the number of GPUs of each product.
func products(l fleet.Layout) string {
	return cmp.Or(strings.Join(host.Map(grouped(l.GPUs, fleet.Function.Title), func(same []fleet.Function) string {
		return fmt.Sprintf("%d × %s", len(same), same[0].Title())
	}), ", "), "none")
}

// places returns the addresses of the GPUs on each NUMA node.
func places(l fleet.Layout) string {
	node := func(f fleet.Function) string { return Text(f.NUMANode) }
	on := grouped(l.GPUs, node)
	slices.SortFunc(on, func(a, b []fleet.Function) int { return cmp.Compare(node(a[0]), node(b[0])) })
	return orDash(strings.Join(host.Map(on, func(near []fleet.Function) string {
		addresses := host.Map(near, func(f fleet.Function) pci.Address { return f.Address })
		return "NUMA " + node(near[0]) + ": " + pci.Joined(addresses, " ")
	}), "; "))
}

// groups returns how many GPUs have IOMMU groups with how many members.
func groups(l fleet.Layout) string {
	size := func(f fleet.Function) int { return len(f.Group) }
	bySize := func(a, b fleet.Function) int { return cmp.Compare(size(a), size(b)) }
	return orDash(strings.Join(host.Map(grouped(slices.SortedFunc(slices.Values(l.GPUs), bySize), size), func(same []fleet.Function) string {
		return fmt.Sprintf("%d × %s", len(same), cmp.Or(term.Some(size(same[0]), "function", ""), "none"))
	}), ", "))
}

// foldNodes returns the names of nodes, those with consecutive numbers as ranges.
func foldNodes(nodes []*fleet.Node) string {
	return explain.Names(host.Map(nodes, func(n *fleet.Node) string { return n.Name }), 0)
}
