package nova

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"reflect"
	"regexp"
	"regexp/syntax"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
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
	vendor, product string   // four digits in lower case, or anything
	devname         bool     // names a network interface
	located         bool     // devname's address is known
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
		if s.address[i] = k.field(text); s.address[i].invalid {
			errs = append(errs, fmt.Errorf("address: %s %q is not a regular expression", k.name, text))
		}
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
	// Python allows single underscores between digits and after 0x.
	rest, prefixed := strings.CutPrefix(digits, "0x")
	digits = rest
	if prefixed {
		digits = strings.TrimPrefix(rest, "_")
	}
	if strings.HasPrefix(digits, "_") || strings.HasSuffix(digits, "_") || strings.Contains(digits, "__") {
		return 0, fmt.Errorf("%q is not a hexadecimal number", text)
	}
	n, err := strconv.ParseUint(strings.ReplaceAll(digits, "_", ""), 16, 32)
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

// inertTag is a tag that no release reads: the 2017 talk's example has it. Aliases and
// device_specs are not connected by names.
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
	devices    []pci.Device
	interfaces map[string]pci.Address
	pfs        map[string]bool // that may have VFs, as Nova tells from sriov_totalvfs
}

func newHardware(devices []pci.Device, interfaces map[string]pci.Address) hardware {
	h := hardware{devices, interfaces, map[string]bool{}}
	for i := range devices {
		if n := devices[i].SRIOV.TotalVFs; n != nil && *n > 0 {
			h.pfs[devices[i].Address.String()] = true
		}
	}
	return h
}

// Interfaces returns the functions of network interfaces by their names: devname is looked
// up there (nova/pci/utils.py, get_function_by_ifname). Interfaces without one are left out.
func Interfaces(root host.Root) (map[string]pci.Address, error) {
	const dir = "/sys/class/net"
	names, err := root.ReadDir(dir)
	if err != nil && !host.IsAbsent(err) {
		return nil, fmt.Errorf("%s: %w", dir, host.Cause(err))
	}
	interfaces := map[string]pci.Address{}
	if len(names) == 0 {
		return interfaces, nil
	}
	open, err := root.OpenDir(dir)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", dir, host.Cause(err))
	}
	defer open.Close() //nolint:errcheck // only read
	for _, name := range names {
		link, err := open.Readlink(name + "/device")
		if err != nil {
			continue // a virtual interface, or one that is gone: its devname stays unknown
		}
		if address, err := pci.ParseAddress(path.Base(link)); err == nil { // others are no PCI devices
			interfaces[name] = address
		}
	}
	return interfaces, nil
}

// locate returns the spec with the address of the interface that its devname names, if the
// machine has it.
func (h hardware) locate(s deviceSpec) deviceSpec {
	name, _ := s.object["devname"].(string)
	address, known := h.interfaces[name]
	if !s.devname || s.faulty || !known {
		return s
	}
	s.located, s.single = true, address.String()
	for i, n := range [4]int{int(address.Domain), int(address.Bus), int(address.Slot), int(address.Function)} {
		s.address[i].text = fieldKinds[i].write(n)
	}
	return s
}

// unlocated reports whether the spec names a network interface whose function is unknown.
func (s deviceSpec) unlocated() bool {
	return s.devname && !s.located
}

// matches reports whether a spec matches a function of the machine. The address of a PF
// matches its VFs too (devspec.py, WhitelistPciAddress.match).
func (h hardware) matches(s deviceSpec, d *pci.Device) bool {
	if s.faulty || d.VendorID == nil || d.ProductID == nil || !s.matchesIDs(d.VendorID.String(), d.ProductID.String()) {
		return false
	}
	if s = h.locate(s); s.unlocated() { // unknown: it may be another machine's
		return false
	}
	return s.matchesAddress(d.Address) || d.SRIOV.PF != nil && s.single == d.SRIOV.PF.String() && h.pfs[s.single]
}

// classNetwork is the base class of network controllers (PCI Code and ID Assignment
// Specification, 1.3).
const classNetwork = 0x02

// mayMatch reports whether the machine has a network controller that both specs may match,
// of which one has a devname whose function is unknown.
func (h hardware) mayMatch(a, b deviceSpec) bool {
	a, b = h.locate(a), h.locate(b)
	if !a.unlocated() && !b.unlocated() {
		return false
	}
	return slices.ContainsFunc(h.devices, func(d pci.Device) bool {
		may := func(s deviceSpec) bool {
			return h.matches(s, &d) || s.unlocated() && !s.faulty && d.VendorID != nil && d.ProductID != nil && s.matchesIDs(d.VendorID.String(), d.ProductID.String())
		}
		return d.Class != nil && *d.Class>>8 == classNetwork && may(a) && may(b)
	})
}

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
	s, other = h.locate(s), h.locate(other)
	switch {
	case s.faulty, other.faulty:
		return false
	case s.vendor != anything && s.vendor != other.vendor, s.product != anything && s.product != other.product:
		return false
	case s.unlocated() || s.opaque():
		return false
	case other.unlocated() || other.opaque():
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
	return !s.unlocated() && !slices.ContainsFunc(s.address[:], func(f field) bool { return f.opaque || f.pattern != nil || f.text != anything })
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
