package netconf

import (
	"errors"
	"io"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"gpustack/host"
	"gpustack/host/pci"
)

// given is a line of netplan that gives a definition addresses, or puts an interface on it.
type given struct {
	id, upper, file, text string
	line                  int
	static                bool
}

// netplan reads netplan(5). Other interfaces name a definition by its id, and are put on it
// whatever its activation-mode.
func (r *reader) netplan() {
	p := netplan{byID: map[string]*Network{}}
	for _, file := range r.files(".yaml", folders("netplan", "/run", "/etc", "/usr/lib", "/lib")...) {
		if err := p.read(file, r.text(file, keepNetplan)); err != nil {
			r.errs = append(r.errs, err)
		}
	}
	for _, g := range p.given {
		n := *p.definition(g.id)
		if g.upper == "" {
			r.add(n, g.file, g.line, g.text, g.static)
			continue
		}
		n.OnDemand = false
		r.put(g.upper, n, g.file, g.line, g.text)
	}
}

// netplan is what files of netplan define. Definitions of the same name in several files are one.
type netplan struct {
	byID  map[string]*Network
	given []given
}

func (p *netplan) definition(id string) *Network {
	if p.byID[id] == nil {
		p.byID[id] = &Network{Names: []string{id}, Exclude: func(_ []pci.Address, name string) string {
			return "match the adapter by its name: 'name: " + name + "'"
		}}
	}
	return p.byID[id]
}

// read reads a file. Its error is a *FileError.
func (p *netplan) read(file string, lines []string) error {
	ethernets, uppers, err := definitions(strings.Join(lines, "\n"))
	if err != nil {
		place := file
		if m := yamlLine().FindStringSubmatch(err.Error()); m != nil {
			place += ":" + m[1]
		}
		return &FileError{file, place, err}
	}
	at := func(node *yaml.Node) given {
		return given{file: file, text: strings.TrimSpace(lines[node.Line-1]), line: node.Line}
	}
	for _, id := range slices.Sorted(maps.Keys(ethernets)) {
		p.ethernet(id, ethernets[id], at)
	}
	for _, upper := range slices.Sorted(maps.Keys(uppers)) {
		p.upper(upper, uppers[upper], at)
	}
	return nil
}

// ethernet reads the definition of an interface with hardware.
func (p *netplan) ethernet(id string, node yaml.Node, at func(*yaml.Node) given) {
	n := p.definition(id)
	for key, value := range pairs(&node) {
		switch {
		case key.Value == "match":
			n.match(value)
		case key.Value == "activation-mode":
			n.OnDemand = value.Value == "manual" || value.Value == "off"
		case key.Value == "optional":
			n.Optional = isTrue(value.Value)
		case key.Value == "addresses" && len(value.Content) > 0, (key.Value == "dhcp4" || key.Value == "dhcp6") && isTrue(value.Value):
			line := at(key)
			line.id, line.static = id, key.Value == "addresses"
			p.given = append(p.given, line)
		}
	}
}

// upper reads the definition of an interface that lies on others.
func (p *netplan) upper(name string, node yaml.Node, at func(*yaml.Node) given) {
	for key, value := range pairs(&node) {
		lower := value.Content
		switch {
		case key.Value == "link" && value.Kind == yaml.ScalarNode:
			lower = []*yaml.Node{value}
		case key.Value != "interfaces":
			continue
		}
		for _, item := range lower {
			line := at(item)
			line.id, line.upper = item.Value, name
			p.given = append(p.given, line)
		}
	}
}

// yamlLine matches the line that an error of the parser names.
var yamlLine = host.LazyRegexp(`\bline (\d+): `)

// definitions returns the definitions of interfaces with hardware, and of those that lie on others.
func definitions(text string) (ethernets, uppers map[string]yaml.Node, err error) {
	type byID = map[string]yaml.Node
	var document struct {
		Network struct {
			Ethernets byID `yaml:"ethernets"`
			Bonds     byID `yaml:"bonds"`
			Bridges   byID `yaml:"bridges"`
			VRFs      byID `yaml:"vrfs"`
			VLANs     byID `yaml:"vlans"`
		} `yaml:"network"`
	}
	if err := yaml.Unmarshal([]byte(text), &document); err != nil && !errors.Is(err, io.EOF) {
		return nil, nil, err
	}
	n := document.Network
	uppers = byID{}
	for _, of := range []byID{n.Bonds, n.Bridges, n.VRFs, n.VLANs} {
		maps.Copy(uppers, of)
	}
	return n.Ethernets, uppers, nil
}

// match reads the match of a definition, whose id is then only a name in netplan.
func (n *Network) match(node *yaml.Node) {
	n.Names, n.Drivers, n.Addresses = nil, nil, nil
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
			n.Names = values
		case "driver":
			n.Drivers = values
		case "macaddress":
			n.Addresses = values
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

var secret = host.LazyRegexp(`(?i)` + host.SecretNames + `["']?\s*[:=]\s*[^\s{]`)

// keepNetplan returns the lines of a file that Read reads. A file that it cannot parse, or that has
// a secret in such a line, becomes one that nothing can parse, so that it does not look empty.
func keepNetplan(data []byte) []byte {
	const malformed = "["
	var document yaml.Node
	if err := yaml.Unmarshal(data, &document); err != nil {
		return []byte(malformed)
	}
	lines := strings.Split(string(data), "\n")
	kept := make([]bool, len(lines)+1) // by number, from 1
	if len(document.Content) > 0 {
		keepKeys(document.Content[0], len(lines)+1, kept,
			[]string{"network"}, []string{"ethernets", "bonds", "bridges", "vrfs", "vlans"}, nil,
			[]string{"match", "addresses", "dhcp4", "dhcp6", "activation-mode", "optional", "interfaces", "link"})
	}
	for i, line := range lines {
		switch {
		case !kept[i+1] || strings.HasPrefix(strings.TrimSpace(line), "#"):
			lines[i] = ""
		case secret().MatchString(line):
			return []byte(malformed)
		}
	}
	return []byte(strings.Join(lines, "\n"))
}

// keepKeys marks the lines of those keys of a mapping that a list has, nil for all, and of the keys
// that the further lists have below them: of the last list's, all lines up to the next key. end is
// the line after the mapping.
func keepKeys(m *yaml.Node, end int, kept []bool, keys []string, below ...[]string) {
	for i := 0; m.Kind == yaml.MappingNode && i+1 < len(m.Content); i += 2 {
		key, stop := m.Content[i], end
		if i+2 < len(m.Content) {
			stop = m.Content[i+2].Line
		}
		if keys != nil && !slices.Contains(keys, key.Value) {
			continue
		}
		kept[key.Line] = true
		if len(below) > 0 {
			keepKeys(m.Content[i+1], stop, kept, below[0], below[1:]...)
			continue
		}
		for line := key.Line; line < stop; line++ {
			kept[line] = true
		}
	}
}
