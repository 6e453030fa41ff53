package pools

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/nova"
	"gpustack/nova/devspec"
)

// Pool is a number of free devices that Nova does not tell apart (nova/objects/pci_device_pool.py).
type Pool struct {
	Vendor, Product string
	Type            string // dev_type; "" for unknown
	NUMA            *int   // nil for none
	Count           int
	Tags            map[string]string // others than dev_type; without those that are null
}

// ParsePools reads compute_nodes.pci_stats, a PciDevicePoolList or a list of dictionaries of an
// earlier release, in the order in which nova-scheduler uses the pools (nova/objects/
// pci_device_pool.py, from_pci_stats).
//
// Errors: a text in another format; a pool without dev_type, as releases before Mitaka wrote.
func ParsePools(text []byte) ([]Pool, error) {
	dictionaries, err := poolDictionaries(text)
	if err != nil {
		return nil, fmt.Errorf("pci_stats: %w", err)
	}
	// PciDeviceStats sorts the dictionaries by their sizes.
	slices.SortStableFunc(dictionaries, func(a, b map[string]any) int { return len(a) - len(b) })
	pools := []Pool{}
	for _, d := range dictionaries {
		p, err := newPool(d)
		if err != nil {
			return nil, fmt.Errorf("pci_stats: %w", err)
		}
		pools = append(pools, p)
	}
	return pools, nil
}

// poolDictionaries returns the pools with their tags beside the other fields.
func poolDictionaries(text []byte) (list []map[string]any, err error) {
	if json.Unmarshal(text, &list) == nil {
		return list, nil
	}
	var read object[struct {
		Objects []object[map[string]any] `json:"objects"`
	}]
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, err
	}
	if read.Name != "PciDevicePoolList" {
		return nil, fmt.Errorf("not a PciDevicePoolList but %q", read.Name)
	}
	for _, o := range read.Data.Objects {
		tags, _ := o.Data["tags"].(map[string]any)
		delete(o.Data, "tags")
		maps.Copy(o.Data, tags)
		list = append(list, o.Data)
	}
	return list, nil
}

// newPool returns the pool of a dictionary.
func newPool(d map[string]any) (Pool, error) {
	p := Pool{Tags: map[string]string{}}
	for key, value := range d {
		text, isText := value.(string)
		number, isNumber := value.(float64)
		switch {
		case key == "vendor_id":
			p.Vendor = text
		case key == "product_id":
			p.Product = text
		case key == "dev_type":
			p.Type = text
		case key == "numa_node" && isNumber:
			node := int(number)
			p.NUMA = &node
		case key == "count" && isNumber:
			p.Count = int(number)
		case isText:
			p.Tags[key] = text
		}
	}
	if p.Vendor == "" || p.Product == "" || p.Type == "" {
		return p, errors.New("a pool lacks vendor_id, product_id or dev_type")
	}
	return p, nil
}

// object is a versioned object as Nova stores it (oslo.versionedobjects, obj_to_primitive).
type object[T any] struct {
	Name string `json:"nova_object.name"`
	Data T      `json:"nova_object.data"`
}

// Policies for the NUMA nodes of devices that are told apart (nova/objects/fields.py,
// PCINUMAAffinityPolicy); legacy is every other one.
const (
	Required  = "required"
	Preferred = "preferred"
)

// isTrue reports whether Nova reads a text as true (oslo_utils/strutils.py, bool_from_string).
func isTrue(text string) bool {
	on, err := devspec.Bool(text)
	return err == nil && on
}

// Request is a number of devices of an alias (nova/objects/instance_pci_requests.py).
type Request struct {
	Alias  string
	Count  int
	Policy string // for NUMA
	Specs  []Spec // alternatives
}

// Spec is a definition of an alias, as pools are compared with it: dev_type, vendor_id, product_id,
// capability_type and live_migratable.
type Spec map[string]string

// NewSpec returns the spec of an alias, which nova-api accepts (nova/pci/request.py,
// get_alias_from_config). Of its other keys pools are not compared with the policy, the resource
// class and the traits (nova/pci/stats.py, ignored_spec_tags, since 2023.1).
func NewSpec(alias map[string]any) Spec {
	spec := Spec{}
	for key, value := range alias {
		text, isText := value.(string)
		switch {
		case !isText:
		case key == "device_type":
			spec["dev_type"] = text
		case key == "live_migratable":
			spec[key] = fmt.Sprint(isTrue(text))
		case slices.Contains([]string{"vendor_id", "product_id", "capability_type"}, key): // Nova rejects others
			spec[key] = text
		}
	}
	return spec
}

// NewRequest returns the request for one device of an alias with some definitions.
func NewRequest(alias []map[string]any) Request {
	r := Request{Count: 1}
	for _, a := range alias {
		r.Specs = append(r.Specs, NewSpec(a))
	}
	return r
}

