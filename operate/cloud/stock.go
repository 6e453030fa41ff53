package cloud

import (
	"encoding/json"
	"errors"

	"gpustack/cleanup/find"
	"gpustack/nova"
	"gpustack/nova/explain"
	"gpustack/nova/fit"
)

// newStock returns what Nova's database has of a compute node as explain judges it. The error is
// for columns that cannot be read: the stock lacks them then.
func newStock(s find.Stock, r nova.Release) (explain.Stock, error) {
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
	var poolsErr, nodeErr error
	stock.Pools = []fit.Pool{}
	if s.Columns.PCIStats != nil { // NULL is no free device (nova/objects/pci_device_pool.py, from_pci_stats)
		stock.Pools, poolsErr = fit.ParsePools(s.Columns.PCIStats)
	}
	stock.Node, nodeErr = newNode(s.Columns, r)
	return stock, errors.Join(poolsErr, nodeErr)
}

// newNode returns the columns of a compute node that filters read.
func newNode(c find.NodeColumns, r nova.Release) (*explain.Node, error) {
	n := &explain.Node{Limits: fit.Limits{CPU: c.CPURatio, RAM: c.RAMRatio}, Hypervisor: c.Hypervisor, HypervisorVersion: c.HypervisorVersion, CPUInfo: c.CPUInfo}
	// Nova reads a ratio that is 0 as that of nova.conf, by default the initial one (nova/objects/
	// compute_node.py, _from_db_object; nova/conf/compute.py).
	const initialCPU, initialRAM, initialCPUBefore, initialRAMBefore = 4.0, 1.0, 16.0, 1.5
	cpu, ram := initialCPUBefore, initialRAMBefore
	if r >= nova.Antelope {
		cpu, ram = initialCPU, initialRAM
	}
	if n.Limits.CPU == 0 {
		n.Limits.CPU = cpu
	}
	if n.Limits.RAM == 0 {
		n.Limits.RAM = ram
	}
	if len(c.Topology) > 0 {
		var err error
		if n.Topology, err = fit.ParseTopology(c.Topology); err != nil {
			return nil, err
		}
	}
	if len(c.Supported) > 0 {
		if err := json.Unmarshal(c.Supported, &n.Supported); err != nil {
			return nil, err
		}
	}
	return n, nil
}
