package netconf

import (
	"path"
	"slices"
	"strconv"
	"strings"
)

// interfaces are the stanzas of interfaces(5) that give addresses or put interfaces on others, over
// all files.
type interfaces struct {
	found []stanza
	auto  []string // started when the host boots or the interface appears
}

// stanza is configuration by the stanza of an interface.
type stanza struct {
	Network
	of string
}

// ifupdown reads interfaces(5).
func (r *reader) ifupdown() {
	var all interfaces
	r.interfaces("/etc/network/interfaces", &all)
	for _, s := range all.found {
		n := s.Network
		n.OnDemand = !slices.ContainsFunc(all.auto, func(pattern string) bool { return Fits(pattern, s.of) })
		r.add(n, n.File, n.Line, n.Text, n.Static)
	}
}

// plainName returns the interface of a name: eth0:1 is another address of eth0.
func plainName(name string) []string { return []string{strings.Split(name, ":")[0]} }

// vlanBase returns the interface that a VLAN lies on by its name, such as eth0.7.
func vlanBase(name string) (base string, ok bool) {
	name = plainName(name)[0]
	i := strings.LastIndex(name, ".")
	if i < 0 {
		return name, false
	}
	if _, err := strconv.ParseUint(name[i+1:], 10, 12); err != nil {
		return name, false
	}
	return name[:i], true
}

// option returns the name of an option, which may be written with _ or -.
func option(word string) string { return strings.ReplaceAll(word, "_", "-") }

// portOptions returns the options of ifenslave, bridge-utils, vlan, Open vSwitch, ifupdown2 and
// ifupdown-ng that list what the interface of their stanza lies on.
func portOptions() []string {
	return []string{"bond-slaves", "slaves", "bond-members", "bridge-ports", "ovs-ports", "ovs-bonds", "vlan-raw-device", "vxlan-physdev"}
}

// masterOptions returns the options that name an interface which lies on that of their stanza.
func masterOptions() []string { return []string{"bond-master", "ovs-bridge", "vrf", "vrf-member"} }

// statement is a line of interfaces(5), with those that continue it.
type statement struct {
	fields      []string
	first, last int // indexes of its lines
}

// starts reports whether a statement ends the stanza before it.
func (s statement) starts() bool {
	return slices.Contains([]string{"iface", "auto", "mapping", "template", "source", "source-directory", "source-dir"}, s.fields[0]) ||
		strings.HasPrefix(s.fields[0], "allow-")
}

func (s statement) text() string { return strings.Join(s.fields, " ") }

// statements returns what lines have beside comments.
func statements(lines []string) (all []statement) {
	for i := 0; i < len(lines); i++ {
		first, line := i, strings.TrimSpace(lines[i])
		if strings.HasPrefix(line, "#") {
			continue
		}
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + " " + strings.TrimSpace(lines[i])
		}
		if fields := strings.Fields(line); len(fields) > 1 {
			all = append(all, statement{fields, first, i})
		}
	}
	return all
}

// keepInterfaces returns the lines of interfaces(5) that a recorder gets.
func keepInterfaces(data []byte) []byte {
	lines := strings.Split(string(data), "\n")
	kept := make([]string, len(lines))
	for _, s := range statements(lines) {
		if s.starts() || slices.Contains(slices.Concat([]string{"address", "use"}, portOptions(), masterOptions()), option(s.fields[0])) {
			copy(kept[s.first:s.last+1], lines[s.first:])
		}
	}
	return []byte(strings.Join(kept, "\n"))
}

