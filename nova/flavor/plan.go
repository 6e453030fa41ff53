package flavor

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/nova"
	"gpustack/nova/cloud"
)

// Options are what the operator asks for. What is nil or "" is not asked for: a new
// flavor then has the default, and one that is there stays as it is.
type Options struct {
	Request         nova.Request
	Name            string // "" for DefaultName
	VCPUs           *int
	RAM, Swap       *int // MiB
	Disk, Ephemeral *int // GiB
	Private         bool
	Projects        []cloud.Project // that may use a private flavor
	Description     *string
	Properties      map[string]string
	NUMAPolicy      string
	CPUPolicy       string
	HideHypervisor  bool
	Image           *cloud.Image // that guests will boot
}

// What a guest gets with each of its devices, unless something else is asked for:
// enough to keep one fed and to install CUDA. No outside source: a rule of thumb, said
// in the plan.
const (
	vcpusEach = 4
	ramEach   = 16 << 10 // MiB
	diskEach  = 40       // GiB
)

// cudaDisk is the root disk, in GiB, below which CUDA is warned of: toolkit, driver and
// the build tools of its packages take some 10 beside a cloud image's 3, and packages
// lie there twice while they are installed.
const cudaDisk = 20

// Extra specs of guests with devices, and the microversion of the first release that
// reads them (nova/virt/hardware.py, nova/virt/libvirt/driver.py). A release's newest
// microversion tells it apart; Ussuri and Victoria share theirs.
const (
	cpuPolicyKey  = "hw:cpu_policy"
	numaPolicyKey = "hw:pci_numa_affinity_policy"
	hideKey       = "hw:hide_hypervisor_id"
	oldHideKey    = "hide_hypervisor_id"

	numaPolicySince   cloud.Microversion = 87 // Ussuri
	socketPolicySince cloud.Microversion = 88 // Wallaby
	hideSince         cloud.Microversion = 88 // surely Victoria or later
	oldHideSince      cloud.Microversion = 65 // Rocky
)

// Cloud is what a plan has to know of a cloud.
type Cloud struct {
	Microversion cloud.Microversion // that is spoken
	Newest       cloud.Microversion // that tells the release
	Existing     *cloud.Flavor      // the flavor of that name; nil for none
	Access       []string           // ids of projects that may use it
}

// Plan is a flavor as it is and as it will be.
type Plan struct {
	Before       *cloud.Flavor // nil: there is none
	After        cloud.Flavor  // without an ID if it is new
	BeforeAccess []string      // ids of projects
	AfterAccess  []string
	Describe     bool              // Before's description changes
	Set          map[string]string // extra specs that are new or change
	Grant        []cloud.Project   // who gets access
	Defaults     []string          // sizes that nobody asked for
	Warnings     []string
}

// ErrFixed says that a flavor is there and differs in what cannot be changed.
var ErrFixed = errors.New("cannot be changed")

// NewPlan holds what is asked for against what the cloud has.
//
// Errors: ErrFixed, one for each difference.
func NewPlan(o Options, c Cloud) (Plan, error) {
	p := Plan{Before: c.Existing, Set: map[string]string{}, BeforeAccess: c.Access}
	specs := o.specs(c, p.warn)
	if c.Existing == nil {
		p.After = o.fresh(&p)
		if o.Description != nil && c.Microversion < cloud.Descriptions {
			p.After.Description = ""
			p.warn("the cloud speaks %s only: the description is not set, which takes %s", c.Microversion, cloud.Descriptions)
		}
	} else {
		p.After = *c.Existing
		p.After.ExtraSpecs = maps.Clone(c.Existing.ExtraSpecs)
		if err := o.fixed(*c.Existing); err != nil {
			return Plan{}, err
		}
		if o.Description != nil && *o.Description != c.Existing.Description {
			if p.Describe = c.Microversion >= cloud.Descriptions; p.Describe {
				p.After.Description = *o.Description
			} else {
				p.warn("the cloud speaks %s only: the description is not set, which takes %s", c.Microversion, cloud.Descriptions)
			}
		}
	}
	for key, value := range specs {
		if has, there := p.After.ExtraSpecs[key]; !there || !sameValue(key, has, value) {
			p.Set[key] = value
			p.After.ExtraSpecs[key] = value
		}
	}
	p.AfterAccess = slices.Clone(c.Access)
	for _, project := range o.Projects {
		if !slices.Contains(p.AfterAccess, project.ID) {
			p.Grant = append(p.Grant, project)
			p.AfterAccess = append(p.AfterAccess, project.ID)
		}
	}
	if !p.After.Public && len(p.AfterAccess) == 0 {
		p.warn("no project may use it yet, but an administrator's: --project names one")
	}
	if c.Existing != nil && len(p.Set) > 0 {
		if _, asks := c.Existing.ExtraSpecs[nova.RequestKey]; !asks {
			p.warn("flavor %s is there and has asked for no device so far", p.After.Name)
		}
		p.warn("guests that run keep what they were booted with; new ones and resizes get this")
	}
	o.disk(&p)
	return p, nil
}

func (p *Plan) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// Changed tells whether there is something to do.
func (p Plan) Changed() bool {
	return len(p.Requests()) > 0
}

// name returns the flavor's name.
func (o Options) name() string {
	if o.Name != "" {
		return o.Name
	}
	return DefaultName(o.Request)
}

// Find returns the flavor that the options are about, if the cloud has it.
func (o Options) Find(all []cloud.Flavor) *cloud.Flavor {
	i := slices.IndexFunc(all, func(f cloud.Flavor) bool { return f.Name == o.name() })
	if i < 0 {
		return nil
	}
	return &all[i]
}

