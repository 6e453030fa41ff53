package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/devspec"
)

// Ask is what one query adds to the queries before it.
type Ask struct {
	Class  string // of the resource; "" for a trait
	Amount int
	Trait  string // required, or forbidden with a leading "!"

	resources map[string]int // all that is asked for up to here
	traits    []string
}

// String returns what is asked, as Placement writes it.
func (a Ask) String() string {
	if a.Class != "" {
		return fmt.Sprintf("%s:%d", a.Class, a.Amount)
	}
	return "trait " + a.Trait
}

// DeviceAsk is a number of devices of a resource class with traits.
type DeviceAsk struct {
	Aliases string // that select them
	Class   string
	Traits  []string
	Count   int
}

// Resource classes that every flavor requests.
const (
	classVCPU   = "VCPU"
	classPCPU   = "PCPU"
	classMemory = "MEMORY_MB"
	classDisk   = "DISK_GB"
)

// plainSpec matches extra specs that request resources or traits outside granular groups.
var plainSpec = host.LazyRegexp(`^(resources|trait):(.*)$`)

// granularSpec matches those of granular groups (nova/scheduler/utils.py, XS_KEYPAT).
var granularSpec = host.LazyRegexp(`^(resources|trait|group_policy)([a-zA-Z0-9_-]{1,64})?(:.*)?$`)

// Query is a request to Placement without granular groups.
type Query struct {
	Resources map[string]int `json:"resources"`
	Traits    []string       `json:"traits"` // required, or forbidden with a leading "!"
}

// query returns what nova-scheduler requests from Placement for the guest besides devices: what its
// own code says, or else what the flavor and the image name plainly. CPUs are left out where a
// policy decides between shared and dedicated ones. It is nil for the second query of a guest that
// has none: that with shared CPUs for dedicated ones.
func (f Facts) query(isFallback bool) *Query {
	switch {
	case f.Answer != nil && isFallback && len(f.Answer.Queries) < 2, f.Answer == nil && isFallback:
		return nil
	case f.Answer != nil && isFallback:
		return &f.Answer.Queries[1]
	case f.Answer != nil && len(f.Answer.Queries) > 0:
		return &f.Answer.Queries[0]
	}
	const gib = 1024
	disk := f.Flavor.Disk + f.Flavor.Ephemeral + (f.Flavor.Swap+gib-1)/gib
	if f.Volume {
		disk -= f.Flavor.Disk
	}
	q := Query{Resources: map[string]int{classMemory: f.Flavor.RAM, classDisk: disk}}
	if f.numaNodes() == 0 {
		q.Resources[classVCPU] = f.Flavor.VCPUs
	}
	add := func(trait string) {
		if !slices.Contains(q.Traits, trait) {
			q.Traits = append(q.Traits, trait)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(f.Flavor.ExtraSpecs)) {
		value := f.Flavor.ExtraSpecs[key]
		found := plainSpec().FindStringSubmatch(key)
		if found == nil {
			continue
		}
		n, err := strconv.Atoi(value)
		switch kind, name := found[1], found[2]; {
		case kind == "resources" && err == nil && n >= 0:
			q.Resources[name] = n
		case kind == "trait" && value == "required":
			add(name)
		case kind == "trait" && value == "forbidden":
			add("!" + name)
		}
	}
	if f.Image != nil { // an image can only require a trait
		for _, key := range slices.Sorted(maps.Keys(f.Image.Properties)) {
			if name, ok := strings.CutPrefix(key, "trait:"); ok && f.Image.Properties[key] == "required" {
				add(name)
			}
		}
	}
	return &q
}

// asks returns a query as queries, each of which asks for more than the one before: CPUs, memory,
// disk, other resources, traits.
func (q *Query) asks() (list []Ask) {
	if q == nil {
		return nil
	}
	order := []string{classVCPU, classPCPU, classMemory, classDisk}
	for _, class := range slices.Sorted(maps.Keys(q.Resources)) {
		if !slices.Contains(order, class) {
			order = append(order, class)
		}
	}
	sum := map[string]int{}
	for _, class := range order {
		if n := q.Resources[class]; n > 0 { // 0 removes the resource from the request
			sum[class] = n
			list = append(list, Ask{Class: class, Amount: n, resources: maps.Clone(sum)})
		}
	}
	if len(list) == 0 {
		return nil
	}
	for i, trait := range q.Traits {
		list = append(list, Ask{Trait: trait, resources: sum, traits: q.Traits[:i+1]})
	}
	return list
}

// granular returns the extra specs of granular groups, which are not asked for.
func (f Facts) granular() (keys []string) {
	return host.Filter(slices.Sorted(maps.Keys(f.Flavor.ExtraSpecs)), func(key string) bool {
		return granularSpec().MatchString(key) && !plainSpec().MatchString(key)
	})
}

// managed is the trait of all resource providers of PCI devices (nova/compute/
// pci_placement_translator.py).
const managed = "COMPUTE_MANAGED_PCI_DEVICE"

// deviceAsks returns the devices that nova-scheduler requests from Placement with pci_in_placement
// (nova/objects/request_spec.py, generate_request_groups_from_pci_requests).
func (a aliases) deviceAsks(r nova.Request) (list []DeviceAsk) {
	for _, w := range r {
		defined := a.defined[w.Alias]
		if len(defined) == 0 {
			continue
		}
		reported := reportedAs(defined[0])
		ask := DeviceAsk{Aliases: w.Alias, Class: reported.Class(), Traits: []string{managed}, Count: w.Count}
		if traits := reported.Traits(); traits != "" {
			ask.Traits = append(ask.Traits, strings.Split(traits, ",")...)
		}
		i := slices.IndexFunc(list, func(d DeviceAsk) bool { return d.Class == ask.Class && slices.Equal(d.Traits, ask.Traits) })
		if i < 0 {
			list = append(list, ask)
			continue
		}
		list[i].Count += ask.Count
		if list[i].Aliases != ask.Aliases {
			list[i].Aliases += " and " + ask.Aliases
		}
	}
	return list
}

// reportedAs returns a device that nova-compute reports with the resource class and the traits that
// an alias asks for: both are derived alike.
func reportedAs(alias map[string]any) devspec.Reported {
	var d pci.Device
	for key, into := range map[string]**pci.ID{"vendor_id": &d.VendorID, "product_id": &d.ProductID} {
		text, _ := alias[key].(string)
		if id, err := pci.ParseID(text); err == nil {
			*into = &id
		}
	}
	return devspec.Reported{Device: &d, Spec: devspec.Spec{Object: alias}}
}
