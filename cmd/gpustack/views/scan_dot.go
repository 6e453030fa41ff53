package views

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"gpustack/cmd/gpustack/term"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/operate/node"
)

// PrintScanDot prints a graph for graphviz: the listed functions, the network adapters unless the
// scan has a filter, and the bridges and switches above them. Each NUMA node is a cluster, and in it
// each IOMMU group of several functions. The color of a function shows what it is for.
func PrintScanDot(u *term.UI, r node.Scan, all []node.ScannedDevice) {
	shown := drawn(r, all)
	type place struct{ numa, group int }
	at := func(unit []node.ScannedDevice) place {
		return place{numa: numberOr(unit[0].NUMANode, -1), group: numberOr(unit[0].IOMMUGroup, -1)}
	}
	units := grouped(shown, func(d node.ScannedDevice) place { return at([]node.ScannedDevice{d}) })
	slices.SortFunc(units, func(a, b []node.ScannedDevice) int { return cmp.Or(at(a).numa-at(b).numa, at(a).group-at(b).group) })
	var text strings.Builder
	fmt.Fprintf(&text, "digraph machine {\n\tlabel=%q\n\trankdir=LR\n\tnode [shape=box style=filled fillcolor=white]\n", hostLine(r.Host, r.System))
	for i, unit := range units {
		p := at(unit)
		if i == 0 || p.numa != at(units[i-1]).numa {
			fmt.Fprintf(&text, "\tsubgraph cluster_%s {\n\t\tlabel=%q\n", numberOf(p.numa), "NUMA node "+numberOf(p.numa))
		}
		group := p.group >= 0 && len(unit) > 1
		if group {
			fmt.Fprintf(&text, "\t\tsubgraph cluster_%s_%d {\n\t\tlabel=%q\n", numberOf(p.numa), p.group, "IOMMU group "+numberOf(p.group))
		}
		for _, d := range unit {
			fmt.Fprintf(&text, "\t\t%q [label=%q%s]\n", d.Address, dotLabel(d, group), dotColor(d))
		}
		if group {
			text.WriteString("\t\t}\n")
		}
		if i == len(units)-1 || p.numa != at(units[i+1]).numa {
			text.WriteString("\t}\n")
		}
	}
	for _, d := range shown {
		if above := cmp.Or(d.Parent, d.Controller); above != nil && slices.ContainsFunc(shown, func(o node.ScannedDevice) bool { return o.Address == *above }) {
			fmt.Fprintf(&text, "\t%q -> %q\n", *above, d.Address)
		}
	}
	u.Raw(text.String() + "}\n")
}

// drawn returns the functions of the graph, by address.
func drawn(r node.Scan, all []node.ScannedDevice) (shown []node.ScannedDevice) {
	wanted := map[pci.Address]bool{}
	above := map[pci.Address]*pci.Address{}
	for _, d := range all {
		above[d.Address] = cmp.Or(d.Parent, d.Controller)
		wanted[d.Address] = r.Scope != nova.ScopeFiltered && d.Class != nil && d.Class.IsNetwork()
	}
	for _, d := range r.Devices {
		wanted[d.Address] = true
	}
	for _, d := range all {
		for a := above[d.Address]; wanted[d.Address] && a != nil && !wanted[*a]; a = above[*a] {
			wanted[*a] = true
		}
	}
	return slices.DeleteFunc(slices.Clone(all), func(d node.ScannedDevice) bool { return !wanted[d.Address] })
}

// dotLabel returns what a function shows. inGroup says that a cluster shows its IOMMU group.
func dotLabel(d node.ScannedDevice, inGroup bool) string {
	lines := []string{d.Address.String(), Name(d.Device)}
	if !d.IsBridge() {
		lines = append(lines, Text(d.Driver), state(d))
		if !inGroup {
			lines = append(lines, "IOMMU group "+Text(d.IOMMUGroup))
		}
	}
	return strings.Join(lines, "\n")
}

// dotColor returns the attribute for what a function is for.
func dotColor(d node.ScannedDevice) string {
	if d.Role == nil {
		return ""
	}
	colors := map[machine.Role]string{machine.OfHost: "lightgray", machine.OfGuest: "lightblue", machine.OfContainer: "palegreen"}
	return " fillcolor=" + colors[*d.Role]
}

func numberOr(n *int, other int) int {
	if n == nil {
		return other
	}
	return *n
}

func numberOf(n int) string {
	if n < 0 {
		return "unknown"
	}
	return fmt.Sprint(n)
}
