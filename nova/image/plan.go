package image

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"gpustack/host"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
)

// Options are what the operator wants. Image and Flavor are names or ids, which [Observe] finds.
type Options struct {
	Image      string
	Flavor     string                    // of the guests; "" for none
	Products   map[string]flavor.Product // of aliases of the flavor that hosts do not name
	Purpose    Purpose
	Properties map[string]*string // a nil value removes the property
	MinDisk    *int               // GiB; nil for at least the size of the disk
	MinRAM     *int               // MiB; nil to keep it
}

// ErrTooSmall says that guests of a flavor with the wanted disk could not boot the image.
var ErrTooSmall = host.WithHint(errors.New("is smaller than the disk of the image"), "give at least the size of the disk to --min-disk")

// Plan is the change of an image.
type Plan struct {
	Move
	Image    cloud.Image // as it is
	After    cloud.Image // as it will be
	LeftOut  []LeftOut   // what guests need and is not planned
	Warnings []string

	why map[string]string // the reason for each value, but for those of the operator
}

// LeftOut is a property that guests need and the cloud does not support.
type LeftOut struct {
	Name   string `json:"name"`   // the property
	Value  string `json:"value"`  // the value that the property would have
	Reason string `json:"reason"` // why it is left out, for people
}

// NewPlan plans what an image lacks for its purpose, and the values that the operator gives, which
// take precedence. Values that are as wanted are not planned.
//
// Errors: ErrTooSmall.
func NewPlan(o Options, s Seen) (Plan, error) {
	p := Plan{Image: s.Image, why: map[string]string{}, LeftOut: []LeftOut{}}
	values := map[string]*string{}
	var caveats []string
	if err := p.sizes(o, values); err != nil {
		return Plan{}, err
	}
	for _, n := range s.needs(o.Purpose) {
		if _, given := o.Properties[n.name]; given || n.met {
			continue
		}
		if reason := s.unsupported(n.name, n.value); reason != "" {
			p.LeftOut = append(p.LeftOut, LeftOut{n.name, n.value, reason})
			continue
		}
		values[n.name] = &n.value
		p.why[n.name] = n.why
		if n.caveat != "" && !slices.Contains(caveats, n.caveat) {
			caveats = append(caveats, n.caveat)
		}
	}
	maps.Copy(values, o.Properties)
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if v := (Value{name, s.value(name), values[name], p.why[name]}); !v.same() {
			p.Values = append(p.Values, v)
		}
	}
	p.ID, p.Name, p.Owner = s.Image.ID, s.Image.Name, s.Image.Owner
	var err error
	if p.After, err = s.Image.With(p.after()); err != nil {
		return Plan{}, err
	}
	p.Warnings = append(p.Warnings, caveats...)
	p.advise(o, s)
	return p, nil
}

// sizes plans the requirements for flavors.
func (p *Plan) sizes(o Options, values map[string]*string) error {
	gib, known := p.Image.DiskGiB()
	switch {
	case o.MinDisk != nil && known && *o.MinDisk < gib:
		return fmt.Errorf("--min-disk: %d GiB %w, which has %d GiB", *o.MinDisk, ErrTooSmall, gib)
	case o.MinDisk != nil:
		values[cloud.MinDisk] = new(strconv.Itoa(*o.MinDisk))
	case known && p.Image.MinDisk < gib:
		values[cloud.MinDisk] = new(strconv.Itoa(gib))
		p.why[cloud.MinDisk] = fmt.Sprintf("the disk of the image has %d GiB; Nova compares only its file with the flavor, and guests fail on the host", gib)
	}
	if !known && o.MinDisk == nil && p.Image.MinDisk == 0 {
		p.warn("the size of the image's disk is unknown: Glance has no virtual_size of this image; 'qemu-img info' shows that of its file, --min-disk sets it")
	}
	if o.MinRAM != nil {
		values[cloud.MinRAM] = new(strconv.Itoa(*o.MinRAM))
	}
	return nil
}

func (p *Plan) warn(format string, args ...any) {
	p.Warnings = append(p.Warnings, fmt.Sprintf(format, args...))
}

