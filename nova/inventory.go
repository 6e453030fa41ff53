package nova

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gpustack/host"
	"gpustack/host/document"
	"gpustack/host/hardware"
	"gpustack/host/pci"
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
	Host     host.Name         `json:"host"`
	NovaHost host.Name         `json:"nova_host"`
	Scope    Scope             `json:"scope"`
	Complete host.Bool         `json:"complete"`
	Devices  []scanned         `json:"devices"`
	Machine  *hardware.Machine `json:"machine"`
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
func (m Machine) Prepared() (Host, error) {
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
	case len(i.Devices) == 0:
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
