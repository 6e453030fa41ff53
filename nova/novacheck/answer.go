package novacheck

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/nova"
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
