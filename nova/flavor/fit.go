package flavor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/host/document"
	"gpustack/host/hardware"
	"gpustack/host/pci"
	"gpustack/nova"
)

// Reserve is what remains with the host in each NUMA node.
type Reserve struct {
	Cores  int `json:"cores"`   // physical cores
	Memory int `json:"ram_mib"` // memory
}

// DefaultReserve is a core of each NUMA node for the kernel, nova-compute, libvirt and QEMU's own
// threads, and memory for them and for QEMU's half a GiB beside each guest. It is more than Nova's
// reserved_host_memory_mb, 512 MiB (nova/conf/compute.py), because the memory of guests with
// devices is pinned and cannot be swapped out.
func DefaultReserve() Reserve {
	return Reserve{Cores: 1, Memory: 8 << 10}
}

// Product is the product that an alias names.
type Product struct {
	Vendor, Product pci.ID
}

// FitOptions are the hosts from which sizes are derived.
type FitOptions struct {
	Inventories document.Source    // of the hosts, with facts of the machine; without paths, no sizes are derived
	Products    map[string]Product // of aliases that hosts do not name
	Reserve     Reserve
}

// Fit is what each device of a guest can have, so that guests for all devices fit on every host.
type Fit struct {
	// virtual CPUs for each device, the smallest share of all hosts
	VCPUs int `json:"vcpus_each"`
	// memory for each device, the smallest share of all hosts
	RAM     int       `json:"ram_mib_each"`
	Reserve Reserve   `json:"reserve"` // what remains with the host in each NUMA node
	Hosts   []FitHost `json:"fits"`    // the hosts, by name
}

// FitHost is what one host allows.
type FitHost struct {
	Host    string `json:"host"`         // the hostname
	Devices int    `json:"device_count"` // requested devices of the host
	// guests for which the host has devices; 0 if none fits
	Guests int  `json:"guest_count"`
	Within int  `json:"within"` // guests whose devices are in one NUMA node
	Nodes  int  `json:"-"`      // over which those of another guest are spread, at least; 0 without one
	Full   bool `json:"-"`      // the reserve leaves nothing of a NUMA node
	// virtual CPUs for each device on this host; 0 if no guest fits
	VCPUs int `json:"vcpus_each"`
	// memory for each device on this host; 0 if no guest fits
	RAM       int  `json:"ram_mib_each"`
	HugePages bool `json:"from_hugepages"` // the memory is a pool of huge pages of 1 GiB
}

// Errors of inventories from which no size can be derived.
var (
	ErrNoMachine = host.WithHint(errors.New("has no facts of the machine"),
		host.Textf("on the compute node, run: %s > FILE", host.NewCommand("host scan").Flag("machine").Flag("o", "json").Elsewhere()))
	ErrGap = host.WithHint(errors.New("is unknown in the inventory"),
		host.Textf("its warnings say why: %s, as root on the compute node", host.NewCommand("host scan").Flag("machine")))
	ErrNoGuest = host.WithHint(errors.New("no host has devices and resources for a guest"),
		"request fewer devices, or lower --reserve-cores and --reserve-memory")
	ErrNoAlias = host.WithHint(errors.New("no device of the hosts has this alias by its product"), "name the product: --alias NAME=VENDOR:PRODUCT")
)

const hugePage = 1 << 30

// ReadFit derives the sizes for a request from inventories; nil without inventories.
//
// Errors: those of [nova.ReadInventories] and [NewFit].
func ReadFit(request nova.Request, o FitOptions) (*Fit, error) {
	if len(o.Inventories.Paths) == 0 {
		return nil, nil
	}
	hosts, err := nova.ReadInventories(o.Inventories, nova.ScopeGPUs)
	if err != nil {
		return nil, err
	}
	fit, err := NewFit(request, hosts, o.Products, o.Reserve)
	if err != nil {
		return nil, err
	}
	return &fit, nil
}

// NewFit derives the sizes for a request from hosts. Each NUMA node is divided among its GPUs and
// requested devices, after the reserve is subtracted, and the smallest share of all nodes of all
// hosts counts: a guest then has no more of a node than its devices there stand for. products are
// those of aliases that hosts do not name.
//
// Errors, of all hosts at once: ErrNoMachine, ErrGap, ErrNoAlias, ErrNoGuest.
func NewFit(request nova.Request, hosts []nova.Host, products map[string]Product, reserve Reserve) (Fit, error) {
	var errs []error
	for _, w := range request {
		if !slices.ContainsFunc(hosts, func(h nova.Host) bool { return len(DevicesOf(h, w.Alias, products)) > 0 }) {
			errs = append(errs, fmt.Errorf("alias %s: %w%s", w.Alias, ErrNoAlias, hints(hosts)))
		}
	}
	fit := Fit{Reserve: reserve}
	for _, h := range hosts {
		of, err := fitHost(request, h, products, reserve)
		errs = append(errs, err)
		fit.Hosts = append(fit.Hosts, of)
		if of.Guests == 0 {
			continue
		}
		if fit.VCPUs == 0 || of.VCPUs < fit.VCPUs {
			fit.VCPUs = of.VCPUs
		}
		if fit.RAM == 0 || of.RAM < fit.RAM {
			fit.RAM = of.RAM
		}
	}
	if err := errors.Join(errs...); err != nil {
		return Fit{}, err
	}
	slices.SortStableFunc(fit.Hosts, func(a, b FitHost) int { return strings.Compare(a.Host, b.Host) })
	if fit.VCPUs == 0 || fit.RAM == 0 {
		return Fit{}, fmt.Errorf("%s: %w", request, ErrNoGuest)
	}
	return fit, nil
}

