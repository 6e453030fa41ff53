package nova

import "gpustack/host/pci"

// HasIDs reports whether an alias has a vendor and a product.
func HasIDs(alias map[string]any) bool {
	return alias["vendor_id"] != nil && alias["product_id"] != nil
}

// IsProduct reports whether an alias or a device_spec names the product of a device.
func IsProduct(object map[string]any, d *pci.Device) bool {
	id := func(key string) (pci.ID, bool) {
		s, _ := object[key].(string)
		n, err := pci.ParseID(s)
		return n, err == nil
	}
	vendor, ok := id("vendor_id")
	product, ok2 := id("product_id")
	return ok && ok2 && d.IsVendor(vendor) && d.ProductID != nil && *d.ProductID == product
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
