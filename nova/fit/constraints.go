package fit

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
)

// Policies of CPUs and threads (nova/objects/fields.py).
const (
	dedicated = "dedicated"
	mixed     = "mixed"
	shared    = "shared"
	isolate   = "isolate"
	require   = "require"
	prefer    = "prefer"
)

// Sizes of pages that are no numbers (nova/virt/hardware.py).
const (
	pagesSmall = -1
	pagesLarge = -2
	pagesAny   = -3
)

// Instance is the NUMA topology of a guest (nova/objects/instance_numa.py).
type Instance struct {
	cells             []instanceCell
	isolatesEmulator  bool
	cpuPolicy         string
	threadPolicy      string
	hasPinnedCPUs     bool
	requiresThreading bool // by extra spec or property, as NUMATopologyFilter reads them
}

// instanceCell is a NUMA node of a guest. Its id becomes that of the host's node that it fits.
type instanceCell struct {
	id             int
	shared, pinned []int
	memory         int     // MiB
	pageSize       float64 // KiB; 0 for none
}

// Cells returns the number of NUMA nodes of the guest.
func (i *Instance) Cells() int { return len(i.cells) }

// Constraints returns the NUMA topology that the guest requests, nil for none
// (numa_get_constraints).
//
// Errors: a [Rejection].
func (g Guest) Constraints() (*Instance, error) {
	cpu, err := g.cpuConstraints()
	if err != nil {
		return nil, err
	}
	nodes, err := g.nodeCount()
	if err != nil {
		return nil, err
	}
	size, err := g.pageSize()
	if err != nil {
		return nil, err
	}
	if err := g.lockedMemory(); err != nil {
		return nil, err
	}
	if nodes == 0 && size == 0 && len(g.PersistentMemory()) == 0 && !cpu.pins() {
		return nil, nil
	}
	cells, err := g.cells(max(nodes, 1), cpu.mask)
	if err != nil {
		return nil, err
	}
	for i := range cells {
		cells[i].pageSize = size
	}
	flavorPolicy, imagePolicy := g.both("cpu_policy")
	flavorThreads, imageThreads := g.both("cpu_thread_policy")
	return &Instance{
		cells: cells, isolatesEmulator: cpu.emulator == isolate, cpuPolicy: cpu.policy, threadPolicy: cpu.threads, hasPinnedCPUs: cpu.pins(),
		requiresThreading: (flavorPolicy == dedicated || imagePolicy == dedicated) && (flavorThreads == require || imageThreads == require),
	}, nil
}

// cpuConstraints are the policies of the CPUs of a guest.
type cpuConstraints struct {
	policy, threads, emulator string
	mask                      []int // of the CPUs that are pinned
}

func (c cpuConstraints) pins() bool { return c.policy == dedicated || c.policy == mixed }

// cpuConstraints reads the policies of CPUs, and rejects those that conflict.
func (g Guest) cpuConstraints() (c cpuConstraints, err error) {
	var mask, realtime []int
	var errs [5]error
	c.policy, errs[0] = g.cpuPolicy()
	c.threads, errs[1] = g.threadPolicy()
	realtime, errs[2] = g.realtimeMask()
	mask, errs[3] = g.dedicatedMask()
	c.emulator, _, errs[4] = g.checked("emulator_threads_policy")
	if i := slices.IndexFunc(errs[:], func(err error) bool { return err != nil }); i >= 0 {
		return c, errs[i]
	}
	if c.policy, err = g.requestedCPUs(c.policy, c.emulator); err != nil {
		return c, err
	}
	if c.threads, err = g.threadsOfTrait(c.threads); err != nil {
		return c, err
	}
	if err := c.check(mask, realtime); err != nil {
		return c, err
	}
	switch {
	case c.policy == dedicated:
		c.mask = integers(g.VCPUs)
	case c.policy == mixed && len(mask) > 0:
		c.mask = mask
	case c.policy == mixed:
		c.mask = realtime
	}
	return c, nil
}

