package fit

import (
	"fmt"
	"slices"

	"gpustack/nova"
)

// Limits are the allocation ratios of a compute node. Both are 0 without NUMATopologyFilter: then
// only nova-compute judges the topology, without limits (nova/compute/claims.py).
type Limits struct {
	CPU, RAM float64
}

func (l Limits) isNone() bool { return l == Limits{} }

// Misfit is why a host does not fit the NUMA topology of a guest.
type Misfit struct {
	Seen string
	// Short is the request whose devices are too few on the NUMA nodes that have the CPUs and the
	// memory; nil if CPUs or memory are too few.
	Short *Short
}

// mostChoices bounds the choices of host nodes that are tried: eight of eight, and all that
// machines with more nodes need for guests of usual size.
const mostChoices = 100_000

// Host returns why a host does not fit a guest, nil if it does (NUMATopologyFilter, and
// numa_fit_instance_to_host). isKnown is false if there are too many choices to tell.
func (i *Instance) Host(d Devices, requests []Request, limits Limits) (m *Misfit, isKnown bool) {
	t := d.Host
	switch {
	case i == nil || t == nil && limits.isNone():
		return nil, true
	case t == nil:
		return &Misfit{Seen: "nova-compute reports no NUMA topology"}, true
	case i.requiresThreading && !limits.isNone() && !slices.ContainsFunc(t.Cells, Cell.hasThreads):
		return &Misfit{Seen: "the CPUs of the host have one thread per core, and hw:cpu_thread_policy is require"}, true
	case len(t.Cells) < len(i.cells):
		return &Misfit{Seen: fmt.Sprintf("the guest has %s, and the host %d", nodesOf(len(i.cells)), len(t.Cells))}, true
	}
	f := fitting{instance: i, cells: slices.Clone(i.cells), release: d.Release, limits: limits, fits: map[[2]int]bool{}}
	tried := 0
	for _, chosen := range permutations(i.sorted(t.Cells, d.Pools, len(requests) > 0, limits), len(i.cells)) {
		if tried++; tried > mostChoices {
			return nil, false
		}
		if !f.choice(chosen) {
			continue
		}
		var nodes []int
		for _, c := range chosen {
			nodes = append(nodes, c.ID)
		}
		short := d.Supports(requests, nodes)
		if short == nil {
			return nil, true
		}
		if f.short == nil || short.Have > f.short.Have {
			f.short = short
		}
	}
	if f.short != nil {
		return &Misfit{Seen: fmt.Sprintf("the guest has %s, near which %d of %d %s are free", nodesOf(len(i.cells)), f.short.Have, f.short.Count, f.short.Alias),
			Short: f.short}, true
	}
	return &Misfit{Seen: fmt.Sprintf("the guest has %s, and no node of the host has the CPUs and the memory of one of them free", nodesOf(len(i.cells)))}, true
}

func nodesOf(cells int) string {
	if cells == 1 {
		return "one NUMA node"
	}
	return fmt.Sprintf("%d NUMA nodes", cells)
}

// sorted returns the cells of a host in the order in which Nova tries them. The order decides which
// pools and cells are left where several fit, and which pairs Nova remembers as it tries.
func (i *Instance) sorted(cells []Cell, pools []Pool, hasRequests bool, limits Limits) []Cell {
	if len(cells) == len(i.cells) {
		return cells
	}
	devices := map[int]int{}
	for _, p := range pools {
		if p.NUMA != nil {
			devices[*p.NUMA] += p.Count
		}
	}
	sorted := slices.Clone(cells)
	by := func(key func(Cell) int) {
		slices.SortStableFunc(sorted, func(a, b Cell) int { return key(a) - key(b) })
	}
	by(func(c Cell) int { return -c.availableMemory() })
	if i.hasPinnedCPUs {
		by(func(c Cell) int { return -c.freePCPUs() })
	} else {
		by(func(c Cell) int { return c.SharedInUse })
	}
	switch {
	case hasRequests:
		by(func(c Cell) int { return -devices[c.ID] })
	case !limits.isNone(): // nova-compute does not look at devices that are not requested
		by(func(c Cell) int { return devices[c.ID] })
	}
	return sorted
}

