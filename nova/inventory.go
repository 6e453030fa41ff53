package nova

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/document"
	"gpustack/host/hardware"
	"gpustack/host/pci"
	"gpustack/nova/devspec"
)

// Scope is which functions of a machine host scan has listed.
type Scope string

// The scopes.
const (
	ScopeAll      Scope = "all"      // every PCI function
	ScopeGPUs     Scope = "gpus"     // the GPUs, what shares a slot or an IOMMU group with one, and NVSwitches
	ScopeFiltered Scope = "filtered" // only those that --device, --vendor or --class select
)

var (
	// ErrPartial means that an inventory lacks functions on which the result depends.
	ErrPartial = host.WithHint(errors.New("not a whole inventory"),
		host.Textf("on the compute node, run: %s > FILE, with --machine for --fit", host.NewCommand("host scan").Flag("o", "json").Elsewhere()))
	// ErrNotAll is ErrPartial where every function of the machine matters, not only the GPUs.
	ErrNotAll = host.WithHint(errors.New("not an inventory of every function"),
		host.Textf("on the compute node, run: %s > FILE", host.NewCommand("host scan").Flag("all").Flag("o", "json").Elsewhere()))
	// ErrNothingPrepared means that host prepare has recorded no GPU that Nova could offer.
	ErrNothingPrepared = host.WithHint(errors.New("no alias given, and no GPU is prepared for guests"),
		host.Textf("run %s first, or give --alias NAME=VENDOR:PRODUCT or --inventory FILE", host.NewCommand("host prepare")))
	// ErrGone means that a function is prepared for guests and does not exist.
	ErrGone = host.WithHint(errors.New("is prepared for guests, but it is not on this machine"),
		host.Textf("%s shows what has changed since; --alias or --inventory names products without it", host.NewCommand("host check")))
	// ErrTwice means that two inventories are of one host.
	ErrTwice = host.WithHint(errors.New("two inventories of one host"), "give only the newest of each host")
)

// inventory is what ReadInventories needs of host scan's output. Other fields are ignored.
type inventory struct {
	Host     host.Name       `json:"host"`
	NovaHost host.Name       `json:"nova_host"`
	Scope    Scope           `json:"scope"`
	Complete host.Bool       `json:"complete"`
	Devices  []scanned       `json:"devices"`
	Machine  *hardware.Facts `json:"machine"`
}

// scanned is a function with its role.
type scanned struct {
	pci.Device
	Role string `json:"role"`
}

// The roles of functions in inventories (host/machine, Role).
const (
	roleOfGuests     = "guest"
	roleOfContainers = "container"
)

// ReadInventories reads the output of host scan on compute nodes, as JSON or YAML. A host has the
// name of its document if that does not contain a hostname. need is the scope that the caller
// depends on: ScopeGPUs or ScopeAll.
//
// Errors, of all documents at once: those of [document.Source.Each], ErrPartial, ErrNotAll,
// ErrTwice.
func ReadInventories(from document.Source, need Scope) (hosts []Host, err error) {
	seen := map[string]string{} // the document of each host, by its name in Nova
	err = from.Each(document.HostScan, func(d document.Document) error {
		var found inventory
		if err := json.Unmarshal(d.Text, &found); err != nil {
			return document.Malformed(d.Name, document.HostScan, err)
		}
		if err := found.whole(need); err != nil {
			return fmt.Errorf("%s: %w", d.Name, err)
		}
		h := Host{Scope: found.Scope, Machine: found.Machine}
		for _, d := range found.Devices {
			h.Devices = append(h.Devices, d.Device)
			switch d.Role {
			case roleOfGuests:
				h.Given = append(h.Given, d.Address)
			case roleOfContainers:
				h.Containers = append(h.Containers, d.Address)
			}
		}
		h.Name, h.NovaHost = cmp.Or(string(found.Host), d.Name), string(found.NovaHost)
		if other, twice := seen[h.InNova()]; twice {
			return fmt.Errorf("%s: %w: %s is of %s too", d.Name, ErrTwice, other, h.InNova())
		}
		seen[h.InNova()] = d.Name
		hosts = append(hosts, h)
		return nil
	})
	return hosts, err
}