// unsupported returns why a property of an image cannot have an effect in the cloud, or "".
func (s Seen) unsupported(name, value string) string {
	if since := known[name].since; s.Newest < since {
		return fmt.Sprintf("this release of Nova does not read it: it has microversion %s, and the property is of a release with %s", s.Newest, since)
	}
	trait := demand(name, &value)
	if trait == "" {
		return ""
	}
	switch nodes, err := s.Traits.of(trait); {
	case err != nil:
		return fmt.Sprintf("it demands trait %s, and whether a compute node has it is unknown: %v", trait, err)
	case len(nodes) == 0 && !scheduled(name):
		return fmt.Sprintf("no compute node reports trait %s: guests would fail on the host", trait)
	case len(nodes) == 0:
		return fmt.Sprintf("it demands trait %s, which no compute node reports: Nova would find no host", trait)
	}
	return ""
}

// advise adds warnings.
func (p *Plan) advise(o Options, s Seen) {
	if all, err := s.spans(); err == nil && s.isX86() {
		if names := hostsOf(all, func(p span) bool { return p.unknown }); names != "" {
			p.warn("the inventory of %s lacks memory regions of GPUs: whether they are large is unknown; %s", names, scanAgain)
		}
	}
	if len(s.Hosts) == 0 {
		p.warn("without --inventory, whether the memory regions of GPUs are large is unknown: machine type, firmware and addresses are not planned")
	}
	for _, name := range slices.Sorted(maps.Keys(o.Properties)) {
		value := o.Properties[name]
		if value == nil {
			continue
		}
		if reason := s.unsupported(name, *value); reason != "" {
			p.warn("%s=%s: %s", name, *value, reason)
		}
		switch {
		case name == secureBoot && *value == "required":
			p.warn("%s", unsigned)
		case name == hideKVM && isTrue(*value):
			if text, helps := s.hiding(strings.EqualFold(p.After.Properties[osType], "windows")); !helps {
				p.warn("%s: %s", hideKVM, text)
			}
		}
	}
	for _, v := range p.Values {
		if trait := demand(v.Name, v.After); trait != "" {
			text := "%s=%s: guests run only on the compute nodes with trait %s: %s"
			if !scheduled(v.Name) {
				text += "; Nova does not ask for the trait, and guests fail on other compute nodes"
			}
			if nodes, err := s.Traits.of(trait); err == nil && len(nodes) > 0 {
				p.warn(text, v.Name, *v.After, trait, someOf(nodes))
			}
		}
	}
	if s.Image.Status != "active" {
		p.warn("the image is %s: guests cannot boot from it until it is active", s.Image.Status)
	}
	if len(p.Values) > 0 {
		p.warn("existing servers keep the properties that the image had when they were created, until they are rebuilt")
	}
}

var scanAgain = host.Textf("run on the compute node: %s", host.NewCommand("host scan").Flag("o", "json").Elsewhere())

const unsigned = "os_secure_boot=required: the guest's kernel loads only signed modules, and NVIDIA's driver that DKMS builds is not signed: " +
	"the image needs a signed one, or an enrolled key"

// hiding returns which guests need the hypervisor to be hidden, and whether those of the image are
// known to be such ones.
func (s Seen) hiding(windows bool) (text string, helps bool) {
	geforce, others := 0, 0
	for _, h := range s.Hosts {
		for i := range h.Devices {
			switch d := &h.Devices[i]; {
			case !d.IsNVIDIAGPU() || d.Product == nil:
			case strings.Contains(*d.Product, "GeForce"):
				geforce++
			default:
				others++
			}
		}
	}
	const clock = "and it hides kvm-clock from Linux"
	switch {
	case !windows:
		return "it helps only with os_type=windows, " + clock, false
	case others > 0 && geforce == 0:
		return "only GeForce cards with a driver before R465 (2021) need it, and the inventories have no GeForce card", false
	}
	return "only GeForce cards with a driver before R465 (2021) need it", geforce > 0
}

// someOf lists at most five names.
func someOf(names []string) string {
	const most = 5
	if len(names) > most {
		return strings.Join(names[:most], ", ") + fmt.Sprintf(" and %d others", len(names)-most)
	}
	return strings.Join(names, ", ")
}

// Changed reports whether the plan changes anything.
func (p Plan) Changed() bool {
	return len(p.Values) > 0
}