// interfaces adds the stanzas of a file, and of those that it names.
func (r *reader) interfaces(file string, all *interfaces) {
	list := statements(r.text(file, keepInterfaces))
	for i, s := range list {
		fields := s.fields
		switch {
		case fields[0] == "auto" || strings.HasPrefix(fields[0], "allow-"): // as Open vSwitch brings up what allow-ovs names
			for _, name := range fields[1:] {
				all.auto = append(all.auto, strings.TrimPrefix(name, "/"))
			}
		case fields[0] == "source":
			for _, pattern := range fields[1:] {
				for _, name := range r.glob(absolute(pattern)) {
					r.interfaces(name, all)
				}
			}
		case fields[0] == "source-directory" || fields[0] == "source-dir":
			for _, name := range r.glob(path.Join(absolute(fields[1]), "*")) {
				r.interfaces(name, all)
			}
		case fields[0] == "iface":
			block := list[i:]
			if end := slices.IndexFunc(block[1:], statement.starts); end >= 0 {
				block = block[:end+1]
			}
			for _, n := range configured(file, block) {
				all.found = append(all.found, stanza{n, fields[1]})
			}
		}
	}
}

// configured returns what a stanza configures.
func configured(file string, block []statement) (found []Network) {
	head := block[0].fields
	name := head[1]
	add := func(s statement, names []string, upper string, static bool) {
		found = append(found, Network{File: file, Line: s.first + 1, Text: s.text(), Names: names, Upper: upper, Static: static, Exclude: byName})
	}
	if base, ok := vlanBase(name); ok {
		add(block[0], []string{base}, plainName(name)[0], false)
	}
	if len(head) >= 4 && givesAddress(head[2], head[3]) {
		add(block[0], plainName(name), "", head[3] == "static")
	}
	for _, s := range block[1:] {
		switch key, values := option(s.fields[0]), s.fields[1:]; {
		case slices.Contains(portOptions(), key):
			if names := lowers(values); len(names) > 0 {
				add(s, names, name, false)
			}
		case slices.Contains(masterOptions(), key) && values[0] != "none":
			add(s, plainName(name), values[0], false)
		case len(head) >= 4: // the options of the method belong to its line
		case key == "address", key == "use" && values[0] == "dhcp": // as ifupdown2 and ifupdown-ng permit
			add(s, plainName(name), "", key == "address")
		}
	}
	return found
}

// lowers returns the interfaces of a list, with * in place of regular expressions and ranges, which
// may match any.
func lowers(values []string) (names []string) {
	for i := 0; i < len(values); i++ {
		switch values[i] {
		case "none":
		case "noregex":
			i++
		case "all":
			names = append(names, "*")
		case "regex", "glob":
			names = append(names, "*")
			i++
		default:
			base, _ := vlanBase(values[i])
			names = append(names, base)
		}
	}
	return names
}

// givesAddress reports whether a method gives addresses.
func givesAddress(family, method string) bool {
	switch family {
	case "inet":
		return method == "static" || method == "dhcp" || method == "bootp"
	case "inet6":
		return method == "static" || method == "dhcp" || method == "auto"
	}
	return false
}

func absolute(name string) string {
	if path.IsAbs(name) {
		return name
	}
	return path.Join("/etc/network", name)
}

// glob returns the files that a pattern matches (glob(7)).
func (r *reader) glob(pattern string) []string {
	found := []string{"/"}
	for element := range strings.SplitSeq(strings.TrimPrefix(pattern, "/"), "/") {
		var next []string
		for _, dir := range found {
			if !IsPattern(element) {
				next = append(next, path.Join(dir, element))
				continue
			}
			for _, name := range r.list(dir) {
				if Fits(element, name) {
					next = append(next, path.Join(dir, name))
				}
			}
		}
		found = next
	}
	return found
}

// profile is a file of ifcfg(5).
type profile struct {
	Network
	settings []setting
	device   string
	uuid     string
}

