package find

import (
	"context"
	"database/sql"
	"slices"

	"gpustack/cleanup/novadb"
)

// DevicesOf returns the addresses of the devices that live rows of all cells assign to an instance,
// sorted.
//
// Errors: those of cells that do not answer, without addresses.
func DevicesOf(ctx context.Context, d *novadb.Databases, instance string) (addresses []string, err error) {
	if err := d.Unread(); err != nil {
		return nil, err
	}
	for _, c := range d.All() {
		err := novadb.Query(ctx, c.DB, "pci_devices", func(rows *sql.Rows) error {
			var address string
			err := rows.Scan(&address)
			addresses = append(addresses, address)
			return err
		}, "SELECT address FROM pci_devices WHERE deleted = 0 AND instance_uuid = ?", instance)
		if err != nil {
			return nil, err
		}
	}
	slices.Sort(addresses)
	return addresses, nil
}
