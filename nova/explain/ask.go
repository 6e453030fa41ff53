package explain

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

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

// asks returns the queries for what nova-scheduler requests from Placement for the guest, in this
// order: CPUs, memory, disk, other resources, traits (nova/scheduler/utils.py, ResourceRequest).
// skipped names what is not among them.
func (f Facts) asks(isFallback bool) (list []Ask, skipped []string) {
	flavor := f.Flavor
	const gib = 1024
	disk := flavor.Disk + flavor.Ephemeral + (flavor.Swap+gib-1)/gib
	if f.Volume {
		disk -= flavor.Disk
	}
	cpus := classVCPU
	switch f.property("hw:cpu_policy") {
	case "dedicated":
		if !isFallback {
			cpus = classPCPU
		}
	case "mixed":
		skipped = append(skipped, "CPUs of hw:cpu_policy=mixed")
		cpus = ""
	}
	amounts := map[string]int{classMemory: flavor.RAM, classDisk: disk}
	var traits []string
	if cpus != "" {
		amounts[cpus] = flavor.VCPUs
	}
	if f.property("hw:emulator_threads_policy") == "isolate" && cpus != "" { // one CPU more, for QEMU
		amounts[cpus]++
	}
	if cpus == classPCPU {
		switch f.property("hw:cpu_thread_policy") {
		case "isolate":
			traits = append(traits, "!HW_CPU_HYPERTHREADING")
		case "require":
			traits = append(traits, "HW_CPU_HYPERTHREADING")
		}
	}
	for _, key := range slices.Sorted(maps.Keys(flavor.ExtraSpecs)) {
		value := flavor.ExtraSpecs[key]
		kind, name, _ := strings.Cut(key, ":")
		switch {
		case kind == "resources":
			if n, err := strconv.Atoi(value); err == nil {
				amounts[name] = n
			}
		case kind == "trait" && value == "required":
			traits = append(traits, name)
		case kind == "trait" && value == "forbidden":
			traits = append(traits, "!"+name)
		case strings.HasPrefix(kind, "resources") || strings.HasPrefix(kind, "trait") || kind == "group_policy":
			skipped = append(skipped, key)
		}
	}
	if f.Image != nil { // an image can only require a trait
		for _, key := range slices.Sorted(maps.Keys(f.Image.Properties)) {
			if name, ok := strings.CutPrefix(key, "trait:"); ok && !slices.Contains(traits, name) {
				traits = append(traits, name)
			}
		}
	}
	order := []string{classVCPU, classPCPU, classMemory, classDisk}
	for _, class := range slices.Sorted(maps.Keys(amounts)) {
		if !slices.Contains(order, class) {
			order = append(order, class)
		}
	}
	sum := map[string]int{}
	for _, class := range order {
		if amounts[class] > 0 { // 0 removes the resource from the request
			sum[class] = amounts[class]
			list = append(list, Ask{Class: class, Amount: amounts[class], resources: maps.Clone(sum)})
		}
	}
	if len(list) == 0 {
		return nil, skipped
	}
	for i, trait := range traits {
		list = append(list, Ask{Trait: trait, resources: sum, traits: traits[:i+1]})
	}
	return list, skipped
}

// property returns an extra spec of the flavor, or else the property of the image that has the same
// meaning: hw_cpu_policy for hw:cpu_policy.
func (f Facts) property(key string) string {
	if value := f.Flavor.ExtraSpecs[key]; value != "" || f.Image == nil {
		return value
	}
	return f.Image.Properties[strings.ReplaceAll(key, ":", "_")]
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