// Present returns the addresses of all devices of hosts whose inventories list every function, by the names
// of the hosts in Nova.
func Present(hosts []Host) map[string][]string {
	present := map[string][]string{}
	for _, h := range hosts {
		for i := range h.Devices {
			if h.Scope == ScopeAll {
				present[h.InNova()] = append(present[h.InNova()], h.Devices[i].Address.String())
			}
		}
	}
	return present
}

// Prepared returns the functions of the machine that are prepared for guests, as an inventory.
//
// Errors: ErrNothingPrepared, ErrGone for every such function.
func (m ComputeNode) Prepared() (Host, error) {
	h := Host{Name: "localhost", Scope: ScopeFiltered, Given: m.Given, isHere: true}
	var errs []error
	gpu := false
	for _, address := range m.Given {
		i := slices.IndexFunc(m.Devices, func(d pci.Device) bool { return d.Address == address })
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s %w", address, ErrGone))
			continue
		}
		h.Devices = append(h.Devices, m.Devices[i])
		gpu = gpu || m.Devices[i].IsGPU()
	}
	if !gpu && len(errs) == 0 {
		errs = append(errs, ErrNothingPrepared)
	}
	return h, errors.Join(errs...)
}

// whole returns an error if an inventory lacks functions that are needed.
func (i inventory) whole(need Scope) error {
	switch {
	case need == ScopeAll && len(i.Devices) == 0:
		return errors.New("contains no devices")
	case need == ScopeAll && i.Scope != ScopeAll:
		return fmt.Errorf("%w: its scope is %s", ErrNotAll, i.Scope)
	case i.Scope == ScopeFiltered:
		return fmt.Errorf("%w: it lists only the functions that --device, --vendor or --class select", ErrPartial)
	case i.Complete == host.No:
		lacks := "class, ids or IOMMU group of a function could not be read, as its warnings say"
		for _, d := range i.Devices {
			for _, warning := range d.Warnings {
				lacks += fmt.Sprintf("; %s: %s", d.Address, warning)
			}
		}
		return fmt.Errorf("%w: %s", ErrPartial, lacks)
	}
	return nil
}

// InNova returns the host's name in Nova, which is its hostname where the inventory does not say.
func (h Host) InNova() string {
	return cmp.Or(h.NovaHost, h.Name)
}

// Named reports whether a name is that of the host: its hostname, also without the domain, or its
// name in Nova.
func (h Host) Named(name string) bool {
	short, _, _ := strings.Cut(h.Name, ".")
	return name == h.Name || name == h.NovaHost || name == short
}

// ErrOneText says that one text of device_spec would offer a function to guests on a host with
// which it remains.
var ErrOneText = host.WithHint(host.WithCode(errors.New("one text cannot serve both"), host.CodeRemains, ""),
	host.Textf("plan for one host at a time: give the inventory of that host alone to %s, or run it there",
		Configure(Compute).Flag("render", "ini").Elsewhere()))

// Division is how the functions of one product on a host are divided, by its records: host prepare
// has recorded those for guests, container prepare those for containers, and others remain with the
// host. Without a record for guests, those that the host uses remain with it, and the drivers tell:
// beside functions that are bound to vfio-pci or a similar driver, those that are bound to a driver
// of the host remain with it.
type Division struct {
	Guests     []pci.Address
	Containers []pci.Address
	Remain     []pci.Address
	IsRecorded bool // Remain is known by a record, not by drivers
}