// check rejects policies that exclude each other.
func (c cpuConstraints) check(mask, realtime []int) error {
	switch {
	case c.pins() && c.policy == mixed && len(mask) > 0 == (len(realtime) > 0):
		return reject("RequiredMixedOrRealtimeCPUMask", "hw:cpu_policy=mixed requires one of hw:cpu_dedicated_mask and hw:cpu_realtime_mask")
	case c.policy == mixed:
		return nil
	case !c.pins() && c.threads != "":
		return reject("CPUThreadPolicyConfigurationInvalid", "a policy for CPU threads (%s) requires hw:cpu_policy=dedicated", c.threads)
	case !c.pins() && c.emulator == isolate:
		return reject("BadRequirementEmulatorThreadsPolicy", "hw:emulator_threads_policy=isolate requires hw:cpu_policy=dedicated")
	case len(mask) > 0:
		return reject("RequiredMixedInstancePolicy", "hw:cpu_dedicated_mask requires hw:cpu_policy=mixed")
	case !c.pins() && len(realtime) > 0:
		return reject("RealtimeConfigurationInvalid", "hw:cpu_realtime requires hw:cpu_policy=dedicated")
	}
	return nil
}

// cpuPolicy is get_cpu_policy_constraint.
func (g Guest) cpuPolicy() (string, error) {
	flavor, image, err := g.checked("cpu_policy")
	switch {
	case err != nil:
		return "", err
	case flavor == mixed && image == dedicated, flavor == shared && (image == mixed || image == dedicated):
		return "", reject("ImageCPUPinningForbidden", "hw:cpu_policy of the flavor is %s, and hw_cpu_policy of the image is %s", flavor, image)
	case flavor != "":
		return flavor, nil
	}
	return image, nil
}

// threadPolicy is get_cpu_thread_policy_constraint.
func (g Guest) threadPolicy() (string, error) {
	flavor, image, err := g.checked("cpu_thread_policy")
	switch {
	case err != nil:
		return "", err
	case flavor == "":
		return image, nil
	case flavor != prefer && image != "" && image != flavor:
		return "", reject("ImageCPUThreadPolicyForbidden", "hw:cpu_thread_policy of the flavor is %s, and hw_cpu_thread_policy of the image is %s",
			flavor, image)
	}
	return flavor, nil
}

// cpuResource matches the extra specs that request CPUs from Placement (_get_vcpu_pcpu_resources).
var cpuResource = host.LazyRegexp(`^resources([1-9][0-9]*)?:(VCPU|PCPU)`)

// requestedCPUs returns the policy that resources:VCPU or resources:PCPU of the flavor stand for.
func (g Guest) requestedCPUs(policy, emulator string) (string, error) {
	sum := map[string]int{}
	for key, value := range g.Specs {
		if found := cpuResource().FindStringSubmatch(key); found != nil {
			if n, err := parseInt(value); err == nil {
				sum[found[2]] += n
			}
		}
	}
	vcpus, pcpus := sum["VCPU"], sum["PCPU"]
	need := g.VCPUs
	if emulator == isolate {
		need++ // one CPU more, for QEMU
	}
	switch {
	case policy != "" && (vcpus != 0 || pcpus != 0):
		return "", reject("InvalidRequest", "resources:VCPU and resources:PCPU exclude hw:cpu_policy")
	case vcpus != 0 && pcpus != 0:
		return "", reject("InvalidRequest", "resources:VCPU and resources:PCPU exclude each other")
	case pcpus != 0 && pcpus != need:
		return "", reject("InvalidRequest", "resources:PCPU is %d, and the flavor needs %d", pcpus, need)
	case pcpus != 0:
		return dedicated, nil
	case vcpus != 0:
		return shared, nil
	}
	return policy, nil
}

// hyperthreading matches the extra spec of a trait (_get_hyperthreading_trait).
var hyperthreading = host.LazyRegexp(`^trait([1-9][0-9]*)?:HW_CPU_HYPERTHREADING`)

