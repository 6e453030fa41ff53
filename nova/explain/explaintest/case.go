// Package explaintest makes random requests and hosts for tests that compare nova explain with
// Nova's own code: the same seed and number always give the same [Case] ([Random]). It has no
// answers of its own.
package explaintest

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
)

// Case is a request for a guest, and the only host of the cloud. [Case.Facts]
// are its facts.
type Case struct {
	Aliases []string          `json:"aliases"` // values of [pci] alias
	Specs   map[string]string `json:"specs"`   // extra specs of the flavor
	VCPUs   int               `json:"vcpus"`
	RAM     int               `json:"ram"` // MiB
	Disk    int               `json:"disk"`
	Swap    int               `json:"swap"` // MiB
	Volume  bool              `json:"volume"`
	Format  string            `json:"format"`  // of the image's disk
	Image   map[string]string `json:"image"`   // its properties; empty for none
	Project string            `json:"project"` // of the guest
	Zone    string            `json:"zone"`    // that is requested; "" for none

	Pools      json.RawMessage `json:"pools"`    // pci_stats of the host
	Topology   json.RawMessage `json:"topology"` // numa_topology of the host; null for none
	CPURatio   float64         `json:"cpu_ratio"`
	RAMRatio   float64         `json:"ram_ratio"`
	Supported  json.RawMessage `json:"supported"` // supported_instances
	Hypervisor string          `json:"hypervisor"`
	Version    int             `json:"version"` // of the hypervisor
	CPUInfo    json.RawMessage `json:"cpu_info"`

	Filters    []string          `json:"filters"`
	Scheduler  map[string]bool   `json:"scheduler"` // options of [scheduler]
	Options    map[string]string `json:"options"`   // of [filter_scheduler]
	Aggregates []Aggregate       `json:"aggregates"`
	Group      *Group            `json:"group"` // nil for none
}

// Aggregate is a host aggregate.
type Aggregate struct {
	Metadata map[string]string `json:"metadata"`
	HasHost  bool              `json:"has_host"`
}

// Group is the server group of the guest.
type Group struct {
	Policy string `json:"policy"`
	OnHost int    `json:"on_host"`   // members on the host
	Beside int    `json:"elsewhere"` // members on other hosts
	Most   int    `json:"most"`      // max_server_per_host; 0 for none
}

// object is a versioned object as Nova stores it (oslo.versionedobjects, obj_to_primitive).
type object struct {
	Name      string         `json:"nova_object.name"`
	Namespace string         `json:"nova_object.namespace"`
	Version   string         `json:"nova_object.version"`
	Data      map[string]any `json:"nova_object.data"`
}

// maker makes a case with random values.
type maker struct {
	*rand.Rand

	filtering bool // filters and their options are more frequent
}

// one returns one of several values.
func one[T any](m maker, values ...T) T { return values[m.IntN(len(values))] }

// chance reports true in one of n calls.
func (m maker) chance(n int) bool { return m.IntN(n) == 0 }

// often is chance for filters and their options.
func (m maker) often(n int) bool {
	const times = 2
	if m.filtering {
		n /= times
	}
	return m.chance(n)
}

// some sets each key in one of n calls, to one of its values. A value after "!" is one that Nova
// rejects, and rare: it would hide the others.
func (m maker) some(n int, to map[string]string, values map[string][]string) {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !m.chance(n) {
			continue
		}
		value, isBad := strings.CutPrefix(one(m, values[key]...), "!")
		if !isBad || m.chance(8) {
			to[key] = value
		}
	}
}