// Divide returns the division of a product's functions. VFs count only beside some that are for
// guests, by the record or by their drivers; their PF remains with the host then.
func (h Host) Divide(vendor, product pci.ID) Division {
	var functions []*pci.Device
	isBound, isBeside, isVF := false, false, false
	d := Division{IsRecorded: h.Given != nil}
	for i := range h.Devices {
		f := &h.Devices[i]
		switch {
		case !f.IsVendor(vendor) || f.ProductID == nil || *f.ProductID != product:
		case slices.Contains(h.Containers, f.Address):
			d.Containers = append(d.Containers, f.Address)
		default:
			functions = append(functions, f)
			isBound = isBound || pci.LeavesAlone(f.DriverName())
			isVF = isVF || f.SRIOV.PF != nil && slices.Contains(h.Given, f.Address)
			isBeside = isBeside || !showsConsole(f)
		}
	}
	for _, f := range functions {
		switch {
		case f.SRIOV.PF != nil && (d.IsRecorded && !isVF || !d.IsRecorded && !isBound):
		case d.IsRecorded && !slices.Contains(h.Given, f.Address),
			!d.IsRecorded && slices.Contains(h.used, f.Address),
			!d.IsRecorded && isBound && f.Driver != nil && !pci.LeavesAlone(*f.Driver),
			!d.IsRecorded && isBeside && showsConsole(f):
			d.Remain = append(d.Remain, f.Address)
		default:
			d.Guests = append(d.Guests, f.Address)
		}
	}
	for _, f := range functions { // Nova assigns a card as a whole, or its VFs
		i := slices.IndexFunc(d.Guests, func(a pci.Address) bool { return f.SRIOV.PF != nil && a == *f.SRIOV.PF })
		if i >= 0 && slices.Contains(d.Guests, f.Address) {
			d.Remain, d.Guests = append(d.Remain, d.Guests[i]), slices.Delete(d.Guests, i, i+1)
		}
	}
	return d
}

// ForGuests returns a function that reports whether a function of the host is for guests, by the
// division of its product. Each product is divided once.
func (h Host) ForGuests() func(*pci.Device) bool {
	type product struct{ vendor, product pci.ID }
	divided := map[product]map[pci.Address]bool{}
	return func(d *pci.Device) bool {
		if d.VendorID == nil || d.ProductID == nil {
			return false
		}
		p := product{*d.VendorID, *d.ProductID}
		if divided[p] == nil {
			divided[p] = host.Set(h.Divide(p.vendor, p.product).Guests)
		}
		return divided[p][d.Address]
	}
}

// typesFor returns the device types of a product's functions: of those for guests or, without
// any, of all but virtual functions.
func (h Host) typesFor(vendor, product pci.ID) (types []string) {
	guests := h.Divide(vendor, product).Guests
	for i := range h.Devices {
		d := &h.Devices[i]
		isOf := d.IsVendor(vendor) && d.ProductID != nil && *d.ProductID == product && d.DeviceType != nil
		if isOf && (slices.Contains(guests, d.Address) || guests == nil && d.SRIOV.PF == nil) {
			types = append(types, string(*d.DeviceType))
		}
	}
	return types
}

// gpus returns a function that reports whether a function is a GPU for guests, or an NVSwitch that
// goes with them: of a host that is prepared those that are recorded, virtual functions among them,
// and of others the GPUs of the machine ([pci.GPUs]) without the console, unless it is the only one.
func (h Host) gpus() func(*pci.Device) bool {
	if h.Given != nil {
		isForGuests := h.ForGuests()
		return func(d *pci.Device) bool {
			return (d.IsGPU() && !d.IsManagementConsole() || d.IsNVSwitch()) && isForGuests(d)
		}
	}
	isOfMachine := pci.GPUs(h.Devices)
	isFree := func(d pci.Device) bool { return isOfMachine(&d) && d.SRIOV.PF == nil && !showsConsole(&d) }
	hasFree := slices.ContainsFunc(h.Devices, isFree)
	return func(d *pci.Device) bool { return isFree(*d) || !hasFree && isOfMachine(d) && d.SRIOV.PF == nil }
}

// showsConsole reports whether a function is the console of its host, and is not bound for guests.
func showsConsole(d *pci.Device) bool {
	return d.IsConsole() && !pci.LeavesAlone(d.DriverName())
}

// WronglyOffered returns the functions that should remain with the host beside identical ones for
// guests, and that a spec offers to guests. hardware is that of the host. What only drivers tell
// does not count against a spec by address: an operator has chosen it.
func (h Host) WronglyOffered(hardware devspec.Hardware, s devspec.Spec) (offered []pci.Address) {
	for i := range h.Devices {
		f := &h.Devices[i]
		if f.VendorID == nil || f.ProductID == nil || !hardware.Matches(s, f) {
			continue
		}
		d := h.Divide(*f.VendorID, *f.ProductID)
		if len(d.Guests) > 0 && slices.Contains(d.Remain, f.Address) && (d.IsRecorded || s.Everywhere()) {
			offered = append(offered, f.Address)
		}
	}
	return offered
}

