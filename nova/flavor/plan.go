package flavor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/nova"
	"gpustack/nova/cloud"
)

// Options are what the operator wants. For a field that is nil or "", a new flavor gets the
// default, and an existing one stays as it is.
type Options struct {
	Request         nova.Request
	Name            string // "" for defaultName
	VCPUs           *int
	RAM, Swap       *int // MiB
	Disk, Ephemeral *int // GiB
	Private         bool
	Projects        []string // names or ids of projects that may use a private flavor
	Description     *string
	Properties      map[string]string
	NUMAPolicy      string
	CPUPolicy       string
	HideHypervisor  bool
	Image           string // the name or id of the image that guests will boot; "" for none
	Fit             *Fit   // has the sizes that are not given; nil for defaults
}

// The defaults for each device of a guest: enough to use a GPU and to install CUDA. They are a rule
// of thumb, and shown in the plan.
const (
	vcpusEach = 4
	ramEach   = 16 << 10 // MiB
	diskEach  = 40       // GiB
)

// cudaDisk is the size of a root disk in GiB below which a warning is shown: CUDA's toolkit, driver
// and build tools take about 10 beside 3 of a cloud image, and packages take the space twice while
// they are installed.
const cudaDisk = 20

// Extra specs of guests with devices, and the newest microversion of the first release that reads
// each (nova/virt/hardware.py, nova/virt/libvirt/driver.py). Ussuri and Victoria have the same
// newest microversion.
const (
	cpuPolicyKey  = "hw:cpu_policy"
	numaPolicyKey = "hw:pci_numa_affinity_policy"
	hideKey       = "hw:hide_hypervisor_id"
	oldHideKey    = "hide_hypervisor_id"

	numaPolicySince   cloud.Microversion = 87 // Ussuri
	socketPolicySince cloud.Microversion = 88 // Wallaby
	hideSince         cloud.Microversion = 88 // Wallaby: with 87 it may be Ussuri, which does not read it
	oldHideSince      cloud.Microversion = 65 // Rocky
)

// Cloud is what a plan depends on.
type Cloud struct {
	Microversion cloud.Microversion // that requests use
	Newest       cloud.Microversion // by which the release is recognized
	Existing     *State             // the flavor with the name; nil for none
	Projects     []cloud.Project    // those that the options name
	Image        *cloud.Image       // the one that the options name; nil for none
}

// Plan is a flavor before and after a change.
type Plan struct {
	Move
	Defaults []string // sizes by default
	Warnings []string
}

// ErrFixed says that an existing flavor differs in a field that Nova cannot change.
var ErrFixed = errors.New("cannot be changed")

// ErrCase says that an existing flavor requests an alias whose name differs in case only.
var ErrCase = host.WithHint(errors.New("differs in case only"), "use the alias as nova.conf defines it, or choose another --name for a flavor of its own")

// sameCase returns ErrCase if a flavor requests an alias that differs from a wanted one in case
// only. Nova compares names letter by letter: one of the two is mistyped.
func (o Options) sameCase(f cloud.Flavor) error {
	has, _ := nova.ParseRequest(f.ExtraSpecs[nova.RequestKey])
	for _, old := range has {
		for _, w := range o.Request {
			if strings.EqualFold(old.Alias, w.Alias) && old.Alias != w.Alias {
				return fmt.Errorf("flavor %s requests alias %s, from which alias %s %w", f.Name, old.Alias, w.Alias, ErrCase)
			}
		}
	}
	return nil
}