// hints lists the aliases by which hosts name their GPUs.
func hints(hosts []nova.Host) string {
	var all []string
	for _, h := range hosts {
		for _, d := range h.Devices {
			if d.AliasHint != nil && !slices.Contains(all, string(*d.AliasHint)) {
				all = append(all, string(*d.AliasHint))
			}
		}
	}
	if all == nil {
		return ""
	}
	slices.Sort(all)
	return " (they have " + strings.Join(all, ", ") + ")"
}

// DevicesOf returns the devices for guests of a host that an alias names, by the division that nova
// configure offers them by: those of the product that is given for it; otherwise those whose product
// has that name, or a name that begins with it, as A100 does for A100-SXM4-80GB.
func DevicesOf(h nova.Host, alias string, products map[string]Product) []*pci.Device {
	isForGuests := h.ForGuests()
	matches := func(match func(d *pci.Device) bool) (found []*pci.Device) {
		for i := range h.Devices {
			if d := &h.Devices[i]; match(d) && isForGuests(d) {
				found = append(found, d)
			}
		}
		return found
	}
	if p, given := products[alias]; given {
		return matches(func(d *pci.Device) bool {
			return d.IsVendor(p.Vendor) && d.ProductID != nil && *d.ProductID == p.Product
		})
	}
	if found := matches(func(d *pci.Device) bool { return d.AliasHint != nil && string(*d.AliasHint) == alias }); found != nil {
		return found
	}
	return matches(func(d *pci.Device) bool {
		return d.AliasHint != nil && strings.HasPrefix(string(*d.AliasHint), alias+"-")
	})
}

// share is what divides a NUMA node.
type share struct {
	wanted, all int // requested devices, and those with the other GPUs
}

// fitHost returns what one host allows.
func fitHost(request nova.Request, h nova.Host, products map[string]Product, reserve Reserve) (FitHost, error) {
	of := FitHost{Host: h.Name}
	if h.Machine == nil {
		return of, fmt.Errorf("%s: %w", h.Name, ErrNoMachine)
	}
	nodes := map[int]*share{} // by NUMA node
	wanted := map[pci.Address]bool{}
	in := make([]map[int]int, len(request)) // devices of each alias by NUMA node
	of.Guests = -1
	for i, w := range request {
		devices := DevicesOf(h, w.Alias, products)
		of.Devices += len(devices)
		in[i] = map[int]int{}
		for _, d := range devices {
			node, err := nodeOf(h, d)
			if err != nil {
				return of, err
			}
			wanted[d.Address] = true
			in[i][node]++
			shareOf(nodes, node).wanted++
			shareOf(nodes, node).all++
		}
		if n := len(devices) / w.Count; of.Guests < 0 || n < of.Guests {
			of.Guests = n
		}
	}
	of.place(request, in, slices.Sorted(maps.Keys(nodes)))
	if of.Guests == 0 {
		return of, nil
	}
	isOfMachine := pci.GPUs(h.Devices)
	for i := range h.Devices {
		if d := &h.Devices[i]; isOfMachine(d) && !d.IsVF() && !wanted[d.Address] {
			if node, err := nodeOf(h, d); err == nil {
				shareOf(nodes, node).all++
			}
		}
	}
	return of, of.divide(h, nodes, reserve)
}

// place sets how many guests have their devices in one NUMA node, and over how many nodes those of
// the next guest are spread. in has the devices of each alias by node.
func (of *FitHost) place(request nova.Request, in []map[int]int, nodes []int) {
	for _, node := range nodes {
		inside := of.Guests
		for i, w := range request {
			inside = min(inside, in[i][node]/w.Count)
		}
		for i, w := range request {
			in[i][node] -= inside * w.Count
		}
		of.Within += inside
	}
	if of.Within >= of.Guests {
		of.Within = of.Guests
		return
	}
	missing := make([]int, len(request))
	for i, w := range request {
		missing[i] = w.Count
	}
	for left := slices.Clone(nodes); len(left) > 0; of.Nodes++ {
		best, most := 0, 0 // the node with most of what is missing
		for i, node := range left {
			has := 0
			for j := range request {
				has += min(missing[j], in[j][node])
			}
			if has > most {
				best, most = i, has
			}
		}
		if most == 0 {
			return
		}
		for j := range request {
			missing[j] -= min(missing[j], in[j][left[best]])
		}
		left = slices.Delete(left, best, best+1)
	}
}

