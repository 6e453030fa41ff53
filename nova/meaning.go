package nova

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
)

// ErrAlias says that Nova rejects an alias, and with it all aliases of the service.
var ErrAlias = host.WithHint(errors.New("this line makes Nova reject all aliases"), "correct the line or remove it")

// Fault is a reason for which Nova rejects or misreads a value of an option.
type Fault struct {
	Seen, Remedy string
	IsTolerated  bool // Nova reads a tag of device_spec as false, and its services start
}

// aliasKey is a key of an alias. The values of all keys are strings (nova/pci/request.py,
// _ALIAS_SCHEMA).
type aliasKey struct {
	since   Release // the first release that accepts the key
	isValid func(value string) bool
	mustBe  string // what a valid value is, for remedies
}

var (
	deviceTypes  = []string{string(pci.TypePCI), string(pci.TypePF), string(pci.TypeVF)}
	numaPolicies = []string{"required", "preferred", "legacy", "socket"} // the last since Wallaby
)

// aliasKeys returns the keys of an alias, with the values that a release accepts.
func aliasKeys(r Release) map[string]aliasKey {
	anything := func(string) bool { return true }
	isID := func(s string) bool { return len(s) == 4 && strings.Trim(s, "0123456789abcdefABCDEF") == "" }
	oneOf := func(words []string) func(string) bool {
		return func(s string) bool { return slices.Contains(words, s) }
	}
	policies := numaPolicies
	if r < Wallaby {
		policies = slices.DeleteFunc(slices.Clone(policies), func(p string) bool { return p == "socket" })
	}
	const fourDigits = "four hexadecimal digits without 0x"
	return map[string]aliasKey{
		"name": {mustBe: "a text of up to 256 characters", isValid: func(s string) bool {
			return s != "" && utf8.RuneCountInString(s) <= maxAliasName
		}},
		"vendor_id":       {mustBe: fourDigits, isValid: isID},
		"product_id":      {mustBe: fourDigits, isValid: isID},
		"capability_type": {mustBe: "pci", isValid: oneOf([]string{"pci"})},
		"device_type":     {mustBe: "one of " + strings.Join(deviceTypes, ", "), isValid: oneOf(deviceTypes)},
		"numa_policy":     {since: Queens, mustBe: "one of " + strings.Join(policies, ", "), isValid: oneOf(policies)},
		"resource_class":  {since: Antelope, mustBe: "a string", isValid: anything},
		"traits":          {since: Antelope, mustBe: "a string, of several traits separated by commas", isValid: anything},
		"live_migratable": {since: Epoxy, mustBe: "\"yes\" or \"no\"", isValid: func(s string) bool {
			_, err := devspec.Bool(s)
			return err == nil
		}},
	}
}

// maxAliasName is how many characters the name of an alias may have.
const maxAliasName = 256

// AliasFaults returns the reasons for which Nova rejects a value of the option alias
// (nova/pci/request.py, _ALIAS_SCHEMA), and the alias. The alias is nil if the value is not one
// object with a name, or refers to other options, whose values are unknown. A name of blanks is
// valid, although no flavor can request it.
func AliasFaults(value string, r Release) (alias map[string]any, faults []Fault) {
	add := func(remedy, format string, args ...any) {
		faults = append(faults, Fault{Seen: fmt.Sprintf(format, args...), Remedy: remedy})
	}
	all := conf.ParseObjects(value)
	if len(all) != 1 || strings.HasPrefix(strings.TrimSpace(value), "[") {
		add("write one object per line, each with its own \"alias =\"", "the value of alias is not a single JSON object")
		return nil, faults
	}
	alias = all[0]
	if names := conf.References(value); len(names) > 0 {
		add("write $$ for a dollar sign", "the value of alias refers to %s, which oslo.config replaces", options(names))
		return nil, faults
	}
	keys := aliasKeys(r)
	for _, key := range slices.Sorted(maps.Keys(alias)) {
		if k, known := keys[key]; !known || r < k.since {
			remedy := "remove the key"
			if _, isBlank := keys[strings.TrimSpace(key)]; isBlank && !hasKey(alias, strings.TrimSpace(key)) {
				remedy = fmt.Sprintf("write the key as %q", strings.TrimSpace(key))
			}
			add(remedy, "an alias has the key %q, which %s does not support", key, r)
		}
	}
	switch name, isText := alias["name"].(string); {
	case hasKey(alias, "name") && !isText:
		add("write "+keys["name"].mustBe, "the name of an alias is %s, not a string", conf.Written(alias["name"]))
		return nil, faults
	case name == "":
		add("add a name", "an alias has no name")
		return nil, faults
	}
	return alias, append(faults, valueFaults(alias, r)...)
}

