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
	// ErrAnsibleNames means that the documents of a node are in files of two hosts of an inventory.
	ErrAnsibleNames = host.WithHint(errors.New("is in a file of another host than the other documents of its node"),
		"see which host has printed it: one may have the hostname of another one")
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
// Errors, for all nodes at once: ErrAnsibleName, ErrAnsibleNames, ErrAnsibleTwice.
func (p Plan) AnsibleNames() (map[*Node]string, error) {
	taken := map[string]*Node{}
	reserved := []string{"all", "ungrouped"}
	reserved = append(reserved, host.Map(p.Waves, Wave.Group)...)
	names := map[*Node]string{}
	var errs []error
	for _, w := range p.Waves {
		for _, n := range w.Nodes {
			of := n.origins()[0]
			name := of.stem(n.Name)
			another := slices.IndexFunc(n.origins(), func(o Origin) bool { return o.isAlone() && of.isAlone() && o.stem("") != name })
			switch other := taken[name]; {
			case another >= 0:
				errs = append(errs, fmt.Errorf("%s: the document of %s %w: %s", n.origins()[another].Name, n.Name, ErrAnsibleNames, of.Name))
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

// isAlone reports whether a file of its own has the document.
func (o Origin) isAlone() bool {
	return document.Document{Name: o.Name, File: o.File}.IsAlone() && o.File != document.Name(document.Stdin)
}

// stem returns the name of the file without its folder, its ending, and the kind of document behind
// a dot: gpu1.scan.json and gpu1.json are of gpu1, gpu1-scan.json of a host that is called so.
func (o Origin) stem(hostname string) string {
	if !o.isAlone() {
		return hostname
	}
	name := filepath.Base(o.File)
	name = strings.TrimSuffix(name, filepath.Ext(name))
	if found := withKind().FindStringSubmatch(name); found != nil {
		return found[1]
	}
	return name
}

// fileStem returns the stem of a file, whatever it contains.
func fileStem(file string) string { return Origin{Name: file, File: file}.stem("") }
