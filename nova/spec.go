package nova

import (
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"gpustack/host/pci"
	"gpustack/nova/conf"
)

// anything is how a device_spec writes a wildcard.
const anything = "*"

// deviceSpec is a device_spec as Nova reads it (nova/pci/devspec.py, PciDeviceSpec): ids,
// an address or the name of a network interface. Every other key is a tag, which the
// devices get that the spec is the first to match.
type deviceSpec struct {
	object          map[string]any
	vendor, product string // four digits in lower case, or anything
	devname         bool
	address         [4]field // domain, bus, slot, function
	single          string   // the address, where it is one function's
	faulty          bool     // Nova refuses it
}

// field is one part of an address.
type field struct {
	fieldKind
	text    string         // digits in lower case, or anything; of a pattern, its source
	pattern *regexp.Regexp // nil for a glob
	opaque  bool           // a regular expression of Python's that Go cannot evaluate
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
	return f.text == anything || f.text == f.write(n)
}

// contains reports whether the field matches whatever another one does.
func (f field) contains(other field) bool {
	switch {
	case f.pattern == nil && f.text == anything, f.text == other.text && (f.pattern == nil) == (other.pattern == nil):
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

// parseSpec reads an object as Nova does. The errors are what nova-compute refuses to
// start with.
func parseSpec(object map[string]any) (deviceSpec, error) {
	s := deviceSpec{object: object, vendor: anything, product: anything}
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, id := range []struct {
		key  string
		into *string
	}{{"vendor_id", &s.vendor}, {"product_id", &s.product}} {
		value, there := object[id.key]
		if !there {
			continue
		}
		text, ok := value.(string)
		if !ok {
			fail("%s is %s, not a string", id.key, written(value))
			continue
		}
		if id.key == "vendor_id" {
			text = strings.TrimSpace(text)
		}
		if text == anything {
			continue
		}
		if n, err := hexadecimal(text, 0xffff); err != nil {
			fail("%s: %w", id.key, err)
		} else {
			*id.into = fmt.Sprintf("%04x", n)
		}
	}
	s.devname = truthy(object["devname"])
	if s.devname && truthy(object["address"]) {
		fail("address and devname exclude each other")
	}
	for i, k := range fieldKinds {
		s.address[i] = field{fieldKind: k, text: anything}
	}
	switch address := object["address"].(type) {
	case string:
		errs = append(errs, s.glob(address))
	case map[string]any:
		errs = append(errs, s.patterns(address))
	default:
		if truthy(address) {
			fail("address is %s, neither a string nor an object", written(address))
		}
	}
	err := errors.Join(errs...)
	s.faulty = err != nil
	return s, err
}

// glob reads an address with a wildcard for whole fields (devspec.py,
// PciAddressGlobSpec). Fields that are left out on the left match anything.
func (s *deviceSpec) glob(address string) error {
	front, function, _ := strings.Cut(address, ".")
	var errs []error
	set := func(i int, text string) {
		if text = strings.TrimSpace(text); text == "" || text == anything {
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
		return fmt.Errorf("address %q: has more than three colons", address)
	}
	for i, text := range fields {
		set(3-len(fields)+i, text)
	}
	if !slices.ContainsFunc(s.address[:], func(f field) bool { return f.text == anything }) {
		s.single = fmt.Sprintf("%s:%s:%s.%s", s.address[0].text, s.address[1].text, s.address[2].text, s.address[3].text)
	}
	return errors.Join(errs...)
}

// patterns reads an address whose fields are regular expressions, which must match from
// the beginning but need not match to the end (devspec.py, PciAddressRegexSpec).
func (s *deviceSpec) patterns(address map[string]any) error {
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
			errs = append(errs, fmt.Errorf("address: %s is %s, not a string", k.name, written(value)))
			continue
		}
		s.address[i] = k.field(text)
		if plain[i] = text; strings.Trim(text, "0123456789abcdefABCDEF") != "" {
			single = false
		}
	}
	if single {
		s.single = fmt.Sprintf("%s:%s:%s.%s", plain[0], plain[1], plain[2], plain[3])
	}
	return errors.Join(errs...)
}

// field reads a regular expression.
func (k fieldKind) field(text string) field {
	if text == "" || text == ".*" {
		return field{fieldKind: k, text: anything}
	}
	f := field{fieldKind: k, text: text}
	var err error
	f.pattern, err = regexp.Compile("^(?:" + text + ")")
	f.opaque = err != nil || strings.Contains(text, "{,") || strings.Contains(text, "[:") // Python reads these otherwise
	return f
}

// hexadecimal reads a number as Python's int(text, 16) does.
func hexadecimal(text string, most int) (int, error) {
	digits := strings.TrimSpace(strings.ToLower(text))
	digits = strings.ReplaceAll(strings.TrimPrefix(strings.TrimPrefix(digits, "+"), "0x"), "_", "")
	n, err := strconv.ParseUint(digits, 16, 32)
	switch {
	case err != nil && strings.Contains(text, anything):
		return 0, fmt.Errorf("%q is neither %s nor a hexadecimal number: a wildcard stands for a whole field", text, anything)
	case err != nil:
		return 0, fmt.Errorf("%q is not a hexadecimal number", text)
	case n > uint64(most):
		return 0, fmt.Errorf("%q is greater than %x", text, most)
	}
	return int(n), nil
}

// truthy is what Python's if makes of a value of JSON.
func truthy(value any) bool {
	switch v := value.(type) {
	case nil:
		return false
	case bool:
		return v
	case string:
		return v != ""
	case float64:
		return v != 0
	case []any:
		return len(v) > 0
	case map[string]any:
		return len(v) > 0
	}
	return true
}

// written is a value as it stands in nova.conf.
func written(value any) string {
	s, err := text(value)
	if err != nil {
		return "unreadable"
	}
	return s
}

// opaque reports whether the addresses that the spec matches cannot be determined.
func (s deviceSpec) opaque() bool {
	return slices.ContainsFunc(s.address[:], func(f field) bool { return f.opaque })
}

// physicalTags are what a device_spec may have besides tags.
var physicalTags = []string{"vendor_id", "product_id", "address", "devname"}

// inertTag is in many a device_spec since a talk of 2017 had it there. No release gives
// it a meaning: alias and device_spec are not connected by names.
const inertTag = "name"

// tags returns what Nova knows of the devices that the spec is the first to match.
func (s deviceSpec) tags() map[string]any {
	tags := maps.Clone(s.object)
	maps.DeleteFunc(tags, func(key string, _ any) bool { return key == inertTag || slices.Contains(physicalTags, key) })
	for _, key := range booleanTags {
		if on, err := pythonBool(tags[key]); tags[key] != nil && err == nil {
			tags[key] = on
		}
	}
	return tags
}

// lost returns the tags of a spec that another one lacks or has with another value.
func (s deviceSpec) lost(other deviceSpec) []string {
	var keys []string
	theirs := other.tags()
	for key, value := range s.tags() {
		if have, there := theirs[key]; !there || !reflect.DeepEqual(have, value) {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// booleanTags have values that Nova reads with oslo.utils' bool_from_string.
var booleanTags = []string{"managed", "one_time_use", "live_migratable", "remote_managed", "trusted"}

// pythonBool reads a boolean as oslo.utils does (strutils.py, bool_from_string, strict).
func pythonBool(value any) (bool, error) {
	if on, ok := value.(bool); ok {
		return on, nil
	}
	s, ok := value.(string)
	if !ok {
		s = written(value)
	}
	switch strings.ToLower(strings.TrimSpace(s)) {
	case "1", "t", "true", "on", "y", "yes":
		return true, nil
	case "0", "f", "false", "off", "n", "no":
		return false, nil
	}
	return false, fmt.Errorf("%s is not a boolean: write \"yes\" or \"no\"", written(value))
}

// hardware is the functions of one machine.
type hardware struct {
	devices []pci.Device
	pfs     map[string]bool // that may have VFs, as Nova tells from sriov_totalvfs
}

func newHardware(devices []pci.Device) hardware {
	h := hardware{devices, map[string]bool{}}
	for i := range devices {
		if n := devices[i].SRIOV.TotalVFs; n != nil && *n > 0 {
			h.pfs[devices[i].Address.String()] = true
		}
	}
	return h
}

// matches reports whether a spec matches a function of the machine. The address of a PF
// matches its VFs too (devspec.py, WhitelistPciAddress.match).
func (h hardware) matches(s deviceSpec, d *pci.Device) bool {
	if s.faulty || d.VendorID == nil || d.ProductID == nil || !s.matchesIDs(d.VendorID.String(), d.ProductID.String()) {
		return false
	}
	if s.devname { // a network interface, whose name is not in an inventory
		return d.Class != nil && *d.Class>>8 == classNetwork
	}
	return s.matchesAddress(d.Address) || d.SRIOV.PF != nil && s.single == d.SRIOV.PF.String() && h.pfs[s.single]
}

// classNetwork is the base class of network controllers (PCI Code and ID Assignment
// Specification, 1.3).
const classNetwork = 0x02

func (s deviceSpec) matchesIDs(vendor, product string) bool {
	return (s.vendor == anything || s.vendor == vendor) && (s.product == anything || s.product == product)
}

func (s deviceSpec) matchesAddress(a pci.Address) bool {
	for i, n := range [4]int{int(a.Domain), int(a.Bus), int(a.Slot), int(a.Function)} {
		if f := s.address[i]; f.opaque || !f.matches(n) {
			return false
		}
	}
	return true
}

// contains reports whether a spec matches every device that another one matches,
// whatever devices there are. PFs are those of the machine.
func (h hardware) contains(s, other deviceSpec) bool {
	switch {
	case s.faulty, other.faulty:
		return false
	case s.vendor != anything && s.vendor != other.vendor, s.product != anything && s.product != other.product:
		return false
	case s.devname || s.opaque():
		return false
	case other.devname || other.opaque():
		return s.everywhere()
	}
	if other.single != "" && h.pfs[other.single] && other.single != s.single {
		for i := range h.devices {
			if d := &h.devices[i]; h.matches(other, d) && !h.matches(s, d) {
				return false
			}
		}
	}
	if s.single != "" && h.pfs[s.single] && other.single != "" {
		for i := range h.devices {
			if d := &h.devices[i]; d.Address.String() == other.single && d.SRIOV.PF != nil && d.SRIOV.PF.String() == s.single {
				return true
			}
		}
	}
	for i, f := range slices.Backward(s.address[:]) { // the field with most values last
		if !f.contains(other.address[i]) {
			return false
		}
	}
	return true
}

// everywhere reports whether the spec matches at any address.
func (s deviceSpec) everywhere() bool {
	return !s.devname && !slices.ContainsFunc(s.address[:], func(f field) bool { return f.opaque || f.pattern != nil || f.text != anything })
}

// share reports whether the machine has a device that both specs match.
func (h hardware) share(a, b deviceSpec) bool {
	for i := range h.devices {
		if d := &h.devices[i]; h.matches(a, d) && h.matches(b, d) {
			return true
		}
	}
	return false
}

// sameIDs reports whether one device can have the ids of both specs.
func sameIDs(a, b deviceSpec) bool {
	vendor := a.vendor == anything || b.vendor == anything || a.vendor == b.vendor
	return vendor && (a.product == anything || b.product == anything || a.product == b.product)
}

// specLine is one value of device_spec, which may be a list.
type specLine struct {
	file   string
	option conf.Option
	first  int // number of its first spec, from 1
	specs  []deviceSpec
	faults []error
	isJSON bool
}

// specLines returns the values of device_spec in the order in which Nova reads them:
// file by file, and in each those of the oldest name first, wherever they stand
// (oslo.config, cfg.py, _Namespace._get_file_value).
func (r Release) specLines(files []SideFile) []specLine {
	var lines []specLine
	n := 1
	for _, f := range files {
		for _, name := range slices.Backward(r.specNames()) {
			for _, o := range f.File.Find(name) {
				objects := objects(o.Value)
				line := specLine{file: f.Name, option: o, first: n, isJSON: objects != nil}
				for _, object := range objects {
					spec, err := parseSpec(object)
					line.specs = append(line.specs, spec)
					line.faults = append(line.faults, faults(err)...)
				}
				n += len(objects)
				lines = append(lines, line)
			}
		}
	}
	return lines
}

func (l specLine) where() string {
	return fmt.Sprintf("%s:%d", l.file, l.option.Line())
}
