package nova

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"gpustack/host/pci"
)

// RequestKey is the extra spec that makes a flavor ask for devices.
const RequestKey = "pci_passthrough:alias"

// Request is what a flavor asks for: so many devices of each alias. A guest gets them
// all or does not boot.
type Request []Wanted

// Wanted is a number of devices of an alias, 1 or more.
type Wanted struct {
	Alias string `json:"alias"`
	Count int    `json:"count"`
}

// ParseRequest reads the value of RequestKey as Nova does when a guest boots
// (nova/pci/request.py, _translate_alias_to_requests): NAME:COUNT[,NAME:COUNT…],
// blanks around either not mattering. All its faults are in the error. Nova takes
// counts below 1 too; nobody can mean them.
func ParseRequest(value string) (Request, error) {
	var request Request
	var errs []error
	for word := range strings.SplitSeq(value, ",") {
		alias, count, _ := strings.Cut(word, ":")
		alias = strings.TrimSpace(alias)
		n, err := strconv.Atoi(strings.TrimSpace(count))
		if err != nil || n < 1 {
			errs = append(errs, fmt.Errorf("%q is not NAME:COUNT", strings.TrimSpace(word)))
			continue
		}
		request = append(request, Wanted{alias, n})
	}
	return request, errors.Join(errs...)
}

func (r Request) String() string {
	var words []string
	for _, w := range r {
		words = append(words, fmt.Sprintf("%s:%d", w.Alias, w.Count))
	}
	return strings.Join(words, ",")
}

// Devices is how many devices a guest gets.
func (r Request) Devices() int {
	n := 0
	for _, w := range r {
		n += w.Count
	}
	return n
}

// Same tells whether two requests ask for the same, in whatever order.
func (r Request) Same(other Request) bool {
	counts := map[Wanted]int{}
	for _, w := range r {
		counts[w]++
	}
	for _, w := range other {
		counts[w]--
	}
	for _, n := range counts {
		if n != 0 {
			return false
		}
	}
	return true
}

// Answer tells whether a flavor's request can be met, as far as is known.
type Answer struct {
	Met    *bool    // nil: nothing speaks against it, and nothing for it
	Hosts  []string // that could meet it, were all their devices free; nil: none was looked at
	Reason string   // why not
}

// Answer holds the request against nova.conf and against the hardware of hosts, either
// of which may be none. Without nova.conf an alias is taken for the product that host
// scan gives that name.
func (r Request) Answer(release Release, sides []Side, hosts []Host) Answer {
	c := &checker{release: release, sides: sides, hosts: hosts, aliases: map[string][]aliasAt{}}
	for _, s := range sides {
		c.readAliases(s)
		if s.Role.computes() {
			c.readSpecs(s)
		}
	}
	no := func(format string, args ...any) Answer {
		met := false
		answer := Answer{Met: &met, Reason: fmt.Sprintf(format, args...)}
		if len(hosts) > 0 {
			answer.Hosts = []string{}
		}
		return answer
	}
	for _, w := range r {
		at := c.aliases[w.Alias]
		if len(sides) > 0 && at == nil {
			return no("no file defines alias %s", w.Alias)
		}
		if c.computes && !c.someSpecMatches(at) {
			return no("no compute node offers what alias %s asks for", w.Alias)
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
	switch met := len(answer.Hosts) > 0; {
	case met:
		answer.Met = &met
		return answer
	case best == 0:
		return no("no host has such a device")
	}
	return no("no host has all: %s has %d of %d", where, best, r.Devices())
}

// meets counts how many of the devices that are asked for a host has. Where aliases
// overlap, a device given to one is not there for another: each is found a place by
// moving those placed before (Kuhn's algorithm).
func (c *checker) meets(r Request, h Host) int {
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

// serves tells whether a device is what an alias asks for, and offered.
func (c *checker) serves(alias string, d *pci.Device) bool {
	if len(c.sides) == 0 {
		return d.AliasHint != nil && *d.AliasHint == alias
	}
	asked := false
	for _, a := range c.aliases[alias] {
		asked = asked || isProduct(a.object, d) && (d.DeviceType == nil || takesType(a.object, string(*d.DeviceType)))
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

// offers tells whether a device_spec is for a device. An address in a form that only
// Nova expands may be its.
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

// takesType tells whether an alias takes devices of a type. Without one it takes
// whatever is no physical function.
func takesType(alias map[string]any, kind string) bool {
	want, told := alias["device_type"].(string)
	return told && kind == want || !told && kind != string(pci.TypePF)
}
