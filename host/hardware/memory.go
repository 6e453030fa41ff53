package hardware

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/jaypipes/ghw"
	"github.com/jaypipes/ghw/pkg/linuxpath"
	"github.com/jaypipes/ghw/pkg/memory"

	"gpustack/host"
)

const (
	memInfo   = "proc/meminfo"
	blocksDir = "sys/devices/system/memory"
	poolsDir  = "sys/kernel/mm/hugepages"
	nodesDir  = "sys/devices/system/node"
)

// readMemory reads the memory of the machine.
func (p *probe) readMemory(ctx context.Context, m *Facts) {
	m.Memory = p.memory(memInfo, blocksDir, poolsDir, func() *memory.Area {
		info, err := ghw.Memory(ctx)
		if err != nil {
			p.failed(memInfo, err)
			return nil
		}
		return &info.Area
	})
}

// memory reads the memory that a meminfo file shows, with the blocks and pools of huge pages in two
// folders. ghw, which area asks, would search the system log without them, and report usable memory
// as total. It needs two lines of /proc/meminfo, of which kernels before 4.16 do not have Hugetlb.
func (p *probe) memory(info, blocks, pools string, area func() *memory.Area) (m Memory) {
	if !p.clear(memInfo, blocksDir+"/block_size_bytes", info, blocks+"/memory[0-9]*/state", pools+"/*/*_hugepages") {
		return m
	}
	usable, ok := p.memTotal(info)
	if !ok {
		return m
	}
	m.Usable = &usable
	isWhole := p.blocks(blocks)
	if m.HugePages, ok = p.pools(pools); !isWhole || !ok {
		return m
	}
	if whole := area(); whole != nil {
		return memoryOf(whole)
	}
	return m
}

// memoryOf converts an area of ghw.
func memoryOf(area *memory.Area) Memory {
	m := Memory{Total: &area.TotalPhysicalBytes, Usable: &area.TotalUsableBytes, HugePages: []HugePages{}}
	for size, pool := range area.HugePageAmountsBySize {
		m.HugePages = append(m.HugePages, HugePages{int64(size), pool.Total, pool.Free})
	}
	slices.SortFunc(m.HugePages, func(a, b HugePages) int { return cmp.Compare(a.Size, b.Size) })
	return m
}

// memTotal returns the memory that a meminfo file shows, in bytes (proc_meminfo(5)).
func (p *probe) memTotal(name string) (int64, bool) {
	text, err := p.root.ReadFile(name)
	if err != nil {
		p.failed(name, err)
		return 0, false
	}
	for line := range strings.Lines(string(text)) {
		before, after, ok := strings.Cut(line, "MemTotal:")
		if !ok || before != "" && !strings.HasPrefix(before, "Node ") {
			continue
		}
		number, ok := strings.CutSuffix(strings.TrimSpace(after), " kB")
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 53)
		if !ok || err != nil {
			p.failed(name, notOf("a size in kB", strings.TrimSpace(after)))
			return 0, false
		}
		return n << 10, true
	}
	p.warn("/%s: has no MemTotal", name)
	return 0, false
}

// blocks reports whether the size of memory blocks and the state of each in a folder can be read
// (Linux, Documentation/admin-guide/mm/memory-hotplug.rst). Kernels without memory hotplug have
// none.
func (p *probe) blocks(dir string) bool {
	size, ok := p.read(blocksDir + "/block_size_bytes")
	if !ok {
		return false
	}
	if _, err := strconv.ParseUint(size, 16, 53); err != nil {
		p.failed(blocksDir+"/block_size_bytes", notOf("a hexadecimal number", size))
		return false
	}
	names, ok := p.list(dir, "memory[0-9]*", "the installed memory is unknown")
	for _, name := range names {
		if _, read := p.read(dir + "/" + name + "/state"); !read {
			return false
		}
	}
	return ok && (len(names) > 0 || dir != blocksDir)
}

// poolName is the name of the folder of a pool before the number of its size.
const poolName = "hugepages-"

// pools returns the pools of huge pages in a folder, if all can be read.
func (p *probe) pools(dir string) ([]HugePages, bool) {
	names, ok := p.list(dir, "*", "huge pages are unknown")
	found := []HugePages{}
	for _, name := range names {
		number, isKB := strings.CutSuffix(strings.TrimPrefix(name, poolName), "kB")
		size, err := strconv.ParseUint(number, 10, 40)
		if err != nil || !isKB || !strings.HasPrefix(name, poolName) {
			p.failed(dir+"/"+name, notOf("a pool of huge pages", name))
			return nil, false
		}
		pool := HugePages{Size: int64(size) << 10}
		if pool.Total, ok = p.number(dir + "/" + name + "/nr_hugepages"); ok {
			pool.Free, ok = p.number(dir + "/" + name + "/free_hugepages")
		}
		if !ok {
			return nil, false
		}
		found = append(found, pool)
	}
	slices.SortFunc(found, func(a, b HugePages) int { return cmp.Compare(a.Size, b.Size) })
	if !ok {
		return nil, false
	}
	return found, true
}

// number reads a file with a number.
func (p *probe) number(name string) (int64, bool) {
	text, ok := p.read(name)
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 63)
	if err != nil {
		p.failed(name, notOf("a number", text))
		return 0, false
	}
	return n, true
}

// readNodes reads the NUMA nodes (Linux, Documentation/ABI/stable/sysfs-devices-node). Each is read
// by itself: ghw's list ends at the first that is odd, and would read every cache of every CPU.
func (p *probe) readNodes(ctx context.Context, m *Facts, all cores) {
	found, ok := p.list(nodesDir, "node[0-9]*", "the NUMA nodes are unknown")
	if !ok {
		return
	}
	if len(found) == 0 {
		p.warn("/%s: has no node: the NUMA nodes are unknown", nodesDir)
		return
	}
	for _, name := range found {
		id, err := strconv.Atoi(strings.TrimPrefix(name, "node"))
		if err != nil {
			p.failed(nodesDir+"/"+name, notOf("a NUMA node", name))
			m.Nodes = nil
			return
		}
		n := Node{ID: id}
		dir := nodesDir + "/" + name
		if cpus, ok := p.list(dir, "cpu[0-9]*", "the CPUs of the node are unknown"); ok && all != nil {
			physical, threads := all.count(cpus)
			n.Cores, n.Threads = &physical, &threads
		}
		n.Memory = p.memory(dir+"/meminfo", dir, dir+"/hugepages", func() *memory.Area {
			area, err := memory.AreaForNode(linuxpath.New(ctx), id)
			if err != nil {
				p.warn("/%s: %v: its installed memory is unknown", dir, host.Cause(err))
			}
			return area
		})
		m.Nodes = append(m.Nodes, n)
	}
	slices.SortFunc(m.Nodes, func(a, b Node) int { return cmp.Compare(a.ID, b.ID) })
}
