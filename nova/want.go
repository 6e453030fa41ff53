package nova

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gpustack/host/pci"
)

// Role is the part that a machine plays.
type Role string

// The roles. A controller runs nova-api, nova-scheduler and nova-conductor.
const (
	Controller Role = "controller"
	Compute    Role = "compute"
	All        Role = "all"
)

func (r Role) controls() bool { return r == Controller || r == All }
func (r Role) computes() bool { return r == Compute || r == All }

// Host is what a scan says of one compute node.
type Host struct {
	Name    string
	Devices []pci.Device
}

// Options are what the operator asks for.
type Options struct {
	Role       Role
	Release    Release
	Aliases    []Alias
	Hosts      []Host // inventories: an alias for each product in them
	Placement  bool
	ByAddress  bool
	Managed    string // "yes", "no", or "" for nothing
	OneTimeUse bool
	// Here are the functions of the machine that is configured, Given those of
	// them that go to guests; nil where that is not known.
	Here  []pci.Device
	Given []pci.Address
	// Interfaces are those of the machine, by name; see [Interfaces].
	Interfaces map[string]pci.Address
}

// Want is what nova.conf shall say.
type Want struct {
	Aliases []Alias
	Specs   []Spec
}

// New works out what the options want. All their faults are in the error.
func New(o Options) (Want, error) {
	var errs []error
	w := Want{Aliases: slices.Clone(o.Aliases)}
	named, err := fromHosts(o.Hosts)
	if err != nil {
		errs = append(errs, err)
	}
	w.Aliases = append(w.Aliases, named...)
	if len(w.Aliases) == 0 && len(errs) == 0 {
		errs = append(errs, errors.New("no device is named"))
	}
	seen := map[string]Alias{}
	for _, a := range w.Aliases {
		if other, twice := seen[a.Name]; twice && other != a {
			errs = append(errs, fmt.Errorf("alias %s: has two contents", a.Name))
		}
		seen[a.Name] = a
		errs = append(errs, a.needs(o.Release)...)
	}
	w.Aliases = slices.Compact(w.Aliases)
	since := func(asked bool, what string, first Release) {
		if asked && o.Release < first {
			errs = append(errs, fmt.Errorf("%s needs %s, and this is %s", what, first, o.Release))
		}
	}
	since(o.Placement, "PCI in Placement", zed)
	since(o.Managed != "", "managed", r2025_1)
	since(o.OneTimeUse, "one_time_use", r2025_2)
	if o.OneTimeUse && !o.Placement {
		errs = append(errs, errors.New("one_time_use needs PCI in Placement"))
	}
	for _, a := range w.Aliases {
		specs, err := o.specs(a)
		if err != nil {
			errs = append(errs, err)
		}
		for _, s := range specs {
			i := slices.IndexFunc(w.Specs, s.sameDevices)
			switch {
			case i < 0:
				w.Specs = append(w.Specs, s)
			case !reflect.DeepEqual(w.Specs[i], s):
				errs = append(errs, fmt.Errorf("alias %s: another alias names the same devices with other tags, and Nova gives a device those of one device_spec: %s, %s", a.Name, written(w.Specs[i]), written(s)))
			}
		}
	}
	return w, errors.Join(errs...)
}

// fromHosts makes an alias for each product of the NVIDIA GPUs that hosts have,
// virtual functions left out.
func fromHosts(hosts []Host) ([]Alias, error) {
	type product struct{ vendor, product pci.ID }
	byProduct := map[product]Alias{}
	types := map[product]map[string]string{} // the first host of each type
	var order []product
	var errs []error
	for _, h := range hosts {
		found := false
		for i := range h.Devices {
			d := &h.Devices[i]
			if !d.Candidate || d.ProductID == nil || d.SRIOV.PF != nil {
				continue
			}
			found = true
			if d.DeviceType == nil {
				errs = append(errs, fmt.Errorf("host %s: %s: whether it is SR-IOV capable is not known", h.Name, d.Address))
				continue
			}
			p := product{*d.VendorID, *d.ProductID}
			if types[p] == nil {
				types[p] = map[string]string{}
				order = append(order, p)
				name := p.vendor.String() + "-" + p.product.String()
				if d.AliasHint != nil {
					name = *d.AliasHint
				}
				byProduct[p] = Alias{Name: name, VendorID: p.vendor, ProductID: p.product, DeviceType: string(*d.DeviceType)}
			}
			if types[p][string(*d.DeviceType)] == "" {
				types[p][string(*d.DeviceType)] = h.Name
			}
		}
		if !found {
			errs = append(errs, fmt.Errorf("host %s: has no NVIDIA GPU", h.Name))
		}
	}
	count := map[string]int{}
	for _, p := range order {
		count[byProduct[p].Name]++
	}
	var aliases []Alias
	for _, p := range order {
		a := byProduct[p]
		if len(types[p]) > 1 {
			var where []string
			for kind, host := range types[p] {
				where = append(where, kind+" on "+host)
			}
			slices.Sort(where)
			errs = append(errs, fmt.Errorf("product %s:%s: hosts disagree, which one alias cannot serve: %s", p.vendor, p.product, strings.Join(where, ", ")))
		}
		if count[a.Name] > 1 { // products that differ in memory only share a name
			a.Name += "-" + p.product.String()
		}
		aliases = append(aliases, a)
	}
	return aliases, errors.Join(errs...)
}

// specs are what this machine offers of an alias: by ids, or by address where a
// twin stays with the host.
func (o Options) specs(a Alias) ([]Spec, error) {
	spec := Spec{VendorID: a.VendorID, ProductID: a.ProductID, Managed: o.Managed}
	if o.Placement {
		spec.ResourceClass, spec.Traits = a.ResourceClass, a.Traits
	}
	if o.Release >= r2025_1 {
		spec.LiveMigratable = a.LiveMigratable
	}
	if o.OneTimeUse {
		spec.OneTimeUse = "true"
	}
	var here, given []pci.Address
	for i := range o.Here {
		if d := &o.Here[i]; d.IsVendor(a.VendorID) && d.ProductID != nil && *d.ProductID == a.ProductID && d.SRIOV.PF == nil {
			here = append(here, d.Address)
			if o.Given == nil || slices.Contains(o.Given, d.Address) {
				given = append(given, d.Address)
			}
		}
	}
	if !o.ByAddress && len(given) == len(here) {
		return []Spec{spec}, nil
	}
	if o.Role.computes() && len(given) == 0 {
		return nil, fmt.Errorf("alias %s: this machine gives no function of %s:%s to guests", a.Name, a.VendorID, a.ProductID)
	}
	var specs []Spec
	for _, address := range given {
		s := spec
		s.Address = &address
		specs = append(specs, s)
	}
	return specs, nil
}
