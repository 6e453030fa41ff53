package db

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
)

// Card is a row of pci_devices: a K4200, unless other columns are given; PF and VF are
// such. Without an owner it has none; with one it has the owner's RequestOf. It returns
// the id.
func (c *Cell) Card(t testing.TB, node int64, address, status, owner string, columns ...Row) int64 {
	t.Helper()
	row := Row{
		"uuid": uuid.NewString(), "compute_node_id": node, "address": address,
		"vendor_id": "10de", "product_id": "11b4", "dev_type": "type-PCI",
		"status": status, "instance_uuid": orNull(owner), "extra_info": "{}",
		"created_at": Ago(24 * time.Hour), "updated_at": Ago(time.Hour),
	}
	if owner != "" {
		row["request_id"] = RequestOf(owner)
	}
	row = row.with(columns...)
	// What libvirt would say, if nothing else is given.
	names := Row{"dev_id": devID(address), "label": fmt.Sprintf("label_%s_%s", row["vendor_id"], row["product_id"])}
	return c.Insert(t, "pci_devices", names.with(row))
}

// PF are the columns of a card with SR-IOV.
func PF() Row {
	return Row{"vendor_id": "8086", "product_id": "56c0", "dev_type": "type-PF"}
}

// VF are the columns of a function of such a card.
func VF(parent string) Row {
	return Row{"vendor_id": "8086", "product_id": "56c0", "dev_type": "type-VF", "parent_addr": parent}
}

// A Device is a PCI device as Nova's libvirt driver reports it: _get_pcidev_info in
// nova/virt/libvirt/host.py of Nova 26.
type Device struct {
	Address   string `json:"address"`
	VendorID  string `json:"vendor_id"`
	ProductID string `json:"product_id"`
	Type      string `json:"dev_type"`
	Parent    string `json:"parent_addr,omitempty"`
	DevID     string `json:"dev_id"`
	Label     string `json:"label"`
	NUMANode  *int   `json:"numa_node"`
}

// K4200s are cards without SR-IOV, as Card has them.
func K4200s(addresses ...string) []Device {
	var devices []Device
	for _, address := range addresses {
		devices = append(devices, Device{
			Address: address, VendorID: "10de", ProductID: "11b4", Type: "type-PCI",
			DevID: devID(address), Label: "label_10de_11b4",
		})
	}
	return devices
}

// Reported is what the hypervisor of a node says when it says what the rows say.
func (c *Cell) Reported(t testing.TB, node int64) []Device {
	t.Helper()
	devices := []Device{}
	for _, r := range c.db.find(t, fmt.Sprintf("SELECT address, vendor_id, product_id, dev_type, coalesce(parent_addr, ''), coalesce(dev_id, ''), label, numa_node FROM %s.pci_devices WHERE compute_node_id = ? AND deleted = 0 ORDER BY address", c.Name), node) {
		device := Device{Address: r[0], VendorID: r[1], ProductID: r[2], Type: r[3], Parent: r[4], DevID: r[5], Label: r[6]}
		if r[7] != "NULL" {
			var numa int
			if _, err := fmt.Sscan(r[7], &numa); err != nil {
				t.Fatalf("numa_node of %s: %v", r[0], err)
			}
			device.NUMANode = &numa
		}
		devices = append(devices, device)
	}
	return devices
}

// devID is libvirt's name of a device.
func devID(address string) string {
	return "pci_" + strings.NewReplacer(":", "_", ".", "_").Replace(address)
}
