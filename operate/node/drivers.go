package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"gpustack/host"
	"gpustack/host/bind"
	"gpustack/host/change"
	"gpustack/host/container/containerprepare"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

// Drivers is a machine that was observed for changes of drivers.
type Drivers struct {
	Node    Node
	Machine machine.Machine
	Timeout time.Duration // of each write to sysfs
	uses    machine.Uses
}

// DriversPlan is a plan of drivers that change now, and of the CDI specs that change before.
type DriversPlan struct {
	bind.Plan
	Specs edit.Changes
}

// ObserveDrivers reads a machine. To release functions, it reads nothing of what the host needs:
// that must not keep functions from the host. timeout is that of [Node.Engine].
func (n Node) ObserveDrivers(timeout time.Duration, release bool) (Drivers, error) {
	d := Drivers{Node: n, Timeout: timeout}
	var usesErr error
	d.Machine = machine.ObserveDrivers(n.Root, !release)
	unread := errors.Join(d.Machine.Obstacles()...)
	if unread == nil {
		d.uses, usesErr = machine.ObserveUses(n.Root, d.Machine.Devices.Value, driver.Ready(n.Root) == nil)
	}
	return d, errors.Join(unread, usesErr)
}

// services adds to the uses of functions what programs of the running machine show, and reports
// whether it did: only if a plan unbinds the driver nvidia, since nvidia-smi initializes the GPUs.
func (d *Drivers) services(ctx context.Context, plan driver.Plan, mode bind.Mode) bool {
	if len(plan.Idle()) == 0 || !d.uses.Running || !mode.Live {
		return false
	}
	d.uses.ObserveServices(ctx, driver.Live{Runner: d.Node.Runner}.Run, d.Machine.Devices.Value, mode.StopServices)
	return true
}

// PlanBind plans to bind functions for guests.
func (d Drivers) PlanBind(ctx context.Context, options selection.Options, mode bind.Mode) (DriversPlan, error) {
	allowed := slices.Concat(options.Allow, host.Value(d.Machine.Contract.Value).Allowed)
	asked, err := gate.AskKernel(d.Node.Root, &d.Machine.Needs.Value, claim, allowed...)
	if err != nil {
		return DriversPlan{}, err
	}
	plan, err := bind.NewPlan(d.Node.Root, d.Machine, options, d.uses, mode)
	if d.services(ctx, plan.Plan, mode) {
		plan, err = bind.NewPlan(d.Node.Root, d.Machine, options, d.uses, mode)
	}
	if err = errors.Join(err, d.lendable(plan)); err != nil {
		return DriversPlan{}, err
	}
	plan.Warnings = append(asked, plan.Warnings...)
	return d.withSpecs(plan)
}

// PlanRelease plans to return functions to the host, or to containers.
func (d Drivers) PlanRelease(options selection.Options, to machine.Role) (DriversPlan, error) {
	entries, err := change.List(d.Node.Root)
	if err != nil {
		return DriversPlan{}, err
	}
	taken, err := driver.Taken(d.Node.Root, entries)
	if err != nil {
		return DriversPlan{}, err
	}
	stopped, err := driver.Stopped(d.Node.Root, entries)
	if err != nil {
		return DriversPlan{}, err
	}
	plan, err := bind.NewRelease(d.Node.Root, d.Machine, options, d.uses, taken, stopped, to)
	if err != nil {
		return DriversPlan{}, err
	}
	if err := d.returnable(&plan); err != nil {
		return DriversPlan{}, err
	}
	plan.Warnings = append(plan.Warnings, d.returned(plan.Plan)...)
	return d.withSpecs(plan)
}

// PlanBack plans the undo of a change of drivers. live allows to unbind drivers whose unbinding may
// hang.
func (d Drivers) PlanBack(ctx context.Context, binding *driver.Binding, live bool) (DriversPlan, error) {
	plan, err := binding.Back()
	if err != nil {
		return DriversPlan{}, err
	}
	d.services(ctx, plan, bind.Mode{Live: live})
	warnings, err := bind.Refuse(d.Machine, plan, d.uses, live)
	if err = errors.Join(err, bind.Needed(d.Machine, plan, d.Node.Allow)); err != nil {
		return DriversPlan{}, err
	}
	return d.withSpecs(bind.Plan{Plan: plan, Warnings: append(warnings, d.returned(plan)...)})
}

// returned returns what the operator has to know of functions that return from guests to the host:
// that Nova still offers them, and that a disk brings its content with it.
func (d Drivers) returned(plan driver.Plan) (warnings []string) {
	var functions []pci.Address
	devices := d.Machine.Devices.Value
	for _, c := range plan.Changes {
		if !pci.LeavesAlone(string(c.Before.Driver)) || pci.LeavesAlone(string(c.After.Driver)) {
			continue
		}
		functions = append(functions, c.Address)
		if f := devices.At(c.Address); f != nil && f.Class != nil && f.Class.IsStorage() {
			warnings = append(warnings, fmt.Sprintf("%s returns to the host with its labels, UUIDs and volume groups: "+
				"the host may mount or assemble what a guest has written", c.Address))
		}
	}
	return append(warnings, offeredReturned(d.Node.Root, d.Machine.Devices, d.Machine.Contract.Value, functions, nil)...)
}

// Ready returns an error unless the kernel of the machine runs, so that drivers can be changed.
func (d Drivers) Ready() error { return driver.Ready(d.Node.Root) }

// Change returns the change that carries a plan out. service is the time for each service to stop
// or start.
func (d Drivers) Change(plan DriversPlan, service time.Duration) *driver.Binding {
	binder := d.Node.binder(d.Timeout)
	binder.Service = service
	return binder.New(plan.Plan.Plan)
}

// lendable returns an error if a plan binds functions of containers that cannot be bound.
func (d Drivers) lendable(plan bind.Plan) error {
	if len(plan.Containers) == 0 {
		return nil
	}
	m, err := containerprepare.Observe(d.Node.Root, d.Machine)
	if err != nil {
		return err
	}
	return containerprepare.Lendable(m, plan.Containers)
}

// returnable returns an error if a plan returns functions to containers that cannot be returned. A
// plan whose drivers and specs are as planned already returns none.
func (d Drivers) returnable(plan *bind.Plan) error {
	if len(plan.Containers) == 0 {
		return nil
	}
	m, err := containerprepare.Observe(d.Node.Root, d.Machine)
	if err != nil {
		return err
	}
	if err := containerprepare.Returnable(m, plan.Containers); err != nil || len(plan.Changes) > 0 {
		return err
	}
	offered := offering(d.Node.Runner)
	pending, err := offered.Plan(nil)
	if err == nil && len(pending) == 0 && offered.Verify(plan.Containers) == nil {
		plan.Containers = nil
	}
	return err
}

// withSpecs adds to a plan the changes of spec files that come first when it binds functions of
// containers. Those of a plan that returns them follow from the drivers' own numbers.
func (d Drivers) withSpecs(plan bind.Plan) (DriversPlan, error) {
	if len(plan.Containers) == 0 || plan.Release {
		return DriversPlan{Plan: plan}, nil
	}
	specs, err := offering(d.Node.Runner).Plan(slices.Clone(plan.Containers))
	return DriversPlan{plan, specs}, err
}
