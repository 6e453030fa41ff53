package pools

import (
	"testing"

	"gpustack/host/hosttest"
)

// TestParsePools: both forms of pci_stats are read, pools with fewer keys first, as PciDeviceStats
// sorts them; without the tags that are null.
func TestParsePools(t *testing.T) {
	node := 1
	plain := Pool{Vendor: "10de", Product: "11b4", Type: "type-PCI", NUMA: &node, Count: 2, Tags: map[string]string{}}
	tagged := Pool{Vendor: "10de", Product: "20b2", Type: "type-PF", Count: 1, Tags: map[string]string{"remote_managed": "false"}}
	for _, text := range []string{
		`{"nova_object.name": "PciDevicePoolList", "nova_object.data": {"objects": [
			{"nova_object.name": "PciDevicePool", "nova_object.data": {"vendor_id": "10de", "product_id": "20b2", "numa_node": null, "count": 1,
				"tags": {"dev_type": "type-PF", "remote_managed": "false", "physical_network": null}}},
			{"nova_object.name": "PciDevicePool", "nova_object.data": {"vendor_id": "10de", "product_id": "11b4", "numa_node": 1, "count": 2,
				"tags": {"dev_type": "type-PCI"}}}]}}`,
		`[{"vendor_id": "10de", "product_id": "20b2", "numa_node": null, "count": 1, "dev_type": "type-PF", "remote_managed": "false", "physical_network": null},
			{"vendor_id": "10de", "product_id": "11b4", "numa_node": 1, "count": 2, "dev_type": "type-PCI"}]`,
	} {
		read, err := ParsePools([]byte(text))
		hosttest.NoError(t, err)
		hosttest.EqualIn(t, text, []Pool{plain, tagged}, read)
	}
	for _, text := range []string{"", "{", `{"nova_object.name": "PciDevice"}`, `[{"vendor_id": "10de", "product_id": "11b4", "count": 1}]`} {
		if read, err := ParsePools([]byte(text)); err == nil {
			t.Errorf("%q: %+v", text, read)
		}
	}
}
