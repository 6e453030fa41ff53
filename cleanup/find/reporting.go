package find

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
	"gpustack/nova/cloud"
	"gpustack/nova/pools"
)

// Providers reads the resource providers of PCI devices from Placement.
type Providers interface {
	PCIProviders(ctx context.Context) ([]cloud.Provider, error)
	Consumers(ctx context.Context, provider string) ([]string, error)
}

// NotReporting is a compute node whose PCI devices are not, or not completely, in
// Placement.
type NotReporting struct {
	Cell string
	Host string
	Why  []string
}

func (n NotReporting) String() string {
	const most = 3
	why := n.Why
	if len(why) > most {
		why = append(slices.Clone(why[:most]), fmt.Sprintf("and %d more", len(n.Why)-most))
	}
	return fmt.Sprintf("host %s (cell %s): %s", n.Host, n.Cell, strings.Join(why, "; "))
}

// pciNode is a compute node with live rows of devices.
type pciNode struct {
	id               int64
	cell, host, uuid string
	devices          []nodeDevice
}

type nodeDevice struct {
	address   string // in the provider's name: for a VF, the address of its PF
	shown     string
	consumers []string // that may hold its allocation; nil if the device is free
}

// ListNotReporting returns the compute nodes to which nova-scheduler would send no guests, or
// guests without a free device, if it asked Placement for PCI devices (pci_in_placement): nodes
// with live rows of matching devices that are not all reported to Placement, and nodes with
// devices in use that have no allocation there. nova-compute with report_in_placement corrects
// both when it starts (nova/compute/pci_placement_translator.py). The error names what could not
// be read; the nodes found so far are returned with it.
func ListNotReporting(ctx context.Context, d *novadb.Databases, p Providers, matters func(vendor, product string) bool) ([]NotReporting, error) {
	providers, err := p.PCIProviders(ctx)
	if err != nil {
		return nil, err
	}
	below := map[string][]cloud.Provider{} // by compute node
	for _, provider := range providers {
		below[provider.Root] = append(below[provider.Root], provider)
	}
	var nodes []pciNode
	var errs []error
	for _, c := range d.Cells {
		if c.IsCell0() {
			continue
		}
		in, err := pciNodes(ctx, c, matters)
		if err != nil {
			errs = append(errs, fmt.Errorf("cell %s: %w", c.Name, err))
			continue
		}
		nodes = append(nodes, in...)
	}
	var taken []string // providers of devices in use
	for _, n := range nodes {
		for _, device := range n.devices {
			if provider, ok := device.provider(below[n.uuid]); ok && device.consumers != nil {
				taken = append(taken, provider)
			}
		}
	}
	slices.Sort(taken)
	taken = slices.Compact(taken)
	answers, answered := make([][]string, len(taken)), make([]bool, len(taken))
	errs = append(errs, askAll(ctx, len(taken), "resource providers", func(i int) (err error) {
		answers[i], err = p.Consumers(ctx, taken[i])
		answered[i] = err == nil
		return err
	}))
	consumers := map[string][]string{} // as far as Placement has answered
	for i, provider := range taken {
		if answered[i] {
			consumers[provider] = answers[i]
		}
	}
	var found []NotReporting
	for _, n := range nodes {
		if why := n.notReported(below[n.uuid], consumers); len(why) > 0 {
			found = append(found, NotReporting{n.cell, n.host, why})
		}
	}
	return found, errors.Join(errs...)
}

// provider returns the device's provider among those of its node. A provider's name is that of
// the node with the address (PlacementView._get_rp_name_for_address).
func (d nodeDevice) provider(below []cloud.Provider) (uuid string, ok bool) {
	i := slices.IndexFunc(below, func(p cloud.Provider) bool { return strings.HasSuffix(p.Name, "_"+strings.ToUpper(d.address)) })
	if i < 0 {
		return "", false
	}
	return below[i].UUID, true
}

