package nova

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova/conf"
)

// ErrAlias says that Nova rejects an alias, and with it all aliases of the service.
var ErrAlias = host.WithHint(errors.New("this line makes Nova reject all aliases"), "correct the line or remove it")

// AliasFault is a reason for which Nova rejects a value of the option alias.
type AliasFault struct {
	Seen, Remedy string
}

// aliasKeys are the keys of an alias, and the first release that accepts each (nova/pci/request.py,
// _ALIAS_SCHEMA).
var aliasKeys = map[string]Release{
	"name": 0, "vendor_id": 0, "product_id": 0, "capability_type": 0, "device_type": 0,
	"numa_policy": Queens, "resource_class": Antelope, "traits": Antelope, "live_migratable": Epoxy,
}

// AliasFaults returns the reasons for which Nova rejects a value of the option alias
// (nova/pci/request.py, _ALIAS_SCHEMA), and the alias. The alias is nil if it has no name.
func AliasFaults(value string, r Release) (alias map[string]any, faults []AliasFault) {
	add := func(remedy, format string, args ...any) {
		faults = append(faults, AliasFault{fmt.Sprintf(format, args...), remedy})
	}
	all := conf.ParseObjects(value)
	if len(all) != 1 || strings.HasPrefix(strings.TrimSpace(value), "[") {
		add("write one object per line, each with its own alias = ", "the value of alias is not a single JSON object")
		return nil, faults
	}
	alias = all[0]
	var unknown []string
	for key := range alias {
		if since, known := aliasKeys[key]; !known || r < since {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	for _, key := range unknown {
		add("remove the key", "an alias has the key %q, which %s does not support", key, r)
	}
	name, _ := alias["name"].(string)
	if name = strings.TrimSpace(name); name == "" {
		add("add a name", "an alias has no name")
		return nil, faults
	}
	for _, key := range []string{"vendor_id", "product_id"} {
		id, _ := alias[key].(string)
		if _, err := pci.ParseID(id); alias[key] != nil && (err != nil || len(id) != 4) {
			add("write four digits without 0x", "alias %s: %s is not four hexadecimal digits", name, key)
		}
	}
	kinds := []string{string(pci.TypePCI), string(pci.TypePF), string(pci.TypeVF)}
	if kind, given := alias["device_type"]; given && !slices.ContainsFunc(kinds, func(k string) bool { return kind == k }) {
		add("write one of "+strings.Join(kinds, ", "), "alias %s: device_type is %s", name, conf.Written(kind))
	}
	return alias, faults
}