// hasKey reports whether an object has a key, whatever its value is.
func hasKey(object map[string]any, key string) bool {
	_, has := object[key]
	return has
}

// options returns words for options in a text.
func options(names []string) string {
	if len(names) == 1 {
		return "the option " + names[0]
	}
	return "the options " + strings.Join(names, " and ")
}

// valueFaults returns the reasons for which Nova rejects values of the keys of an alias with a name
// that the release accepts.
func valueFaults(alias map[string]any, r Release) (faults []Fault) {
	name, _ := alias["name"].(string)
	keys := aliasKeys(r)
	for _, key := range slices.Sorted(maps.Keys(alias)) {
		k, known := keys[key]
		if !known || r < k.since {
			continue
		}
		seen := fmt.Sprintf("alias %s: %s is %s", strings.TrimSpace(name), key, conf.Written(alias[key]))
		switch text, isText := alias[key].(string); {
		case !isText:
			faults = append(faults, Fault{Seen: seen + ", not a string", Remedy: "write " + k.mustBe})
		case !k.isValid(text):
			faults = append(faults, Fault{Seen: seen + ", not " + k.mustBe, Remedy: "write " + k.mustBe})
		}
	}
	return faults
}

// NUMAPolicy returns the NUMA policy of an alias, which is legacy without one.
func NUMAPolicy(alias map[string]any) string {
	policy, _ := alias["numa_policy"].(string)
	return cmp.Or(policy, "legacy")
}

// AliasConflict is a reason for which Nova rejects the definitions of an alias.
type AliasConflict struct {
	Seen, Remedy string
	Index        int // the definition that conflicts
	// IsOwn says that only requests for this alias fail. Other conflicts make Nova reject every
	// alias of the service, and since 2025.2 nova-api and nova-compute do not start with them.
	IsOwn bool
}

// AliasConflicts returns the reasons for which Nova rejects the definitions of one alias, in the
// order in which a service reads them, each of which it accepts by itself (nova/pci/request.py,
// get_alias_from_config; _validate_multispec and _validate_required_ids since 32.0.0, acc6221660).
// Requests for an alias with several products fail with pci_in_placement since 2023.1
// (nova/objects/request_spec.py, generate_request_groups_from_pci_requests). inPlacement is
// pci_in_placement of that service.
func AliasConflicts(name string, definitions []map[string]any, inPlacement bool, r Release) (conflicts []AliasConflict) {
	inPlacement = inPlacement && r >= Antelope
	for i, d := range definitions[1:] {
		switch first := definitions[0]; {
		case NUMAPolicy(d) != NUMAPolicy(first):
			conflicts = append(conflicts, AliasConflict{Seen: fmt.Sprintf("alias %s is defined twice with different values of numa_policy", name), Index: i + 1,
				Remedy: "set the same numa_policy in both"})
		case d["device_type"] == nil || d["device_type"] != first["device_type"]:
			conflicts = append(conflicts, AliasConflict{Seen: fmt.Sprintf("alias %s is defined twice without the same device_type", name), Index: i + 1,
				Remedy: "set the same device_type in both"})
		}
	}
	if len(definitions) > 1 && inPlacement {
		conflicts = append(conflicts, AliasConflict{Seen: fmt.Sprintf("alias %s is defined twice, which pci_in_placement does not allow", name),
			Index: len(definitions) - 1, Remedy: mergeByClass(name, definitions), IsOwn: r < Flamingo})
	}
	for i, d := range definitions {
		_, hasClass := d["resource_class"]
		if r < Flamingo || HasIDs(d) || hasClass && inPlacement {
			continue
		}
		seen, remedy := fmt.Sprintf("alias %s lacks vendor_id or product_id", name), "add vendor_id and product_id"
		if hasClass {
			seen += ", and a resource_class suffices only with pci_in_placement, which this service does not have"
			remedy += ", or set [filter_scheduler] pci_in_placement for this service too"
		}
		conflicts = append(conflicts, AliasConflict{Seen: seen, Index: i, Remedy: remedy})
	}
	return conflicts
}

