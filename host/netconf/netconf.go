// Package netconf reads which network interfaces the host's configuration gives addresses, and of
// which it makes other interfaces, by which file and line: [Read].
//
// It does not read interfaces of the running machine, and decides nothing (host/guard).
package netconf

import (
	"path"
	"slices"
	"strings"

	"gpustack/host/pci"
)

// Network is configuration that gives addresses to interfaces which it matches, or puts another
// interface on them.
type Network struct {
	File string // on the machine
	Line int    // that gives addresses, or names Upper
	Text string // of the line
	// Upper is the interface that those which match are ports of, such as a bond or bridge, or that
	// lies on them, such as a VLAN. "" for a line that gives addresses.
	Upper    string
	Static   bool // else by DHCP, or by what the network announces
	OnDemand bool // not when the host boots
	Optional bool // the boot does not wait for it
	// Generated means that NetworkManager has made it for an interface that no file names.
	Generated bool
	// What it matches, all of it: names, drivers, values of udev's ID_PATH, types (ether, infiniband)
	// and hardware addresses, as [Matches] reads lists.
	Names, Drivers, Paths, Types, Addresses []string
	// Exclude returns what excludes functions from the match; name is the interface of their adapter.
	Exclude func(vfs []pci.Address, name string) string
}

// Interface is an interface of the machine.
type Interface struct {
	Names                       []string // also those by its place
	Driver, Path, Type, Address string
}

// Matches reports whether a list matches a value: one of its patterns (glob(7)) does, as accept
// says of each, and none of those after "!". A list of patterns after "!" matches any other value,
// an empty list each value. That is how systemd-networkd (net_condition_test_strv in
// net-condition.c) and NetworkManager (nm-settings-keyfile(5), [match]) read lists.
func Matches(list []string, accept func(pattern string) bool) bool {
	only, accepted := false, false
	for _, pattern := range list {
		pattern, not := strings.CutPrefix(pattern, "!")
		only = only || !not
		if !accept(pattern) {
			continue
		}
		if not {
			return false
		}
		accepted = true
	}
	return accepted || !only
}

// IsPattern reports whether a value of a list matches more than one value.
func IsPattern(s string) bool { return strings.ContainsAny(s, "*?[") }

// Fits reports whether a pattern of glob(7) matches a value.
func Fits(pattern, value string) bool {
	if strings.Contains(pattern, "[") { // as path.Match has it
		pattern = strings.NewReplacer("[!", "[^", "[:digit:]", "0-9", "[:xdigit:]", "0-9a-fA-F", "[:lower:]", "a-z", "[:upper:]", "A-Z",
			"[:alpha:]", "a-zA-Z", "[:alnum:]", "a-zA-Z0-9").Replace(pattern)
	}
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
