package prepare

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"gpustack/host"
	"gpustack/host/gate"
	"gpustack/host/pci"
	"gpustack/host/rdma"
)

// Network is configuration that gives addresses to interfaces which it matches.
type Network struct {
	File   string // on the machine
	Line   int    // that gives addresses
	Text   string // of the line
	Static bool   // else by DHCP
	// What it matches, all of it. A nil list matches any; "!" before a list inverts it.
	Names, Drivers, Paths []string
	// hint returns what excludes functions from the match.
	hint func(vfs []pci.Address, name string) string
}

// ErrNetwork is the error of VFs for containers that would get an address of the host.
var ErrNetwork = host.WithHint(errors.New("would give VFs a static address of the host"), "exclude the VFs from what the file matches")

// matches reports whether one of the patterns of a list matches a value (glob(7)). An unknown value
// is one that each pattern may match, and each plain value does not.
func matches(list []string, accept func(pattern string) bool) bool {
	if len(list) == 0 {
		return true
	}
	if rest, ok := strings.CutPrefix(list[0], "!"); ok {
		return !matches(append([]string{rest}, list[1:]...), accept)
	}
	return slices.ContainsFunc(list, accept)
}

func isPattern(s string) bool { return strings.ContainsAny(s, "*?[") }

// fits reports whether a pattern matches a value.
func fits(pattern, value string) bool {
	ok, err := path.Match(pattern, value)
	return ok && err == nil
}

// matchesVFs reports whether the configuration matches the VFs of an adapter. Their names are not
// known yet: they begin as those of the adapter (systemd.net-naming-scheme(7): v and a number at
// the end), or as those of the kernel.
func (n Network) matchesVFs(p rdma.Prepared, names []string) bool {
	name := matches(n.Names, func(pattern string) bool {
		return isPattern(pattern) && (fits(pattern, "eth9") || slices.ContainsFunc(names, func(pf string) bool { return fits(pattern, pf+"v0") }))
	})
	driver := matches(n.Drivers, func(pattern string) bool { return fits(pattern, p.Driver) })
	if !name || !driver {
		return false
	}
	return slices.ContainsFunc(p.VFs, func(vf rdma.PreparedVF) bool {
		return matches(n.Paths, func(pattern string) bool { return fits(pattern, "pci-"+vf.Address.String()) })
	})
}

// networks refuses VFs for containers that the host's configuration would give a static address,
// which the adapter has already, and warns of DHCP.
func (w *wanting) networks(p rdma.Prepared) {
	if p.Use != rdma.ForContainers || len(p.VFs) == 0 {
		return
	}
	var names []string
	if a := w.Stack.At(p.Address); a != nil {
		names = a.Netdevs
	}
	var vfs []pci.Address
	for _, vf := range p.VFs {
		vfs = append(vfs, vf.Address)
	}
	name := "NAME"
	if len(names) > 0 {
		name = names[0]
	}
	for _, n := range w.Networks {
		switch {
		case !n.matchesVFs(p, names):
		case n.Static:
			err := host.WithHint(host.WithCode(fmt.Errorf("%s:%d: %w: %s", n.File, n.Line, ErrNetwork, n.Text), host.CodeNetwork, ""), n.hint(vfs, name))
			w.fail(gate.Refuse(p.Address, err))
		default:
			w.Warnings = append(w.Warnings, fmt.Sprintf("%s:%d: gives VFs of %s addresses by DHCP: %s", n.File, n.Line, p.Address, n.hint(vfs, name)))
		}
	}
}

// paths returns the udev property ID_PATH of functions, with text before each.
func paths(vfs []pci.Address, before string) (paths []string) {
	for _, vf := range vfs {
		paths = append(paths, before+"pci-"+vf.String())
	}
	return paths
}

// ReadNetworks returns the network configuration of systemd-networkd, netplan and NetworkManager
// that matches more than one interface. A file that cannot be read is an error.
func ReadNetworks(root host.Root) ([]Network, error) {
	r := networkReader{ownerReader{root: root, seen: map[string]bool{}}, nil}
	r.networkd()
	r.netplan()
	r.manager()
	return r.networks, errors.Join(r.errs...)
}