// threadsOfTrait returns the policy for threads that the trait HW_CPU_HYPERTHREADING stands for.
func (g Guest) threadsOfTrait(policy string) (string, error) {
	trait := ""
	for _, key := range slices.Sorted(maps.Keys(g.Specs)) {
		if hyperthreading().MatchString(key) {
			trait = g.Specs[key]
			break
		}
	}
	if trait == "" && g.Image["trait:HW_CPU_HYPERTHREADING"] == "required" {
		trait = "required"
	}
	switch {
	case policy != "" && trait != "":
		return "", reject("InvalidRequest", "trait:HW_CPU_HYPERTHREADING excludes hw:cpu_thread_policy")
	case trait == "forbidden":
		return isolate, nil
	case trait == "required":
		return require, nil
	}
	return policy, nil
}

// dedicatedMask is get_dedicated_cpu_constraint.
func (g Guest) dedicatedMask() ([]int, error) {
	text := g.Specs["hw:cpu_dedicated_mask"]
	if text == "" {
		return nil, nil
	}
	mask, err := g.mask(text)
	switch {
	case err != nil:
		return nil, reject("Invalid", "hw:cpu_dedicated_mask: %v", err)
	case len(mask) == 0 || !slices.ContainsFunc(integers(g.VCPUs), func(cpu int) bool { return !slices.Contains(mask, cpu) }) || mask[len(mask)-1] >= g.VCPUs:
		return nil, reject("InvalidMixedInstanceDedicatedMask", "hw:cpu_dedicated_mask=%s must be some of the %d CPUs, not all", text, g.VCPUs)
	}
	return mask, nil
}

// mask reads a set of CPUs of the guest, or with "^" first those that are not in it.
func (g Guest) mask(text string) ([]int, error) {
	if strings.HasPrefix(strings.TrimSpace(text), "^") {
		text = fmt.Sprintf("0-%d,%s", g.VCPUs-1, text)
	}
	return parseCPUs(text)
}

// realtimeMask is get_realtime_cpu_constraint.
func (g Guest) realtimeMask() ([]int, error) {
	if !isTrue(g.Specs["hw:cpu_realtime"]) {
		return nil, nil
	}
	flavor, image := g.both("cpu_realtime_mask")
	text := image
	if text == "" {
		text = flavor
	}
	mask, err := integers(g.VCPUs), error(nil)
	if text != "" {
		mask, err = g.mask(text)
	}
	switch {
	case err != nil:
		return nil, reject("Invalid", "hw:cpu_realtime_mask: %v", err)
	case len(mask) == 0 || len(mask) == g.VCPUs && mask[len(mask)-1] == g.VCPUs-1 && g.Specs["hw:emulator_threads_policy"] == "", mask[len(mask)-1] >= g.VCPUs:
		return nil, reject("RealtimeMaskNotFoundOrInvalid", "hw:cpu_realtime requires hw:cpu_realtime_mask with some of the %d CPUs", g.VCPUs)
	}
	return mask, nil
}

// parseCPUs reads a list of CPUs, sorted (parse_cpu_spec).
func parseCPUs(text string) ([]int, error) {
	in, out := map[int]bool{}, map[int]bool{}
	for rule := range strings.SplitSeq(text, ",") {
		rule = strings.TrimSpace(rule)
		if rule == "" {
			continue
		}
		cpus, isExcluded := strings.CutPrefix(rule, "^")
		into := in
		if isExcluded {
			into = out
		}
		first, last, isRange := strings.Cut(cpus, "-")
		if !isRange {
			last = first
		}
		from, err := parseInt(first)
		until, err2 := parseInt(last)
		if errors.Join(err, err2) != nil || from > until {
			return nil, fmt.Errorf("%q is no CPU and no range", rule)
		}
		for cpu := from; cpu <= until; cpu++ {
			into[cpu] = true
		}
	}
	maps.DeleteFunc(in, func(cpu int, _ bool) bool { return out[cpu] })
	return slices.Sorted(maps.Keys(in)), nil
}

