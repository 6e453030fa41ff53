package pci

import "slices"

// Link is how two functions reach each other, nearest first, with the names and meanings of
// nvidia-smi topo -m.
type Link string

// The links that sysfs shows. NVLink, which needs NVIDIA's driver, is not among them.
const (
	LinkPIX  Link = "PIX"  // at most one PCIe switch
	LinkPXB  Link = "PXB"  // several PCIe switches, without the host bridge
	LinkPHB  Link = "PHB"  // a PCIe host bridge, typically the CPU
	LinkNode Link = "NODE" // several host bridges of one NUMA node
	LinkSys  Link = "SYS"  // the interconnect between NUMA nodes
)

// links in the order of distance.
var links = [...]Link{LinkPIX, LinkPXB, LinkPHB, LinkNode, LinkSys}

// Distance returns 0 for the nearest link, and more for each further one.
func (l Link) Distance() int {
	if i := slices.Index(links[:], l); i >= 0 {
		return i
	}
	return len(links)
}

// Link returns how two functions reach each other, from the bridges above them and their NUMA nodes
// alone. Where the kernel names no NUMA node for either, the machine has one.
//
// A switch is one bridge upstream and one for each device downstream. So two functions below one
// switch have its upstream port as their deepest common bridge, and each at most one bridge below
// it.
func (ds Devices) Link(a, b *Device) Link {
	above, other := ds.Path(a), ds.Path(b)
	common := 0
	for common < len(above) && common < len(other) && above[common] == other[common] {
		common++
	}
	switch {
	case common > 0 && len(above)-common <= 1 && len(other)-common <= 1:
		return LinkPIX
	case common > 0:
		return LinkPXB
	case rootBus(a, above) == rootBus(b, other):
		return LinkPHB
	case a.NUMANode == nil && b.NUMANode == nil,
		a.NUMANode != nil && b.NUMANode != nil && *a.NUMANode == *b.NUMANode:
		return LinkNode
	}
	return LinkSys
}

// rootBus returns the first address of the root bus that a function is below.
func rootBus(d *Device, above []Address) Address {
	outermost := d.Address
	if len(above) > 0 {
		outermost = above[0]
	}
	return Address{Domain: outermost.Domain, Bus: outermost.Bus}
}