// permutations yields the choices of n of some cells, in their order (itertools.permutations).
func permutations(cells []Cell, n int) func(func(int, []Cell) bool) {
	return func(yield func(int, []Cell) bool) {
		number := 0
		used := make([]bool, len(cells))
		chosen := make([]Cell, 0, n)
		var choose func() bool
		choose = func() bool {
			if len(chosen) == n {
				number++
				return yield(number-1, chosen)
			}
			for k := range cells {
				if used[k] {
					continue
				}
				used[k], chosen = true, append(chosen, cells[k])
				if !choose() {
					return false
				}
				used[k], chosen = false, chosen[:len(chosen)-1]
			}
			return true
		}
		choose()
	}
}

// fitting is one run of numa_fit_instance_to_host.
type fitting struct {
	instance *Instance
	cells    []instanceCell // whose ids and page sizes change, as Nova changes them
	release  nova.Release
	limits   Limits
	fits     map[[2]int]bool // whether a host's cell fits a guest's, by their ids
	short    *Short
}

// choice reports whether the cells of the guest fit those of the host, in this order.
func (f *fitting) choice(chosen []Cell) bool {
	for k := range f.cells {
		guest := &f.cells[k]
		pair := [2]int{chosen[k].ID, guest.id}
		fits, known := f.fits[pair]
		if !known {
			reserved := 0
			if f.instance.isolatesEmulator && k == 0 {
				reserved = 1
			}
			fits = f.cell(chosen[k], guest, reserved)
			f.fits[pair] = fits
		}
		if !fits {
			return false
		}
		guest.id = chosen[k].ID
	}
	return true
}

// cell is _numa_fit_instance_cell.
func (f *fitting) cell(host Cell, guest *instanceCell, reserved int) bool {
	if !f.memory(host, guest) {
		return false
	}
	pins := f.instance.hasPinnedCPUs
	isShared := f.instance.cpuPolicy != dedicated
	if pins && len(guest.pinned)+reserved > len(host.Dedicated) || isShared && len(guest.shared) > len(host.Shared) {
		return false
	}
	if pins {
		if len(guest.pinned)+reserved > host.freePCPUs() || f.lacksFreeMemory(host, guest) || !f.pack(host, guest, reserved) {
			return false
		}
		guest.id = host.ID // by _pack_instance_onto_cores, also where what follows does not fit
	}
	if isShared && !f.limits.isNone() {
		return float64(host.SharedInUse+len(guest.shared)) <= float64(len(host.Shared))*f.limits.CPU &&
			float64(host.MemoryInUse+guest.memory) <= float64(host.Memory)*f.limits.RAM
	}
	return true
}

// freePages is the release since which guests with pinned CPUs need free pages of the usual size,
// not only free memory. 26.2.2 does not have the rule and 31.0.0 has it; releases between were not
// compared.
const freePages = nova.Antelope

// memory reports whether a host's cell has the memory of a guest's, in pages of its size.
func (f *fitting) memory(host Cell, guest *instanceCell) bool {
	const kib = 1024
	if guest.pageSize != 0 {
		size, ok := supportedPages(host, guest)
		if ok {
			guest.pageSize = size
		}
		return ok
	}
	pins := f.instance.hasPinnedCPUs && f.release >= freePages
	if sizes := host.pageSizes(); len(sizes) > 0 {
		return host.canFit(float64(sizes[0]), guest.memory*kib, pins)
	}
	if pins {
		return host.availableMemory() >= guest.memory
	}
	return host.Memory >= guest.memory
}

// lacksFreeMemory reports whether a host's cell has too little free memory for a guest's with
// pinned CPUs, in releases that do not look at free pages.
func (f *fitting) lacksFreeMemory(host Cell, guest *instanceCell) bool {
	return f.release < freePages && guest.memory > host.availableMemory()
}

// supportedPages returns the size of pages of a host's cell that fit a guest's
// (_numa_cell_supports_pagesize_request).
func supportedPages(host Cell, guest *instanceCell) (size float64, ok bool) {
	const kib = 1024
	sizes := host.pageSizes()
	slices.Reverse(sizes)
	if len(sizes) == 0 && guest.pageSize < 0 {
		return 0, false
	}
	var usable []float64
	switch guest.pageSize {
	case pagesSmall:
		usable = []float64{float64(sizes[len(sizes)-1])}
	case pagesLarge:
		sizes = sizes[:len(sizes)-1]
		fallthrough
	case pagesAny:
		for _, s := range sizes {
			usable = append(usable, float64(s))
		}
	default:
		usable = []float64{guest.pageSize}
	}
	for _, s := range usable {
		if host.canFit(s, guest.memory*kib, true) {
			return s, true
		}
	}
	return 0, false
}
