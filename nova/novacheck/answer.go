package novacheck

import (
	"cmp"
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/devspec"
	"gpustack/nova/pools"
)

// Answer is whether a flavor's request for devices can be met.
type Answer struct {
	// whether a host has all these devices when all are free; null if unknown
	Met host.Bool `json:"can_be_met"`
	// the hosts that have them; null without an inventory
	Hosts []string `json:"hosts" null:"zero"`
	// why the request cannot be met; null for none
	Reason string `json:"problem" null:"zero"`
}

// Request checks a flavor's request against nova.conf (sides) and against the hardware of hosts,
// either of which may be empty. Without nova.conf an alias stands for the product that host scan
// gives that name.
func Request(r nova.Request, release nova.Release, sides []nova.Side, hosts []nova.Host) Answer {
	c := newChecker(release, sides, hosts)
	for _, s := range c.sides {
		c.readAliases(s)
		if s.Role.Computes() {
			c.readSpecs(s)
		}
	}
	no := func(format string, args ...any) Answer {
		answer := Answer{Met: host.No, Reason: fmt.Sprintf(format, args...)}
		if len(hosts) > 0 {
			answer.Hosts = []string{}
		}
		return answer
	}
	for _, w := range r {
		at := c.aliases[w.Alias]
		if len(sides) > 0 && at == nil {
			if other := c.variant(w.Alias); other != "" {
				return no("no file defines alias %s: it differs in case only from %s", w.Alias, other)
			}
			return no("no file defines alias %s", w.Alias)
		}
		if c.computes && !c.someSpecMatches(at) {
			return no("no device_spec of a compute node matches alias %s", w.Alias)
		}
	}
	hasNoIDs := func(w nova.Wanted) bool { return len(c.byIDs(c.aliases[w.Alias]).Specs) == 0 }
	if len(hosts) == 0 || len(sides) > 0 && !c.computes && slices.ContainsFunc(r, hasNoIDs) {
		return Answer{}
	}
	answer := Answer{Hosts: []string{}}
	best, where := 0, ""
	for _, h := range hosts {
		met := c.meets(r, h)
		if met == r.Devices() {
			answer.Hosts = append(answer.Hosts, h.Name)
		}
		if met > best {
			best, where = met, h.Name
		}
	}
	switch {
	case len(answer.Hosts) > 0:
		answer.Met = host.Yes
		return answer
	case best == 0:
		return no("no host has a matching device")
	}
	return no("no host has enough devices: %s has %d of %d", where, best, r.Devices())
}

// meets returns how many of the requested devices a host has: nova-scheduler gives free devices to
// each alias in the order of the request.
func (c *checker) meets(r nova.Request, h nova.Host) (met int) {
	const name = "name" // without a file, the tag that aliases select devices by
	free := pools.Devices{Release: c.release, Pools: pools.Every(h.Devices)}
	switch {
	case len(c.sides) == 0:
		free.Pools = nil
		for i := range h.Devices {
			if is := nova.AliasName(&h.Devices[i]); is != "" {
				free.Pools = append(free.Pools, pools.Pool{Count: 1, Tags: map[string]string{name: is}})
			}
		}
	case c.computes:
		offered, _ := c.offeredOn(h)
		free.Pools = pools.Of(offered)
	}
	var requests []pools.Request
	for _, w := range r {
		request := pools.Request{Specs: []pools.Spec{{name: w.Alias}}}
		if len(c.sides) > 0 {
			request = c.request(c.aliases[w.Alias])
			if !c.computes {
				request = request.WithoutTags()
			}
		}
		request.Count = w.Count
		if short := free.Supports(append(requests, request), nil); short != nil {
			request.Count = short.Have
		}
		if request.Count > 0 {
			requests, met = append(requests, request), met+request.Count
		}
	}
	return met
}

// offeredOn returns the functions of a host that the device specs of its files offer, or of each that
// may be its. isSure is false where it is not known which files are the host's.
func (c *checker) offeredOn(h nova.Host) (offered []pools.Function, isSure bool) {
	for _, n := range c.nodes {
		switch {
		case n.Name != h.Name:
		case n.isSure:
			return n.offered, true
		default:
			offered = append(offered, slices.DeleteFunc(slices.Clone(n.offered), func(f pools.Function) bool {
				return slices.ContainsFunc(offered, func(o pools.Function) bool { return o.Device.Address == f.Device.Address })
			})...)
		}
	}
	return offered, false
}

// Counts is what was checked.
type Counts struct {
	Files   int `json:"file_count"`  // files that were read
	Aliases int `json:"alias_count"` // aliases with different names
	// DeviceCount is how many functions of this machine (without --conf) and of the inventories the
	// device specs of the compute nodes offer to guests; without a compute node, those that the
	// aliases select. It is null if no hardware is known.
	DeviceCount *int `json:"device_count"`
	// these functions, by host and address; null if no hardware is known
	Devices []Function `json:"offered" null:"zero"`
}

// Function is a function of a host.
type Function struct {
	Host    string      `json:"host" null:"zero"` // the hostname; null for this machine
	Address pci.Address `json:"address"`          // the function
}

// Count returns what [Run] checks.
func Count(r nova.Release, sides []nova.Side, hosts []nova.Host) Counts {
	c := newChecker(r, sides, hosts)
	var files []string
	for _, s := range c.sides {
		for _, f := range s.Files {
			if !slices.Contains(files, f.Name) {
				files = append(files, f.Name)
			}
		}
		c.readAliases(s)
	}
	counts := Counts{Files: len(files), Aliases: len(c.aliases)}
	if len(c.nodes)+len(c.hosts) == 0 {
		return counts
	}
	counts.Devices = []Function{}
	for _, n := range c.nodes {
		for _, f := range n.offered {
			counts.Devices = append(counts.Devices, Function{n.Name, f.Device.Address})
		}
	}
	for _, h := range c.hosts {
		for i := range h.Devices {
			if d := &h.Devices[i]; !c.computes && c.isAsked(d) {
				counts.Devices = append(counts.Devices, Function{h.Name, d.Address})
			}
		}
	}
	slices.SortFunc(counts.Devices, func(a, b Function) int { return cmp.Or(cmp.Compare(a.Host, b.Host), a.Address.Compare(b.Address)) })
	counts.Devices = slices.Compact(counts.Devices)
	counts.DeviceCount = new(len(counts.Devices))
	return counts
}

// isAsked reports whether an alias selects a device by its ids, whatever its tags are.
func (c *checker) isAsked(d *pci.Device) bool {
	for _, at := range c.aliases {
		if share := c.byIDs(at).Judge(pools.Every([]pci.Device{*d}), nil, false, c.release); share.Why == pools.Gets {
			return true
		}
	}
	return false
}

// byIDs returns the request without the definitions that have no ids: the hardware of hosts does not
// tell which devices these select.
func (c *checker) byIDs(at []aliasAt) pools.Request {
	r := c.request(at)
	r.Specs = slices.DeleteFunc(r.Specs, func(s pools.Spec) bool { return s["vendor_id"] == "" && s["product_id"] == "" })
	return r
}

// request returns the request for a device of an alias, by its definitions on one side.
func (c *checker) request(at []aliasAt) pools.Request {
	of := c.model(at).side
	alias := contents(at, of)
	r := pools.NewRequest(alias)
	for i, a := range alias {
		if !nova.HasIDs(a) && isByClass(of.reader(), a, c.release) {
			r.Specs[i][pools.ClassTag] = devspec.Reported{Spec: devspec.Spec{Object: a}}.Class()
		}
	}
	return r
}