// NewPlan returns the difference between what is wanted and what the cloud has.
//
// Errors: ErrFixed for each field that cannot be changed; ErrCase.
func NewPlan(o Options, c Cloud) (Plan, error) {
	if o.Fit != nil {
		o = o.Fit.Sizes(o)
	}
	p := Plan{Move: Move{Before: c.Existing, After: &State{}}}
	specs := o.specs(c, p.warn)
	after := p.After
	if c.Existing == nil {
		*after = o.fresh(&p)
	} else {
		*after = *c.Existing
		after.ExtraSpecs, after.Projects = maps.Clone(c.Existing.ExtraSpecs), slices.Clone(c.Existing.Projects)
		if err := errors.Join(o.fixed(c.Existing.Flavor), o.sameCase(c.Existing.Flavor)); err != nil {
			return Plan{}, err
		}
	}
	switch {
	case o.Description == nil || *o.Description == after.Description:
	case c.Microversion >= cloud.Descriptions:
		after.Description = *o.Description
	default:
		p.warn("the description is not set: it requires microversion %s, but the cloud supports only %s", cloud.Descriptions, c.Microversion)
	}
	set := false
	for key, value := range specs {
		if has, there := after.ExtraSpecs[key]; !there || !sameValue(key, has, value) {
			after.ExtraSpecs[key], set = value, true
		}
	}
	for _, project := range c.Projects {
		if !slices.Contains(after.Projects, project.ID) {
			after.Projects = append(after.Projects, project.ID)
		}
	}
	if !after.Public && len(after.Projects) == 0 {
		p.warn("no project but that of an administrator may use the flavor: --project names one")
	}
	if c.Existing != nil && set {
		if _, asks := c.Existing.ExtraSpecs[nova.RequestKey]; !asks {
			p.warn("flavor %s exists and has not requested devices so far", after.Name)
		}
		p.warn("existing guests keep their devices and properties; new and resized guests get the changed flavor")
	}
	p.disk(c.Image)
	p.neighbours()
	p.unequal()
	if o.Fit != nil {
		p.Warnings = append(p.Warnings, o.Fit.Warnings(o)...)
	}
	return p, nil
}

// neighbours says what Nova promises about the distance between devices of several aliases, such as
// a GPU and an RDMA adapter: it knows NUMA nodes (nova/pci/stats.py, _filter_pools_for_numa_cells),
// and no PCIe switches.
func (p *Plan) neighbours() {
	request, err := nova.ParseRequest(p.After.ExtraSpecs[nova.RequestKey])
	if err != nil || len(request) < 2 {
		return
	}
	promise := "devices of its aliases may be on different NUMA nodes: --numa-policy required makes Nova choose them on the NUMA nodes of the guest"
	if policy := p.After.ExtraSpecs[numaPolicyKey]; policy == "required" || policy == "socket" {
		promise = fmt.Sprintf("with the NUMA policy %s Nova chooses devices by NUMA node", policy)
	}
	p.warn("%s, but never by PCIe switch: for devices behind one switch, give the device_spec of both a trait of that switch and create a flavor for each, "+
		"or assign all devices of a host to one guest; %s shows the switches", promise,
		host.NewCommand("rdma scan").Flag("topology"))
}

// unequal warns of GPUs of several products, as far as the names of aliases show them.
func (p *Plan) unequal() {
	request, err := nova.ParseRequest(p.After.ExtraSpecs[nova.RequestKey])
	if err != nil {
		return
	}
	var gpus []string
	for _, r := range request {
		if pci.ProductsNamed(r.Alias) != nil && !slices.Contains(gpus, r.Alias) {
			gpus = append(gpus, r.Alias)
		}
	}
	if len(gpus) > 1 {
		slices.Sort(gpus)
		p.warn("its guests have GPUs of several products, %s: programs that use several GPUs at once, such as nbody, need equal ones", host.Listed(gpus, "and"))
	}
}

func (p *Plan) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// Changed reports whether the plan changes anything.
func (p Plan) Changed() bool {
	return len(p.Requests()) > 0
}

// name returns the flavor's name.
func (o Options) name() string {
	if o.Name != "" {
		return o.Name
	}
	return defaultName(o.Request)
}

