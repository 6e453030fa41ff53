package fleet

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/document"
)

var (
	// ErrAnsibleName means that a node cannot have its name in an inventory of Ansible.
	ErrAnsibleName = host.WithHint(errors.New("cannot be the name of a host in an inventory of Ansible"),
		"rename the file to the host's name in your inventory, of letters, digits, dots, dashes and underscores")
	// ErrAnsibleTwice means that two nodes would have one name in an inventory of Ansible.
	ErrAnsibleTwice = host.WithHint(errors.New("two nodes would have one name in an inventory of Ansible"),
		"name each file like its host in your inventory")
)

// ansibleHost matches names that Ansible reads as they are: brackets are ranges, and what follows a
// colon is a port (ansible, lib/ansible/plugins/inventory/__init__.py, _expand_hostpattern).
var ansibleHost = host.LazyRegexp(`^[A-Za-z0-9_][A-Za-z0-9._-]*$`)

// withKind matches the name of a file that ends with the kind of its document.
var withKind = host.LazyRegexp(`^(.+)\.(?:scan|check|guests)$`)

// Group returns the name of the wave's group in an inventory of Ansible.
func (w Wave) Group() string { return fmt.Sprintf("wave_%02d", w.Number) }

// AnsibleNames returns the name of each node of the waves in an inventory of Ansible: that of the
// file with its documents, which Ansible has given it, or the hostname where a file or standard
// input has several documents.
//
// Errors, for all nodes at once: ErrAnsibleName, ErrAnsibleTwice.
func (p Plan) AnsibleNames() (map[*Node]string, error) {
	taken := map[string]*Node{}
	reserved := []string{"all", "ungrouped"}
	for _, w := range p.Waves {
		reserved = append(reserved, w.Group())
	}
	names := map[*Node]string{}
	var errs []error
	for _, w := range p.Waves {
		for _, n := range w.Nodes {
			of := n.origins()[0]
			name := of.stem(n.Name)
			switch other := taken[name]; {
			case !ansibleHost().MatchString(name), slices.Contains(reserved, name):
				errs = append(errs, fmt.Errorf("%s: %q %w", of.Name, name, ErrAnsibleName))
			case other != nil:
				errs = append(errs, fmt.Errorf("%s: %w: %s has the name %s too", of.Name, ErrAnsibleTwice, other.origins()[0].Name, name))
			}
			taken[name], names[n] = n, name
		}
	}
	return names, errors.Join(errs...)
}

// stem returns the name of the file without its folder, its ending, and the kind of document behind
// a dot: gpu1.scan.json and gpu1.json are of gpu1, gpu1-scan.json of a host that is called so.
func (o Origin) stem(hostname string) string {
	if of := (document.Document{Name: o.Name, File: o.File}); !of.IsAlone() || o.File == document.Name(document.Stdin) {
		return hostname
	}
	name := filepath.Base(o.File)
	name = strings.TrimSuffix(name, filepath.Ext(name))
	if found := withKind().FindStringSubmatch(name); found != nil {
		return found[1]
	}
	return name
}