// Call returns words for the host in a text. One without a name is the machine that is configured.
func (h Host) Call() string {
	if h.isHere || h.Name == "" {
		return "this machine"
	}
	return "host " + h.Name
}

// served returns the hosts whose nova-compute reads what is planned: this machine, or those of the
// inventories where the options are rendered for them. If the options are written to a file here,
// and no inventory is of this machine, the file may be for either.
func (o Options) served() []Host {
	here := Host{Name: o.Name, Devices: o.Devices, Given: o.Given, Containers: o.Containers, used: o.Used, isHere: true}
	inventories := slices.DeleteFunc(slices.Clone(o.Hosts), func(h Host) bool { return h.isHere })
	switch {
	case !o.Role.Computes():
		return nil
	case len(inventories) == 0, !o.Rendered && o.Name != "" && slices.ContainsFunc(inventories, o.isOf):
		return []Host{here}
	case o.Rendered:
		return inventories
	}
	return append(inventories, here)
}

// elsewhere returns the hosts that are served and are not this machine.
func (o Options) elsewhere() (hosts []string) {
	return host.Map(host.Filter(o.served(), func(h Host) bool { return !h.isHere && (o.Name == "" || !o.isOf(h)) }), Host.Call)
}

// isOf reports whether an inventory is of the machine. Either name may have a domain.
func (m ComputeNode) isOf(h Host) bool {
	return h.Named(m.Name) || Host{Name: m.Name}.Named(h.Name)
}

// typed returns those of the functions that an alias selects by their type, or all where it selects
// none.
func (h Host) typed(guests []pci.Address, alias Alias) []pci.Address {
	object := map[string]any{}
	if alias.DeviceType != "" {
		object["device_type"] = alias.DeviceType
	}
	typed := slices.DeleteFunc(slices.Clone(guests), func(a pci.Address) bool {
		i := slices.IndexFunc(h.Devices, func(f pci.Device) bool { return f.Address == a })
		return h.Devices[i].DeviceType != nil && !TakesType(object, string(*h.Devices[i].DeviceType))
	})
	if len(typed) == 0 {
		return guests
	}
	return typed
}

// kept returns the functions that guests must not be offered.
func (d Division) kept() []pci.Address {
	return slices.Concat(d.Containers, d.Remain)
}

// withdrawn returns the functions of kept that a record keeps from guests: host prepare has
// recorded others of the product, or container prepare has recorded these.
func (d Division) withdrawn() []pci.Address {
	if !d.IsRecorded {
		return d.Containers
	}
	return d.kept()
}

// offering returns the addresses of the functions that one text offers to guests on all hosts for
// an alias, or isAll if it can offer all functions of the product: of several device types, only
// those that the alias selects. There are no addresses if no host has a function for guests.
//
// Errors: ErrOneText.
func (o Options) offering(alias Alias) (addresses []pci.Address, isAll bool, err error) {
	isAll = !o.ByAddress
	from, with := map[pci.Address]Host{}, map[pci.Address]Host{} // the first host with each, for guests or not
	for _, h := range slices.Backward(o.served()) {
		d := h.Divide(alias.VendorID, alias.ProductID)
		guests := h.typed(d.Guests, alias)
		isAll = isAll && len(d.kept()) == 0 && len(guests) == len(d.Guests)
		for _, a := range guests {
			from[a] = h
		}
		for _, a := range d.kept() {
			with[a] = h
		}
	}
	if isAll {
		return nil, true, nil
	}
	var errs []error
	addresses = slices.SortedFunc(maps.Keys(from), pci.Address.Compare)
	for _, a := range addresses {
		if h, remains := with[a]; remains {
			errs = append(errs, fmt.Errorf("%s is for guests on %s, but remains with %s: %w", a, from[a].Call(), h.Call(), ErrOneText))
		}
	}
	return addresses, false, errors.Join(errs...)
}

// hardware returns the functions of the hosts that the plan serves.
func (o Options) hardware() devspec.Hardware {
	devices := host.FlatMap(o.served(), func(h Host) []pci.Device { return h.Devices })
	return devspec.NewHardware(devices, o.Interfaces)
}