// mergeByClass returns the lines that replace several definitions of an alias: one definition with
// a resource class, which the device_spec of each product has too. It selects the same devices with
// what all definitions have: one without device_type selects no PFs.
func mergeByClass(name string, definitions []map[string]any) string {
	if slices.ContainsFunc(definitions, func(d map[string]any) bool { return !HasIDs(d) }) {
		return "keep one of its definitions"
	}
	class := devspec.ResourceClass(name, 0, 0)
	alias := map[string]any{"name": name, "resource_class": class}
	for _, key := range []string{"device_type", "numa_policy", "traits", "live_migratable"} {
		value := definitions[0][key]
		if value != nil && !slices.ContainsFunc(definitions, func(d map[string]any) bool { return d[key] != value }) {
			alias[key] = value
		}
	}
	var specs []string
	for _, d := range definitions {
		of := map[string]any{"resource_class": class}
		for _, key := range []string{"vendor_id", "product_id", "traits", "live_migratable"} {
			if d[key] != nil {
				of[key] = d[key]
			}
		}
		if spec := "device_spec = " + conf.Written(of); !slices.Contains(specs, spec) {
			specs = append(specs, spec)
		}
	}
	if len(specs) == 1 {
		return "remove the other definitions of this product"
	}
	return fmt.Sprintf("replace its definitions by alias = %s, and on compute nodes give each product that resource class: %s", conf.Written(alias),
		strings.Join(specs, "; "))
}

// ConflictAt is a conflict of an alias with its place.
type ConflictAt struct {
	AliasConflict
	Name string
	At   Placed // the definition that conflicts
}

