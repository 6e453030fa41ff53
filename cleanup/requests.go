package cleanup

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
)

// Request is a request of instance_extra.pci_requests: for a number of devices, each of which
// matches one of the specs (nova/objects/instance_pci_requests.py).
type Request struct {
	ID    string           `json:"request_id"` // "" before Zed
	Count int              `json:"count"`
	Specs []map[string]any `json:"spec"`
}

// ParseRequests reads instance_extra.pci_requests.
func ParseRequests(text string) ([]Request, error) {
	var requests []Request // an id that is null stays ""
	if err := json.Unmarshal([]byte(text), &requests); err != nil {
		return nil, fmt.Errorf("pci_requests is not in Nova's format")
	}
	for _, r := range requests {
		if r.Count < 0 {
			return nil, fmt.Errorf("pci_requests has a request for %d devices", r.Count)
		}
	}
	return requests, nil
}

// Keys of a spec whose values rows of pci_devices have too.
const (
	specVendor  = "vendor_id"
	specProduct = "product_id"
	specType    = "dev_type"
	specClass   = "resource_class"
)

// match returns whether a device fulfils the request, as Nova compares them (nova/pci/utils.py,
// pci_device_prop_match; nova/pci/stats.py, _filter_pools). If the answer depends on a key whose
// value the database does not record per device, unknown is that key and its value.
func (r Request) match(d Device) (ok bool, unknown string) {
	// Nova assigns these types only to requests that name them
	// (_filter_pools_for_unrequested_pfs, ..._vdpa_devices).
	if d.Type == TypePF || d.Type == TypeVDPA {
		named := slices.ContainsFunc(r.Specs, func(spec map[string]any) bool { return spec[specType] == d.Type })
		if !named {
			return false, ""
		}
	}
	for _, spec := range r.Specs {
		matches, lacks := matchSpec(spec, d)
		if matches && lacks == "" {
			return true, ""
		}
		if matches {
			unknown = lacks
		}
	}
	return false, unknown
}

func matchSpec(spec map[string]any, d Device) (ok bool, unknown string) {
	for _, key := range slices.Sorted(maps.Keys(spec)) {
		value, isText := spec[key].(string)
		has := ""
		switch key {
		case specVendor:
			has = d.Vendor
		case specProduct:
			has = d.Product
		case specType:
			has = d.Type
		case specClass:
			// A device_spec may set another class for the device, which no table of Nova has.
			if !isText || resourceClass(value) != resourceClass("PCI_"+d.Vendor+"_"+d.Product) {
				unknown = fmt.Sprintf("%s %v", key, spec[key])
			}
			continue
		default:
			unknown = fmt.Sprintf("%s %v", key, spec[key])
			continue
		}
		if !isText || !strings.EqualFold(value, has) {
			return false, ""
		}
	}
	return true, unknown
}

var notInClass = host.LazyRegexp(`[^A-Z0-9_]`)

// resourceClass returns a resource class as Nova writes it
// (nova/compute/pci_placement_translator.py, _normalize_resource_class).
func resourceClass(name string) string {
	name = notInClass().ReplaceAllString(strings.ToUpper(name), "_")
	if !strings.HasPrefix(name, "CUSTOM_") {
		name = "CUSTOM_" + name
	}
	return name
}

// asked returns how many devices requests are for.
func asked(requests []Request) (n int) {
	for _, r := range requests {
		n += r.Count
	}
	return n
}

// lacking returns the requests that an instance's devices do not fulfil, each with the number of
// missing devices. why is not "" if they cannot be determined.
func lacking(requests []Request, held []Held) (left []Request, why string) {
	left = slices.Clone(requests)
	for _, h := range held {
		id := host.Value(h.Request)
		var fits []int
		for k, r := range left {
			if r.ID != id || r.Count == 0 {
				continue
			}
			// Without ids only the specs show which request a device fulfils.
			if ok, _ := r.match(h.Device); id != "" || ok {
				fits = append(fits, k)
			}
		}
		switch {
		case len(fits) == 0:
			return nil, fmt.Sprintf("the instance has %s, which matches none of its requests", h.Address)
		case len(fits) > 1:
			return nil, fmt.Sprintf("%s matches several of the instance's requests", h.Address)
		}
		left[fits[0]].Count--
	}
	return slices.DeleteFunc(left, func(r Request) bool { return r.Count == 0 }), ""
}
