package image

import (
	"errors"
	"fmt"
	"maps"
	"math/bits"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
)

// Purpose is what the guests of an image are.
type Purpose string

// The purposes. The rules for GPUs also apply to Windows guests.
const (
	ForGPU     Purpose = "gpu"
	ForWindows Purpose = "windows"
)

// Seen is what an image is judged by.
type Seen struct {
	Image  cloud.Image
	Given  string             // the name or id by which the operator gave it: names are not unique
	Newest cloud.Microversion // of the cloud, which depends on its release
	Hosts  []nova.Host        // inventories of compute nodes; nil for none
	Traits Traits
	// Flavor is the flavor of the guests, or nil. Products are those of its aliases that the hosts do
	// not name.
	Flavor   *cloud.Flavor
	Products map[string]flavor.Product
}

// Traits are the compute nodes that have each of the traits that were asked for.
type Traits struct {
	Nodes map[string][]string
	Err   error // why Placement has not answered; nil if it has
}

// errNotAsked is the reason where no trait was asked for.
var errNotAsked = errors.New("no answer of Placement")

// of returns the compute nodes with a trait.
func (t Traits) of(trait string) ([]string, error) {
	nodes, asked := t.Nodes[trait]
	switch {
	case t.Err != nil:
		return nil, t.Err
	case !asked:
		return nil, errNotAsked
	}
	return nodes, nil
}

// Demands returns the traits on which the plan or the check of an image depends, sorted: ask
// Placement for them.
func (s Seen) Demands(o Options) []string {
	traits := map[string]bool{}
	add := func(name string, value *string) {
		if trait := demand(name, value); trait != "" {
			traits[trait] = true
		}
	}
	for name := range s.Image.Properties {
		add(name, s.value(name))
	}
	for name, value := range o.Properties {
		add(name, value)
	}
	if s.Flavor != nil {
		for _, name := range []string{addressMode, viommuModel, secureBoot} {
			if value, ok := s.Flavor.ExtraSpecs[extraSpec(name)]; ok {
				add(name, &value)
			}
		}
	}
	for _, n := range s.needs(o.Purpose) {
		add(n.name, &n.value)
	}
	return slices.Sorted(maps.Keys(traits))
}

// value returns a property of the image, or nil.
func (s Seen) value(name string) *string {
	return s.Image.Value(name)
}

// has returns a property of the image, or "".
func (s Seen) has(name string) string {
	return s.Image.Properties[name]
}

// effective returns the value of a property, or else that of the flavor's extra spec with the same
// meaning, and where it was found. For a vIOMMU, the flavor takes precedence (_get_iommu_model of
// nova/virt/libvirt/driver.py).
func (s Seen) effective(name string) (value, where string) {
	v, ok := s.Image.Properties[name]
	if ok && name != viommuModel {
		return v, name
	}
	if spec := extraSpec(name); spec != "" && s.Flavor != nil {
		if v, ok := s.Flavor.ExtraSpecs[spec]; ok {
			return v, spec + " of flavor " + s.Flavor.Name
		}
	}
	if ok {
		return v, name
	}
	return "", ""
}

// isX86 reports whether guests of the image are of the architecture for which the rules of machine
// type and firmware are.
func (s Seen) isX86() bool {
	for _, name := range []string{architecture, architecture0} {
		if a, ok := s.Image.Properties[name]; ok {
			// Other names that Nova accepts (nova/objects/fields.py, Architecture.canonicalize).
			return slices.Contains([]string{"x86_64", "amd64", "i686", "i386", "i486", "i586", "x86_32", "x86_32p"}, strings.ToLower(a))
		}
	}
	return true
}

// largeBAR is the size of a memory region from which on guests need an address space that is larger
// than firmware provides by default.
const largeBAR = 16 << 30

// span is what the devices of a guest need of its address space.
type span struct {
	host    nova.Host
	largest uint64 // the largest region
	total   uint64 // of all regions, each rounded up to a power of two
	device  string // the product with the largest region
	unknown bool   // the inventory does not have a region of a device, or its size
	missing bool   // the host has no device of an alias
}

// add adds a number of devices of a product: the largest one, if they differ.
func (p *span) add(devices []*pci.Device, count int) {
	var most uint64
	if len(devices) == 0 {
		p.missing = true
	}
	for _, d := range devices {
		var sum uint64
		p.unknown = p.unknown || d.BARs == nil
		for _, b := range d.BARs {
			p.unknown = p.unknown || b.Size == 0
			if !b.Wide {
				continue
			}
			sum += ceilPower(b.Size)
			if b.Size > p.largest {
				p.largest, p.device = b.Size, host.Or(d.Product, d.Address.String())
			}
		}
		most = max(most, sum)
	}
	p.total += uint64(count) * most
}

func ceilPower(n uint64) uint64 {
	if n <= 1 {
		return n
	}
	return 1 << bits.Len64(n-1)
}

// spans returns what the devices of a guest need on each host: those that the flavor requests, or
// without a flavor all GPUs of the host.
func (s Seen) spans() ([]span, error) {
	var request nova.Request
	if s.Flavor != nil {
		var err error
		if request, err = nova.ParseRequest(s.Flavor.ExtraSpecs[nova.RequestKey]); err != nil {
			return nil, fmt.Errorf("flavor %s: %s: %w", s.Flavor.Name, nova.RequestKey, err)
		}
	}
	var all []span
	for _, h := range s.Hosts {
		p := span{host: h}
		if s.Flavor == nil {
			isOfMachine := pci.GPUs(h.Devices)
			for i := range h.Devices {
				if d := &h.Devices[i]; isOfMachine(d) && !d.IsVF() {
					p.add([]*pci.Device{d}, 1)
				}
			}
		}
		for _, w := range request {
			p.add(flavor.DevicesOf(h, w.Alias, s.Products), w.Count)
		}
		if !p.missing {
			all = append(all, p)
		}
	}
	return all, nil
}

// biggest returns the host whose devices have the largest region, nil without one that is known.
func biggest(all []span) *span {
	var found *span
	for i := range all {
		if p := &all[i]; p.largest > 0 && (found == nil || p.largest > found.largest) {
			found = p
		}
	}
	return found
}

// hostsOf names the hosts of spans that a condition selects.
func hostsOf(all []span, selects func(span) bool) string {
	var names []string
	for _, p := range all {
		if selects(p) {
			names = append(names, p.host.Name)
		}
	}
	return strings.Join(names, ", ")
}
