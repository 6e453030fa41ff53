package nova

import (
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova/devspec"
)

// Alias is a name by which flavors request devices of one product (nova/pci/request.py,
// _ALIAS_SCHEMA). Empty fields are left out of nova.conf.
type Alias struct {
	Name       string `json:"name"`                  // the name that flavors use
	VendorID   pci.ID `json:"vendor_id"`             // the product's vendor
	ProductID  pci.ID `json:"product_id"`            // the product
	DeviceType string `json:"device_type,omitempty"` // as host scan names it
	// how strictly the devices must be on the guest's NUMA nodes
	NUMAPolicy    string `json:"numa_policy,omitempty"`
	ResourceClass string `json:"resource_class,omitempty"` // the resource class in Placement
	// traits that the devices must have, separated by commas
	Traits         string `json:"traits,omitempty"`
	LiveMigratable string `json:"live_migratable,omitempty"` // "true" or "false"
}

// Spec is a device_spec that gpustack writes (nova/pci/devspec.py, PciDeviceSpec): all functions of
// a product, or the function at an address, with tags.
type Spec struct {
	Address   *pci.Address `json:"address,omitempty"` // absent for all functions of the product
	VendorID  pci.ID       `json:"vendor_id"`         // the product's vendor
	ProductID pci.ID       `json:"product_id"`        // the product
	// PhysicalNetwork is the physical network of functions for ports of Neutron: null for tunnel
	// networks. It is nil, and absent, for functions by alias.
	PhysicalNetwork *Network `json:"physical_network,omitempty"`
	ResourceClass   string   `json:"resource_class,omitempty"` // the resource class in Placement
	// traits of the devices in Placement, separated by commas
	Traits string `json:"traits,omitempty"`
	// "true" or "false": whether libvirt binds the functions to VFIO
	Managed        string `json:"managed,omitempty"`
	LiveMigratable string `json:"live_migratable,omitempty"` // "true" or "false"
	// "true": the devices stay reserved after their first guest
	OneTimeUse string `json:"one_time_use,omitempty"`
	// unwritten is live_migratable that is not written, because the versions of the hypervisor are
	// unknown. It stays where a device_spec has it.
	unwritten string
}

// sameDevices reports whether two specs match the same devices.
func (s Spec) sameDevices(other Spec) bool {
	return s.VendorID == other.VendorID && s.ProductID == other.ProductID && reflect.DeepEqual(s.Address, other.Address)
}

// join returns one spec for two aliases that select the same devices; ok is false if both cannot
// have the same. One with live_migratable serves an alias without it too, which requests any device
// (nova/pci/stats.py, _filter_pools_for_live_migratable_devices).
func (s Spec) join(other Spec) (_ Spec, ok bool) {
	joined := s
	for _, spec := range []*Spec{&joined, &other} {
		spec.LiveMigratable = cmp.Or(spec.LiveMigratable, s.LiveMigratable, other.LiveMigratable)
		spec.unwritten = cmp.Or(spec.unwritten, s.unwritten, other.unwritten)
	}
	return joined, reflect.DeepEqual(joined, other)
}

// aliasHint says what an alias looks like.
var aliasHint = host.Textf("write for example --alias K4200=10de:11b4; '%s' shows the ids", host.NewCommand("host scan"))

// ParseAlias reads NAME=VENDOR:PRODUCT[,KEY=VALUE]…; several traits are joined by plus signs. The
// error joins all errors of the text.
func ParseAlias(s string) (Alias, error) {
	words := strings.Split(s, ",")
	name, ids, ok := strings.Cut(words[0], "=")
	vendor, product, ok2 := strings.Cut(ids, ":")
	var errs []error
	fail := func(format string, args ...any) {
		errs = append(errs, host.WithHint(fmt.Errorf("alias %q: "+format, append([]any{s}, args...)...), aliasHint))
	}
	a := Alias{Name: strings.TrimSpace(name)}
	if !ok || !ok2 {
		fail("must be NAME=VENDOR:PRODUCT")
	} else {
		var err error
		if a.VendorID, err = pci.ParseID(vendor); err != nil {
			fail("%w", err)
		}
		if a.ProductID, err = pci.ParseID(product); err != nil {
			fail("%w", err)
		}
	}
	switch {
	case a.Name == "":
		fail("the name is missing")
	case strings.ContainsAny(a.Name, ":,"):
		fail("the name must not contain : or , because flavors separate aliases with them")
	case utf8.RuneCountInString(a.Name) > maxAliasName:
		fail("the name is longer than %d characters", maxAliasName)
	}
	for _, word := range words[1:] {
		key, value, _ := strings.Cut(word, "=")
		field, known := map[string]*string{
			"device_type": &a.DeviceType, "numa_policy": &a.NUMAPolicy, "resource_class": &a.ResourceClass, "traits": &a.Traits, "live_migratable": &a.LiveMigratable,
		}[key]
		switch {
		case !known:
			fail("unknown key %q", key)
		case value == "":
			fail("%s needs a value", key)
		case *field != "":
			fail("%s is given twice", key)
		default:
			*field = value
		}
	}
	oneOf := func(key, value string, words ...string) {
		if value != "" && !slices.Contains(words, value) {
			fail("%s: unknown value %q; use one of %s", key, value, strings.Join(words, ", "))
		}
	}
	oneOf("device_type", a.DeviceType, deviceTypes...)
	oneOf("numa_policy", a.NUMAPolicy, numaPolicies...)
	oneOf("live_migratable", a.LiveMigratable, "yes", "no")
	a.Traits = strings.ReplaceAll(a.Traits, "+", ",")
	return a, errors.Join(errs...)
}

