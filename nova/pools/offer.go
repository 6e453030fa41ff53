package pools

import (
	"fmt"
	"maps"
	"slices"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/devspec"
)

// Function is a function of a host that nova-compute offers, with the first device_spec that
// matches it and the pool that nova-compute would make of it alone.
type Function struct {
	devspec.Reported
	Pool Pool
}

// Offered returns the functions of a host that nova-compute offers with the values of its
// device_spec: each by the first spec that matches it.
func Offered(h devspec.Hardware, lines []devspec.Line) (list []Function) {
	for i := range h.Devices {
		if first, ok := h.First(lines, &h.Devices[i]); ok {
			pool := New(first.Device, first.Spec.Object)
			pool.Tags[ClassTag] = first.Class()
			list = append(list, Function{first, pool})
		}
	}
	return list
}

// Of returns the pools of functions.
func Of(functions []Function) []Pool {
	list := []Pool{}
	list = append(list, host.Map(functions, func(f Function) Pool { return f.Pool })...)
	return list
}

// Every returns the pools of devices as if a device_spec without tags offered them, without devices
// whose ids are unknown.
func Every(devices []pci.Device) []Pool {
	list := []Pool{}
	for i := range devices {
		if p := New(&devices[i], nil); p.Vendor != "" {
			list = append(list, p)
		}
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
	OtherType  Why = "other type"  // those that are offered, or all, have another device_type
	NotOffered Why = "not offered" // no device_spec matches one of them
	OtherTags  Why = "other tags"  // those that are offered lack tags of the alias, or have others
)

// Share is what an alias gets of a host whose devices are all free.
type Share struct {
	Count int // of the devices that it gets
	Typed int // of the devices that are offered, or of all where that is unknown, with a type that the alias selects
	Has   int // of all devices of the product
	Why   Why
	Types []string // of the devices that were compared with the alias, sorted
}

// ClassTag is the key of a spec and a pool for the resource class of an alias without ids, which
// Placement compares.
const ClassTag = "class in Placement"

// only returns the request for all devices that match its specs by some keys.
func (r Request) only(keys ...string) Request {
	specs := slices.Clone(r.Specs)
	for i := range specs {
		specs[i] = maps.Clone(specs[i])
		maps.DeleteFunc(specs[i], func(key, _ string) bool { return !slices.Contains(keys, key) })
	}
	r.Specs = specs
	return r
}

// WithoutTags returns the request for devices of the same ids and types, whatever their tags are.
func (r Request) WithoutTags() Request {
	return r.only("vendor_id", "product_id", ClassTag, "dev_type")
}

// WithoutTags returns the pool as it is where its tags are unknown or do not count.
func (p Pool) WithoutTags() Pool {
	p.Tags = maps.Clone(p.Tags)
	maps.DeleteFunc(p.Tags, func(key, _ string) bool { return key != ClassTag })
	return p
}

// Judge returns what an alias gets of the devices of a host: offered are those that its device
// specs offer, of all devices that it has. isKnown is false where the device specs are unknown:
// only types are compared then, and offered is empty.
func (r Request) Judge(present, offered []Pool, isKnown bool, release nova.Release) (s Share) {
	d, product, kind := Devices{Release: release}, r.only("vendor_id", "product_id", ClassTag), r.WithoutTags()
	of := func(list []Pool) (mine []Pool) {
		return host.Filter(list, func(p Pool) bool {
			return slices.ContainsFunc(product.Specs, func(s Spec) bool { return s.matches(p) })
		})
	}
	all, given := of(present), of(offered)
	compared := given
	if len(given) == 0 {
		compared = all
	}
	for _, p := range all {
		s.Has += p.Count
	}
	isTyped := false
	for _, p := range compared {
		if p.Type != "" && !slices.Contains(s.Types, p.Type) {
			s.Types = append(s.Types, p.Type)
		}
		if p.Type == "" || d.Selects(kind, p.WithoutTags()) {
			isTyped, s.Typed = true, s.Typed+p.Count
		}
	}
	slices.Sort(s.Types)
	for _, p := range given {
		if p.Type == "" || d.Selects(r, p) {
			s.Count += p.Count
		}
	}
	switch {
	case len(all)+len(given) == 0:
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

// Remedy returns how an alias gets devices of a host for a reason for which it gets none. types are
// those of its devices, one of which the alias can select. configure is nova configure with a role,
// and at is where the alias is defined.
func (w Why) Remedy(configure host.Command, alias []map[string]any, types []string, at string) host.Text {
	hasCapability := slices.ContainsFunc(alias, func(a map[string]any) bool { return a["capability_type"] != nil })
	switch {
	case w == OtherTags && hasCapability:
		return host.Plain("remove capability_type from the alias: no device has it")
	case w == OtherTags:
		return host.Plain("give the device_spec and the alias the same live_migratable and no remote_managed, and restart nova-compute")
	case w == OtherType && len(types) != 1:
		return host.Plain("set the device_type of these devices in the alias")
	}
	for _, a := range alias {
		if len(types) == 1 && !nova.TakesType(a, types[0]) {
			a = maps.Clone(a)
			a["device_type"] = types[0]
		}
		value := nova.AliasOption(a)
		if value == "" {
			return host.Textf("copy the alias from %s", at)
		}
		configure = configure.Flag("alias", value)
	}
	if w == OtherType {
		return host.Textf("run %s, and with its role on every other host that has the alias", configure)
	}
	return host.Textf("run %s there", configure)
}
