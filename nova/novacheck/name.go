package novacheck

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova"
)

// names finds aliases whose names differ in case only. Nova compares names letter by letter
// (nova/pci/request.py, _translate_alias_to_requests), so that they are two aliases. It is a
// failure if a machine has only one of the two.
func (c *checker) names() {
	names := slices.Sorted(maps.Keys(c.aliases))
	for i, one := range names {
		for _, other := range names[i+1:] {
			if !strings.EqualFold(one, other) {
				continue
			}
			first, second := c.aliases[one], c.aliases[other]
			if cmp.Or(cmp.Compare(c.order(first[0]), c.order(second[0])), cmp.Compare(first[0].line, second[0].line)) > 0 {
				first, second, one, other = second, first, other, one
			}
			status, effect := host.Warn, "takes them for two aliases"
			remedy := host.Text("use one of the names in the files and the flavors")
			for _, s := range c.sides {
				if (len(contents(first, s)) == 0) != (len(contents(second, s)) == 0) {
					status, effect = host.Fail, "takes them for two aliases, and rejects guests on a host that has only the other (PciRequestAliasNotDefined)"
				}
			}
			if value := aliasValue(second[0]); value != "" && status == host.Fail {
				remedy = host.Textf("use one name: %s", host.NewCommand("nova configure").
					Flag("role", string(second[0].side.Role)).Flag("remove-alias", other).Flag("alias", one+"="+value))
			}
			seen := fmt.Sprintf("alias %s differs in case only from alias %s (%s:%d)", other, one, first[0].file, first[0].line)
			c.add(checkAlias, status, second[0].file, second[0].line, seen, effect, remedy)
		}
	}
}

// order returns the place of an alias's side among the sides.
func (c *checker) order(a aliasAt) int {
	for i, s := range c.sides {
		if s.Name() == a.side.Name() {
			return i
		}
	}
	return len(c.sides)
}

// aliasValue returns the product and the options of an alias in the form of nova configure --alias,
// "" if it has no ids.
func aliasValue(a aliasAt) string {
	text := func(key string) string {
		s, _ := a.object[key].(string)
		return s
	}
	if text("vendor_id") == "" || text("product_id") == "" {
		return ""
	}
	value := text("vendor_id") + ":" + text("product_id")
	for _, key := range []string{"device_type", "numa_policy", "resource_class", "live_migratable"} {
		if option := text(key); option != "" {
			value += "," + key + "=" + option
		}
	}
	if traits := text("traits"); traits != "" {
		value += ",traits=" + strings.ReplaceAll(traits, ",", "+")
	}
	return value
}

// define returns the command that defines an alias on a machine with a role as it is on a side, and
// offers its devices on a compute node. at are the definitions of the alias. Where the hardware that
// is known has another device type, the alias gets that.
func (c *checker) define(role nova.Role, at []aliasAt, as side) host.Text {
	command := host.NewCommand("nova configure").Flag("role", string(role))
	for _, a := range at {
		if a.side.number != as.number {
			continue
		}
		if types := nova.TypesOfProduct(a.object, c.known()); len(types) == 1 && !nova.TakesType(a.object, types[0]) {
			a.object = maps.Clone(a.object)
			a.object["device_type"] = types[0]
		}
		value := aliasValue(a)
		if value == "" {
			return host.Textf("copy the alias from %s:%d", a.file, a.line)
		}
		command = command.Flag("alias", strings.TrimSpace(fmt.Sprint(a.object["name"]))+"="+value)
	}
	return host.Textf("run %s there", command)
}

// variant returns the name of an alias of some file that differs from a name in case only, "" if
// there is none.
func (c *checker) variant(name string) string {
	for _, other := range slices.Sorted(maps.Keys(c.aliases)) {
		if other != name && strings.EqualFold(other, name) {
			return other
		}
	}
	return ""
}

// undefined returns why a flavor's request is rejected whose alias no file defines, and the remedy.
func (c *checker) undefined(f Flavor, w nova.Wanted) (seen string, remedy host.Text) {
	seen, remedy = fmt.Sprintf("flavor %s requests alias %s, which no file defines", f.Name, w.Alias),
		"define the alias or correct the flavor; names are case-sensitive"
	if other := c.variant(w.Alias); other != "" {
		at := c.aliases[other][0]
		seen = fmt.Sprintf("flavor %s requests alias %s, which differs in case only from alias %s (%s:%d)", f.Name, w.Alias, other, at.file, at.line)
		if request, err := nova.ParseRequest(f.Request); err == nil {
			remedy = host.Textf("openstack flavor set --property %s=%s %s", nova.RequestKey, request.Renamed(w.Alias, other), f.Name)
		}
	}
	return seen, remedy
}
