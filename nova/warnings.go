package nova

import (
	"strings"

	"gpustack/host/pci"
)

// HasIDs reports whether an alias has a vendor and a product.
func HasIDs(alias map[string]any) bool {
	return alias["vendor_id"] != nil && alias["product_id"] != nil
}

// IsProduct reports whether an alias or a device_spec names the product of a device.
func IsProduct(object map[string]any, d *pci.Device) bool {
	n, _ := newNamed(object, "")
	return n.HasIDs && d.IsVendor(n.VendorID) && d.ProductID != nil && *d.ProductID == n.ProductID
}

// CanMatch reports whether a device_spec and an alias can select the same device. A spec with only
// an address may.
func CanMatch(spec, alias map[string]any) bool {
	for _, key := range []string{"vendor_id", "product_id"} {
		have, _ := spec[key].(string)
		want, _ := alias[key].(string)
		if have != "" && have != "*" && want != "" && !strings.EqualFold(strings.TrimPrefix(have, "0x"), want) {
			return false
		}
	}
	return true
}

// TakesType reports whether an alias selects devices of a type. An alias without device_type
// selects every type but physical functions (nova/pci/stats.py, _filter_pools_for_unrequested_pfs).
func TakesType(alias map[string]any, kind string) bool {
	want, told := alias["device_type"].(string)
	return told && kind == want || !told && kind != string(pci.TypePF)
}

// SelectedTypes returns the device types that an alias selects, for messages.
func SelectedTypes(alias map[string]any) string {
	if want, told := alias["device_type"].(string); told {
		return want
	}
	return "every type but " + string(pci.TypePF)
}
