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
	"gpustack/nova/conf"
	"gpustack/nova/devspec"
	"gpustack/nova/fit"
)

// Ask is what one query adds to the queries before it.
type Ask struct {
	Class  string // of the resource; "" for a trait
	Amount int
	Trait  string // required, or forbidden with a leading "!"

	resources  map[string]int // all that is asked for up to here
	traits     []string
	isOptional bool // none of the optional traits is required if Placement does not have one of them
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

// requested is what nova-scheduler requests from Placement for a guest besides PCI devices
// (nova/scheduler/utils.py, ResourceRequest.from_request_spec).
type requested struct {
	amounts  map[string]int
	traits   []string // required, or forbidden with a leading "!"
	ofGroups []string // traits that granular groups require
	granular []string // extra specs of granular groups, which are not asked for
	// ofImage are traits for the image's metadata, which nova-scheduler requires only if all their
	// names exist.
	ofImage []string
	sum     map[string]int // of all groups
}

// grouped matches extra specs that request resources or traits, of a granular group if there is a
// suffix (XS_KEYPAT).
var grouped = host.LazyRegexp(`^(resources|trait)([a-zA-Z0-9_-]{1,64})?:(.*)$`)

// asks returns the queries for what nova-scheduler requests from Placement for the guest, in this
// order: CPUs, memory, disk, other resources, traits. skipped names what is not among them.
// isFallback is true for the request with shared CPUs instead of pinned ones.
func (f Facts) asks(isFallback bool) (list []Ask, skipped []string) {
	r := f.requested(isFallback)
	order := []string{classVCPU, classPCPU, classMemory, classDisk}
	for _, class := range slices.Sorted(maps.Keys(r.amounts)) {
		if !slices.Contains(order, class) {
			order = append(order, class)
		}
	}
	sum := map[string]int{}
	for _, class := range order {
		if r.amounts[class] > 0 { // 0 removes the resource from the request
			sum[class] = r.amounts[class]
			list = append(list, Ask{Class: class, Amount: r.amounts[class], resources: maps.Clone(sum)})
		}
	}
	if len(list) == 0 {
		return nil, r.granular
	}
	traits := slices.Concat(r.traits, r.ofImage)
	for i, trait := range traits {
		list = append(list, Ask{Trait: trait, resources: sum, traits: traits[:i+1], isOptional: i >= len(r.traits)})
	}
	return list, r.granular
}

// requested returns what is requested for the guest.
func (f Facts) requested(isFallback bool) requested {
	r := requested{amounts: map[string]int{}, sum: map[string]int{}}
	g := f.guest()
	r.addSpecs(f.Flavor.ExtraSpecs)
	if f.Image != nil { // an image can only require a trait
		for _, key := range slices.Sorted(maps.Keys(f.Image.Properties)) {
			if name, ok := strings.CutPrefix(key, "trait:"); ok && f.Image.Properties[key] == "required" {
				r.add(name)
			}
		}
	}
	if !isFallback {
		r.addCPUs(g)
	}
	r.addFlavor(f)
	r.addHardware(g)
	r.addImage(f)
	return r
}

// add adds a trait.
func (r *requested) add(trait string) {
	if !slices.Contains(r.traits, trait) {
		r.traits = append(r.traits, trait)
	}
}

// addSpecs adds resources and traits that extra specs name (_process_extra_specs). Nova ignores
// values that it does not know.
func (r *requested) addSpecs(specs map[string]string) {
	for _, key := range slices.Sorted(maps.Keys(specs)) {
		value := specs[key]
		found := grouped().FindStringSubmatch(key)
		if found == nil {
			continue
		}
		kind, group, name := found[1], found[2], found[3]
		n, err := strconv.Atoi(value)
		switch {
		case kind == "resources" && (err != nil || n < 0):
		case kind == "resources":
			r.sum[name] += n
			if group == "" {
				r.amounts[name] = n
			} else if n > 0 {
				r.granular = append(r.granular, key)
			}
		case value != "required" && value != "forbidden":
		case group != "":
			r.granular = append(r.granular, key)
			if value == "required" {
				r.ofGroups = append(r.ofGroups, name)
			}
		case value == "required":
			r.add(name)
		default:
			r.add("!" + name)
		}
	}
}

// addCPUs adds what the policies of CPUs request (_translate_pinning_policies, since Train).
func (r *requested) addCPUs(g fit.Guest) {
	if g.Release < nova.Train {
		return
	}
	shared, pinned := g.CPUs()
	for class, n := range map[string]int{classVCPU: shared, classPCPU: pinned} {
		if n > 0 {
			r.amounts[class] = n
			r.sum[class] += n
		}
	}
	switch g.ThreadPolicy() {
	case "isolate":
		r.add("!HW_CPU_HYPERTHREADING")
	case "require":
		r.add("HW_CPU_HYPERTHREADING")
	}
}

// addFlavor adds the CPUs, the memory and the disk of the flavor, unless an extra spec of any group
// replaces them.
func (r *requested) addFlavor(f Facts) {
	const gib = 1024
	disk := f.Flavor.Disk + f.Flavor.Ephemeral + (f.Flavor.Swap+gib-1)/gib
	if f.Volume {
		disk -= f.Flavor.Disk
	}
	set := func(class string, n int) {
		if _, there := r.sum[class]; !there {
			r.amounts[class] = n
		}
	}
	if _, pins := r.sum[classPCPU]; !pins {
		set(classVCPU, f.Flavor.VCPUs)
	}
	set(classMemory, f.Flavor.RAM)
	set(classDisk, disk)
}

// addHardware adds what other extra specs and properties request: encrypted and persistent memory,
// a TPM, secure boot, policy socket, and modes of addresses.
func (r *requested) addHardware(g fit.Guest) {
	if encrypts, _ := g.EncryptsMemory(); encrypts && g.Release >= nova.Train {
		r.amounts["MEM_ENCRYPTION_CONTEXT"] = 1
	}
	if trait := g.EncryptionTrait(); trait != "" {
		r.add(trait)
	}
	for _, label := range g.PersistentMemory() {
		r.amounts["CUSTOM_PMEM_NAMESPACE_"+normalized(label)]++
	}
	traits, _ := g.Traits() // the flavor link says what is rejected
	for _, trait := range traits {
		r.add(trait)
	}
}

// normalized returns a part of a name of a resource class (os_resource_classes, normalize_name).
func normalized(name string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, strings.ToUpper(name))
}

