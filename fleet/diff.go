package fleet

import (
	"cmp"
	"slices"

	"gpustack/host"
	"gpustack/host/pci"
)

// Difference is a difference between two collections of documents.
type Difference struct {
	Node    string       `json:"node"`    // the hostname
	Change  Change       `json:"change"`  // what happened to it
	Address *pci.Address `json:"address"` // the function, where it is now or was; nil for the node
	// What is what was added, removed, moved or changed: "node", "GPU", "function", "product",
	// "board", "class", "device_type", "driver", "NUMA node", "role", "console" or "group"; of a
	// node "functions", "kernel", "server", "firmware", "verdict" or "name in Nova".
	What string `json:"what"`
	// before; nil if it did not exist, "unknown" if host scan could not identify all functions
	Old *string `json:"old_value"`
	New *string `json:"new_value"` // now; nil and "unknown" as for old_value
}

// Change is the kind of a Difference.
type Change string

// The kinds of differences.
const (
	AddedNow   Change = "added"
	RemovedNow Change = "removed"
	MovedNow   Change = "moved"
	ChangedNow Change = "changed"
)

// Diff returns the differences between an earlier collection and a later one, by node. What guests
// use is none.
func Diff(earlier, later Fleet) []Difference {
	was := host.By(earlier.Nodes, func(n *Node) (string, *Node) { return n.Name, n })
	var all []Difference
	for _, n := range later.Nodes {
		old := was[n.Name]
		delete(was, n.Name)
		if old == nil {
			old = earlier.unread(n)
		}
		if old == nil {
			all = append(all, Difference{Node: n.Name, Change: AddedNow, What: "node", New: new(n.text())})
			continue
		}
		all = append(all, diffNode(old, n)...)
	}
	for _, n := range was {
		if now := later.unread(n); now != nil {
			all = append(all, diffNode(n, now)...)
			continue
		}
		all = append(all, Difference{Node: n.Name, Change: RemovedNow, What: "node", Old: new(n.text())})
	}
	slices.SortStableFunc(all, func(a, b Difference) int { return cmp.Compare(a.Node, b.Node) })
	return all
}

// unread returns a node of another collection without documents if a file of this one that is named
// like its files is malformed, and nil otherwise.
func (f Fleet) unread(n *Node) *Node {
	stems := host.Map(n.origins(), func(o Origin) string { return fileStem(o.File) })
	for _, m := range f.Malformed {
		if m.Node == n.Name || slices.Contains(stems, fileStem(m.File)) {
			return &Node{Name: n.Name}
		}
	}
	return nil
}

// text returns what a node has.
func (n *Node) text() string {
	if n.Scan == nil {
		return "unknown functions"
	}
	return host.Numbered(len(n.GPUs()), "GPU")
}

// diffNode returns the differences of a node that both collections have.
func diffNode(old, now *Node) (all []Difference) {
	changed := func(address *pci.Address, what, was, is string) {
		if was != is {
			all = append(all, Difference{now.Name, ChangedNow, address, what, &was, &is})
		}
	}
	if old.NovaHost != "" && now.NovaHost != "" {
		changed(nil, "name in Nova", old.NovaHost, now.NovaHost)
	}
	if old.Check != nil && now.Check != nil {
		changed(nil, "verdict", string(old.Check.Verdict), string(now.Check.Verdict))
	}
	switch {
	case old.Scan == nil && now.Scan == nil:
		return all
	case old.Scan == nil || now.Scan == nil:
		changed(nil, "functions", old.text(), now.text())
		return all
	}
	changed(nil, "kernel", old.Scan.Kernel, now.Scan.Kernel)
	if old.Scan.Server != "" && now.Scan.Server != "" {
		changed(nil, "server", old.Scan.Server, now.Scan.Server)
	}
	if old.Scan.Firmware != "" && now.Scan.Firmware != "" {
		changed(nil, "firmware", old.Scan.Firmware, now.Scan.Firmware)
	}
	c := compareGPUs(old.Scan.Functions, now.Scan.Functions)
	// What a scan does not list because it could not identify all functions may be there.
	for _, f := range c.lost {
		if !now.Scan.Complete {
			changed(&f.Address, f.kind(), f.Title(), unknownText)
			continue
		}
		all = append(all, Difference{now.Name, RemovedNow, &f.Address, f.kind(), new(f.Title()), nil})
	}
	for _, f := range c.added {
		if !old.Scan.Complete {
			changed(&f.Address, f.kind(), unknownText, f.Title())
			continue
		}
		all = append(all, Difference{now.Name, AddedNow, &f.Address, f.kind(), nil, new(f.Title())})
	}
	for _, p := range c.moved {
		all = append(all, Difference{now.Name, MovedNow, &p.found.Address, p.found.kind(), new(p.expected.Address.String()), new(p.found.Address.String())})
	}
	for _, p := range c.replaced {
		changed(&p.found.Address, "product", p.expected.Title(), p.found.Title())
	}
	for _, p := range slices.Concat(c.same, c.moved) {
		a, was, is := &p.found.Address, p.expected, p.found
		changed(a, "board", was.Board.String(), is.Board.String())
		changed(a, "class", was.Class, is.Class)
		changed(a, "device_type", string(was.Type), string(is.Type))
		changed(a, "driver", driverText(was.Driver), driverText(is.Driver))
		changed(a, "NUMA node", numaText(was.NUMANode), numaText(is.NUMANode))
		changed(a, "role", string(was.Role), string(is.Role))
		changed(a, "console", consoleText[was.Console], consoleText[is.Console])
	}
	for _, p := range c.same {
		// The members of a group that has moved have other addresses.
		changed(&p.found.Address, "group", groupText(p.expected.Group), groupText(p.found.Group))
	}
	return all
}

var consoleText = map[bool]string{true: "the firmware's console", false: "none"}

// kind returns what a function is, for people.
func (f Function) kind() string {
	if f.GPU {
		return "GPU"
	}
	return "function"
}
