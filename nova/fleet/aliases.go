package fleet

import (
	"cmp"
	"maps"
	"slices"

	"gpustack/host/pci"
	"gpustack/nova"
)

// Alias is an alias for a product of the fleet.
type Alias struct {
	nova.Alias         // without a name if the product's name is unknown
	Text       string  // of the product, for people
	Nodes      []*Node // that have the product with the alias's device type
	Others     []Split // that have it with another one
}

// Split are the nodes that have a product with another device type than most nodes.
type Split struct {
	Type  pci.DeviceType // "" if it is unknown
	Nodes []*Node
}

// Aliases returns one set of aliases for the GPUs of all nodes, by ids. Of a product with several
// device types, that of most nodes counts. GPUs for containers have none.
func (f Fleet) Aliases() []Alias {
	aliases := map[Product]*Alias{}
	nodes := map[Product]map[pci.DeviceType][]*Node{}
	for _, n := range f.Nodes {
		for _, g := range n.GPUs() {
			if g.isForContainers() {
				continue
			}
			if aliases[g.Product] == nil {
				aliases[g.Product] = &Alias{Alias: nova.Alias{Name: g.Alias, VendorID: g.Product.Vendor, ProductID: g.Product.ID}, Text: g.Name}
				nodes[g.Product] = map[pci.DeviceType][]*Node{}
			}
			if of := nodes[g.Product]; len(of[g.Type]) == 0 || of[g.Type][len(of[g.Type])-1] != n {
				of[g.Type] = append(of[g.Type], n)
			}
		}
	}
	var all []Alias
	for _, p := range slices.SortedFunc(maps.Keys(aliases), Product.compare) {
		a := aliases[p]
		types := slices.SortedFunc(maps.Keys(nodes[p]), func(s, t pci.DeviceType) int {
			known := func(t pci.DeviceType) int { return min(len(t), 1) }
			return cmp.Or(cmp.Compare(known(t), known(s)), cmp.Compare(len(nodes[p][t]), len(nodes[p][s])), cmp.Compare(s, t))
		})
		for i, t := range types {
			if i == 0 {
				a.DeviceType, a.Nodes = string(t), nodes[p][t]
				continue
			}
			a.Others = append(a.Others, Split{t, nodes[p][t]})
		}
		all = append(all, *a)
	}
	return all
}
