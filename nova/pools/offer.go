package pools

import (
	"fmt"
	"slices"

	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/devspec"
)

// Function is a function of a host, with the pool that nova-compute would make of it alone.
type Function struct {
	Device *pci.Device
	Pool   Pool
}

// Offered returns the functions of a host that nova-compute offers with the values of its
// device_spec: each by the first spec that matches it.
func Offered(h devspec.Hardware, lines []devspec.Line) (list []Function) {
	for i := range h.Devices {
		d := &h.Devices[i]
		if first, ok := h.First(lines, d); ok {
			list = append(list, Function{d, New(d, first.Spec.Object)})
		}
	}
	return list
}

// Every returns all functions of a host as if a device_spec without tags offered them.
func Every(devices []pci.Device) (list []Function) {
	for i := range devices {
		list = append(list, Function{&devices[i], New(&devices[i], nil)})
	}
	return list
}

// New returns the pool of a function that a device_spec offers, with the tags that pools are
// compared by as Nova writes them (nova/pci/devspec.py, _normalize_device_spec_tag). Ids and types
// that are unknown are "".
func New(d *pci.Device, spec map[string]any) Pool {
	p := Pool{NUMA: d.NUMANode, Count: 1, Tags: map[string]string{}}
	if d.VendorID != nil && d.ProductID != nil {
		p.Vendor, p.Product = d.VendorID.String(), d.ProductID.String()
	}
	if d.DeviceType != nil {
		p.Type = string(*d.DeviceType)
	}
	for _, key := range []string{"live_migratable", "remote_managed", "capability_type"} {
		text, isText := spec[key].(string)
		if !isText {
			continue
		}
		if on, err := devspec.Bool(text); err == nil && key == "live_migratable" {
			text = fmt.Sprint(on)
		}
		p.Tags[key] = text
	}
	return p
}

// Why is the first reason for which an alias gets no device of a host.
type Why string

// Reasons, in the order in which they are found.
const (
	Gets       Why = ""
	Absent     Why = "absent"      // the host has no device of the alias's product
	NotOffered Why = "not offered" // no device_spec matches one of them
	OtherType  Why = "other type"  // those that are offered, or all, have another device_type
	OtherTags  Why = "other tags"  // those that are offered lack tags of the alias, or have others
)

// Share is what an alias gets of a host whose devices are all free.
type Share struct {
	Count int
	Why   Why
	Types []string // of the devices that were compared with the alias, sorted
}

// Judge returns what an alias, whose definitions have ids, gets of the functions of a host: offered
// are those that its device specs offer, of all devices that it has. isKnown is false where the
// device specs are unknown: types are compared then, and offered is empty.
func Judge(alias []map[string]any, devices []pci.Device, offered []Function, isKnown bool, r nova.Release) (s Share) {
	isOf := func(f Function) bool {
		return slices.ContainsFunc(alias, func(a map[string]any) bool { return nova.IsProduct(a, f.Device) })
	}
	of := func(list []Function) (mine []Function) {
		for _, f := range list {
			if isOf(f) {
				mine = append(mine, f)
			}
		}
		return mine
	}
	present, given := of(Every(devices)), of(offered)
	compared := given
	if len(given) == 0 {
		compared = present
	}
	isTyped, d := false, Devices{Release: r}
	var request Request
	for _, a := range alias {
		request.Specs = append(request.Specs, NewSpec(a))
	}
	for _, f := range compared {
		if f.Pool.Type != "" && !slices.Contains(s.Types, f.Pool.Type) {
			s.Types = append(s.Types, f.Pool.Type)
		}
		isTyped = isTyped || f.Pool.Type == "" || slices.ContainsFunc(alias, func(a map[string]any) bool { return nova.TakesType(a, f.Pool.Type) })
	}
	slices.Sort(s.Types)
	for _, f := range given {
		if f.Pool.Type == "" || d.Selects(request, f.Pool) {
			s.Count++
		}
	}
	switch {
	case len(present) == 0:
		s.Why = Absent
	case !isTyped:
		s.Why = OtherType
	case !isKnown || s.Count > 0:
		s.Why = Gets
	case len(given) == 0:
		s.Why = NotOffered
	default:
		s.Why = OtherTags
	}
	return s
}