// fresh is a flavor that is not there yet.
func (o Options) fresh(p *Plan) cloud.Flavor {
	n := o.Request.Devices()
	choose := func(asked *int, each int, what string) int {
		if asked != nil {
			return *asked
		}
		p.Defaults = append(p.Defaults, what)
		return each * n
	}
	f := cloud.Flavor{Name: o.name(), Public: !o.Private, ExtraSpecs: map[string]string{}}
	f.VCPUs = choose(o.VCPUs, vcpusEach, fmt.Sprintf("%d vCPUs", vcpusEach))
	f.RAM = choose(o.RAM, ramEach, Size(ramEach, MiB)+" of RAM")
	f.Disk = choose(o.Disk, diskEach, Size(diskEach, GiB)+" of disk")
	if o.Ephemeral != nil {
		f.Ephemeral = *o.Ephemeral
	}
	if o.Swap != nil {
		f.Swap = *o.Swap
	}
	if o.Description != nil {
		f.Description = *o.Description
	}
	return f
}

// fixed finds what is asked for and cannot be changed: Nova has no request for it.
func (o Options) fixed(f cloud.Flavor) error {
	var errs []error
	differs := func(what string, asked *int, is int, show func(int) string) {
		if asked != nil && *asked != is {
			errs = append(errs, fmt.Errorf("flavor %s: %s is %s and %w to %s", f.Name, what, show(is), ErrFixed, show(*asked)))
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
		errs = append(errs, fmt.Errorf("flavor %s: access is public and %w to private", f.Name, ErrFixed))
	}
	return errors.Join(errs...)
}

// specs are the extra specs that are asked for, as far as the cloud's Nova reads them.
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
		warn("this Nova reads %s from no flavor: not set; the alias in nova.conf can have a numa_policy", numaPolicyKey)
	case o.NUMAPolicy == "socket" && c.Newest < socketPolicySince:
		warn("this Nova has no NUMA policy socket: not set")
	default:
		specs[numaPolicyKey] = o.NUMAPolicy
		if !hasTopology(specs) && (c.Existing == nil || !hasTopology(c.Existing.ExtraSpecs)) {
			warn("a NUMA policy counts for guests with a NUMA topology only: --cpu-policy dedicated or --property hw:numa_nodes=1 gives them one")
		}
	}
	switch {
	case !o.HideHypervisor:
	case c.Newest < oldHideSince:
		warn("this Nova hides the hypervisor for no flavor: not set; images can have the property img_hide_hypervisor_id=true")
	case c.Newest < hideSince:
		specs[oldHideKey] = "true"
	default:
		specs[hideKey] = "true"
	}
	return specs
}

// hasTopology tells whether guests have a NUMA topology
// (nova/virt/hardware.py, numa_get_constraints).
func hasTopology(specs map[string]string) bool {
	policy := specs[cpuPolicyKey]
	return specs["hw:numa_nodes"] != "" || specs["hw:mem_page_size"] != "" || policy == "dedicated" || policy == "mixed"
}

// sameValue compares an extra spec that is there with what is asked for.
func sameValue(key, has, wanted string) bool {
	if key == nova.RequestKey {
		a, err := nova.ParseRequest(has)
		b, err2 := nova.ParseRequest(wanted)
		return err == nil && err2 == nil && a.Same(b)
	}
	return has == wanted
}

// disk warns of guests that cannot boot, or hold CUDA.
func (o Options) disk(p *Plan) {
	f := p.After
	if i := o.Image; i != nil {
		size := int((i.Size + int64(GiB) - 1) / int64(GiB))
		switch {
		case f.Disk != 0 && f.Disk < i.MinDisk:
			p.warn("image %s does not boot with it: it asks for a disk of %d GiB, and the flavor has %d", i.Name, i.MinDisk, f.Disk)
		case f.Disk != 0 && f.Disk < size:
			p.warn("image %s does not boot with it: its disk has %d GiB, and the flavor's %d", i.Name, size, f.Disk)
		}
		if f.RAM < i.MinRAM {
			p.warn("image %s does not boot with it: it asks for %s of RAM, and the flavor has %s", i.Name, Size(i.MinRAM, MiB), Size(f.RAM, MiB))
		}
	}
	switch {
	case f.Disk == 0:
		p.warn("without a disk of its own a guest's is as large as its image, and cloud images are too small for CUDA: %d GiB hold it, or a volume", cudaDisk)
	case f.Disk < cudaDisk:
		p.warn("a disk of %d GiB is too small for CUDA beside a cloud image: %d GiB hold it", f.Disk, cudaDisk)
	}
}

// Text writes a flavor a line for each of its values, to be compared. Access is by
// project ids.
func Text(f *cloud.Flavor, access []string) string {
	if f == nil {
		return ""
	}
	var b strings.Builder
	line := func(key, value string) {
		fmt.Fprintf(&b, "%-12s %s\n", key, value)
	}
	line("vcpus", fmt.Sprint(f.VCPUs))
	line("ram", Size(f.RAM, MiB))
	line("disk", Size(f.Disk, GiB))
	if f.Ephemeral > 0 {
		line("ephemeral", Size(f.Ephemeral, GiB))
	}
	if f.Swap > 0 {
		line("swap", Size(f.Swap, MiB))
	}
	if f.Public {
		line("access", "public")
	} else {
		line("access", "private")
	}
	for _, project := range access {
		line("project", project)
	}
	if f.Description != "" {
		line("description", f.Description)
	}
	for _, key := range slices.Sorted(maps.Keys(f.ExtraSpecs)) {
		line("property", key+"="+f.ExtraSpecs[key])
	}
	return b.String()
}