// Random returns a case of a seed.
func Random(seed, number uint64) Case {
	m := maker{Rand: rand.New(rand.NewPCG(seed, number))}
	c := Case{
		Specs: map[string]string{}, Image: map[string]string{}, Scheduler: map[string]bool{}, Options: map[string]string{},
		VCPUs: one(m, 1, 2, 2, 2, 4, 4, 6, 8), RAM: 256 * one(m, 1, 2, 2, 4, 4, 6, 8), Disk: one(m, 0, 1, 20), Swap: one(m, 0, 0, 1, 1025),
		Volume: m.chance(4), Format: one(m, "raw", "qcow2"), Project: one(m, "mine", "mine", "theirs"),
		CPURatio: one(m, 1.0, 2, 16), RAMRatio: one(m, 1.0, 1.5),
		Hypervisor: "QEMU", Version: one(m, 7002000, 10000000), CPUInfo: json.RawMessage(cpuInfo),
		Supported: json.RawMessage(one(m, supportedX86, supportedX86, supportedARM, "[]")),
	}
	const kinds = 3
	switch number % kinds {
	case 1:
		m.fitting(&c)
		return c
	case 2:
		m.filtering = true
		m.filtered(&c)
		return c
	}
	m.aliases(&c)
	c.Topology = m.topology()
	c.Pools = m.pools()
	if !m.chance(3) {
		m.numa(&c)
	}
	m.filters(&c)
	return c
}

// fitting makes a valid guest with a NUMA topology, and a host on which that alone decides: other
// cases are mostly rejected before.
func (m maker) fitting(c *Case) {
	c.Filters = []string{"PciPassthroughFilter", "NUMATopologyFilter"}
	nodes := one(m, 1, 1, 1, 2, 2, 3)
	c.VCPUs, c.RAM, c.Disk, c.Swap, c.Volume = nodes*one(m, 1, 1, 2, 2, 3, 4), nodes*256*one(m, 1, 1, 2, 2, 4, 6), 1, 0, false
	for _, name := range []string{"a", "b"} {
		object := map[string]string{"name": name, "vendor_id": "10de", "product_id": "11b4"}
		m.some(3, object, map[string][]string{"numa_policy": {"required", "preferred", "socket"}})
		m.some(2, object, map[string][]string{"device_type": {"type-PCI"}})
		c.Aliases = append(c.Aliases, text(object))
	}
	m.some(1, c.Specs, map[string][]string{"pci_passthrough:alias": {"a:1", "a:1", "a:1", "a:2", "a:1,b:1", "b:2,a:1"}})
	m.some(3, c.Specs, map[string][]string{"hw:mem_page_size": {"small", "large", "large", "any", "2048", "1GB"}})
	c.Specs["hw:numa_nodes"] = fmt.Sprint(nodes)
	if !m.chance(3) {
		c.Specs["hw:cpu_policy"] = "dedicated"
		m.some(2, c.Specs, map[string][]string{"hw:cpu_thread_policy": {"require", "isolate", "prefer"}})
		m.some(3, c.Specs, map[string][]string{"hw:emulator_threads_policy": {"isolate"}})
	}
	if c.VCPUs > 1 && m.chance(8) {
		c.Specs["hw:cpu_policy"] = "mixed"
		c.Specs["hw:cpu_dedicated_mask"] = one(m, "0", "^0")
		delete(c.Specs, "hw:cpu_thread_policy")
	}
	m.some(4, c.Specs, map[string][]string{"hw:pci_numa_affinity_policy": {"required", "preferred", "socket"}})
	if m.chance(8) {
		c.Filters = c.Filters[:1]
	}
	c.Topology, c.Pools = m.topology(), m.poolsOf("11b4")
	if m.chance(6) {
		c.Filters = append(c.Filters, "ServerGroupAntiAffinityFilter")
		c.Group = &Group{Policy: "anti-affinity", OnHost: one(m, 0, 1, 1, 2), Most: one(m, 0, 2, 3)}
	}
}

