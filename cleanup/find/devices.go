package find

import (
	"cmp"
	"context"
	"database/sql"
	"slices"
	"strings"

	"gpustack/cleanup"
	"gpustack/cleanup/novadb"
)

const deviceColumns = "id, compute_node_id, address, vendor_id, product_id, dev_type, status, instance_uuid, request_id, parent_addr, updated_at"

// scanDevice scans deviceColumns, and further columns into more.
func scanDevice(rows *sql.Rows, more ...any) (d cleanup.Device, err error) {
	err = rows.Scan(append([]any{&d.ID, &d.Node, &d.Address, &d.Vendor, &d.Product, &d.Type, &d.Status, &d.Instance, &d.Request,
		&d.Parent, &d.Updated}, more...)...)
	return d, err
}

// odd is the condition for rows that are not free, or have an owner or a request.
const odd = "(status <> 'available' OR instance_uuid IS NOT NULL OR request_id IS NOT NULL)"

// devices reads live rows, and returns them in the order of their ids: most indexes that the server
// uses have another, so that it would sort them in a file.
func (r *reader) devices(ctx context.Context, where string, args ...any) (list []cleanup.Device, err error) {
	err = r.query(ctx, "pci_devices", func(rows *sql.Rows) error {
		d, err := scanDevice(rows)
		list = append(list, d)
		return err
	}, "SELECT "+deviceColumns+" FROM pci_devices WHERE deleted = 0 AND "+where, args...)
	slices.SortFunc(list, func(a, b cleanup.Device) int { return cmp.Compare(a.ID, b.ID) })
	return list, err
}

// nodeAddress is an address of a device on a compute node.
type nodeAddress struct {
	node    int64
	address string
}

// Columns of pci_devices with the address of the device, and with that of its PF. Each is in an
// index after compute_node_id.
const (
	ownAddress    = "address"
	parentAddress = "parent_addr"
)

// devicesAt reads the live rows that have one of the addresses in a column, ownAddress or
// parentAddress, and match a further condition, and calls use with them, some at a time. It sorts
// wanted. The number of statements depends on the number of addresses, not on that of nodes.
func (r *reader) devicesAt(ctx context.Context, column string, wanted []nodeAddress, and string, args []any, use func([]cleanup.Device) error) error {
	slices.SortFunc(wanted, func(a, b nodeAddress) int {
		return cmp.Or(cmp.Compare(a.node, b.node), strings.Compare(a.address, b.address))
	})
	for some := range slices.Chunk(slices.Compact(wanted), batch) {
		where, at := whereAt(column, some)
		list, err := r.devices(ctx, where+and, slices.Concat(at, args)...)
		if err == nil && len(list) > 0 {
			err = use(list)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// whereAt returns the condition for rows with these addresses, in the order of their nodes, in a
// column. The server reads it as ranges of the column's index; it would not read pairs in an IN so.
func whereAt(column string, wanted []nodeAddress) (where string, args []any) {
	var nodes []string
	for len(wanted) > 0 {
		n := slices.IndexFunc(wanted, func(w nodeAddress) bool { return w.node != wanted[0].node })
		if n < 0 {
			n = len(wanted)
		}
		nodes = append(nodes, "compute_node_id = ? AND "+column+" IN ("+novadb.Places(n)+")")
		args = append(args, wanted[0].node)
		for _, w := range wanted[:n] {
			args = append(args, w.address)
		}
		wanted = wanted[n:]
	}
	return "(" + strings.Join(nodes, " OR ") + ")", args
}
