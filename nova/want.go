package nova

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/hardware"
	"gpustack/host/pci"
	"gpustack/nova/conf"
)

// Role is which services of Nova a machine runs.
type Role string

// The roles. A controller runs nova-api, nova-scheduler and nova-conductor.
const (
	Controller Role = "controller"
	Compute    Role = "compute"
	All        Role = "all"
)

// Controls reports whether the machine runs the services of a controller.
func (r Role) Controls() bool { return r == Controller || r == All }

// Computes reports whether the machine runs nova-compute.
func (r Role) Computes() bool { return r == Compute || r == All }

// ReadsAliases reports whether a service of the role reads aliases: nova-api always, nova-compute
// since Newton (nova/compute/resource_tracker.py, _move_claim; c2c3b97259). Aliases are written for
// earlier ones too: they tell which devices are offered, and an upgrade needs them.
func (r Role) ReadsAliases(release Release) bool { return r.Controls() || release >= Newton }

// Configure returns the command nova configure for a machine with a role.
func Configure(role Role) host.Command {
	return host.NewCommand("nova configure").Flag("role", string(role))
}

// Host is the devices of one compute node, as host scan lists them.
type Host struct {
	Name     string
	NovaHost string // its name in Nova; "" if the inventory does not say
	Scope    Scope  // which of its functions are in Devices; "" if the inventory does not say
	Devices  []pci.Device
	// Given and Containers are those of Devices that are recorded for guests and for containers. Given
	// is nil if nothing is recorded for guests.
	Given, Containers []pci.Address
	Machine           *hardware.Facts // its facts; nil if the inventory does not have them
	used              []pci.Address   // see [Options]
	isHere            bool            // it is the machine that is configured
}

// Options are what the operator wants.
type Options struct {
	Role       Role
	Release    Release
	Aliases    []Alias
	Hosts      []Host // inventories; each product in them gets an alias
	HCAs       []HCA
	Adapters   []Adapter // of the machine that is configured
	Placement  bool
	ByAddress  bool
	Managed    string // "yes", "no", or "" for that of the device_spec, if it has one
	OneTimeUse bool
	NotOnce    bool     // a device_spec's one_time_use is not kept
	Remove     []string // names of aliases to remove
	IfPresent  bool     // an alias of Remove may be absent
	// Used are the functions of the machine that the host needs, or whose interfaces it uses:
	// without a record for guests, they remain with it.
	Used []pci.Address
	// Guests are the guests that have functions of the machine now, by function; it may be empty.
	Guests     map[pci.Address]string
	InUse      []Named // the aliases of the machine that is configured
	Cloud      []Named // the aliases of the cloud that it belongs to
	NamesGiven bool    // Cloud was read, and may be empty
	// Rendered says that the options are printed for the hosts of the inventories, and for no file of
	// this machine.
	Rendered bool
	// Generated are the files that deployment tools have generated for services of this machine.
	Generated []conf.Source
	// SchedulerFiles are those that nova-scheduler of this machine reads; none if it does not run here.
	SchedulerFiles Side
	// ComputeNode is the machine that is configured.
	ComputeNode
	Hypervisor Hypervisor // of that machine
}

// Want is the aliases and device specs that nova.conf should contain.
type Want struct {
	Aliases  []Alias
	Specs    []Spec
	Warnings []string
}

// errNoAlias means that neither the options nor the files of a machine name a device for guests.
var errNoAlias = host.WithHint(errors.New("no alias given"), host.Textf("%s with the output of %s on the compute nodes, or --alias NAME=VENDOR:PRODUCT",
	Configure(Controller).Flag("inventory", "FILE"), host.NewCommand("host scan").Flag("o", "json").Elsewhere()))

// keptAliases returns the aliases of the machine's own files that the options keep without naming
// one: a command without options brings the other lines in order.
func (o Options) keptAliases() (kept []Alias) {
	if len(o.Aliases)+len(o.Hosts)+len(o.HCAs)+len(o.Remove) > 0 {
		return nil
	}
	return host.Map(o.InUse, func(n Named) Alias { return n.Alias })
}

