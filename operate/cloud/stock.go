package cloud

import (
	"encoding/json"
	"errors"

	"gpustack/cleanup/find"
	"gpustack/host"
	"gpustack/nova/explain"
	"gpustack/nova/pools"
)

// newStock returns what Nova's database has of a compute node as explain judges it. The error is
// for columns that cannot be read: the stock lacks them then.
func newStock(s find.Stock) (explain.Stock, error) {
	var stock explain.Stock
	for _, r := range s.Rows {
		row := explain.Row{Address: r.Address, Vendor: r.Vendor, Product: r.Product, Type: r.Type, Status: r.Status, NUMA: r.NUMA,
			Instance: host.Value(r.Instance)}
		if r.Finding != nil {
			row.Verdict, row.Reason = string(r.Finding.Verdict), r.Finding.Reason
		}
		stock.Rows = append(stock.Rows, row)
	}
	var err error
	c := s.Columns
	stock.Pools = []pools.Pool{}
	if c.PCIStats != nil { // NULL is no free device (nova/objects/pci_device_pool.py, from_pci_stats)
		stock.Pools, err = pools.ParsePools(c.PCIStats)
	}
	node := explain.Node{CPURatio: c.CPURatio, RAMRatio: c.RAMRatio, Hypervisor: c.Hypervisor, HypervisorVersion: c.HypervisorVersion, CPUInfo: c.CPUInfo}
	for _, column := range []struct {
		name string
		text []byte
		to   *json.RawMessage
	}{{"pci_stats", c.PCIStats, &node.PCIStats}, {"numa_topology", c.Topology, &node.Topology}, {"supported_instances", c.Supported, &node.Supported}} {
		if len(column.text) == 0 {
			continue
		}
		if !json.Valid(column.text) {
			return stock, errors.Join(err, errors.New(column.name+" is not JSON"))
		}
		*column.to = column.text
	}
	stock.Node = &node
	return stock, err
}
