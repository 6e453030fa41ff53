package fleet

import (
	"maps"
	"slices"
	"time"

	"gpustack/host"
)

// Total is the number of GPUs of a product in the fleet, by use.
type Total struct {
	NamedProduct
	All int `json:"total"` // GPUs in the fleet: the sum of the next five
	// ready for guests by host scan, and used by none by a complete output of host guests
	Free int `json:"free"`
	// used by a guest, running or not, or by another process through VFIO
	InGuests    int `json:"in_guests"`
	InContainer int `json:"in_containers"` // recorded for containers
	WithHost    int `json:"with_host"`     // available to the host, or blocked
	// the documents do not show it, or are older than --max-age
	Unknown int `json:"unknown"`
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
				t = &Total{NamedProduct: g.NamedProduct}
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
	return host.Map(slices.SortedFunc(maps.Keys(byProduct), Product.compare), func(p Product) Total { return *byProduct[p] })
}