// value returns a value of a pool as a spec names it.
func (p Pool) value(key string) (string, bool) {
	switch key {
	case "vendor_id":
		return p.Vendor, true
	case "product_id":
		return p.Product, true
	case "dev_type":
		return p.Type, p.Type != ""
	}
	value, there := p.Tags[key]
	return value, there
}

// matches is pci_device_prop_match: letters are equal in either case since Rocky.
func (s Spec) matches(p Pool) bool {
	for key, want := range s {
		if has, there := p.value(key); !there || !strings.EqualFold(has, want) {
			return false
		}
	}
	return true
}

// Devices are the free devices of a compute node as nova-scheduler sees them (PciDeviceStats).
type Devices struct {
	Release nova.Release
	Pools   []Pool
}

// Short is the first request for which there are too few devices.
type Short struct {
	Request
	Have int
}

// Supports returns the first request that the devices cannot serve, nil for none. nodes are those
// of the host that the guest's NUMA nodes are on; nil for a guest without NUMA topology
// (support_requests).
func (d Devices) Supports(requests []Request, nodes []int) *Short {
	left := slices.Clone(d.Pools)
	for _, r := range requests {
		indexes, have := d.filter(left, r, nodes)
		if have < r.Count || len(indexes) == 0 {
			return &Short{r, have}
		}
		need := r.Count
		for _, i := range indexes {
			n := min(need, left[i].Count)
			left[i].Count -= n
			need -= n
		}
		left = slices.DeleteFunc(left, func(p Pool) bool { return p.Count == 0 })
	}
	return nil
}

// filter returns the indexes of the pools that serve a request, and how many devices they have
// (_filter_pools).
func (d Devices) filter(pools []Pool, r Request, nodes []int) (indexes []int, have int) {
	for i := range pools {
		if slices.ContainsFunc(r.Specs, func(s Spec) bool { return s.matches(pools[i]) }) {
			indexes = append(indexes, i)
		}
	}
	count := func(indexes []int) (n int) {
		for _, i := range indexes {
			n += pools[i].Count
		}
		return n
	}
	if n := count(indexes); n < r.Count {
		return indexes, n
	}
	if len(nodes) > 0 {
		indexes = d.near(pools, indexes, r, nodes, count)
	}
	return d.requested(pools, indexes, r, count)
}

// requested leaves out pools of devices that only a request for them gets: physical functions,
// vdpa and remote-managed devices, and since 2025.1 those that differ in live_migratable.
func (d Devices) requested(pools []Pool, indexes []int, r Request, count func([]int) int) ([]int, int) {
	asks := func(key, value string) bool {
		return slices.ContainsFunc(r.Specs, func(s Spec) bool { return s[key] == value })
	}
	allAsk := func(key, value string) bool {
		return !slices.ContainsFunc(r.Specs, func(s Spec) bool { return s[key] != value })
	}
	kept := slices.DeleteFunc(slices.Clone(indexes), func(i int) bool {
		p := pools[i]
		switch {
		case p.Type == "type-PF" && !asks("dev_type", "type-PF"), p.Type == "vdpa" && d.Release >= nova.Wallaby,
			isTrue(p.Tags["remote_managed"]) && d.Release >= nova.Yoga:
			return true
		case d.Release < nova.Epoxy:
			return false
		}
		return allAsk("live_migratable", "true") && p.Tags["live_migratable"] != "true" ||
			allAsk("live_migratable", "false") && p.Tags["live_migratable"] != "false"
	})
	return kept, count(kept)
}

// Selects reports whether a request without NUMA nodes may get devices of a pool.
func (d Devices) Selects(r Request, p Pool) bool {
	r.Count, p.Count = 1, 1
	_, n := d.filter([]Pool{p}, r, nil)
	return n > 0
}

// near leaves out pools that the NUMA policy of a request excludes (_filter_pools_for_numa_cells).
func (d Devices) near(pools []Pool, indexes []int, r Request, nodes []int, count func([]int) int) []int {
	on := func(nodes []int, orNone bool) []int {
		return slices.DeleteFunc(slices.Clone(indexes), func(i int) bool {
			node := pools[i].NUMA
			return node == nil && !orNone || node != nil && !slices.Contains(nodes, *node)
		})
	}
	near := on(nodes, false)
	if r.Policy == Required || count(near) >= r.Count {
		return near
	}
	nearOrNone := on(nodes, true)
	if r.Policy != Preferred || count(nearOrNone) >= r.Count {
		return nearOrNone
	}
	isNear := func(i int) bool { return slices.Contains(nearOrNone, i) }
	return append(slices.Clip(nearOrNone), slices.DeleteFunc(slices.Clone(indexes), isNear)...)
}
