package novacheck

import (
	"fmt"
	"slices"

	"gpustack/host"
	"gpustack/host/pci"
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

// meets returns how many of the requested devices a host has. A device serves one alias only; where
// aliases overlap, devices are reassigned to serve as many as possible (Kuhn's algorithm).
func (c *checker) meets(r nova.Request, h nova.Host) int {
	offered, _ := c.offeredOn(h)
	var functions []*pci.Device // all where no file of a compute node is known
	var own [][]pools.Pool      // as they are offered
	for i := range h.Devices {
		if !c.computes {
			functions, own = append(functions, &h.Devices[i]), append(own, nil)
		}
	}
	for _, f := range offered {
		functions, own = append(functions, f.Device), append(own, []pools.Pool{f.Pool})
	}
	serves := func(alias string, k int) bool {
		if len(c.sides) == 0 {
			return alias != "" && nova.AliasName(functions[k]) == alias
		}
		return c.request(c.aliases[alias]).Judge(pools.Every([]pci.Device{*functions[k]}), own[k], c.computes, c.release).Why == pools.Gets
	}
	var wanted []string // an alias for each device
	for _, w := range r {
		for range min(w.Count, len(functions)+1) {
			wanted = append(wanted, w.Alias)
		}
	}
	holder := make([]int, len(functions)) // index in wanted, from 1; 0 for none
	var place func(i int, tried map[int]bool) bool
	place = func(i int, tried map[int]bool) bool {
		for k := range functions {
			if tried[k] || !serves(wanted[i], k) {
				continue
			}
			tried[k] = true
			if holder[k] == 0 || place(holder[k]-1, tried) {
				holder[k] = i + 1
				return true
			}
		}
		return false
	}
	met := 0
	for i := range wanted {
		if place(i, map[int]bool{}) {
			met++
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
