package fleet

import (
	"cmp"
	"maps"
	"slices"
	"time"
)

// Total is the number of GPUs of a product in the fleet, by use.
type Total struct {
	Product
	Name        string
	All         int
	Free        int
	InGuests    int
	InContainer int
	WithHost    int
	Unknown     int
}

// Totals returns the number of GPUs of each product, by ids. The use of GPUs is unknown if
// documents of their node are older than maxAge at a time, unless that is 0.
func (f Fleet) Totals(now time.Time, maxAge time.Duration) []Total {
	byProduct := map[Product]*Total{}
	for _, n := range f.Nodes {
		isOld := n.isOld(now, maxAge)
		for _, g := range n.GPUs() {
			t := byProduct[g.Product]
			if t == nil {
				t = &Total{Product: g.Product, Name: cmp.Or(g.Alias, g.Name)}
				byProduct[g.Product] = t
			}
			t.All++
			use := n.Use(g)
			if isOld {
				use = NotKnown
			}
			switch use {
			case Free:
				t.Free++
			case InGuests:
				t.InGuests++
			case InContainer:
				t.InContainer++
			case WithHost:
				t.WithHost++
			default:
				t.Unknown++
			}
		}
	}
	var all []Total
	for _, p := range slices.SortedFunc(maps.Keys(byProduct), Product.compare) {
		all = append(all, *byProduct[p])
	}
	return all
}
