package cloud

import (
	"errors"
	"fmt"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/document"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/guest"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/rdma"
	"gpustack/nova"
	"gpustack/nova/devspec"
	"gpustack/nova/novacheck"
)

// ConfigureOptions are what nova configure is to set, and where it reads what that depends on.
type ConfigureOptions struct {
	Nova        nova.Options // without what ObserveConfiguration adds
	Place       nova.Place
	Inventories document.Source
	Names       document.Source // of the aliases of the cloud
	Unnamed     bool            // no option names a product: those that are prepared here, and the aliases of the files
	// Rendered reports that the options are printed for another place: files here are only a source
	// of names, and need not be readable.
	Rendered bool
}

// NeedsFunctions reports whether ObserveConfiguration needs the functions of the machine: only the
// files of a compute node depend on them.
func (o ConfigureOptions) NeedsFunctions() bool {
	return o.Nova.Role != nova.Controller
}

// Configuration is what the options ask for on this machine.
type Configuration struct {
	nova.Options
	RoleFrom string // what the role was inferred from; "" if it was given
	Unread   error  // of the files of this machine, if the options are rendered for another place
	Warnings []string
}

// ObserveConfiguration reads the release, the documents and the files of the machine below root. m is
// that machine, observed by [machine.ObserveRecord] if [ConfigureOptions.NeedsFunctions]: its functions
// are not read again. The role "" is inferred as nova check infers it. It changes nothing.
//
// Errors: [nova.ErrNoRole]; everything that cannot be read, at once; those of
// [nova.ComputeNode.Prepared].
func ObserveConfiguration(root host.Root, m machine.Machine, o ConfigureOptions) (Configuration, error) {
	c := Configuration{Options: o.Nova}
	if c.Role == "" {
		var err error
		if c.Role, c.RoleFrom, err = inferRole(root, o.Place, m); err != nil {
			return c, err
		}
	}
	var releaseErr, hostsErr, namesErr, inUseErr error
	c.Rendered = o.Rendered
	c.Release, c.Warnings, releaseErr = o.Nova.Release.OrInstalled(root)
	scope := nova.ScopeGPUs
	if len(c.HCAs) > 0 {
		scope = nova.ScopeAll
	}
	c.Hosts, hostsErr = nova.ReadInventories(o.Inventories, scope)
	c.Cloud, namesErr = nova.ReadNames(o.Names)
	if inUseErr = c.ReadFiles(root, o.Place); o.Rendered {
		c.Unread, inUseErr = inUseErr, nil
	}
	var own ownErrors
	if c.Role != nova.Controller {
		own = c.observeNode(root, m, o.Unnamed)
	}
	return c, errors.Join(releaseErr, hostsErr, own.prepared, own.record, own.machine, own.needs, namesErr, inUseErr, own.adapters, own.hypervisor)
}

// Plan plans the change of the files, with a warning for each finding of nova check about the planned
// files and the hardware of the compute node.
//
// Errors: those of [nova.NewPlan] and [novacheck.Planned].
func (c Configuration) Plan(root host.Root, want nova.Want, place nova.Place) (nova.Plan, error) {
	plan, err := nova.NewPlan(root, c.Options, want, place)
	if err != nil {
		return plan, err
	}
	findings, err := novacheck.Planned(c.Release, plan)
	for _, f := range findings {
		plan.Warnings = append(plan.Warnings, fmt.Sprintf("%s: %s", f.Seen, f.Remedy))
	}
	return plan, err
}

// Work returns the change of a plan, with the services to restart. command is recorded.
func (c Configuration) Work(root host.Root, plan nova.Plan, command string) change.Work {
	work := change.Work{
		Command: command, About: &change.Topic{Subject: change.OfNova, Role: string(c.Role)},
		Change: change.Files{Root: root}.New(plan.Files), Restart: host.Map(plan.Restart, func(s nova.Service) string { return s.Name }),
	}
	return work
}

// ownErrors are the errors of a compute node's own facts.
type ownErrors struct{ prepared, record, machine, needs, adapters, hypervisor error }

// observeNode adds what depends on the functions of the compute node that is configured.
func (c *Configuration) observeNode(root host.Root, m machine.Machine, prepared bool) (errs ownErrors) {
	errs.record = m.Contract.Err
	c.ComputeNode, errs.machine = newComputeNode(root, m)
	if !c.Rendered || len(c.Hosts) == 0 { // else the options are for other machines
		var here nova.Hypervisor
		here, errs.hypervisor = nova.InstalledHypervisor(root)
		c.Hypervisor = c.Hypervisor.Or(here)
		if errs.machine == nil && errs.record == nil && (len(c.Aliases) > 0 && m.Contract.Value == nil || len(c.HCAs) > 0) {
			observed := gate.Host{Devices: c.Devices}
			observed.Needs, errs.needs = guard.Observe(root, c.Devices)
			if c.Needed = observed.Needed(); m.Contract.Value == nil {
				c.Used = observed.Used()
			}
		}
	}
	if len(c.HCAs) > 0 && errs.machine == nil {
		c.Adapters, errs.adapters = adaptersOf(root, c.Devices)
	}
	if prepared && errs.record == nil && errs.machine == nil {
		var here nova.Host
		here, errs.prepared = c.Prepared()
		switch {
		case errs.prepared == nil:
			c.Hosts = append(c.Hosts, here)
		case errors.Is(errs.prepared, nova.ErrNothingPrepared) && len(c.InUse) > 0:
			errs.prepared = nil // the aliases of the files are kept
		}
	}
	if len(c.Remove) > 0 {
		c.Guests = guest.Observe(root, guest.NovaConf(nova.ReadHostOption(root, nil)), time.Now()).Users()
	}
	return errs
}

// newComputeNode returns a machine as the configuration of its nova-compute depends on it. A
// machine without PCI devices is no error.
func newComputeNode(root host.Root, m machine.Machine) (nova.ComputeNode, error) {
	scanErr := m.Devices.Err
	if errors.Is(scanErr, pci.ErrNoPCI) {
		scanErr = nil
	}
	interfaces, err := devspec.Interfaces(root)
	adapters, recordErr := rdma.ReadRecord(root)
	here := nova.ComputeNode{
		Name: host.Value(host.ReadHostname(root)), Devices: m.Devices.Value, Interfaces: interfaces, Written: nova.Written(change.Machine(root).Observe().Entries),
		Recorded: recorded(gate.Records{Guests: m.Contract.Value.There(m.Devices.Value), Containers: m.Containers, RDMA: adapters}, m.Devices.Value),
	}
	return here, errors.Join(scanErr, err, recordErr)
}
