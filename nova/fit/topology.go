package fit

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"gpustack/host"
)

// Topology is the NUMA nodes of a compute node (nova/objects/numa.py, NUMATopology).
type Topology struct {
	Cells []Cell
}

// Cell is a NUMA node of a compute node.
type Cell struct {
	ID          int
	Shared      []int // CPUs of guests without pinned CPUs: cpuset
	Dedicated   []int // CPUs of guests with pinned CPUs: pcpuset
	Pinned      []int // of Dedicated, in use
	Siblings    [][]int
	SharedInUse int // cpu_usage
	Memory      int // MiB
	MemoryInUse int // MiB
	Pages       []Pages
	Socket      *int // nil for unknown
}

// Pages is memory pages of one size.
type Pages struct {
	Size                  int // KiB
	Total, Used, Reserved int
}

// object is a versioned object as Nova stores it (oslo.versionedobjects, obj_to_primitive).
type object[T any] struct {
	Name string `json:"nova_object.name"`
	Data T      `json:"nova_object.data"`
}

// cellData are the fields of a NUMACell: 1.5 has socket, and 1.4 pcpuset.
type cellData struct {
	ID          int     `json:"id"`
	Shared      []int   `json:"cpuset"`
	Dedicated   []int   `json:"pcpuset"`
	Pinned      []int   `json:"pinned_cpus"`
	Siblings    [][]int `json:"siblings"`
	SharedInUse int     `json:"cpu_usage"`
	Memory      int     `json:"memory"`
	MemoryInUse int     `json:"memory_usage"`
	Pages       []object[struct {
		Size     int     `json:"size_kb"`
		Total    int     `json:"total"`
		Used     float64 `json:"used"` // a quotient since Python 3 (nova/virt/hardware.py, _numa_pagesize_usage_from_cell)
		Reserved int     `json:"reserved"`
	}] `json:"mempages"`
	Socket *int `json:"socket"`
}

// ErrLegacy means that a text is in the format before Liberty, which nova-compute replaces when it
// starts.
var ErrLegacy = host.WithHint(errors.New("numa_topology is in the format of a release before Liberty"), "restart nova-compute on the host")

// ParseTopology reads compute_nodes.numa_topology. It is nil for a text without cells.
//
// Errors: [ErrLegacy]; a text that is not JSON of a NUMATopology.
func ParseTopology(text []byte) (*Topology, error) {
	var read object[struct {
		Cells []object[cellData] `json:"cells"`
	}]
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, fmt.Errorf("numa_topology: %w", err)
	}
	if read.Name == "" {
		return nil, ErrLegacy
	}
	if read.Name != "NUMATopology" {
		return nil, fmt.Errorf("numa_topology is a %s", read.Name)
	}
	if len(read.Data.Cells) == 0 {
		return nil, nil
	}
	t := &Topology{}
	for _, o := range read.Data.Cells {
		t.Cells = append(t.Cells, o.Data.cell())
	}
	return t, nil
}

func (d cellData) cell() Cell {
	c := Cell{ID: d.ID, Shared: d.Shared, Dedicated: d.Dedicated, Pinned: d.Pinned, Siblings: d.Siblings, SharedInUse: d.SharedInUse,
		Memory: d.Memory, MemoryInUse: d.MemoryInUse, Socket: d.Socket}
	for _, p := range d.Pages {
		c.Pages = append(c.Pages, Pages{p.Data.Size, p.Data.Total, int(p.Data.Used), p.Data.Reserved})
	}
	return c
}

// free returns the CPUs that can be pinned, of some CPUs.
func (c Cell) free(cpus []int) []int {
	return slices.DeleteFunc(slices.Clone(cpus), func(cpu int) bool { return slices.Contains(c.Pinned, cpu) || !slices.Contains(c.Dedicated, cpu) })
}

func (c Cell) freePCPUs() int { return len(c.free(c.Dedicated)) }

func (c Cell) availableMemory() int { return c.Memory - c.MemoryInUse }

// hasThreads reports whether cores of the cell have several threads.
func (c Cell) hasThreads() bool {
	return slices.ContainsFunc(c.Siblings, func(core []int) bool { return len(core) > 1 })
}

// usesLegacySets reports whether the host has neither cpu_dedicated_set nor cpu_shared_set: both
// sets are equal then.
func (c Cell) usesLegacySets() bool {
	return len(c.Shared) == len(c.Dedicated) && !slices.ContainsFunc(c.Shared, func(cpu int) bool { return !slices.Contains(c.Dedicated, cpu) })
}

// pageSizes returns the sizes of pages in KiB, the smallest first.
func (c Cell) pageSizes() (sizes []int) {
	for _, p := range c.Pages {
		sizes = append(sizes, p.Size)
	}
	slices.Sort(sizes)
	return sizes
}

// canFit reports whether memory, in KiB, fits in pages of a size: free pages, or with overcommit
// all pages. It does not in a size that the cell lacks (can_fit_pagesize).
func (c Cell) canFit(size float64, memory int, ofFree bool) bool {
	for _, p := range c.Pages {
		if float64(p.Size) != size {
			continue
		}
		pages := p.Total
		if ofFree {
			pages -= p.Used + p.Reserved
		}
		return memory <= pages*p.Size && memory%p.Size == 0
	}
	return false
}
