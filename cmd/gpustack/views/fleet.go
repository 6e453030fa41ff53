package views

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"gpustack/cmd/gpustack/term"
	"gpustack/fleet"
	"gpustack/host"
	"gpustack/host/pci"
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
	var rows [][]string
	for _, o := range r.Odd {
		rows = append(rows, printableRow(unlessShown(odd, o.Node), Number(o.Layout), string(o.What), orUnknown(o.Address), o.Expected, o.Found))
	}
	gpus := 0
	for _, p := range r.Products {
		gpus += p.All
	}
	u.Printf("%s, %s, %s; odd: %s\n", host.Numbered(r.NodeCount, "node"), host.Numbered(gpus, "GPU"), host.Numbered(len(r.Layouts), "layout"),
		host.Numbered(len(odd), "node"))
	if rows != nil {
		u.Printf("\n")
		table(u, []string{"ODD NODE", "LAYOUT", "WHAT", "FUNCTION", "EXPECTED", "SEEN"}, rows)
	}
	rows = nil
	for _, l := range r.Layouts {
		rows = append(rows, printableRow(fmt.Sprint(l.Number), fmt.Sprint(len(l.Nodes)), products(l), places(l), groups(l), foldNodes(l.Nodes)))
	}
	if rows != nil {
		u.Printf("\n")
		table(u, []string{"LAYOUT", "COUNT", "GPUS", "ADDRESSES", "IOMMU GROUPS", "NODES"}, rows)
	}
	rows = nil
	unknown := 0
	for _, p := range r.Products {
		unknown += p.Unknown
		row := printableRow(p.String(), orDash(p.Name))
		for _, n := range []int{p.All, p.Free, p.InGuests, p.InContainer, p.WithHost, p.Unknown} {
			row = append(row, fmt.Sprint(n))
		}
		rows = append(rows, row)
	}
	if rows != nil {
		u.Printf("\n")
		table(u, []string{"PRODUCT", "NAME", "GPUS", "FREE", "IN GUESTS", "IN CONTAINERS", "WITH THE HOST", "UNKNOWN"}, rows)
	}
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

// orUnknown returns an address, "-" for none.
func orUnknown(a *pci.Address) string {
	if a == nil {
		return "-"
	}
	return a.String()
}

func printableRow(cells ...string) []string {
	for i := range cells {
		cells[i] = term.Printable(cells[i])
	}
	return cells
}

// products returns the number of GPUs of each product.
func products(l fleet.Layout) string {
	count := map[string]int{}
	var order []string
	for _, s := range l.GPUs {
		if title := s.Title(); count[title] == 0 {
			order = append(order, title)
		}
		count[s.Title()]++
	}
	for i, title := range order {
		order[i] = fmt.Sprintf("%d × %s", count[title], title)
	}
	return cmp.Or(strings.Join(order, ", "), "none")
}

// places returns the addresses of the GPUs on each NUMA node.
func places(l fleet.Layout) string {
	var order []string
	at := map[string][]string{}
	for _, s := range l.GPUs {
		node := "NUMA " + Number(s.NUMANode)
		if at[node] == nil {
			order = append(order, node)
		}
		at[node] = append(at[node], s.Address.String())
	}
	slices.Sort(order)
	for i, node := range order {
		order[i] = node + ": " + strings.Join(at[node], " ")
	}
	return orDash(strings.Join(order, "; "))
}

// groups returns how many GPUs have IOMMU groups with how many members.
func groups(l fleet.Layout) string {
	sizes := map[int]int{}
	for _, s := range l.GPUs {
		sizes[len(s.Group)]++
	}
	var parts []string
	for _, size := range slices.Sorted(maps.Keys(sizes)) {
		what := host.Numbered(size, "function")
		if size == 0 {
			what = "none"
		}
		parts = append(parts, fmt.Sprintf("%d × %s", sizes[size], what))
	}
	return orDash(strings.Join(parts, ", "))
}

func foldNodes(nodes []*fleet.Node) string {
	var names []string
	for _, n := range nodes {
		names = append(names, n.Name)
	}
	return FoldNames(names)
}

// FoldNames returns names in the notation of pdsh and ClusterShell: gpu[1-3,7].
func FoldNames(names []string) string {
	var texts []string
	for i := 0; i < len(names); {
		prefix, number, suffix := cutNumber(names[i])
		j := i
		var ranges []string
		for number != "" && j < len(names) {
			p, n, s := cutNumber(names[j])
			if p != prefix || s != suffix || len(n) != len(number) {
				break
			}
			last := n
			for j++; j < len(names); j++ {
				p, next, s := cutNumber(names[j])
				if p != prefix || s != suffix || len(next) != len(number) || next != incremented(last) {
					break
				}
				last = next
			}
			if last != n {
				n += "-" + last
			}
			ranges = append(ranges, n)
		}
		if j-i < 2 {
			texts = append(texts, names[i])
			i++
			continue
		}
		texts = append(texts, prefix+"["+strings.Join(ranges, ",")+"]"+suffix)
		i = j
	}
	return strings.Join(texts, " ")
}

// cutNumber cuts a name around the last number of its first label.
func cutNumber(name string) (prefix, number, suffix string) {
	label, domain, dotted := strings.Cut(name, ".")
	if dotted {
		domain = "." + domain
	}
	stem := strings.TrimRight(label, "0123456789")
	return stem, label[len(stem):], domain
}

// incremented returns the next number with as many digits.
func incremented(number string) string {
	digits := []byte(number)
	for i := len(digits) - 1; i >= 0; i-- {
		if digits[i] != '9' {
			digits[i]++
			return string(digits)
		}
		digits[i] = '0'
	}
	return ""
}
