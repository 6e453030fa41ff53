package cleanup

import (
	"context"
	"database/sql"
	"fmt"
	"slices"
	"strings"

	"gpustack/nova/cloud"
)

// Providers is what Placement has of PCI devices.
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
	id         int64
	host, uuid string
	devices    []nodeDevice
}

type nodeDevice struct {
	address   string // of its provider: of a VF, its PF's
	shown     string
	consumers []string // that may hold its allocation; nil where it is free
}

// NotReporting returns the compute nodes that would get no guests, or wrong ones, if
// nova-scheduler asked Placement for PCI devices (pci_in_placement): those that have live
// rows of the devices that matter and do not report each of them, and those of whose
// devices in use Placement does not know. nova-compute with report_in_placement heals
// both when it starts (nova/compute/pci_placement_translator.py).
func (d *Databases) NotReporting(ctx context.Context, p Providers, matters func(vendor, product string) bool) ([]NotReporting, error) {
	providers, err := p.PCIProviders(ctx)
	if err != nil {
		return nil, err
	}
	below := map[string][]cloud.Provider{} // by compute node
	for _, provider := range providers {
		below[provider.Root] = append(below[provider.Root], provider)
	}
	var found []NotReporting
	for _, c := range d.Cells {
		if c.isCell0() {
			continue
		}
		nodes, err := c.pciNodes(ctx, matters)
		if err != nil {
			return nil, fmt.Errorf("cell %s: %w", c.Name, err)
		}
		for _, n := range nodes {
			why, err := n.notReported(ctx, p, below[n.uuid])
			if err != nil {
				return nil, err
			}
			if len(why) > 0 {
				found = append(found, NotReporting{c.Name, n.host, why})
			}
		}
	}
	return found, nil
}

// notReported says what of a node's devices Placement does not have.
func (n pciNode) notReported(ctx context.Context, p Providers, below []cloud.Provider) (why []string, err error) {
	if len(below) == 0 {
		return []string{"does not report its PCI devices to Placement"}, nil
	}
	asked := map[string][]string{} // consumers by provider
	for _, device := range n.devices {
		// The name is the node's, and the address (PlacementView._get_rp_name_for_address).
		i := slices.IndexFunc(below, func(p cloud.Provider) bool { return strings.HasSuffix(p.Name, "_"+strings.ToUpper(device.address)) })
		if i < 0 {
			why = append(why, device.shown+" is not in Placement")
			continue
		}
		if device.consumers == nil {
			continue
		}
		provider := below[i].UUID
		consumers, known := asked[provider]
		if !known {
			if consumers, err = p.Consumers(ctx, provider); err != nil {
				return nil, err
			}
			asked[provider] = consumers
		}
		if !slices.ContainsFunc(device.consumers, func(c string) bool { return slices.Contains(consumers, c) }) {
			why = append(why, fmt.Sprintf("%s is taken by %s, which has no allocation of it in Placement", device.shown, device.consumers[0]))
		}
	}
	return why, nil
}

// pciNodes returns the compute nodes of a cell that have live rows of devices that matter.
func (c Cell) pciNodes(ctx context.Context, matters func(vendor, product string) bool) ([]pciNode, error) {
	tx, err := c.DB.BeginTx(ctx, &sql.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true})
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // nothing was written
	migrations, err := openConsumers(ctx, tx)
	if err != nil {
		return nil, explain("migrations", err)
	}
	rows, err := tx.QueryContext(ctx, `SELECT n.id, COALESCE(n.host, ''), COALESCE(n.uuid, ''), p.address, COALESCE(p.parent_addr, ''), p.dev_type, p.vendor_id, p.product_id, COALESCE(p.instance_uuid, '')
FROM pci_devices p JOIN compute_nodes n ON n.id = p.compute_node_id WHERE p.deleted = 0 AND n.deleted = 0 ORDER BY n.id, p.address`)
	if err != nil {
		return nil, explain("pci_devices", err)
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	var nodes []pciNode
	for rows.Next() {
		var n pciNode
		var address, parent, kind, vendor, product, instance string
		if err := rows.Scan(&n.id, &n.host, &n.uuid, &address, &parent, &kind, &vendor, &product, &instance); err != nil {
			return nil, explain("pci_devices", err)
		}
		if !matters(vendor, product) {
			continue
		}
		device := nodeDevice{address: address, shown: address}
		if kind == typeVF {
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
	}
	return nodes, explainAll("pci_devices", rows.Err())
}

// openConsumers returns the migrations of instances that have devices: while an instance
// moves, its migration holds what it has on the source.
func openConsumers(ctx context.Context, tx *sql.Tx) (map[string][]string, error) {
	rows, err := tx.QueryContext(ctx, `SELECT DISTINCT m.instance_uuid, m.uuid FROM migrations m JOIN pci_devices p ON p.instance_uuid = m.instance_uuid
WHERE m.deleted = 0 AND m.uuid IS NOT NULL AND p.deleted = 0`)
	if err != nil {
		return nil, err
	}
	defer rows.Close() //nolint:errcheck // rows.Err tells
	consumers := map[string][]string{}
	for rows.Next() {
		var instance, migration string
		if err := rows.Scan(&instance, &migration); err != nil {
			return nil, err
		}
		consumers[instance] = append(consumers[instance], migration)
	}
	return consumers, rows.Err()
}

// explainAll is explain where there may be no error.
func explainAll(what string, err error) error {
	if err == nil {
		return nil
	}
	return explain(what, err)
}
