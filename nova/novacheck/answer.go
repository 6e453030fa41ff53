package novacheck

import (
	"fmt"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
)

// Answer is whether a flavor's request for devices can be met.
type Answer struct {
	Met    host.Bool
	Hosts  []string // the hosts that can meet it when all their devices are free; nil: no hosts were given
	Reason string   // why it cannot be met
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
	if len(hosts) == 0 {
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
	var wanted []string // an alias for each device
	for _, w := range r {
		for range min(w.Count, len(h.Devices)+1) {
			wanted = append(wanted, w.Alias)
		}
	}
	holder := make([]int, len(h.Devices)) // index in wanted, from 1; 0 for none
	var place func(i int, tried map[int]bool) bool
	place = func(i int, tried map[int]bool) bool {
		for k := range h.Devices {
			if tried[k] || !c.serves(wanted[i], &h.Devices[k]) {
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

// serves reports whether a device matches an alias and a device_spec.
func (c *checker) serves(alias string, d *pci.Device) bool {
	if len(c.sides) == 0 {
		return alias != "" && nova.AliasName(d) == alias
	}
	asked := false
	for _, a := range c.aliases[alias] {
		asked = asked || nova.IsProduct(a.object, d) && (d.DeviceType == nil || nova.TakesType(a.object, string(*d.DeviceType)))
	}
	if !c.computes {
		return asked
	}
	offered := false
	for _, s := range c.specs {
		offered = offered || offers(s.object, d)
	}
	return asked && offered
}

// offers reports whether a device_spec may match a device. Addresses with wildcards or patterns are
// assumed to match.
func offers(spec map[string]any, d *pci.Device) bool {
	for key, id := range map[string]*pci.ID{"vendor_id": d.VendorID, "product_id": d.ProductID} {
		text, _ := spec[key].(string)
		if text == "" || text == "*" || id == nil {
			continue
		}
		if want, err := pci.ParseID(text); err != nil || want != *id {
			return false
		}
	}
	if text, _ := spec["address"].(string); text != "" {
		if address, err := pci.ParseAddress(text); err == nil {
			return address == d.Address
		}
	}
	return true
}
