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
	Stock
	devices []nodeDevice
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
func ListNotReporting(ctx context.Context, d *novadb.Databases, p Placement, matters func(vendor, product string) bool) ([]NotReporting, error) {
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
		in, err := pciNodes(ctx, d, c, matters)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		nodes = append(nodes, in...)
	}
	var taken []string // providers of devices in use
	for _, n := range nodes {
		for _, device := range n.devices {
			if provider, ok := device.provider(below[n.UUID]); ok && device.consumers != nil {
				taken = append(taken, provider)
			}
		}
	}
	slices.Sort(taken)
	held, unread := heldOn(ctx, p, slices.Compact(taken))
	errs = append(errs, unread)
	var found []NotReporting
	for _, n := range nodes {
		if why := n.notReported(below[n.UUID], held); len(why) > 0 {
			found = append(found, NotReporting{n.Cell, n.Host, why})
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
func (n pciNode) notReported(below []cloud.Provider, held map[string]map[string]map[string]int) (why []string) {
	if len(below) == 0 {
		return []string{"does not report its PCI devices to Placement"}
	}
	for _, device := range n.devices {
		provider, ok := device.provider(below)
		if !ok {
			why = append(why, device.shown+" is not in Placement")
			continue
		}
		holders, answered := held[provider]
		if device.consumers == nil || !answered {
			continue
		}
		if !slices.ContainsFunc(device.consumers, func(c string) bool { _, has := holders[c]; return has }) {
			why = append(why, fmt.Sprintf("%s is taken by %s, which has no allocation of it in Placement", device.shown, device.consumers[0]))
		}
	}
	return why
}

// pciNodes returns the compute nodes of a cell that have live rows of devices that matter.
func pciNodes(ctx context.Context, d *novadb.Databases, c novadb.Cell, matters func(vendor, product string) bool) (nodes []pciNode, err error) {
	var all []Stock
	var migrations map[string][]string
	err = inCell(ctx, d, c, Options{}, func(r *reader) (err error) {
		if all, err = r.stocks(ctx); err == nil {
			migrations, err = openConsumers(ctx, c.DB)
		}
		return err
	})
	for _, s := range all {
		n, networks := pciNode{Stock: s}, networkProducts(s.Columns.PCIStats)
		slices.SortFunc(s.Rows, func(a, b StockRow) int { return strings.Compare(a.Address, b.Address) })
		for _, row := range s.Rows {
			if !matters(row.Vendor, row.Product) || networks[row.Vendor+row.Product] {
				continue
			}
			device := nodeDevice{address: row.Address, shown: row.Address}
			if row.Type == cleanup.TypeVF && row.Parent != nil {
				device.address = *row.Parent
			}
			if row.Instance != nil {
				device.consumers = append([]string{*row.Instance}, migrations[*row.Instance]...)
			}
			n.devices = append(n.devices, device)
		}
		if len(n.devices) > 0 {
			nodes = append(nodes, n)
		}
	}
	return nodes, err
}

// networkProducts returns the products all of whose free devices have a physical_network, by the pci_stats
// of their node (nova/objects/pci_device_pool.py). nova-compute does not report such devices to
// Placement (nova/compute/pci_placement_translator.py, PlacementView.process_dev). For a product
// without a free device the result is false.
func networkProducts(stats []byte) map[string]bool {
	networks := map[string]bool{}
	recorded, err := pools.ParsePools(stats)
	if err != nil {
		return networks // as for a node without pci_stats
	}
	for _, pool := range recorded {
		name, key := pool.Tags["physical_network"], pool.Vendor+pool.Product
		other, known := networks[key]
		networks[key] = name != "" && (other || !known)
	}
	return networks
}

// openConsumers returns the migrations of instances that have devices: while an instance moves,
// its migration holds the allocations on the source.
func openConsumers(ctx context.Context, db *sql.DB) (map[string][]string, error) {
	consumers := map[string][]string{}
	return consumers, novadb.Query(ctx, db, "migrations", func(rows *sql.Rows) error {
		var instance, migration string
		err := rows.Scan(&instance, &migration)
		consumers[instance] = append(consumers[instance], migration)
		return err
	}, `SELECT DISTINCT m.instance_uuid, m.uuid FROM migrations m JOIN pci_devices p ON p.instance_uuid = m.instance_uuid
WHERE m.deleted = 0 AND m.uuid IS NOT NULL AND p.deleted = 0`)
}
