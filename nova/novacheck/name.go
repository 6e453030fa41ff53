package novacheck

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/pools"
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
			if cmp.Or(cmp.Compare(first[0].side.number, second[0].side.number), cmp.Compare(first[0].line, second[0].line)) > 0 {
				first, second, one, other = second, first, other, one
			}
			status, effect := host.Warn, "takes them for two aliases"
			remedy := host.Plain("use one of the names in the files and the flavors")
			for _, s := range c.sides {
				if (len(contents(first, s)) == 0) != (len(contents(second, s)) == 0) {
					status, effect = host.Fail, "takes them for two aliases, and rejects guests on a host that has only the other (PciRequestAliasNotDefined)"
				}
			}
			renamed := maps.Clone(second[0].object)
			renamed["name"] = one
			if value := nova.AliasOption(renamed); value != "" && status == host.Fail {
				remedy = host.Textf("use one name: %s", nova.Configure(second[0].side.Role).Flag("remove-alias", other).Flag("alias", value))
			}
			seen := fmt.Sprintf("alias %s differs in case only from alias %s (%s:%d)", other, one, first[0].file, first[0].line)
			c.add(checkAlias, status, second[0].file, second[0].line, seen, effect, remedy)
		}
	}
}

// define returns how an alias is defined on a machine with a role as it is on a side, and its devices
// are offered on a compute node. at are the definitions of the alias. Where the hardware that is
// known has another device type, the alias gets that.
func (c *checker) define(role nova.Role, at []aliasAt, as side) host.Text {
	alias, first := contents(at, as), where(at, as)
	return pools.NotOffered.Remedy(nova.Configure(role), alias, nova.TypesOfProduct(alias[0], c.known()),
		fmt.Sprintf("%s:%d", first.file, first.line))
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
		host.Plain("define the alias or correct the flavor; names are case-sensitive")
	if other := c.variant(w.Alias); other != "" {
		at := c.aliases[other][0]
		seen = fmt.Sprintf("flavor %s requests alias %s, which differs in case only from alias %s (%s:%d)", f.Name, w.Alias, other, at.file, at.line)
		if request, err := nova.ParseRequest(f.Request); err == nil {
			remedy = host.Textf("openstack flavor set --property %s=%s %s", nova.RequestKey, request.Renamed(w.Alias, other), f.Name)
		}
	}
	return seen, remedy
}

// flavors checks the requests of flavors against the aliases, whose names are case-sensitive.
func (c *checker) flavors(flavors []Flavor) {
	for _, f := range flavors {
		request, err := nova.ParseRequest(f.Request)
		for _, fault := range host.Split(err) {
			c.add(checkFlavors, host.Fail, "", 0, fmt.Sprintf("flavor %s: %v", f.Name, fault), "rejects guests of this flavor",
				host.Plain("openstack flavor set --property pci_passthrough:alias=NAME:COUNT"))
		}
		for _, w := range request {
			if c.aliases[w.Alias] == nil {
				seen, remedy := c.undefined(f, w)
				c.add(checkFlavors, host.Fail, "", 0, seen, "rejects guests of this flavor (PciRequestAliasNotDefined)", remedy)
			}
		}
	}
}
