package devspec

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"gpustack/host/pci"
	"gpustack/nova/conf"
)

// Anything is how a device_spec writes a wildcard.
const Anything = "*"

// Spec is a device_spec as Nova reads it (nova/pci/devspec.py, PciDeviceSpec): ids,
// an address or the name of a network interface. Every other key is a tag, which the
// devices get that the spec is the first to match.
type Spec struct {
	Object          map[string]any // the JSON object
	Vendor, Product string         // four hexadecimal digits in lower case, or Anything
	Devname         bool           // the spec names a network interface
	Single          string         // the address, if it is that of one function; "" otherwise
	Faulty          bool           // Nova refuses the spec
	located         bool           // the address of the network interface is known
	address         [4]field       // domain, bus, slot, function
}

// IsOpen reports whether a spec matches functions of every product on every bus.
func (s Spec) IsOpen() bool {
	return s.Vendor == Anything && s.Product == Anything && !s.Devname && s.address[1].text == Anything
}

// field is one part of an address.
type field struct {
	fieldKind
	text    string         // digits in lower case, or Anything; of a pattern, its source
	pattern *regexp.Regexp // nil for a glob
	opaque  bool           // a regular expression of Python's that Go cannot evaluate
	invalid bool           // a regular expression that neither accepts
}

type fieldKind struct {
	name   string
	width  int
	values int
}

// fieldKinds are the parts of an address and their limits (devspec.py, MAX_DOMAIN and
// so on).
var fieldKinds = [4]fieldKind{{"domain", 4, 0x10000}, {"bus", 2, 0x100}, {"slot", 2, 0x20}, {"function", 1, 8}}

func (k fieldKind) write(n int) string {
	return fmt.Sprintf("%0*x", k.width, n)
}

func (f field) matches(n int) bool {
	if f.pattern != nil {
		return f.pattern.MatchString(f.write(n))
	}
	return f.text == Anything || f.text == f.write(n)
}

// contains reports whether the field matches whatever another one does.
func (f field) contains(other field) bool {
	switch {
	case f.pattern == nil && f.text == Anything, f.text == other.text && (f.pattern == nil) == (other.pattern == nil):
		return true
	case f.pattern == nil && other.pattern == nil:
		return false
	}
	for n := range f.values {
		if other.matches(n) && !f.matches(n) {
			return false
		}
	}
	return true
}

// Parse reads an object as Nova does. The errors are what nova-compute refuses to
// start with.
func Parse(object map[string]any) (Spec, []error) {
	s := Spec{Object: object, Vendor: Anything, Product: Anything}
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, id := range []struct {
		key  string
		into *string
	}{{"vendor_id", &s.Vendor}, {"product_id", &s.Product}} {
		value, there := object[id.key]
		if !there {
			continue
		}
		text, ok := value.(string)
		if !ok {
			fail("%s is %s, not a string", id.key, conf.Written(value))
			continue
		}
		if id.key == "vendor_id" {
			text = strings.TrimSpace(text)
		}
		if text == Anything {
			continue
		}
		if n, err := hexadecimal(text, 0xffff); err != nil {
			fail("%s: %w", id.key, err)
		} else {
			*id.into = fmt.Sprintf("%04x", n)
		}
	}
	s.Devname = truthy(object["devname"])
	if s.Devname && truthy(object["address"]) {
		fail("address and devname cannot be combined")
	}
	for i, k := range fieldKinds {
		s.address[i] = field{fieldKind: k, text: Anything}
	}
	switch address := object["address"].(type) {
	case string:
		errs = append(errs, s.glob(address)...)
	case map[string]any:
		errs = append(errs, s.patterns(address)...)
	default:
		if truthy(address) {
			fail("address is %s, neither a string nor an object", conf.Written(address))
		}
	}
	s.Faulty = len(errs) > 0
	return s, errs
}