// metadata are properties of images for which a trait is required, with its prefix
// (nova/scheduler/request_filter.py, transform_image_metadata, since Ussuri).
var metadata = map[string]string{
	"hw_cdrom_bus": "COMPUTE_STORAGE_BUS", "hw_disk_bus": "COMPUTE_STORAGE_BUS", "hw_video_model": "COMPUTE_GRAPHICS_MODEL",
	"hw_vif_model": "COMPUTE_NET_VIF_MODEL", "hw_architecture": "HW_ARCH", "hw_emulation_architecture": "COMPUTE_ARCH", "hw_viommu_model": "COMPUTE_VIOMMU",
}

// addImage adds the traits that request filters derive from the image and the flavor.
func (r *requested) addImage(f Facts) {
	traits, _ := f.guest().FilterTraits()
	for _, trait := range traits {
		r.add(trait)
	}
	if f.Image == nil {
		return
	}
	option := func(key string) bool {
		return f.isOn(nova.Side.Scheduler, conf.Name{Section: "scheduler", Key: key})
	}
	if option("query_placement_for_image_type_support") && !f.Volume && f.Image.DiskFormat != "" && f.Release >= nova.Train {
		r.add("COMPUTE_IMAGE_TYPE_" + strings.ToUpper(f.Image.DiskFormat))
	}
	if !option("image_metadata_prefilter") || f.Release <= nova.Train {
		return
	}
	g := f.guest()
	m, _ := g.Machine("")
	for _, key := range slices.Sorted(maps.Keys(metadata)) {
		value := g.Image[key]
		if key == "hw_architecture" {
			value = m.Architecture
		}
		if trait := metadata[key] + "_" + strings.ToUpper(strings.ReplaceAll(value, "-", "_")); value != "" && !slices.Contains(r.ofImage, trait) {
			r.ofImage = append(r.ofImage, trait)
		}
	}
}

// required returns the traits that the flavor and the image require in any group
// (all_required_traits), before request filters add theirs.
func (f Facts) required() (traits []string) {
	r := requested{amounts: map[string]int{}, sum: map[string]int{}}
	g := f.guest()
	r.addSpecs(f.Flavor.ExtraSpecs)
	r.addCPUs(g)
	r.addHardware(g)
	traits = slices.Concat(r.traits, r.ofGroups)
	for key, value := range g.Image {
		if name, ok := strings.CutPrefix(key, "trait:"); ok && value == "required" {
			traits = append(traits, name)
		}
	}
	return traits
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

// Query returns the request to Placement for the guest as a query of allocation candidates, without
// granular groups, for tests that compare it with Nova's. isFallback is true for that with shared
// CPUs instead of pinned ones.
func (f Facts) Query(isFallback bool) string {
	list, _ := f.asks(isFallback)
	if len(list) == 0 {
		return ""
	}
	last := list[len(list)-1]
	var amounts, required []string
	for _, class := range slices.Sorted(maps.Keys(last.resources)) {
		amounts = append(amounts, fmt.Sprintf("%s:%d", class, last.resources[class]))
	}
	for _, isForbidden := range []bool{false, true} {
		for _, trait := range slices.Sorted(slices.Values(last.traits)) {
			if strings.HasPrefix(trait, "!") == isForbidden {
				required = append(required, trait)
			}
		}
	}
	return strings.Join(amounts, ",") + " " + strings.Join(required, ",")
}