type networkReader struct {
	ownerReader
	networks []Network
}

// setting is a line of an INI file.
type setting struct {
	section, key, value string
	line                int
}

func (r *networkReader) settings(file string) (all []setting) {
	section := ""
	for i, line := range r.text(file) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "[") {
			section = strings.Trim(line, "[]")
		}
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") && !strings.HasPrefix(line, ";") {
			all = append(all, setting{section, strings.TrimSpace(key), strings.TrimSpace(value), i + 1})
		}
	}
	return all
}

// add adds configuration that a line gives addresses by, unless another line of the same kind has.
func (r *networkReader) add(n Network, line int, text string, static bool) {
	if slices.ContainsFunc(r.networks, func(o Network) bool { return o.File == n.File && o.Static == static && o.Text == text }) {
		return
	}
	n.Line, n.Text, n.Static = line, text, static
	r.networks = append(r.networks, n)
}

// networkd reads systemd.network(5).
func (r *networkReader) networkd() {
	for _, file := range r.files(".network", folders("systemd/network", "/etc", "/run", "/usr/local/lib", "/usr/lib", "/lib")...) {
		n := Network{File: file, hint: func(vfs []pci.Address, _ string) string {
			return "add 'Path=!" + strings.Join(paths(vfs, ""), " ") + "' to [Match]"
		}}
		settings, one := r.settings(file), false
		for _, s := range settings {
			if s.section != "Match" {
				continue
			}
			values := strings.Fields(s.value)
			switch s.key {
			case "Name":
				n.Names = append(n.Names, values...)
			case "Driver":
				n.Drivers = append(n.Drivers, values...)
			case "Path":
				n.Paths = append(n.Paths, values...)
			case "MACAddress", "PermanentMACAddress", "Kind", "SSID", "BSSID", "WLANInterfaceType":
				one = true // an interface, or one without hardware
			case "Type":
				one = one || !matches(values, func(pattern string) bool { return fits(pattern, "ether") })
			}
		}
		for _, s := range settings {
			text := s.key + "=" + s.value
			switch {
			case one:
			case s.key == "Address" && (s.section == "Network" || s.section == "Address"):
				r.add(n, s.line, text, true)
			case s.key == "DHCP" && s.section == "Network" && !slices.Contains([]string{"", "no", "false", "0", "off", "none"}, strings.ToLower(s.value)):
				r.add(n, s.line, text, false)
			}
		}
	}
}

// connections returns NetworkManager's connections. A file shadows those of the same name in later
// folders. Only in /etc, files without the suffix are connections too.
func (r *networkReader) connections() []string {
	dirs := folders("NetworkManager/system-connections", "/etc", "/run", "/usr/lib")
	files := r.files(".nmconnection", dirs...)
	for _, file := range r.files("", dirs[0]) {
		if !slices.Contains(files, file) {
			files = append(files, file)
		}
	}
	return files
}

// manager reads connections of NetworkManager (nm-settings-keyfile(5)). One without a name of an
// interface is for any.
func (r *networkReader) manager() {
	for _, file := range r.connections() {
		n := Network{File: file, hint: func(vfs []pci.Address, _ string) string {
			return "add 'path=" + strings.Join(paths(vfs, "!"), ";") + ";' to [match]"
		}}
		settings, one := r.settings(file), false
		for _, s := range settings {
			values := strings.FieldsFunc(s.value, func(c rune) bool { return c == ';' })
			switch s.section + "/" + s.key {
			case "connection/interface-name":
				n.Names = append(n.Names, s.value)
			case "match/interface-name":
				n.Names = append(n.Names, values...)
			case "match/driver":
				n.Drivers = append(n.Drivers, values...)
			case "match/path":
				n.Paths = append(n.Paths, inverted(values)...)
			case "ethernet/mac-address":
				one = true
			case "connection/type":
				one = one || s.value != "ethernet" && s.value != "802-3-ethernet"
			}
		}
		for _, s := range settings {
			text := s.key + "=" + s.value
			switch {
			case one || s.section != "ipv4" && s.section != "ipv6":
			case strings.HasPrefix(s.key, "address"):
				r.add(n, s.line, text, true)
			case s.key == "method" && (s.value == "auto" || s.value == "dhcp"):
				r.add(n, s.line, text, false)
			}
		}
	}
}