// notReported returns, as text, which of a node's devices or allocations Placement lacks.
func (n pciNode) notReported(below []cloud.Provider, consumers map[string][]string) (why []string) {
	if len(below) == 0 {
		return []string{"does not report its PCI devices to Placement"}
	}
	for _, device := range n.devices {
		provider, ok := device.provider(below)
		if !ok {
			why = append(why, device.shown+" is not in Placement")
			continue
		}
		holders, answered := consumers[provider]
		if device.consumers == nil || !answered {
			continue
		}
		if !slices.ContainsFunc(device.consumers, func(c string) bool { return slices.Contains(holders, c) }) {
			why = append(why, fmt.Sprintf("%s is taken by %s, which has no allocation of it in Placement", device.shown, device.consumers[0]))
		}
	}
	return why
}

// pciNodes returns the compute nodes of a cell that have live rows of devices that matter.
func pciNodes(ctx context.Context, c novadb.Cell, matters func(vendor, product string) bool) ([]pciNode, error) {
	tx, err := c.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	migrations, err := openConsumers(ctx, tx)
	if err != nil {
		return nil, err
	}
	networks, err := networkProducts(ctx, tx)
	if err != nil {
		return nil, err
	}
	var nodes []pciNode
	err = novadb.Query(ctx, tx, "pci_devices", func(rows *sql.Rows) error {
		n := pciNode{cell: c.Name}
		var address, parent, kind, vendor, product, instance string
		err := rows.Scan(&n.id, &n.host, &n.uuid, &address, &parent, &kind, &vendor, &product, &instance)
		if err != nil || !matters(vendor, product) || networks[n.id][vendor+product] {
			return err
		}
		device := nodeDevice{address: address, shown: address}
		if kind == cleanup.TypeVF {
			device.address = parent
		}
		if instance != "" {
			device.consumers = append([]string{instance}, migrations[instance]...)
		}
		if len(nodes) == 0 || nodes[len(nodes)-1].id != n.id {
			nodes = append(nodes, n)
		}
		last := &nodes[len(nodes)-1]
		last.devices = append(last.devices, device)
		return nil
	}, `SELECT n.id, COALESCE(n.host, ''), COALESCE(n.uuid, ''), p.address, COALESCE(p.parent_addr, ''), p.dev_type, p.vendor_id, p.product_id, COALESCE(p.instance_uuid, '')
FROM pci_devices p JOIN compute_nodes n ON n.id = p.compute_node_id WHERE p.deleted = 0 AND n.deleted = 0 ORDER BY n.id, p.address`)
	return nodes, err
}

// networkProducts returns, by compute node, the products all of whose free devices have a
// physical_network, by the node's pci_stats (nova/objects/pci_device_pool.py). nova-compute
// does not report such devices to Placement (nova/compute/pci_placement_translator.py,
// PlacementView.process_dev). For a product without a free device the result is false.
func networkProducts(ctx context.Context, tx *sql.Tx) (map[int64]map[string]bool, error) {
	networks := map[int64]map[string]bool{}
	return networks, novadb.Query(ctx, tx, "compute_nodes", func(rows *sql.Rows) error {
		var id int64
		var stats []byte
		if err := rows.Scan(&id, &stats); err != nil {
			return err
		}
		recorded, err := pools.ParsePools(stats)
		if err != nil {
			return nil // as for a node without pci_stats
		}
		networks[id] = map[string]bool{}
		for _, pool := range recorded {
			name, key := pool.Tags["physical_network"], pool.Vendor+pool.Product
			other, known := networks[id][key]
			networks[id][key] = name != "" && (other || !known)
		}
		return nil
	}, "SELECT id, pci_stats FROM compute_nodes WHERE deleted = 0 AND pci_stats LIKE '%physical_network%'")
}

// openConsumers returns the migrations of instances that have devices: while an instance moves,
// its migration holds the allocations on the source.
func openConsumers(ctx context.Context, tx *sql.Tx) (map[string][]string, error) {
	consumers := map[string][]string{}
	return consumers, novadb.Query(ctx, tx, "migrations", func(rows *sql.Rows) error {
		var instance, migration string
		err := rows.Scan(&instance, &migration)
		consumers[instance] = append(consumers[instance], migration)
		return err
	}, `SELECT DISTINCT m.instance_uuid, m.uuid FROM migrations m JOIN pci_devices p ON p.instance_uuid = m.instance_uuid
WHERE m.deleted = 0 AND m.uuid IS NOT NULL AND p.deleted = 0`)
}