// filtered makes a valid guest without a NUMA topology, and a host that has its devices: filters
// and Placement decide.
func (m maker) filtered(c *Case) {
	c.Aliases = []string{text(map[string]string{"name": "a", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"})}
	c.Specs["pci_passthrough:alias"] = "a:1"
	c.Topology = m.topology()
	c.Pools = json.RawMessage(text(object{"PciDevicePoolList", "nova", "1.1", map[string]any{"objects": []any{object{"PciDevicePool", "nova", "1.1", map[string]any{
		"product_id": "11b4", "vendor_id": "10de", "numa_node": 0, "tags": map[string]any{"dev_type": "type-PCI"}, "count": 1,
	}}}}}))
	m.filters(c)
}

// poolsOf returns pools of a product, on different NUMA nodes.
func (m maker) poolsOf(product string) json.RawMessage {
	list := []any{}
	for range one(m, 1, 2, 2, 3, 4) {
		kind := one(m, "type-PCI", "type-PCI", "type-PCI", "type-PCI", "type-PCI", "type-PF", "vdpa")
		numa := any(m.IntN(4))
		if m.chance(6) {
			numa = nil
		}
		list = append(list, object{"PciDevicePool", "nova", "1.1", map[string]any{
			"product_id": product, "vendor_id": "10de", "numa_node": numa, "tags": map[string]any{"dev_type": kind}, "count": one(m, 1, 1, 2, 3),
		}})
	}
	return json.RawMessage(text(object{"PciDevicePoolList", "nova", "1.1", map[string]any{"objects": list}}))
}

const (
	supportedX86 = `[["i686", "qemu", "hvm"], ["x86_64", "qemu", "hvm"], ["x86_64", "kvm", "hvm"]]`
	supportedARM = `[["aarch64", "qemu", "hvm"], ["aarch64", "kvm", "hvm"]]`
	cpuInfo      = `{"arch": "x86_64", "model": "Cascadelake-Server", "vendor": "Intel", "topology": {"cells": 2, "sockets": 1, "cores": 16, "threads": 2}, "features": ["avx512f", "vmx"]}`
)

// products are those of pools and aliases, few so that they meet.
var products = []string{"11b4", "20b2"}

func (m maker) aliases(c *Case) {
	names := []string{"a", "b"}
	for _, name := range names {
		first := m.alias(name, nil)
		c.Aliases = append(c.Aliases, text(first))
		if m.chance(6) {
			c.Aliases = append(c.Aliases, text(m.alias(name, first)))
		}
	}
	requests := []string{fmt.Sprintf("a:%d", one(m, 1, 1, 1, 2, 3))}
	if m.chance(2) {
		requests = append(requests, fmt.Sprintf("b:%d", one(m, 1, 2)))
	}
	if m.chance(60) {
		requests = append(requests, "c:1")
	}
	m.Shuffle(len(requests), func(i, k int) { requests[i], requests[k] = requests[k], requests[i] })
	if !m.chance(12) {
		c.Specs["pci_passthrough:alias"] = strings.Join(requests, one(m, ",", ", "))
	}
}

// alias returns an alias, or a second definition of one, mostly with the type and the policy that
// Nova requires then.
func (m maker) alias(name string, first map[string]string) map[string]string {
	object := map[string]string{"name": name, "vendor_id": "10de", "product_id": one(m, products...)}
	if !m.chance(4) {
		object["device_type"] = one(m, "type-PCI", "type-PCI", "type-PCI", "type-PF", "type-VF")
	}
	if m.chance(3) {
		object["numa_policy"] = one(m, "required", "legacy", "preferred", "socket")
	}
	m.some(40, object, map[string][]string{"product_id": {"20B2", ""}, "vendor_id": {""}, "capability_type": {"pci"}, "resource_class": {"gpu"}})
	m.some(25, object, map[string][]string{"live_migratable": {"yes", "false", "no"}})
	maps.DeleteFunc(object, func(_, value string) bool { return value == "" })
	if first != nil && !m.chance(8) {
		for _, key := range []string{"device_type", "numa_policy"} {
			delete(object, key)
			if value, there := first[key]; there {
				object[key] = value
			}
		}
	}
	return object
}

func text(value any) string {
	text, _ := json.Marshal(value) //nolint:errchkjson // of plain values
	return string(text)
}

// pools returns a PciDevicePoolList.
func (m maker) pools() json.RawMessage {
	list := []any{}
	for range one(m, 0, 1, 2, 3, 4, 5, 6) {
		kind := one(m, "type-PCI", "type-PCI", "type-PCI", "type-PCI", "type-PF", "type-VF", "vdpa")
		tags := map[string]any{"dev_type": kind}
		if kind != "type-PCI" || m.chance(9) {
			tags["remote_managed"] = one(m, "false", "false", "false", "true", "True")
		}
		extra := map[string]string{}
		m.some(25, extra, map[string][]string{"capability_type": {"pci"}, "physical_network": {"physnet0"}, "name": {"K4200"}, "resource_class": {"CUSTOM_GPU"}})
		m.some(5, extra, map[string][]string{"live_migratable": {"true", "false", "yes"}})
		for tag, value := range extra {
			tags[tag] = value
		}
		numa := any(m.IntN(4))
		if m.chance(4) {
			numa = nil
		}
		list = append(list, object{"PciDevicePool", "nova", "1.1", map[string]any{
			"product_id": one(m, products...), "vendor_id": "10de", "numa_node": numa, "tags": tags, "count": one(m, 1, 1, 2, 3),
		}})
	}
	return json.RawMessage(text(object{"PciDevicePoolList", "nova", "1.1", map[string]any{"objects": list}}))
}

// topology returns a NUMATopology of 1 to 8 cells, null for none.
func (m maker) topology() json.RawMessage {
	if m.chance(25) {
		return json.RawMessage("null")
	}
	cells := []any{}
	threads, perCell, hasDedicated := one(m, 1, 2, 2), one(m, 2, 4, 4, 8), one(m, 0, 1, 1, 2)
	hasSockets, hasPages := !m.chance(5), !m.chance(4)
	perm := m.Perm(8)
	for i := range one(m, 1, 2, 2, 2, 3, 4, 8) {
		id := i
		if m.chance(30) {
			id = perm[i]
		}
		cells = append(cells, m.cell(id, i*perCell*threads, perCell*threads, threads, hasDedicated, hasSockets, hasPages))
	}
	return json.RawMessage(text(object{"NUMATopology", "nova", "1.2", map[string]any{"cells": cells}}))
}

// cell returns a NUMACell with a number of CPUs from first on.
func (m maker) cell(id, first, count, threads, hasDedicated int, hasSockets, hasPages bool) object {
	var all, shared, dedicated, pinned []int
	siblings := [][]int{}
	for cpu := first; cpu < first+count; cpu++ {
		all = append(all, cpu)
		switch {
		case hasDedicated == 2 && (cpu-first) < count/2:
			shared = append(shared, cpu)
		default:
			dedicated = append(dedicated, cpu)
			if m.chance(4) {
				pinned = append(pinned, cpu)
			}
		}
		if (cpu-first)%threads == 0 {
			core := []int{}
			for k := range threads {
				core = append(core, cpu+k)
			}
			siblings = append(siblings, core)
		}
	}
	switch hasDedicated {
	case 0: // vcpu_pin_set, or neither option: both sets are equal
		shared, dedicated = all, all
	case 1:
		shared = nil
		if m.chance(3) {
			shared, dedicated = all[:count/2], all[count/2:]
			pinned = slices.DeleteFunc(pinned, func(cpu int) bool { return cpu < first+count/2 })
		}
	}
	memory := one(m, 512, 1024, 2048, 4096)
	used := one(m, 0, 0, 0, 256, memory/2, memory)
	var socket any
	if hasSockets {
		socket = id / 2
	}
	pages := []any{}
	if hasPages {
		small := memory * 1024 / 4
		pages = append(pages, page(4, small, one(m, 0, 0, used*1024/4, small/2), 0))
		if m.chance(2) {
			pages = append(pages, page(2048, memory/4, one(m, 0, 0, memory/8), one(m, 0, 0, 16)))
		}
		if m.chance(6) {
			pages = append(pages, page(1048576, 1, one(m, 0, 1), 0))
		}
	}
	return object{"NUMACell", "nova", "1.5", map[string]any{
		"id": id, "cpuset": list(shared), "pcpuset": list(dedicated), "memory": memory, "cpu_usage": m.IntN(count + 1), "memory_usage": used,
		"pinned_cpus": list(pinned), "siblings": siblings, "mempages": pages, "socket": socket,
	}}
}

func list(cpus []int) []int { return append([]int{}, cpus...) }

func page(size, total, used, reserved int) object {
	return object{"NUMAPagesTopology", "nova", "1.1", map[string]any{"size_kb": size, "total": total, "used": used, "reserved": reserved}}
}

// numa adds what gives a guest a NUMA topology, and values that Nova rejects.
func (m maker) numa(c *Case) {
	set := func(n int, to map[string]string, key string, values ...string) {
		if m.chance(n) {
			m.some(1, to, map[string][]string{key: values})
		}
	}
	set(2, c.Specs, "hw:numa_nodes", "1", "1", "2", "2", "2", "3", "4", "!0", "!two")
	set(4, c.Specs, "hw:cpu_policy", "dedicated", "dedicated", "dedicated", "shared", "mixed", "!exclusive")
	set(5, c.Specs, "hw:mem_page_size", "small", "large", "any", "2048", "2MB", "1GB", "4KiB", "!huge", "16")
	set(6, c.Specs, "hw:cpu_thread_policy", "prefer", "require", "isolate", "!split")
	if c.Specs["hw:cpu_policy"] != "dedicated" && !m.chance(8) {
		delete(c.Specs, "hw:cpu_thread_policy")
	}
	set(16, c.Specs, "hw:emulator_threads_policy", "isolate", "share", "!apart")
	set(4, c.Specs, "hw:pci_numa_affinity_policy", "required", "legacy", "preferred", "socket", "!strict")
	set(14, c.Specs, "resources:PCPU", fmt.Sprint(c.VCPUs), fmt.Sprintf("!%d", c.VCPUs+1), "!1")
	set(25, c.Specs, "resources:VCPU", fmt.Sprint(c.VCPUs), "1", "0")
	set(25, c.Specs, "resources1:PCPU", fmt.Sprint(c.VCPUs))
	set(25, c.Specs, "trait:HW_CPU_HYPERTHREADING", "required", "forbidden")
	set(20, c.Specs, "hw:pmem", "6GB", "6GB,LARGE", " , ")
	set(20, c.Specs, "hw:locked_memory", "!true", "false")
	set(40, c.Specs, "hw:mem_encryption", "true", "false", "1")
	set(25, c.Specs, "hw:cpu_realtime", "!yes", "no")
	set(20, c.Specs, "hw:cpu_realtime_mask", "^0", "0-1", "^0-1", "!9")
	if c.Specs["hw:cpu_policy"] == "mixed" || m.chance(30) {
		set(1, c.Specs, "hw:cpu_dedicated_mask", "0", "^0", "1", "1-2", "^1", "0-7", "9", "!x")
	}
	if m.chance(6) {
		m.cells(c, "hw:numa_cpus.", "hw:numa_mem.", c.Specs)
	} else if m.chance(12) {
		m.cells(c, "hw_numa_cpus.", "hw_numa_mem.", c.Image)
	}
	if !m.chance(3) {
		return
	}
	set(3, c.Image, "hw_numa_nodes", "1", "2", "3")
	set(4, c.Image, "hw_cpu_policy", "dedicated", "shared", "mixed")
	set(6, c.Image, "hw_cpu_thread_policy", "prefer", "require", "isolate")
	set(6, c.Image, "hw_mem_page_size", "small", "large", "2048", "any")
	set(3, c.Image, "hw_pci_numa_affinity_policy", "required", "legacy", "preferred", "socket", "!strict")
	set(12, c.Image, "trait:HW_CPU_HYPERTHREADING", "required", "forbidden")
	set(12, c.Image, "hw_mem_encryption", "true", "false")
	set(8, c.Image, "hw_firmware_type", "uefi", "bios")
	set(12, c.Image, "hw_machine_type", "q35", "pc")
	set(25, c.Image, "hw_locked_memory", "!true", "false")
	set(25, c.Image, "hw_cpu_realtime_mask", "^0", "1")
}

// cells spreads CPUs and memory over guest cells, and sometimes leaves one out.
func (m maker) cells(c *Case, cpus, memory string, to map[string]string) {
	nodes := one(m, 1, 2, 2)
	for n := range nodes {
		from, until := n*c.VCPUs/nodes, (n+1)*c.VCPUs/nodes
		cpuList := fmt.Sprintf("%d-%d", from, until-1)
		if until-from == 1 || m.chance(10) {
			cpuList = fmt.Sprint(from)
		}
		amount := fmt.Sprint(c.RAM / nodes)
		if nodes == 2 && m.chance(3) {
			amount = fmt.Sprint([]int{c.RAM / 4, c.RAM - c.RAM/4}[n])
		}
		if until == from {
			cpuList = fmt.Sprint(from)
		}
		if !m.chance(20) {
			to[cpus+fmt.Sprint(n)] = cpuList
		}
		if !m.chance(20) {
			to[memory+fmt.Sprint(n)] = amount
		}
	}
	if m.chance(4) {
		return
	}
	key := strings.Replace(strings.TrimSuffix(cpus, "cpus."), "_numa_", "_numa_nodes", 1)
	key = strings.Replace(key, ":numa_", ":numa_nodes", 1)
	to[key] = fmt.Sprint(nodes)
}

// filters adds filters, and what they read.
func (m maker) filters(c *Case) {
	c.Filters = []string{"PciPassthroughFilter", "NUMATopologyFilter"}
	if m.chance(8) {
		c.Filters = c.Filters[:1]
	}
	if m.often(5) {
		c.Filters = append(c.Filters, "ImagePropertiesFilter")
		m.some(8, c.Options, map[string][]string{"image_properties_default_architecture": {"x86_64", "aarch64"}})
		m.some(5, c.Image, map[string][]string{
			"hw_architecture": {"x86_64", "aarch64", "i386", "x86_64"}, "architecture": {"x86_64", "!arm"}, "hypervisor_type": {"qemu", "QEMU", "vmware", "kvm"},
			"img_hv_type": {"kvm", "hyperv"}, "hw_vm_mode": {"hvm", "xen", "hv"}, "hypervisor_version_requires": {">=7.0", "<9.0", ">=10.0,<11.0", "==7.2.0"},
		})
	}
	if m.often(5) {
		c.Filters = append(c.Filters, "ComputeCapabilitiesFilter")
		m.some(7, c.Specs, map[string][]string{
			"capabilities:hypervisor_type": {"QEMU", "s== QEMU", "VMware vCenter Server", "<or> QEMU <or> kvm", "<in> EM"},
			"capabilities:cpu_info:model":  {"Cascadelake-Server", "<in> lake", "EPYC"}, "capabilities:cpu_info:features": {"<in> avx512f", "<in> amx", "<all-in> vmx"},
			"capabilities:cpu_info:topology:cores": {"16", ">= 8", "<= 8", "= 16", "!= 16"}, "capabilities:hypervisor_version": {">= 7002000", "== 10000000", "s< 2"},
			"capabilities:cpu_info:none": {"1"}, "hypervisor_type": {"QEMU", "xen"},
		})
	}
	m.aggregates(c)
	m.prefilters(c)
	m.machine(c)
	if c.Scheduler["image_metadata_prefilter"] {
		delete(c.Image, "hw_viommu_model") // os_traits has no such trait: TestUnknownTraitOfImage
	}
	if m.often(6) {
		c.Group = &Group{Policy: one(m, "affinity", "anti-affinity", "soft-affinity", "soft-anti-affinity"), OnHost: one(m, 0, 0, 1, 2), Beside: one(m, 0, 1)}
		if c.Group.Policy == "anti-affinity" {
			c.Group.Most = one(m, 0, 0, 2)
		}
		c.Filters = append(c.Filters, "ServerGroupAffinityFilter", "ServerGroupAntiAffinityFilter")
	}
}

// machine adds extra specs and properties of the virtual machine that nova-api validates, or that
// require a trait.
func (m maker) machine(c *Case) {
	if !m.chance(4) {
		return
	}
	m.some(8, c.Specs, map[string][]string{
		"hw:tpm_version": {"1.2", "2.0", "!3.0"}, "hw:tpm_model": {"tpm-tis", "tpm-crb", "!tpm-x"}, "os:secure_boot": {"required", "optional", "disabled", "!always"},
		"hw:maxphysaddr_mode": {"passthrough", "emulate", "!other"}, "hw:maxphysaddr_bits": {"42"}, "hw:virtio_packed_ring": {"true", "false"},
		"hw:ephemeral_encryption": {"true", "false"}, "hw:ephemeral_encryption_format": {"luks", "!zip"}, "hw:pmu": {"true", "false"},
		"hw:serial_port_count": {"1", "4", "!many"}, "hw:vif_multiqueue_enabled": {"true", "false"}, "hw:viommu_model": {"virtio", "intel"},
		"hw:cpu_max_sockets": {"1", "2", "!x"}, "hw:cpu_max_cores": {"2", "4"}, "hw:cpu_max_threads": {"1", "2"}, "hw:cpu_sockets": {"1", "4", "!x"},
		"hw:cpu_threads": {"1", "2"}, "accel:device_profile": {"p"},
	})
	m.some(8, c.Image, map[string][]string{
		"hw_tpm_version": {"1.2", "2.0"}, "hw_tpm_model": {"tpm-tis", "tpm-crb"}, "os_secure_boot": {"required", "optional", "disabled"},
		"hw_maxphysaddr_mode": {"passthrough", "emulate"}, "hw_virtio_packed_ring": {"true", "false"}, "hw_ephemeral_encryption": {"true", "false"},
		"hw_ephemeral_encryption_format": {"luks"}, "hw_pmu": {"true", "false"}, "hw_serial_port_count": {"1", "2", "6"},
		"hw_vif_multiqueue_enabled": {"true", "false"}, "hw_viommu_model": {"auto", "intel"}, "hw_cpu_max_sockets": {"1", "4"}, "hw_cpu_max_cores": {"2", "8"},
		"hw_cpu_sockets": {"1", "4"}, "hw_cpu_threads": {"2"}, "hw_firmware_stateless": {"true", "false"}, "hw_firmware_type": {"uefi", "bios"},
	})
}

func (m maker) aggregates(c *Case) {
	values := map[string][]string{
		"gpu": {"a100", "a100,k4200", "4", "true"}, "filter_tenant_id": {"mine", "theirs", "mine, theirs"}, "filter_tenant_id3": {"mine", "theirs"},
		"availability_zone": {"az1", "az2"}, "trait:CUSTOM_L": {"required", "forbidden"}, "trait:CUSTOM_M": {"required"}, "size": {"4", "8"},
	}
	for range one(m, 0, 0, 1, 2, 3) {
		a := Aggregate{map[string]string{}, m.chance(2)}
		m.some(5, a.Metadata, values)
		c.Aggregates = append(c.Aggregates, a)
	}
	inZone := func(a Aggregate) bool { return a.HasHost && a.Metadata["availability_zone"] != "" }
	for i := range c.Aggregates { // Nova keeps a host from a second zone (nova/compute/api.py)
		if inZone(c.Aggregates[i]) && slices.ContainsFunc(c.Aggregates[:i], inZone) {
			delete(c.Aggregates[i].Metadata, "availability_zone")
		}
	}
	if m.often(9) {
		c.Filters = append(c.Filters, "AggregateInstanceExtraSpecsFilter")
		delete(c.Specs, "hypervisor_type")
		m.some(3, c.Specs, map[string][]string{
			"aggregate_instance_extra_specs:gpu":  {"a100", "<or> a100 <or> k4200", "<in> 100", "true", "s== a100"},
			"aggregate_instance_extra_specs:size": {">= 4", "8", "= 5", "!= 4", "<= 6"}, "gpu": {"a100", "true"},
		})
	}
	if m.often(4) {
		c.Filters = append(c.Filters, "AggregateMultiTenancyIsolation")
	}
	if m.often(6) {
		c.Filters = append(c.Filters, "AggregateImagePropertiesIsolation")
		m.some(6, c.Options, map[string][]string{
			"aggregate_image_properties_isolation_namespace": {"hw", "os"}, "aggregate_image_properties_isolation_separator": {"_", "."},
		})
		m.some(4, c.Image, map[string][]string{"os_distro": {"ubuntu", "debian"}, "hw_machine_type": {"q35", "pc"}, "hw_qemu_guest_agent": {"true", "no"},
			"owner": {"me", "you"}, "hw_cpu_cores": {"2", "02"}, "vmware_ostype": {"ubuntu", "other"}, "vm_mode": {"hv", "xen"}})
		for i := range c.Aggregates {
			m.some(4, c.Aggregates[i].Metadata, map[string][]string{
				"os_distro": {"ubuntu", "ubuntu, debian"}, "hw_machine_type": {"q35"}, "hw_qemu_guest_agent": {"true", "True"}, "owner": {"me"},
				"hw_cpu_cores": {"2", "4"}, "hw_vm_mode": {"hvm", "hv"},
			})
		}
	}
	if m.often(8) {
		c.Filters = append(c.Filters, "AggregateTypeAffinityFilter")
		for i := range c.Aggregates {
			m.some(3, c.Aggregates[i].Metadata, map[string][]string{"instance_type": {"f", "g", "g, f", "g,h"}})
		}
	}
	if m.often(8) {
		c.Filters = append(c.Filters, "IsolatedHostsFilter")
		m.some(2, c.Options, map[string][]string{
			"isolated_hosts": {host, "gpu2", "gpu2, " + host}, "isolated_images": {imageID, "other", "other," + imageID},
			"restrict_isolated_hosts_to_isolated_images": {"true", "false"},
		})
	}
	if m.chance(12) {
		c.Filters = append(c.Filters, "AvailabilityZoneFilter")
	}
	if m.chance(4) {
		c.Zone = one(m, "az1", "az2", "nova")
	}
}

// prefilters turns options of nova-scheduler on, and adds what they read.
func (m maker) prefilters(c *Case) {
	for _, name := range []string{
		"enable_isolated_aggregate_filtering", "limit_tenants_to_placement_aggregate", "placement_aggregate_required_for_tenants",
		"image_metadata_prefilter", "query_placement_for_image_type_support",
	} {
		if m.often(5) {
			c.Scheduler[name] = true
		}
	}
	m.some(14, c.Specs, map[string][]string{
		"trait:CUSTOM_L": {"required", "forbidden"}, "trait1:CUSTOM_M": {"required"}, "resources1:CUSTOM_X": {"1"}, "resources:CUSTOM_Y": {"2", "0"},
		"resources:DISK_GB": {"0", "5"}, "hw:vif_multiqueue_enabled": {"true"}, "trait:CUSTOM_N": {"forbidden"},
	})
	m.some(14, c.Image, map[string][]string{
		"trait:CUSTOM_L": {"required"}, "trait:CUSTOM_I": {"required", "forbidden"}, "hw_disk_bus": {"virtio", "scsi"}, "hw_vif_model": {"virtio", "e1000"},
		"hw_video_model": {"virtio", "cirrus"}, "hw_cdrom_bus": {"sata"},
	})
}