// NewWant returns what nova.conf should contain for the options. The error joins all errors of the
// options.
func NewWant(o Options) (Want, error) {
	products, ofProducts, err := o.products()
	errs := host.Split(err)
	var w Want
	w.Aliases, w.Warnings = o.typed()
	var names named
	for _, p := range products {
		if err := names.add(o, p); err != nil {
			errs = append(errs, err)
		}
	}
	ofHCAs, hcaErrs := w.addHCAs(o)
	errs = append(errs, hcaErrs...)
	w.Aliases = slices.Concat(w.Aliases, names.used, names.derived, ofHCAs)
	if len(w.Aliases)+len(o.Remove)+len(o.HCAs)+len(o.keptAliases()) == 0 && len(errs) == 0 {
		errs = append(errs, errNoAlias)
	}
	warnings, nameErrs := o.checkNames(w.Aliases)
	w.Warnings = slices.Concat(w.Warnings, ofProducts, o.warnDerived(names.derived), names.warnings, warnings)
	errs = append(errs, nameErrs...)
	seen := map[string]Alias{}
	for _, a := range w.Aliases {
		// Names in use may have several products, any of which a flavor then gets.
		switch other, twice := seen[a.Name]; {
		case !twice || other == a || slices.Contains(names.used, a) && slices.Contains(names.used, other):
		case slices.Contains(names.derived, a) && slices.Contains(names.derived, other):
			errs = append(errs, fmt.Errorf("%s:%s and %s:%s: %w: %s", other.VendorID, other.ProductID, a.VendorID, a.ProductID, ErrSameName, a.Name))
		default:
			errs = append(errs, fmt.Errorf("alias %s is defined twice with different values", a.Name))
		}
		seen[a.Name] = a
		errs = append(errs, a.needs(o.Release)...)
	}
	w.Aliases = slices.Compact(w.Aliases)
	since := func(asked bool, what string, first Release) {
		if asked && o.Release < first {
			errs = append(errs, fmt.Errorf("%s requires Nova %s or later; this is %s", what, first, o.Release))
		}
	}
	since(o.Placement, "--placement", Zed)
	since(o.Managed != "", "--managed", Epoxy)
	since(o.OneTimeUse, "--one-time-use", Flamingo)
	if o.OneTimeUse && !o.Placement {
		errs = append(errs, errors.New("--one-time-use requires --placement"))
	}
	for _, a := range w.Aliases {
		if slices.Contains(ofHCAs, a) { // its specs are those of its functions
			continue
		}
		specs, err := o.specs(a)
		if err != nil {
			errs = append(errs, err)
		}
		w.Warnings = append(w.Warnings, warnLiveMigratable(o, a)...)
		for _, s := range specs {
			i := slices.IndexFunc(w.Specs, s.sameDevices)
			if i < 0 {
				w.Specs = append(w.Specs, s)
				continue
			}
			if joined, ok := w.Specs[i].join(s); ok {
				w.Specs[i] = joined
			} else {
				errs = append(errs, fmt.Errorf("alias %s: another alias selects the same devices with different tags, but Nova applies only one device_spec to a device: %s, %s", a.Name, conf.Written(w.Specs[i]), conf.Written(s)))
			}
		}
	}
	return w, errors.Join(errs...)
}

// products returns an alias with the derived name for each product of the GPUs for guests of the
// inventories, without those of containers, and a warning of hosts that have none. A product that
// --alias names needs no name.
func (o Options) products() (aliases []Alias, warnings []string, err error) {
	type product struct{ vendor, product pci.ID }
	byProduct := map[product]Alias{}
	types := map[product]map[string][]string{} // the hosts of each type
	var order []product
	var without []string
	var errs []error
	for _, h := range o.Hosts {
		found, isForGuests := false, h.gpus()
		for i := range h.Devices {
			d := &h.Devices[i]
			if d.VendorID == nil || d.ProductID == nil || slices.Contains(h.Containers, d.Address) || !isForGuests(d) {
				continue
			}
			found = true
			if d.DeviceType == nil {
				errs = append(errs, fmt.Errorf("host %s: %s: cannot determine whether it supports SR-IOV", h.Name, d.Address))
				continue
			}
			p := product{*d.VendorID, *d.ProductID}
			if types[p] == nil {
				types[p] = map[string][]string{}
				order = append(order, p)
				byProduct[p] = Alias{Name: AliasName(d), VendorID: p.vendor, ProductID: p.product, DeviceType: string(*d.DeviceType)}
			}
			if kind := string(*d.DeviceType); !slices.Contains(types[p][kind], h.Name) {
				types[p][kind] = append(types[p][kind], h.Name)
			}
		}
		if !found {
			without = append(without, h.Name)
		}
	}
	switch hosts := strings.Join(without, ", "); {
	case hosts != "" && order == nil:
		errs = append(errs, fmt.Errorf("no GPU for guests on %s", hosts))
	case hosts != "":
		warnings = []string{"hosts without a GPU for guests: " + hosts}
	}
	for _, p := range order {
		if len(types[p]) > 1 {
			var where []string
			for kind, hosts := range types[p] {
				where = append(where, kind+" on "+strings.Join(hosts, ", "))
			}
			slices.Sort(where)
			errs = append(errs, fmt.Errorf("product %s:%s has different device types, which one alias cannot select: %s", p.vendor, p.product,
				strings.Join(where, "; ")))
		}
		aliases = append(aliases, byProduct[p])
	}
	return aliases, warnings, errors.Join(errs...)
}

// specs returns the device specs of an alias: one by ids, or on compute nodes one for each address
// where an identical device remains with a host or is for containers.
func (o Options) specs(a Alias) ([]Spec, error) {
	spec := Spec{VendorID: a.VendorID, ProductID: a.ProductID, Managed: o.Managed}
	if o.Placement {
		spec.ResourceClass, spec.Traits = a.ResourceClass, a.Traits
	}
	setLiveMigratable(o, &spec, a)
	if o.OneTimeUse {
		spec.OneTimeUse = "true"
	}
	if !o.Role.Computes() {
		return []Spec{spec}, nil
	}
	addresses, isAll, err := o.offering(a)
	switch {
	case err != nil:
		return nil, fmt.Errorf("alias %s: %w", a.Name, err)
	case isAll:
		return []Spec{spec}, nil
	case len(addresses) == 0:
		used := pci.Devices(o.Devices).Where(func(d *pci.Device) bool {
			return slices.Contains(o.Used, d.Address) && host.Value(d.VendorID) == a.VendorID && host.Value(d.ProductID) == a.ProductID
		})
		if len(used) > 0 {
			return nil, fmt.Errorf("alias %s: the host needs or uses %s", a.Name, pci.Joined(used, ", "))
		}
		hosts := host.Map(o.served(), Host.Call)
		return nil, fmt.Errorf("alias %s: no function of %s:%s on %s is prepared for guests", a.Name, a.VendorID, a.ProductID, host.Shortened(hosts, 3))
	}
	var specs []Spec
	for _, address := range addresses {
		s := spec
		s.Address = &address
		specs = append(specs, s)
	}
	return specs, nil
}