// glob reads an address with a wildcard for whole fields (devspec.py,
// PciAddressGlobSpec). Fields that are left out on the left match Anything.
func (s *Spec) glob(address string) []error {
	front, function, _ := strings.Cut(address, ".")
	var errs []error
	set := func(i int, text string) {
		if text = strings.TrimSpace(text); text == "" || text == Anything {
			return
		}
		n, err := hexadecimal(text, fieldKinds[i].values-1)
		if err != nil {
			errs = append(errs, fmt.Errorf("address %q: %s: %w", address, fieldKinds[i].name, err))
			return
		}
		s.address[i].text = fieldKinds[i].write(n)
	}
	set(3, function)
	fields := strings.Split(front, ":")
	if len(fields) > 3 {
		return []error{fmt.Errorf("address %q: has more than three colons", address)}
	}
	for i, text := range fields {
		set(3-len(fields)+i, text)
	}
	if !slices.ContainsFunc(s.address[:], func(f field) bool { return f.text == Anything }) {
		s.Single = fmt.Sprintf("%s:%s:%s.%s", s.address[0].text, s.address[1].text, s.address[2].text, s.address[3].text)
	}
	return errs
}

// patterns reads an address whose fields are regular expressions, which must match from
// the beginning but need not match to the end (devspec.py, PciAddressRegexSpec).
func (s *Spec) patterns(address map[string]any) []error {
	var errs []error
	single := true
	var plain [4]string
	for i, k := range fieldKinds {
		value, there := address[k.name]
		text, isText := value.(string)
		if !there {
			single = false
			continue
		}
		if !isText {
			errs = append(errs, fmt.Errorf("address: %s is %s, not a string", k.name, conf.Written(value)))
			continue
		}
		if s.address[i] = k.field(text); s.address[i].invalid {
			errs = append(errs, fmt.Errorf("address: %s %q is not a regular expression", k.name, text))
		}
		if plain[i] = text; strings.Trim(text, "0123456789abcdefABCDEF") != "" {
			single = false
		}
	}
	if single {
		s.Single = fmt.Sprintf("%s:%s:%s.%s", plain[0], plain[1], plain[2], plain[3])
	}
	return errs
}

// field reads a regular expression.
func (k fieldKind) field(text string) field {
	if text == "" || text == ".*" {
		return field{fieldKind: k, text: Anything}
	}
	f := field{fieldKind: k, text: text}
	var err error
	f.pattern, err = regexp.Compile("^(?:" + text + ")")
	f.invalid = invalidPattern(text, err)
	f.opaque = err != nil || strings.Contains(text, "{,") || strings.Contains(text, "[:") // Python reads these otherwise
	return f
}