// nodeCount is _get_numa_node_count_constraint; 0 for none.
func (g Guest) nodeCount() (int, error) {
	flavor, image := g.both("numa_nodes")
	if flavor != "" && image != "" {
		return 0, reject("ImageNUMATopologyForbidden", "the flavor has hw:numa_nodes, and the image has hw_numa_nodes")
	}
	text, there := g.Specs["hw:numa_nodes"]
	if flavor == "" {
		if value, inImage := g.Image["hw_numa_nodes"]; inImage {
			text, there = value, true
		}
	}
	if !there {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 {
		return 0, reject("InvalidNUMANodesNumber", "hw:numa_nodes is %q, not a number from 1 on", text)
	}
	return n, nil
}

// amount matches an amount of memory (oslo_utils/strutils.py, string_to_bytes with IEC).
var amount = host.LazyRegexp(`^([-+]?\d*\.?\d+)([KMGTPEZYRQ]i?)?(b|bit|B)$`)

// parsePageSize returns a size of pages in KiB, or one of pagesSmall, pagesLarge and pagesAny.
func parsePageSize(text string) (float64, error) {
	switch text {
	case "any":
		return pagesAny, nil
	case "large":
		return pagesLarge, nil
	case "small":
		return pagesSmall, nil
	}
	if n, err := strconv.ParseUint(text, 10, 31); err == nil {
		return float64(n), nil
	}
	found := amount().FindStringSubmatch(text)
	if found == nil {
		return 0, reject("MemoryPageSizeInvalid", "hw:mem_page_size is %q", text)
	}
	n, err := strconv.ParseFloat(found[1], 64)
	if err != nil {
		return 0, reject("MemoryPageSizeInvalid", "hw:mem_page_size is %q", text)
	}
	if found[3] != "B" {
		n /= 8
	}
	const kib = 1024
	if found[2] != "" {
		n *= math.Pow(kib, float64(strings.Index("KMGTPEZYRQ", found[2][:1])+1))
	}
	return math.Ceil(n) / kib, nil
}

// pageSize is _get_numa_pagesize_constraint; 0 for none.
func (g Guest) pageSize() (float64, error) {
	flavor, image := g.both("mem_page_size")
	if flavor == "" && image == "" {
		return 0, nil
	}
	if flavor == "" {
		return 0, reject("MemoryPageSizeForbidden", "the image has hw_mem_page_size, which the flavor must allow with hw:mem_page_size")
	}
	size, err := parsePageSize(flavor)
	switch {
	case err != nil || image == "":
		return size, err
	case size != pagesAny && size != pagesLarge:
		return 0, reject("MemoryPageSizeForbidden", "hw:mem_page_size of the flavor is %s, and hw_mem_page_size of the image is %s", flavor, image)
	}
	return parsePageSize(image)
}

// lockedMemory is get_locked_memory_constraint.
func (g Guest) lockedMemory() error {
	flavor, inFlavor := g.Specs["hw:locked_memory"]
	image, inImage := g.Image["hw_locked_memory"]
	locks := isTrue(image)
	if inFlavor {
		if inImage && isTrue(flavor) != isTrue(image) {
			return reject("FlavorImageLockedMemoryConflict", "hw:locked_memory of the flavor is %s, and hw_locked_memory of the image is %s", flavor, image)
		}
		locks = isTrue(flavor)
	}
	pages, pagesOfImage := g.both("mem_page_size")
	if locks && pages == "" && pagesOfImage == "" {
		return reject("LockMemoryForbidden", "hw:locked_memory requires hw:mem_page_size")
	}
	return nil
}

// mostCells is how many cells an image or a flavor can describe (nova/objects/image_meta.py,
// NUMA_NODES_MAX).
const mostCells = 128

// listed returns the values of hw:numa_cpus.N or hw:numa_mem.N, of the flavor or the image.
func (g Guest) listed(key string) (texts []string, err error) {
	of := func(values map[string]string, prefix string) (texts []string) {
		for n := range mostCells {
			text, there := values[fmt.Sprintf("%s%s.%d", prefix, key, n)]
			if !there {
				break
			}
			texts = append(texts, text)
		}
		return texts
	}
	flavor, image := of(g.Specs, "hw:"), of(g.Image, "hw_")
	if flavor != nil && image != nil {
		return nil, reject("ImageNUMATopologyForbidden", "the flavor has hw:%s, and the image has hw_%s", key, key)
	}
	return slices.Concat(flavor, image), nil
}

// cells returns the cells of the guest, whose CPUs of a mask are pinned.
func (g Guest) cells(nodes int, mask []int) ([]instanceCell, error) {
	cpus, err := g.listed("numa_cpus")
	if err != nil {
		return nil, err
	}
	memory, err := g.listed("numa_mem")
	switch {
	case err != nil:
		return nil, err
	case cpus == nil && memory == nil:
		return g.automatic(nodes, mask)
	case len(cpus) != nodes || len(memory) != nodes:
		return nil, reject("ImageNUMATopologyIncomplete", "hw:numa_cpus.N and hw:numa_mem.N must describe each of the %d NUMA nodes", nodes)
	}
	return g.manual(cpus, memory, mask)
}

// automatic is _get_numa_topology_auto.
func (g Guest) automatic(nodes int, mask []int) (cells []instanceCell, err error) {
	if g.VCPUs%nodes > 0 || g.RAM%nodes > 0 {
		return nil, reject("ImageNUMATopologyAsymmetric", "%d CPUs and %d MiB of memory cannot be divided by %d NUMA nodes", g.VCPUs, g.RAM, nodes)
	}
	all := integers(g.VCPUs)
	for n := range nodes {
		each := g.VCPUs / nodes
		cells = append(cells, newCell(n, all[n*each:(n+1)*each], mask, g.RAM/nodes))
	}
	return cells, nil
}

// manual is _get_numa_topology_manual.
func (g Guest) manual(cpus, memory []string, mask []int) (cells []instanceCell, err error) {
	left, total := integers(g.VCPUs), 0
	for n := range cpus {
		mine, err := parseCPUs(cpus[n])
		if err != nil {
			return nil, reject("Invalid", "hw:numa_cpus.%d: %v", n, err)
		}
		for _, cpu := range mine {
			i := slices.Index(left, cpu)
			switch {
			case cpu >= g.VCPUs:
				return nil, reject("ImageNUMATopologyCPUOutOfRange", "hw:numa_cpus.%d has CPU %d, and the guest has %d CPUs", n, cpu, g.VCPUs)
			case i < 0:
				return nil, reject("ImageNUMATopologyCPUDuplicates", "CPU %d is in two of hw:numa_cpus.N", cpu)
			}
			left = slices.Delete(left, i, i+1)
		}
		mib, err := parseInt(memory[n])
		if err != nil {
			return nil, reject("ValueError", "hw:numa_mem.%d is %q", n, memory[n])
		}
		total += mib
		cells = append(cells, newCell(n, mine, mask, mib))
	}
	switch {
	case len(left) > 0:
		return nil, reject("ImageNUMATopologyCPUsUnassigned", "CPU %d is in none of hw:numa_cpus.N", left[0])
	case total != g.RAM:
		return nil, reject("ImageNUMATopologyMemoryOutOfRange", "hw:numa_mem.N have %d MiB, and the flavor has %d", total, g.RAM)
	}
	return cells, nil
}

func newCell(id int, cpus, mask []int, memory int) instanceCell {
	c := instanceCell{id: id, memory: memory}
	for _, cpu := range cpus {
		if slices.Contains(mask, cpu) {
			c.pinned = append(c.pinned, cpu)
		} else {
			c.shared = append(c.shared, cpu)
		}
	}
	return c
}
