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

// given is a line of netplan that gives a definition addresses.
type given struct {
	id, file, text string
	line           int
	static         bool
}

// netplan reads netplan(5). Definitions of the same name in several files are one.
func (r *reader) netplan() {
	byID := map[string]*Network{}
	var addresses []given
	for _, file := range r.files(".yaml", folders("netplan", "/run", "/etc", "/usr/lib", "/lib")...) {
		lines := r.text(file, keepNetplan)
		ethernets, err := definitions(strings.Join(lines, "\n"))
		if err != nil {
			place := file
			if m := yamlLine().FindStringSubmatch(err.Error()); m != nil {
				place += ":" + m[1]
			}
			r.errs = append(r.errs, &FileError{file, place, err})
			continue
		}
		for _, id := range slices.Sorted(maps.Keys(ethernets)) {
			definition := ethernets[id]
			n := byID[id]
			if n == nil {
				n = &Network{Names: []string{id}, Exclude: func(_ []pci.Address, name string) string {
					return "match the adapter by its name: 'name: " + name + "'"
				}}
				byID[id] = n
			}
			for key, value := range pairs(&definition) {
				set := given{id, file, strings.TrimSpace(lines[key.Line-1]), key.Line, key.Value == "addresses"}
				switch {
				case key.Value == "match":
					n.match(value)
				case key.Value == "activation-mode":
					n.OnDemand = value.Value == "manual" || value.Value == "off"
				case key.Value == "addresses" && len(value.Content) > 0, (key.Value == "dhcp4" || key.Value == "dhcp6") && isTrue(value.Value):
					addresses = append(addresses, set)
				}
			}
		}
	}
	for _, a := range addresses {
		r.add(*byID[a.id], a.file, a.line, a.text, a.static)
	}
}

// yamlLine matches the line that an error of the parser names.
var yamlLine = host.LazyRegexp(`\bline (\d+): `)

// definitions returns the definitions of interfaces with hardware.
func definitions(text string) (map[string]yaml.Node, error) {
	var document struct {
		Network struct {
			Ethernets map[string]yaml.Node `yaml:"ethernets"`
		} `yaml:"network"`
	}
	err := yaml.Unmarshal([]byte(text), &document)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return document.Network.Ethernets, err
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
			[]string{"network"}, []string{"ethernets"}, nil, []string{"match", "addresses", "dhcp4", "dhcp6", "activation-mode"})
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
