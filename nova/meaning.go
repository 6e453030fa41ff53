package nova

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"gpustack/host/pci"
	"gpustack/nova/devspec"
)

// SameMeaning reports whether two definitions of an alias request the same devices in the same way
// (nova/pci/request.py; nova/pci/stats.py, support_requests). types are the device types that
// devices of the product have; without any, only equal device types are the same.
func SameMeaning(a, b map[string]any, types []string) bool {
	differ := func(kind string) bool { return TakesType(a, kind) != TakesType(b, kind) }
	return reflect.DeepEqual(meaningOf(a), meaningOf(b)) &&
		(reflect.DeepEqual(a["device_type"], b["device_type"]) || len(types) > 0 && !slices.ContainsFunc(types, differ))
}

// meaningOf returns an alias without its name and device type, in one form of all that Nova reads
// as the same: ids in any case (since Rocky; nova check fails before), the default numa_policy,
// resource class and traits as Placement knows them. capability_type stays: the schema accepts it,
// but no device has it, and an alias with it selects none (nova/pci/utils.py,
// pci_device_prop_match).
func meaningOf(alias map[string]any) map[string]any {
	same := maps.Clone(alias)
	for _, key := range []string{"name", "device_type"} {
		delete(same, key)
	}
	for _, key := range []string{"vendor_id", "product_id"} {
		if id, ok := same[key].(string); ok {
			same[key] = strings.ToLower(id)
		}
	}
	if same["numa_policy"] == nil {
		same["numa_policy"] = "legacy"
	}
	n, _ := newNamed(alias, "")
	if _, isText := alias["resource_class"].(string); n.HasIDs && (isText || alias["resource_class"] == nil) {
		same["resource_class"] = devspec.ResourceClass(n.ResourceClass, n.VendorID, n.ProductID)
	}
	if text, ok := alias["traits"].(string); ok {
		same["traits"] = devspec.Reported{Spec: devspec.Spec{Object: map[string]any{"traits": text}}}.Traits()
	}
	return same
}

// TypesOfProduct returns the device types that devices of an alias's product have: those of the
// hosts, else that of the table of products; none if neither knows it.
func TypesOfProduct(alias map[string]any, hosts []Host) (types []string) {
	n, _ := newNamed(alias, "")
	if !n.HasIDs {
		return nil
	}
	types = typesOn(hosts, n.Alias)
	if kind := pci.TypeOfProduct(n.VendorID, n.ProductID); len(types) == 0 && kind != "" {
		types = append(types, string(kind))
	}
	return types
}

// typesOn returns the device types that an alias's product has on hosts, sorted.
func typesOn(hosts []Host, a Alias) (types []string) {
	for _, h := range hosts {
		types = append(types, h.typesFor(a.VendorID, a.ProductID)...)
	}
	slices.Sort(types)
	return slices.Compact(types)
}

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