// ConflictsOf returns the conflicts of the aliases that a service reads, by the names of the
// aliases. Definitions that Nova rejects by themselves are left out: [AliasFaults] has those.
func ConflictsOf(s Side, r Release) (conflicts []ConflictAt) {
	definitions, places := map[string][]map[string]any{}, map[string][]Placed{}
	for _, o := range s.Find(r.AliasNames()...) {
		if object, faults := AliasFaults(o.Value, r); len(faults) == 0 {
			name := strings.TrimSpace(fmt.Sprint(object["name"]))
			definitions[name], places[name] = append(definitions[name], object), append(places[name], o)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(definitions)) {
		for _, c := range AliasConflicts(name, definitions[name], s.IsOn(PCIInPlacement), r) {
			conflicts = append(conflicts, ConflictAt{c, name, places[name][c.Index]})
		}
	}
	return conflicts
}

// SameMeaning reports whether two definitions of an alias request the same devices in the same way
// (nova/pci/request.py; nova/pci/stats.py, support_requests). types are the device types that
// devices of the product have; without any, only equal device types are the same.
func SameMeaning(a, b map[string]any, types []string) bool {
	differ := func(kind string) bool { return TakesType(a, kind) != TakesType(b, kind) }
	return reflect.DeepEqual(meaningOf(a), meaningOf(b)) &&
		(reflect.DeepEqual(a["device_type"], b["device_type"]) || len(types) > 0 && !slices.ContainsFunc(types, differ))
}

// meaningOf returns an alias without its name and device type, in one form of all that Nova reads
// as the same: ids in any case (since Rocky; nova check fails before), the default numa_policy,
// resource class and traits as Placement knows them. capability_type stays: the schema accepts it,
// but no device has it, and an alias with it selects none (nova/pci/utils.py,
// pci_device_prop_match).
func meaningOf(alias map[string]any) map[string]any {
	same := maps.Clone(alias)
	for _, key := range []string{"name", "device_type"} {
		delete(same, key)
	}
	for _, key := range []string{"vendor_id", "product_id"} {
		if id, ok := same[key].(string); ok {
			same[key] = strings.ToLower(id)
		}
	}
	if same["numa_policy"] == nil {
		same["numa_policy"] = "legacy"
	}
	n, _ := newNamed(alias, "")
	if _, isText := alias["resource_class"].(string); n.HasIDs && (isText || alias["resource_class"] == nil) {
		same["resource_class"] = devspec.ResourceClass(n.ResourceClass, n.VendorID, n.ProductID)
	}
	if text, ok := alias["traits"].(string); ok {
		same["traits"] = devspec.Reported{Spec: devspec.Spec{Object: map[string]any{"traits": text}}}.Traits()
	}
	return same
}

// Within reports whether each definition of an alias has the meaning of one of others, by the device
// types that devices of its product have ([TypesOfProduct]).
func Within(definitions, others []map[string]any, hosts []Host) bool {
	return !slices.ContainsFunc(definitions, func(a map[string]any) bool {
		types := TypesOfProduct(a, hosts)
		return !slices.ContainsFunc(others, func(b map[string]any) bool { return SameMeaning(a, b, types) })
	})
}

// TypesOfProduct returns the device types that devices of an alias's product have: those of the
// hosts, else that of the table of products; none if neither knows it.
func TypesOfProduct(alias map[string]any, hosts []Host) (types []string) {
	n, _ := newNamed(alias, "")
	if !n.HasIDs {
		return nil
	}
	types = typesOn(hosts, n.Alias)
	if kind := pci.TypeOfProduct(n.VendorID, n.ProductID); len(types) == 0 && kind != "" {
		types = append(types, string(kind))
	}
	return types
}

// typesOn returns the device types that an alias's product has on hosts, sorted.
func typesOn(hosts []Host, a Alias) (types []string) {
	types = host.FlatMap(hosts, func(h Host) []string { return h.typesFor(a.VendorID, a.ProductID) })
	slices.Sort(types)
	return slices.Compact(types)
}

// HasIDs reports whether an alias has a vendor and a product.
func HasIDs(alias map[string]any) bool {
	return alias["vendor_id"] != nil && alias["product_id"] != nil
}

// IsProduct reports whether an alias or a device_spec names the product of a device.
func IsProduct(object map[string]any, d *pci.Device) bool {
	n, _ := newNamed(object, "")
	return n.HasIDs && d.IsVendor(n.VendorID) && d.ProductID != nil && *d.ProductID == n.ProductID
}

// CanMatch reports whether a device_spec and an alias can select the same device. A spec with only
// an address may.
func CanMatch(spec, alias map[string]any) bool {
	for _, key := range []string{"vendor_id", "product_id"} {
		have, _ := spec[key].(string)
		want, _ := alias[key].(string)
		if have != "" && have != "*" && want != "" && !strings.EqualFold(strings.TrimPrefix(have, "0x"), want) {
			return false
		}
	}
	return true
}

// TakesType reports whether an alias selects devices of a type. An alias without device_type
// selects every type but physical functions (nova/pci/stats.py, _filter_pools_for_unrequested_pfs).
func TakesType(alias map[string]any, kind string) bool {
	want, told := alias["device_type"].(string)
	return told && kind == want || !told && kind != string(pci.TypePF)
}

// SelectedTypes returns the device types that an alias selects, for messages.
func SelectedTypes(alias map[string]any) string {
	if want, told := alias["device_type"].(string); told {
		return want
	}
	return "every type but " + string(pci.TypePF)
}
