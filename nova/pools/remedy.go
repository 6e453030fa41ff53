package pools

import (
	"maps"
	"slices"

	"gpustack/host"
	"gpustack/nova"
)

// Remedy returns how an alias gets devices of a host for a reason for which it gets none. types are
// those of its devices, one of which the alias can select. configure is nova configure with a role,
// and at is where the alias is defined.
func (w Why) Remedy(configure host.Command, alias []map[string]any, types []string, at string) host.Text {
	hasCapability := slices.ContainsFunc(alias, func(a map[string]any) bool { return a["capability_type"] != nil })
	switch {
	case w == OtherTags && hasCapability:
		return host.Plain("remove capability_type from the alias: no device has it")
	case w == OtherTags:
		return host.Plain("give the device_spec and the alias the same live_migratable and no remote_managed, and restart nova-compute")
	case w == OtherType && len(types) != 1:
		return host.Plain("set the device_type of these devices in the alias")
	}
	for _, a := range alias {
		if len(types) == 1 && !nova.TakesType(a, types[0]) {
			a = maps.Clone(a)
			a["device_type"] = types[0]
		}
		value := nova.AliasOption(a)
		if value == "" {
			return host.Textf("copy the alias from %s", at)
		}
		configure = configure.Flag("alias", value)
	}
	if w == OtherType {
		return host.Textf("run %s, and with its role on every other host that has the alias", configure)
	}
	return host.Textf("run %s there", configure)
}