// AliasOption returns an alias of nova.conf in the form that [ParseAlias] reads, "" if it has none.
func AliasOption(alias map[string]any) string {
	n, _ := newNamed(alias, "")
	if on, err := devspec.Bool(n.LiveMigratable); err == nil && n.LiveMigratable != "" {
		if n.LiveMigratable = "no"; on {
			n.LiveMigratable = "yes"
		}
	}
	option := fmt.Sprintf("%s=%s:%s", n.Name, n.VendorID, n.ProductID)
	for _, word := range [][2]string{{"device_type", n.DeviceType}, {"numa_policy", n.NUMAPolicy}, {"resource_class", n.ResourceClass},
		{"live_migratable", n.LiveMigratable}, {"traits", strings.ReplaceAll(n.Traits, ",", "+")}} {
		if word[1] != "" {
			option += "," + word[0] + "=" + word[1]
		}
	}
	if _, err := ParseAlias(option); err != nil || !n.HasIDs {
		return ""
	}
	return option
}

// needs returns an error for each field of the alias that the release does not support.
func (a Alias) needs(r Release) []error {
	var errs []error
	since := func(value, what string, first Release) {
		if value != "" && r < first {
			errs = append(errs, fmt.Errorf("alias %s: %s requires Nova %s or later; this is %s", a.Name, what, first, r))
		}
	}
	since(a.NUMAPolicy, "numa_policy", Queens)
	if a.NUMAPolicy == "socket" {
		since(a.NUMAPolicy, "numa_policy socket", Wallaby)
	}
	since(a.ResourceClass, "resource_class", Antelope)
	since(a.Traits, "traits", Antelope)
	since(a.LiveMigratable, "live_migratable", Epoxy)
	return errs
}

// RequestKey is the extra spec by which a flavor requests devices.
const RequestKey = "pci_passthrough:alias"

// Request is the devices that a flavor requests. A guest gets all of them or does not boot.
type Request []Wanted

// Wanted is a number of devices of an alias, 1 or more.
type Wanted struct {
	Alias string `json:"alias"` // an alias of nova.conf
	Count int    `json:"count"` // the number of devices
}

// ParseRequest reads the value of RequestKey as Nova does when a guest boots (nova/pci/request.py,
// _translate_alias_to_requests): NAME:COUNT[,NAME:COUNT…], with optional blanks. Counts below 1,
// which Nova accepts, are errors. The error joins all errors of the value.
func ParseRequest(value string) (Request, error) {
	var request Request
	var errs []error
	for word := range strings.SplitSeq(value, ",") {
		alias, count, _ := strings.Cut(word, ":")
		alias = strings.TrimSpace(alias)
		n, err := strconv.Atoi(strings.TrimSpace(count))
		if err != nil || n < 1 {
			errs = append(errs, fmt.Errorf("%q must be NAME:COUNT", strings.TrimSpace(word)))
			continue
		}
		request = append(request, Wanted{alias, n})
	}
	return request, errors.Join(errs...)
}

func (r Request) String() string {
	return strings.Join(host.Map(r, func(w Wanted) string { return fmt.Sprintf("%s:%d", w.Alias, w.Count) }), ",")
}

// Renamed returns the request with another alias for one of its aliases.
func (r Request) Renamed(alias, other string) Request {
	r = slices.Clone(r)
	for i := range r {
		if r[i].Alias == alias {
			r[i].Alias = other
		}
	}
	return r
}

// Devices returns the number of devices that a guest gets.
func (r Request) Devices() int {
	n := 0
	for _, w := range r {
		n += w.Count
	}
	return n
}

// Same reports whether two requests are equal, in any order.
func (r Request) Same(other Request) bool {
	sorted := func(r Request) []Wanted {
		return slices.SortedFunc(slices.Values(r), func(a, b Wanted) int { return cmp.Or(cmp.Compare(a.Alias, b.Alias), a.Count-b.Count) })
	}
	return slices.Equal(sorted(r), sorted(other))
}