// ifcfg reads the files of RHEL's network-scripts and NetworkManager (nm-settings-ifcfg-rh(5)) and
// of SUSE's wicked (ifcfg(5)).
func (r *reader) ifcfg() {
	var all []profile
	for _, dir := range []string{"/etc/sysconfig/network-scripts", "/etc/sysconfig/network"} {
		for _, name := range r.list(dir) {
			device, ok := strings.CutPrefix(name, "ifcfg-")
			if !ok || strings.ContainsAny(device, "~") || slices.Contains([]string{".bak", ".orig", ".rpmnew", ".rpmsave", ".old"}, path.Ext(device)) {
				continue
			}
			all = append(all, r.profile(path.Join(dir, name), device))
		}
	}
	for _, p := range all {
		for _, s := range p.settings {
			text := s.key + "=" + s.value
			lower := Network{OnDemand: p.OnDemand, Exclude: byName}
			key := strings.TrimRight(s.key, "0123456789_")
			switch {
			case s.value == "":
			case strings.HasPrefix(s.key, "IPADDR"), strings.HasPrefix(s.key, "IPV6ADDR"):
				r.add(p.Network, s.file, s.line, text, true)
			case key == "BOOTPROTO" && (strings.HasPrefix(s.value, "dhcp") || s.value == "bootp" || strings.HasPrefix(s.value, "auto")),
				key == "DHCPV6C" && isTrue(s.value):
				r.add(p.Network, s.file, s.line, text, false)
			case slices.Contains(masterKeys(), key):
				port := p.Network
				// ifup of a bond brings up its slaves whatever their ONBOOT= says.
				port.OnDemand = port.OnDemand && !strings.Contains(key, "MASTER")
				r.put(s.value, port, s.file, s.line, text)
			case key == "PHYSDEV":
				lower.Names = []string{s.value}
				if i := slices.IndexFunc(all, func(o profile) bool { return o.uuid == s.value }); i >= 0 {
					lower.Names, lower.Addresses = all[i].Names, all[i].Addresses
				}
				r.put(p.device, lower, s.file, s.line, text)
			case slices.Contains(portKeys(), key):
				lower.Names = lowers(strings.Fields(s.value))
				r.put(p.device, lower, s.file, s.line, text)
			case key == "DEVICE":
				if base, ok := vlanBase(s.value); ok {
					lower.Names = []string{base}
					r.put(p.device, lower, s.file, s.line, text)
				}
			}
		}
	}
}

// masterKeys returns the keys that name an interface which lies on that of their file.
func masterKeys() []string {
	return []string{"MASTER", "MASTER_UUID", "TEAM_MASTER", "TEAM_MASTER_UUID", "BRIDGE", "BRIDGE_UUID", "OVS_BRIDGE", "VRF"}
}

// portKeys returns the keys that list what the interface of their file lies on.
func portKeys() []string {
	return []string{"BOND_IFACES", "BONDING_SLAVE", "BRIDGE_PORTS", "ETHERDEVICE", "MACVLAN_DEVICE", "TEAM_PORT_DEVICE", "OVS_BRIDGE_PORT_DEVICE"}
}

// profile reads a file of ifcfg(5). device is the interface that its name has.
func (r *reader) profile(file, device string) profile {
	keys := slices.Concat([]string{"DEVICE", "HWADDR", "BOOTPROTO", "IPADDR", "IPV6ADDR", "DHCPV6C", "ONBOOT", "STARTMODE", "UUID", "PHYSDEV"},
		masterKeys(), portKeys())
	p := profile{device: device, settings: r.settings(file, keys...)}
	p.Exclude = byName
	for i, s := range p.settings {
		value := strings.Trim(s.value, `"'`)
		p.settings[i].value = value
		switch s.key {
		case "DEVICE":
			p.device = value
		case "HWADDR":
			p.Addresses = []string{value}
		case "ONBOOT":
			p.OnDemand = strings.EqualFold(value, "no")
		case "STARTMODE":
			p.OnDemand = value == "manual" || value == "off"
		case "UUID":
			p.uuid = value
		}
	}
	if p.Addresses == nil { // else the name is one that the interface gets by its hardware address
		p.Names = plainName(p.device)
	}
	return p
}