// Find returns the flavor with the name of the options, or nil.
func (o Options) Find(all []cloud.Flavor) *cloud.Flavor {
	i := slices.IndexFunc(all, func(f cloud.Flavor) bool { return f.Name == o.name() })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// fresh returns a new flavor.
func (o Options) fresh(p *Plan) State {
	n := o.Request.Devices()
	choose := func(asked *int, each int, what string) int {
		if asked != nil {
			return *asked
		}
		p.Defaults = append(p.Defaults, what)
		return each * n
	}
	f := State{Flavor: cloud.Flavor{Name: o.name(), Public: !o.Private, RxTxFactor: 1, ExtraSpecs: map[string]string{}}, Projects: []string{}}
	f.VCPUs = choose(o.VCPUs, vcpusEach, fmt.Sprintf("%d vCPUs", vcpusEach))
	f.RAM = choose(o.RAM, ramEach, Size(ramEach, MiB)+" of RAM")
	f.Disk = choose(o.Disk, diskEach, Size(diskEach, GiB)+" of disk")
	f.Ephemeral, f.Swap = host.Value(o.Ephemeral), host.Value(o.Swap)
	return f
}

// fixed returns an error for each wanted change that Nova's API does not support.
func (o Options) fixed(f cloud.Flavor) error {
	var errs []error
	fixed := host.WithHint(ErrFixed, host.Textf("choose another --name, or create the flavor again after '%s'", host.NewCommand("flavor delete").Arg(f.Name)))
	differs := func(what string, asked *int, is int, show func(int) string) {
		if asked != nil && *asked != is {
			errs = append(errs, fmt.Errorf("flavor %s: %s is %s and %w to %s", f.Name, what, show(is), fixed, show(*asked)))
		}
	}
	number := func(n int) string { return fmt.Sprint(n) }
	mib := func(n int) string { return Size(n, MiB) }
	gib := func(n int) string { return Size(n, GiB) }
	differs("vcpus", o.VCPUs, f.VCPUs, number)
	differs("ram", o.RAM, f.RAM, mib)
	differs("disk", o.Disk, f.Disk, gib)
	differs("ephemeral", o.Ephemeral, f.Ephemeral, gib)
	differs("swap", o.Swap, f.Swap, mib)
	if o.Private && f.Public {
		errs = append(errs, fmt.Errorf("flavor %s: access is public and %w to private", f.Name, fixed))
	}
	return errors.Join(errs...)
}

// specs returns the wanted extra specs that the release of the cloud reads.
func (o Options) specs(c Cloud, warn func(string, ...any)) map[string]string {
	specs := maps.Clone(o.Properties)
	if specs == nil {
		specs = map[string]string{}
	}
	specs[nova.RequestKey] = o.Request.String()
	if o.CPUPolicy != "" {
		specs[cpuPolicyKey] = o.CPUPolicy
	}
	switch {
	case o.NUMAPolicy == "":
	case c.Newest < numaPolicySince:
		warn("%s is not set: this release of Nova does not support it in flavors; set numa_policy in the alias of nova.conf instead", numaPolicyKey)
	case o.NUMAPolicy == "socket" && c.Newest < socketPolicySince:
		warn("--numa-policy socket is not set: this release of Nova does not support it")
	default:
		specs[numaPolicyKey] = o.NUMAPolicy
		if !hasTopology(specs) && (c.Existing == nil || !hasTopology(c.Existing.ExtraSpecs)) {
			warn("the NUMA policy has no effect on guests without a NUMA topology: add --cpu-policy dedicated or --property hw:numa_nodes=1")
		}
	}
	switch {
	case !o.HideHypervisor:
	case c.Newest < oldHideSince:
		warn("--hide-hypervisor is not set: this release of Nova does not support it in flavors; set the property img_hide_hypervisor_id=true of the image instead")
	case c.Newest < hideSince:
		specs[oldHideKey] = "true"
	default:
		specs[hideKey] = "true"
	}
	return specs
}

// hasTopology reports whether guests have a NUMA topology
// (nova/virt/hardware.py, numa_get_constraints).
func hasTopology(specs map[string]string) bool {
	policy := specs[cpuPolicyKey]
	return specs["hw:numa_nodes"] != "" || specs["hw:mem_page_size"] != "" || policy == "dedicated" || policy == "mixed"
}

// sameValue reports whether an extra spec has a wanted value.
func sameValue(key, has, wanted string) bool {
	if key == nova.RequestKey {
		a, err := nova.ParseRequest(has)
		b, err2 := nova.ParseRequest(wanted)
		return err == nil && err2 == nil && a.Same(b)
	}
	return has == wanted
}

// disk adds warnings for guests that cannot boot, or whose disk is too small for CUDA.
func (p *Plan) disk(i *cloud.Image) {
	f := p.After
	if i != nil {
		size, known := i.DiskGiB()
		if !known && i.Size != nil { // the file at least
			size = int((*i.Size + int64(GiB) - 1) / int64(GiB))
		}
		switch {
		case f.Disk != 0 && f.Disk < i.MinDisk:
			p.warn("image %s requires a disk of %d GiB, but the flavor has %d", i.Name, i.MinDisk, f.Disk)
		case f.Disk != 0 && f.Disk < size:
			p.warn("image %s has a disk of %d GiB, but the flavor has %d", i.Name, size, f.Disk)
		}
		if f.RAM < i.MinRAM {
			p.warn("image %s requires %s of RAM, but the flavor has %s", i.Name, Size(i.MinRAM, MiB), Size(f.RAM, MiB))
		}
	}
	switch {
	case f.Disk == 0:
		p.warn("with --disk 0 the disk of a guest is as large as its image: cloud images are too small for CUDA, which needs %d GiB or a volume", cudaDisk)
	case f.Disk < cudaDisk:
		p.warn("a disk of %d GiB is too small for a cloud image with CUDA, which needs %d GiB", f.Disk, cudaDisk)
	}
}
