package netconf

import (
	"path"
	"slices"
	"strings"
)

// interfaces are the stanzas of interfaces(5) that give addresses, over all files.
type interfaces struct {
	found []Network
	auto  []string // started when the host boots or the interface appears
}

// ifupdown reads interfaces(5).
func (r *reader) ifupdown() {
	var all interfaces
	r.interfaces("/etc/network/interfaces", &all)
	for _, n := range all.found {
		n.OnDemand = !slices.ContainsFunc(all.auto, func(pattern string) bool { return Fits(pattern, n.Names[0]) })
		n.Names = plainName(n.Names[0])
		r.add(n, n.File, n.Line, n.Text, n.Static)
	}
}

// plainName returns the interface of a name: eth0:1 is another address of eth0.
func plainName(name string) []string { return []string{strings.Split(name, ":")[0]} }

// keepInterfaces reports whether a recorder gets a line of interfaces(5).
func keepInterfaces(line string) bool {
	first, _, _ := strings.Cut(strings.ReplaceAll(line, "\t", " "), " ")
	return slices.Contains([]string{"auto", "iface", "source", "source-directory", "source-dir", "address", "use"}, first) || strings.HasPrefix(first, "allow-")
}

// interfaces adds the stanzas of a file, and of those that it names.
func (r *reader) interfaces(file string, all *interfaces) {
	lines := r.text(file, keepLines(keepInterfaces))
	for i := 0; i < len(lines); i++ {
		line, number := strings.TrimSpace(lines[i]), i+1
		for strings.HasSuffix(line, `\`) && i+1 < len(lines) {
			i++
			line = strings.TrimSuffix(line, `\`) + " " + strings.TrimSpace(lines[i])
		}
		fields := strings.Fields(line)
		if len(fields) < 2 {
			continue
		}
		switch fields[0] {
		case "auto", "allow-auto", "allow-hotplug":
			for _, name := range fields[1:] {
				all.auto = append(all.auto, strings.TrimPrefix(name, "/"))
			}
		case "source":
			for _, pattern := range fields[1:] {
				for _, name := range r.glob(absolute(pattern)) {
					r.interfaces(name, all)
				}
			}
		case "source-directory", "source-dir":
			for _, name := range r.glob(path.Join(absolute(fields[1]), "*")) {
				r.interfaces(name, all)
			}
		case "iface":
			n := Network{File: file, Line: number, Text: line, Names: fields[1:2], Exclude: byName}
			switch {
			case len(fields) < 4: // as ifupdown2 and ifupdown-ng permit
				all.found = append(all.found, options(n, lines[i+1:])...)
			case givesAddress(fields[2], fields[3]):
				n.Static = fields[3] == "static"
				all.found = append(all.found, n)
			}
		}
	}
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

// options returns an interface's configuration once for each option that gives addresses. lines are
// those below its own.
func options(n Network, lines []string) (found []Network) {
	for i, line := range lines {
		fields := strings.Fields(line)
		if len(fields) > 0 && slices.Contains([]string{"iface", "auto", "mapping", "source"}, fields[0]) {
			break
		}
		if len(fields) < 2 || fields[0] != "address" && (fields[0] != "use" || fields[1] != "dhcp") {
			continue
		}
		of := n
		of.Line, of.Text, of.Static = n.Line+i+1, strings.TrimSpace(line), fields[0] == "address"
		found = append(found, of)
	}
	return found
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

// ifcfg reads the files of RHEL's network-scripts and NetworkManager (nm-settings-ifcfg-rh(5)) and
// of SUSE's wicked (ifcfg(5)).
func (r *reader) ifcfg() {
	keys := []string{"DEVICE", "HWADDR", "BOOTPROTO", "IPADDR", "IPV6ADDR", "DHCPV6C", "ONBOOT", "STARTMODE"}
	for _, dir := range []string{"/etc/sysconfig/network-scripts", "/etc/sysconfig/network"} {
		for _, name := range r.list(dir) {
			device, ok := strings.CutPrefix(name, "ifcfg-")
			if !ok || strings.ContainsAny(device, "~") || slices.Contains([]string{".bak", ".orig", ".rpmnew", ".rpmsave", ".old"}, path.Ext(device)) {
				continue
			}
			n := Network{Names: []string{device}, Exclude: byName}
			settings := r.settings(path.Join(dir, name), keys...)
			for i, s := range settings {
				value := strings.Trim(s.value, `"'`)
				settings[i].value = value
				switch s.key {
				case "DEVICE":
					n.Names = []string{value}
				case "HWADDR":
					n.Addresses = []string{value}
				case "ONBOOT":
					n.OnDemand = strings.EqualFold(value, "no")
				case "STARTMODE":
					n.OnDemand = value == "manual" || value == "off"
				}
			}
			if n.Addresses != nil {
				n.Names = nil // the name is one that the interface gets by its hardware address
			} else {
				n.Names = plainName(n.Names[0])
			}
			for _, s := range settings {
				text := s.key + "=" + s.value
				switch {
				case s.value == "":
				case strings.HasPrefix(s.key, "IPADDR"), strings.HasPrefix(s.key, "IPV6ADDR"):
					r.add(n, s.file, s.line, text, true)
				case s.key == "BOOTPROTO" && (strings.HasPrefix(s.value, "dhcp") || s.value == "bootp" || strings.HasPrefix(s.value, "auto")), s.key == "DHCPV6C" && isTrue(s.value):
					r.add(n, s.file, s.line, text, false)
				}
			}
		}
	}
}