func shareOf(nodes map[int]*share, node int) *share {
	if nodes[node] == nil {
		nodes[node] = &share{}
	}
	return nodes[node]
}

// nodeOf returns the NUMA node of a device. A machine with one node need not show it.
func nodeOf(h nova.Host, d *pci.Device) (int, error) {
	switch {
	case h.Machine.Nodes == nil:
		return 0, fmt.Errorf("%s: the list of NUMA nodes %w", h.Name, ErrGap)
	case d.NUMANode != nil:
		return *d.NUMANode, nil
	case len(h.Machine.Nodes) == 1:
		return h.Machine.Nodes[0].ID, nil
	}
	return 0, fmt.Errorf("%s: the NUMA node of %s %w", h.Name, d.Address, ErrGap)
}

// divide sets the smallest share of the nodes that have requested devices.
func (of *FitHost) divide(h nova.Host, nodes map[int]*share, reserve Reserve) error {
	var errs []error
	first := true
	for id, s := range nodes {
		if s.wanted == 0 {
			continue
		}
		i := slices.IndexFunc(h.Machine.Nodes, func(n hardware.Node) bool { return n.ID == id })
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s: NUMA node %d %w", h.Name, id, ErrGap))
			continue
		}
		n := h.Machine.Nodes[i]
		if n.Cores == nil || n.Threads == nil || n.Memory.Usable == nil || n.Memory.HugePages == nil {
			errs = append(errs, fmt.Errorf("%s: CPUs, memory or huge pages of NUMA node %d %w", h.Name, id, ErrGap))
			continue
		}
		vcpus := vcpusOf(*n.Cores, *n.Threads, s.all, reserve)
		ram, pool := memoryOf(n.Memory, s.all, reserve)
		if first || vcpus < of.VCPUs {
			of.VCPUs = vcpus
		}
		if first || ram < of.RAM {
			of.RAM = ram
		}
		of.HugePages = of.HugePages || pool
		first = false
	}
	if of.VCPUs == 0 || of.RAM == 0 { // the reserve is all that a node has
		of.Guests, of.Within, of.Nodes, of.VCPUs, of.RAM = 0, 0, 0, 0, 0
		of.Full = len(errs) == 0
	}
	return errors.Join(errs...)
}

// vcpusOf returns the threads for each of n devices, whole cores if there are enough.
func vcpusOf(cores, threads, n int, reserve Reserve) int {
	if cores <= reserve.Cores {
		return 0
	}
	each := threads / cores
	free := (cores - reserve.Cores) * each
	if vcpus := free / n; vcpus >= each {
		return vcpus / each * each
	}
	return free / n
}

// memoryOf returns the memory in MiB for each of n devices: the pool of huge pages of 1 GiB, if the
// host has one; otherwise what remains beside the reserve and other huge pages, in whole GiB if
// there is one.
func memoryOf(m hardware.Memory, n int, reserve Reserve) (ram int, pool bool) {
	free := *m.Usable>>20 - int64(reserve.Memory)
	for _, p := range m.HugePages {
		if p.Size == hugePage && p.Total > 0 {
			return int(p.Total) / n << 10, true
		}
		free -= p.Total * (p.Size >> 10) >> 10
	}
	each := int(max(free, 0)) / n
	if each >= 1<<10 {
		each = each >> 10 << 10
	}
	return each, false
}

// Sizes returns the options with the sizes that are derived and not given.
func (f Fit) Sizes(o Options) Options {
	n := o.Request.Devices()
	vcpus, ram := f.VCPUs*n, f.RAM*n
	if o.VCPUs == nil {
		o.VCPUs = &vcpus
	}
	if o.RAM == nil {
		o.RAM = &ram
	}
	return o
}

// Warnings returns what the operator should know about the hosts and the sizes.
func (f Fit) Warnings(o Options) (warnings []string) {
	pages := false
	for _, h := range f.Hosts {
		pages = pages || h.HugePages && h.Guests > 0
		given, _ := strconv.Atoi(o.Properties["hw:numa_nodes"]) // 0 for none
		switch {
		case h.Guests == 0 && h.Devices == 0:
			warnings = append(warnings, fmt.Sprintf("%s: no guest fits: it has none of the requested devices", h.Host))
		case h.Guests == 0 && h.Full:
			warnings = append(warnings, fmt.Sprintf("%s: no guest fits: nothing of a NUMA node remains beside the reserve", h.Host))
		case h.Guests == 0:
			warnings = append(warnings, fmt.Sprintf("%s: no guest fits: it has %d of the requested devices", h.Host, h.Devices))
		case given < h.Nodes:
			warnings = append(warnings, fmt.Sprintf("%s: devices of %d of %d guests are in %d NUMA nodes: with a NUMA topology these need --property hw:numa_nodes=%d",
				h.Host, h.Guests-h.Within, h.Guests, h.Nodes, h.Nodes))
		}
	}
	if pages && o.Properties["hw:mem_page_size"] == "" {
		warnings = append(warnings, "the memory is that of huge pages, which guests use only with --property hw:mem_page_size=1GB")
	}
	return warnings
}
