package cloud

import (
	"fmt"
	"slices"
	"strings"

	"gpustack/cleanup/find"
	"gpustack/nova/explain"
)

// newStock returns the devices of a compute node as explain judges them.
func newStock(s find.Stock) explain.Stock {
	var stock explain.Stock
	for _, r := range s.Rows {
		row := explain.Row{Address: r.Address, Vendor: r.Vendor, Product: r.Product, Type: r.Type, Status: r.Status, NUMA: r.NUMA}
		if r.Instance != nil {
			row.Instance = *r.Instance
		}
		if r.Finding != nil {
			row.Verdict, row.Reason = string(r.Finding.Verdict), r.Finding.Reason
		}
		stock.Rows = append(stock.Rows, row)
	}
	if s.Stats == nil {
		return stock
	}
	stock.Pools = []explain.Pool{}
	for p, n := range s.Stats.Counts {
		if p.Type == "" { // of a release before Mitaka
			stock.Pools = nil
			return stock
		}
		stock.Pools = append(stock.Pools, explain.Pool{Vendor: p.Vendor, Product: p.Product, Type: p.Type, NUMA: find.NUMANode(p), Count: n})
	}
	slices.SortFunc(stock.Pools, func(a, b explain.Pool) int {
		return strings.Compare(poolKey(a), poolKey(b))
	})
	return stock
}

func poolKey(p explain.Pool) string {
	key := p.Vendor + p.Product + p.Type
	if p.NUMA != nil {
		key += fmt.Sprint(*p.NUMA)
	}
	return key
}