// invalidPattern reports whether Python refuses a regular expression that Go refuses with
// err. Lookarounds, escapes and possessive quantifiers, among others, are valid there.
func invalidPattern(text string, err error) bool {
	var e *syntax.Error
	if !errors.As(err, &e) || strings.Contains(text, "(?") || strings.Contains(text, `\`) || strings.Contains(text, "[:") {
		return false
	}
	return slices.Contains([]syntax.ErrorCode{syntax.ErrMissingParen, syntax.ErrUnexpectedParen, syntax.ErrMissingBracket, syntax.ErrMissingRepeatArgument, syntax.ErrInvalidCharRange}, e.Code)
}

// hexadecimal reads a number as Python's int(text, 16) does.
func hexadecimal(text string, most int) (int, error) {
	digits := strings.TrimPrefix(strings.TrimSpace(strings.ToLower(text)), "+")
	// Python allows single underscores between digits and after 0x, as Go's literals do.
	rest, prefixed := strings.CutPrefix(digits, "0x")
	n, err := strconv.ParseUint("0x"+rest, 0, 32)
	if !prefixed && strings.HasPrefix(rest, "_") {
		err = strconv.ErrSyntax
	}
	switch {
	case err != nil && strings.Contains(text, Anything):
		return 0, fmt.Errorf("%q is neither %s nor a hexadecimal number; %s replaces a whole field only", text, Anything, Anything)
	case err != nil:
		return 0, fmt.Errorf("%q is not a hexadecimal number", text)
	case n > uint64(most):
		return 0, fmt.Errorf("%q is greater than %x", text, most)
	}
	return int(n), nil
}

// truthy is what Python's if makes of a value of JSON: these are false.
func truthy(value any) bool {
	return !slices.Contains([]string{"null", "false", `""`, "0", "-0", "[]", "{}"}, conf.Written(value))
}

// Opaque reports whether the addresses that the spec matches cannot be determined.
func (s Spec) Opaque() bool {
	return slices.ContainsFunc(s.address[:], func(f field) bool { return f.opaque })
}

// IsTruthy reports whether a tag is neither absent nor null, false, zero or empty.
func (s Spec) IsTruthy(tag string) bool {
	return truthy(s.Object[tag])
}

// IsNetwork reports whether the spec has a physical_network: nova-compute does not report such
// devices to Placement, because they belong to Neutron.
func (s Spec) IsNetwork() bool {
	return s.IsTruthy("physical_network")
}

// IsOfPorts reports whether the spec has the key physical_network, null for tunnel networks: its
// devices are for ports of Neutron.
func (s Spec) IsOfPorts() bool {
	_, has := s.Object["physical_network"]
	return has
}

// physicalTags are what a device_spec may have besides tags.
var physicalTags = []string{"vendor_id", "product_id", "address", "devname"}

// inertTag is a tag that no release reads: the 2017 talk's example has it. Aliases and
// device_specs are not connected by names.
const inertTag = "name"

// TagNames returns the names of all tags that the spec has, sorted.
func (s Spec) TagNames() []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(s.Object)), func(key string) bool { return slices.Contains(physicalTags, key) })
}

// Tags returns what Nova knows of the devices that the spec is the first to match.
func (s Spec) Tags() map[string]any {
	tags := maps.Clone(s.Object)
	maps.DeleteFunc(tags, func(key string, _ any) bool { return key == inertTag || slices.Contains(physicalTags, key) })
	for _, key := range BooleanTags {
		if on, err := Bool(tags[key]); tags[key] != nil && err == nil {
			tags[key] = on
		}
	}
	return tags
}

// Lost returns the tags of a spec that another one lacks or has with another value.
func (s Spec) Lost(other Spec) []string {
	var keys []string
	theirs := other.Tags()
	for key, value := range s.Tags() {
		if have, there := theirs[key]; !there || !reflect.DeepEqual(have, value) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// BooleanTags have values that Nova reads with oslo.utils' bool_from_string.
var BooleanTags = []string{"managed", "one_time_use", "live_migratable", "remote_managed", "trusted"}

// Bool reads a boolean as oslo.utils does (strutils.py, bool_from_string, strict).
func Bool(value any) (bool, error) {
	if on, ok := value.(bool); ok {
		return on, nil
	}
	s, ok := value.(string)
	if !ok {
		s = conf.Written(value)
	}
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "1", "t", "true", "on", "y", "yes":
		return true, nil
	case "0", "f", "false", "off", "n", "no":
		return false, nil
	}
	return false, fmt.Errorf("%s is not a boolean: write \"yes\" or \"no\"", conf.Written(value))
}

// IsOn reports whether a boolean tag is true.
func (s Spec) IsOn(tag string) bool {
	on, err := Bool(s.Object[tag])
	return err == nil && on
}

// unlocated reports whether the spec names a network interface whose function is unknown.
func (s Spec) unlocated() bool {
	return s.Devname && !s.located
}

// MatchesIDs reports whether the spec matches the ids of a device, each as four hexadecimal digits
// in lower case.
func (s Spec) MatchesIDs(vendor, product string) bool {
	return (s.Vendor == Anything || s.Vendor == vendor) && (s.Product == Anything || s.Product == product)
}

func (s Spec) matchesAddress(a pci.Address) bool {
	for i, n := range [4]int{int(a.Domain), int(a.Bus), int(a.Slot), int(a.Function)} {
		if f := s.address[i]; f.opaque || !f.matches(n) {
			return false
		}
	}
	return true
}

// Everywhere reports whether the spec matches at any address.
func (s Spec) Everywhere() bool {
	return !s.unlocated() && !slices.ContainsFunc(s.address[:], func(f field) bool { return f.opaque || f.pattern != nil || f.text != Anything })
}

// SameIDs reports whether one device can have the ids of both specs.
func SameIDs(a, b Spec) bool {
	vendor := a.Vendor == Anything || b.Vendor == Anything || a.Vendor == b.Vendor
	return vendor && (a.Product == Anything || b.Product == Anything || a.Product == b.Product)
}