// inverted returns a list of NetworkManager in networkd's form: each of its elements has a "!".
func inverted(values []string) []string {
	var list []string
	for _, value := range values {
		plain, not := strings.CutPrefix(value, "!")
		if not && len(list) == 0 {
			plain = value
		}
		list = append(list, plain)
	}
	return list
}

// ethernet is a definition of netplan(5), over all files.
type ethernet struct {
	network Network
	one     bool // by hardware address
}

// netplan reads netplan(5). Definitions of the same name in several files are one.
func (r *networkReader) netplan() {
	byID := map[string]*ethernet{}
	type given struct {
		id, file, text string
		line           int
		static         bool
	}
	var addresses []given
	for _, file := range r.files(".yaml", netplanDirs()...) {
		var document struct {
			Network struct {
				Ethernets map[string]yaml.Node `yaml:"ethernets"`
			} `yaml:"network"`
		}
		text := strings.Join(r.text(file), "\n")
		if err := yaml.NewDecoder(bytes.NewBufferString(text)).Decode(&document); err != nil && !errors.Is(err, io.EOF) {
			place := file
			if m := yamlLine().FindStringSubmatch(err.Error()); m != nil {
				place += ":" + m[1]
			}
			r.fail(place, err)
			continue
		}
		lines := strings.Split(text, "\n")
		for _, id := range sorted(document.Network.Ethernets) {
			definition := document.Network.Ethernets[id]
			e := byID[id]
			if e == nil {
				e = &ethernet{network: Network{Names: []string{id}, hint: func(_ []pci.Address, name string) string {
					return "match the adapter by its name: 'name: " + name + "'"
				}}}
				byID[id] = e
			}
			for key, value := range pairs(&definition) {
				set := given{id, file, strings.TrimSpace(lines[key.Line-1]), key.Line, key.Value == "addresses"}
				switch {
				case key.Value == "match":
					e.match(value)
				case key.Value == "addresses" && len(value.Content) > 0, (key.Value == "dhcp4" || key.Value == "dhcp6") && isTrue(value.Value):
					addresses = append(addresses, set)
				}
			}
		}
	}
	for _, a := range addresses {
		if e := byID[a.id]; !e.one {
			n := e.network
			n.File = a.file
			r.add(n, a.line, a.text, a.static)
		}
	}
}

// yamlLine matches the line that an error of the parser names.
var yamlLine = host.LazyRegexp(`\bline (\d+): `)

func isTrue(value string) bool {
	return slices.Contains([]string{"true", "yes", "on", "y"}, strings.ToLower(value))
}

// match reads the match of a definition, whose id is then only a name in netplan.
func (e *ethernet) match(node *yaml.Node) {
	e.network.Names, e.network.Drivers, e.one = nil, nil, false
	for key, value := range pairs(node) {
		values := []string{value.Value}
		if value.Kind == yaml.SequenceNode {
			values = nil
			for _, item := range value.Content {
				values = append(values, item.Value)
			}
		}
		switch key.Value {
		case "name":
			e.network.Names = values
		case "driver":
			e.network.Drivers = values
		case "macaddress":
			e.one = true
		}
	}
}

// pairs returns the keys and values of a mapping.
func pairs(node *yaml.Node) func(yield func(key, value *yaml.Node) bool) {
	return func(yield func(key, value *yaml.Node) bool) {
		if node.Kind != yaml.MappingNode {
			return
		}
		for i := 0; i+1 < len(node.Content); i += 2 {
			if !yield(node.Content[i], node.Content[i+1]) {
				return
			}
		}
	}
}
