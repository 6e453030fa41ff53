// Package netconf reads which network interfaces the host's configuration gives addresses.
package netconf

import (
	"path"
	"slices"
	"strings"

	"gpustack/host/pci"
)

// Network is configuration that gives addresses to interfaces which it matches.
type Network struct {
	File     string // on the machine
	Line     int    // that gives addresses
	Text     string // of the line
	Static   bool   // else by DHCP, or by what the network announces
	OnDemand bool   // not when the host boots
	// Generated means that NetworkManager has made it for an interface that no file names.
	Generated bool
	// What it matches, all of it: names, drivers, values of udev's ID_PATH, types (ether, infiniband)
	// and hardware addresses. A nil list matches any; "!" before a list inverts it.
	Names, Drivers, Paths, Types, Addresses []string
	// Exclude returns what excludes functions from the match; name is the interface of their adapter.
	Exclude func(vfs []pci.Address, name string) string
}

// Interface is an interface of the machine.
type Interface struct {
	Names                       []string // also those by its place
	Driver, Path, Type, Address string
}

// Matches reports whether one of the patterns of a list matches a value (glob(7)), as accept says
// of each. A nil list matches any value.
func Matches(list []string, accept func(pattern string) bool) bool {
	if len(list) == 0 {
		return true
	}
	if rest, ok := strings.CutPrefix(list[0], "!"); ok {
		return !Matches(append([]string{rest}, list[1:]...), accept)
	}
	return slices.ContainsFunc(list, accept)
}

// IsPattern reports whether a value of a list matches more than one value.
func IsPattern(s string) bool { return strings.ContainsAny(s, "*?[") }

// Fits reports whether a pattern matches a value.
func Fits(pattern, value string) bool {
	ok, err := path.Match(pattern, value)
	return ok && err == nil
}

// Gives reports whether the configuration matches an interface, and whether it names that
// interface: by a name, path or hardware address, and not by a pattern.
func (n Network) Gives(i Interface) (gives, named bool) {
	value := func(v string) func(string) bool { return func(pattern string) bool { return Fits(pattern, v) } }
	name := func(pattern string) bool {
		return slices.ContainsFunc(i.Names, func(name string) bool { return Fits(pattern, name) })
	}
	address := func(a string) bool { return strings.EqualFold(a, i.Address) }
	gives = Matches(n.Names, name) && Matches(n.Drivers, value(i.Driver)) && Matches(n.Paths, value(i.Path)) &&
		Matches(n.Types, value(i.Type)) && Matches(n.Addresses, address)
	plain := func(list []string, accept func(string) bool) bool {
		return slices.ContainsFunc(list, func(s string) bool { return !IsPattern(s) && accept(s) })
	}
	named = !n.Generated && (plain(n.Names, name) || plain(n.Paths, value(i.Path)) || plain(n.Addresses, address))
	return gives, gives && named
}
