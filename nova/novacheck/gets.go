package novacheck

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/pools"
)

// offered checks what each alias gets on each host whose hardware is known.
func (c *checker) offered() {
	for _, name := range slices.Sorted(maps.Keys(c.aliases)) {
		at := c.aliases[name]
		first := at[0]
		canGet := !c.computes || c.someSpecMatches(at)
		isKnown := slices.ContainsFunc(at, func(a aliasAt) bool { return nova.HasIDs(a.object) }) // else inventories do not tell which devices it selects
		has, isServed := false, false
		var others []typed
		var lacking, kept []string
		for _, h := range c.known() {
			functions, isSure := c.offeredOn(h)
			share := c.request(at).Judge(pools.Every(h.Devices), pools.Of(functions), c.computes && (isSure || !canGet), c.release)
			has = has || share.Why != pools.Absent
			isServed = isServed || share.Why == pools.Gets && share.Has > 0
			switch {
			case !isKnown:
			case share.Why == pools.OtherType && (canGet || len(c.hosts) > 0):
				others = append(others, typed{h, share.Types})
			case share.Why == pools.NotOffered && c.hasForGuests(at, h):
				lacking = append(lacking, h.Call())
			case share.Why == pools.NotOffered && c.computes && len(c.specs) == 0:
				kept = append(kept, h.Call())
			case share.Why == pools.OtherTags:
				c.add(checkAlias, host.Fail, first.file, first.line,
					fmt.Sprintf("alias %s and the device_spec that offers its devices on %s differ in tags", name, h.Call()),
					"gives no guest a device of this host by the alias (NoValidHost)", share.Why.Remedy(host.Command{}, contents(at,
						c.model(at).side), nil, ""))
			}
		}
		switch {
		case slices.ContainsFunc(c.stops, func(f host.Finding) bool { return f.Check == checkDeviceSpec }): // what a rejected one is to offer is unknown
		case lacking != nil:
			verb := "has"
			if len(lacking) > 1 {
				verb = "have"
			}
			c.add(checkAlias, host.Fail, first.file, first.line,
				fmt.Sprintf("no device_spec offers a device of alias %s, and %s %s such a device", name, host.Shortened(lacking, 3), verb),
				"gives no guest a device of this host by the alias (NoValidHost)", c.define(nova.Compute, at, first.side))
		case kept != nil: // all compute nodes have the same aliases, also those that offer nothing
			c.add(checkAlias, host.Warn, first.file, first.line,
				fmt.Sprintf("no device_spec offers a device of alias %s, and those of %s remain with it", name, host.Shortened(kept, 3)),
				"gives no guest a device of this host by the alias", host.Textf("to give them to guests, run %s there, then %s",
					host.NewCommand("host prepare"), host.NewCommand("nova configure").Flag("role", string(nova.Compute))))
		case !canGet:
			c.add(checkAlias, host.Warn, first.file, first.line, fmt.Sprintf("no device_spec of a compute node that was given matches alias %s", name),
				"finds no host if no other compute node offers such a device (NoValidHost)", c.define(nova.Compute, at, first.side))
		}
		switch {
		case !isKnown:
		case len(c.hosts) > 0 && !has && !slices.ContainsFunc(at, func(a aliasAt) bool { return allList(c.hosts, a.object["vendor_id"]) }):
			c.add(checkAlias, host.NA, first.file, first.line, fmt.Sprintf("alias %s is not for a GPU, and an inventory lists GPUs only", name),
				"finds no host if none has such a device (NoValidHost)", scanAll)
		case len(c.hosts) > 0 && !has && canGet: // others are reported above
			c.add(checkAlias, host.Warn, first.file, first.line, fmt.Sprintf("no host in the inventories has a device of alias %s", name),
				"finds no host if no other has one (NoValidHost)", host.Textf("%s lists the devices of a host", host.NewCommand("host scan")))
		default:
			c.otherTypes(name, at, others, isServed)
		}
	}
}

// typed is a host whose devices of an alias's product have other types than the alias selects.
type typed struct {
	host  nova.Host
	types []string
}

// otherTypes reports the hosts whose devices an alias does not select by their type: all of its
// hosts, or those whose devices no other alias selects.
func (c *checker) otherTypes(name string, at []aliasAt, others []typed, isServed bool) {
	var types, words []string
	for _, o := range others {
		types = append(types, o.types...)
		if !slices.ContainsFunc(o.host.Devices, func(d pci.Device) bool {
			return slices.ContainsFunc(at, func(a aliasAt) bool { return nova.IsProduct(a.object, &d) }) && c.isAsked(&d)
		}) {
			words = append(words, fmt.Sprintf("%s has %s", o.host.Call(), strings.Join(o.types, " and ")))
		}
	}
	slices.Sort(types)
	types = slices.Compact(types)
	switch {
	case len(others) > 0 && !isServed:
		c.add(checkAlias, host.Fail, at[0].file, at[0].line, fmt.Sprintf("the devices of alias %s have device_type %s", name, strings.Join(types, ", ")),
			"finds no host (NoValidHost)", pools.OtherType.Remedy(nova.Configure(at[0].side.Role),
				contents(at, at[0].side), types, ""))
	case len(words) > 0:
		remedy := host.Plain("define another alias with their device_type")
		if slices.Contains(types, string(pci.TypePF)) || nova.TakesType(at[0].object, string(pci.TypePF)) {
			remedy = host.Textf("turn SR-IOV on or off in the firmware of these hosts, or %s", remedy)
		}
		c.add(checkAlias, host.Fail, at[0].file, at[0].line, fmt.Sprintf("alias %s selects %s, but %s", name, nova.SelectedTypes(at[0].object),
			strings.Join(words, ", ")), "never schedules guests to these devices", remedy)
	}
}

// hasForGuests reports whether a host has a device for guests that an alias selects. Where nothing is
// offered, one that a driver of the host has, and no record, is not for guests.
func (c *checker) hasForGuests(at []aliasAt, h nova.Host) bool {
	isForGuests := h.ForGuests()
	return slices.ContainsFunc(h.Devices, func(d pci.Device) bool {
		isReady := len(c.specs) > 0 || h.Given != nil || d.Driver == nil || pci.LeavesAlone(*d.Driver)
		return isReady && isForGuests(&d) && slices.ContainsFunc(at, func(a aliasAt) bool { return nova.IsProduct(a.object, &d) })
	})
}
