package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/iommu"
	"gpustack/host/pci"
)

// Kernel makes a Binder's requests to the kernel. It is [Live], except in tests.
type Kernel interface {
	// Write writes to sysfs. The error is host.ErrStuck if the write is stuck in the kernel.
	Write(w Write) error
	// Load loads the module of a driver.
	Load(ctx context.Context, driver string) error
	// TryGroup opens and closes an IOMMU group, as a guest's process would.
	TryGroup(group int) error
	// Ready returns an error unless the root's sysfs and procfs are those of the running kernel.
	Ready() error
	// Run runs a program of the machine that stops or starts services, or shows them.
	Run(ctx context.Context, argv []string) ([]byte, error)
}

// Binder is the kind of change that binds functions to drivers.
type Binder struct {
	Root   host.Root
	Kernel Kernel
	Settle time.Duration // maximum time until a request has its effect
	// Service is the maximum time until a service has stopped or started.
	Service time.Duration
	// Patience is how long to wait for an earlier run's write to end before its changes are
	// recovered or read.
	Patience time.Duration
	// Gate, if not nil, is asked immediately before functions are unbound: it returns an error that
	// names every use which prevents that, or what --allow lifts of them. What it holds so that no new
	// use comes is released when the functions are unbound.
	Gate func(changes []Change) (lifted []pci.Identity, release func() error, err error)
	// Offering is what containers are offered. nil if a plan cannot have functions of containers.
	Offering Offering
}

// Errors of requests to the kernel.
var (
	// ErrChanged means that a function does not have the driver that the plan or the journal
	// expects.
	ErrChanged = host.WithHint(errors.New("is now bound to another driver"),
		host.Textf("'%s' shows the drivers; host bind and host release plan again from there", host.NewCommand("host scan")))
	// errNotTaken means that the kernel accepted a write that had no effect.
	errNotTaken = host.WithHint(errors.New("the kernel accepted the write but the driver did not change"), "the kernel's log says why: journalctl -k, or dmesg")
	// ErrTakenAgain means that vfio-pci or pci-stub has claimed a function again that is being
	// returned to the host.
	ErrTakenAgain = host.WithHint(errors.New("re-claimed the function through its ids= list"),
		host.Textf("load the host's driver first with modprobe, or run '%s' and reboot", host.NewCommand("host prepare").Flag("remove", "ADDRESS")))
	// ErrNotViable means that a group cannot be assigned to a guest.
	ErrNotViable = host.WithHint(errors.New("is not viable"), "the kernel's log says more: journalctl -k, or dmesg")
)

// poll is the interval at which the effect of a request is checked.
const poll = 10 * time.Millisecond

// Name returns the kind's name in the journal.
func (Binder) Name() string { return change.KindDrivers }

// New returns the change for a plan.
func (b Binder) New(p Plan) *Binding {
	return &Binding{binder: b, plan: p, record: Record{Release: p.Release, Functions: slices.Clone(p.Changes), Services: p.Services, Containers: p.Containers}}
}

// Open returns the change that a journal entry records.
func (b Binder) Open(_ context.Context, e change.Entry) (change.Change, error) {
	r, err := ParseRecord(e)
	return &Binding{binder: b, record: r, status: e.Status, current: true}, err
}

// Binding is a change of drivers.
type Binding struct {
	binder Binder
	plan   Plan // the plan that Apply carries out
	record Record
	// Set for an entry of the journal:
	status  change.Status
	current bool // made in this boot
	// lifted is what the gate says that --allow lifts.
	lifted []pci.Identity
}

// Kind returns the name of its kind.
func (*Binding) Kind() string { return change.KindDrivers }

// Record adds the functions and the boot id to an entry. The changes end with that boot.
func (c *Binding) Record(e *change.Entry) error {
	if c.record.Boot == "" {
		boot, err := bootID(c.binder.Root)
		if err != nil {
			return err
		}
		c.record.Boot = boot
	}
	c.record.Services = c.record.Services.listed()
	c.record.Containers = append([]pci.Address{}, c.record.Containers...)
	for _, l := range c.lifted {
		if !slices.ContainsFunc(e.Allowed, func(a pci.Identity) bool { return a.Address == l.Address }) {
			e.Allowed = append(e.Allowed, l)
		}
	}
	return e.SetDetail(c.record)
}

// Check returns an error if a function has another driver than planned or recorded. Changes of an
// earlier boot need no check. Before recovery and before functions are read, writes of an earlier
// run must have ended (host.ErrStuck); recovery needs the running kernel.
func (c *Binding) Check(ctx context.Context, p change.Purpose) error {
	if p == change.ToApply {
		return c.binder.unchanged(c.plan.Changes)
	}
	if current, err := c.record.current(c.binder.Root); err != nil || !current {
		return err
	}
	if p == change.ToUndo {
		if c.status != change.Done {
			return nil // Recover checks the functions
		}
		_, err := c.Back()
		return err
	}
	err := Await(ctx, c.binder.Root, c.binder.Patience)
	if err == nil && p == change.ToRecover {
		err = c.binder.Kernel.Ready()
	}
	return err
}

// Functions returns the functions of the change, as recorded. If any driver may claim a function,
// After names its driver once the change is made.
func (c *Binding) Functions() []Change { return c.record.Functions }

// Release reports whether functions are returned to the host rather than bound for guests.
func (c *Binding) Release() bool { return c.record.Release }

// Back returns the plan that undoes the change. It has no changes if the machine was rebooted
// since. The error names every function that prevents it.
func (c *Binding) Back() (Plan, error) {
	p, err := c.record.back(c.binder.Root)
	current, currentErr := c.record.current(c.binder.Root)
	if err = errors.Join(err, currentErr); err != nil || !current || len(p.Changes) == 0 && len(c.record.Functions) > 0 {
		return p, err
	}
	// What was released may have been offered to containers since, by a boot's steps for one.
	p.Containers, err = c.binder.ofContainers(c.record.withdrawn(true))
	return p, err
}

// Apply makes all changes of the plan, or none. When ctx ends, the current step is completed, then
// all changes are rolled back. If the kernel is stuck in a step (host.ErrStuck), the change
// remains open.
func (c *Binding) Apply(ctx context.Context, save func() error) (change.Outcome, error) {
	outcome, err := change.Run(ctx, c.steps(c.plan, save), change.OnError)
	if outcome != change.Stands {
		return outcome, rolledBack(ctx, err, c.plan)
	}
	for i, f := range c.plan.Changes {
		if !f.Any {
			continue
		}
		if c.record.Functions[i].After, err = Read(c.binder.Root, f.Address); err != nil {
			return change.Open, err
		}
	}
	return change.Stands, nil
}

// Undo returns functions to their former drivers. If that fails for one, the change remains open.
// When ctx ends, the current step is completed, then all functions are bound again as they were.
func (c *Binding) Undo(ctx context.Context, save func() error) (change.Outcome, error) {
	p, err := c.Back()
	if err != nil {
		return change.Open, err
	}
	switch outcome, err := change.Run(ctx, c.steps(p, save), change.OnInterrupt); outcome {
	case change.Stands:
		return change.Reverted, nil
	case change.None:
		return change.Stands, rolledBack(ctx, err, p)
	default:
		return change.Open, err
	}
}

// asked returns the step that asks the gate, and the step that comes after drivers have changed.
// What --allow lifts is recorded before a function is unbound: recovery honours it.
func (c *Binding) asked(p Plan, save func() error) (before, after change.Step) {
	release := func() error { return nil }
	before.Apply = func(context.Context) error {
		if c.binder.Gate == nil || len(p.Changes) == 0 {
			return nil
		}
		var err error
		if c.lifted, release, err = c.binder.Gate(p.Changes); err != nil || len(c.lifted) == 0 {
			return err
		}
		return save()
	}
	after.Apply = func(context.Context) error { return release() }
	before.Undo = func(context.Context) error { return release() }
	return before, after
}

// Recover completes or reverts the changes that a killed run has left in this boot. An IOMMU group
// with only some functions changed is returned to the host. A group with all functions changed
// remains as it is, since a guest may use it already. Services that were stopped are started again
// if the driver nvidia has a GPU then. When ctx ends, the current group is completed first. A group
// of which the gate refuses a function stays as it is, and the change open; spec files are brought
// in line with the drivers all the same.
func (c *Binding) Recover(ctx context.Context, _ func() error) (change.Outcome, string, error) {
	current, err := c.record.current(c.binder.Root)
	if err != nil {
		return change.Open, "", err
	}
	var stay []Change
	var left []string
	if current {
		if stay, left, err = c.finish(ctx); err != nil {
			return change.Open, "", err
		}
	}
	also := ""
	if len(left) > 0 {
		also = "; " + strings.Join(left, "; ")
	}
	switch {
	case len(stay) > 0:
		c.record.Functions = stay
		return change.Stands, "was interrupted: complete IOMMU groups stay as changed: " + pci.Joined(Addresses(stay), ", ") + also, nil
	case c.status == change.Undoing && also != "":
		return change.Reverted, "was being undone: finished" + also, nil
	case also != "":
		return change.None, "was interrupted: rolled back" + also, nil
	case c.status == change.Undoing:
		return change.Reverted, "", nil
	case !current:
		return change.None, "was interrupted, and the machine was booted since, which reverted it", nil
	}
	return change.None, "", nil
}

// finish recovers groups, then spec files, then services, in this boot. It returns the changes that
// stay, and what is left to the operator. With an error, the change is open.
func (c *Binding) finish(ctx context.Context) (stay []Change, left []string, err error) {
	stay, refused, err := c.settle(ctx)
	if err != nil {
		return nil, nil, err
	}
	left, err = c.binder.reoffer(ctx, c.record, c.status == change.Undoing)
	if err != nil {
		return nil, nil, err
	}
	if err := errors.Join(refused...); err != nil {
		return nil, nil, err
	}
	// Functions that did not return to the host bring no services with them.
	if c.record.Services.none() || len(stay) == 0 && c.record.Release {
		return stay, left, nil
	}
	if err := context.Cause(ctx); err != nil {
		return nil, nil, err
	}
	also, err := c.binder.restore(ctx, &c.record.Services)
	if err != nil {
		return nil, nil, err
	}
	return stay, append(left, also...), nil
}

// settle settles each group. It returns the changes of those that stay as changed, and the errors
// of the gate of those that it refuses.
func (c *Binding) settle(ctx context.Context) (stay []Change, refused []error, err error) {
	for _, group := range c.record.groups() {
		if err := context.Cause(ctx); err != nil {
			return nil, nil, err
		}
		changed, err := c.binder.settle(group, c.record.Release)
		var use *useError
		if errors.As(err, &use) {
			refused = append(refused, use.error)
			continue
		}
		if err != nil {
			return nil, nil, err
		}
		if changed {
			stay = append(stay, group...)
		}
	}
	return stay, refused, nil
}

// rolledBack adds to the error of an interrupted run which changes were rolled back and which were
// not.
func rolledBack(ctx context.Context, err error, p Plan) error {
	if cause := context.Cause(ctx); cause == nil || !errors.Is(err, cause) || errors.Is(err, change.ErrNotReverted) {
		return err
	}
	err = fmt.Errorf("%w, all drivers were rolled back", err)
	if !p.Services.none() {
		err = fmt.Errorf("%w, and services are as before", err)
	}
	if len(p.Load) > 0 {
		err = fmt.Errorf("%w; modules stay loaded: %s", err, strings.Join(p.Load, ", "))
	}
	return err
}

// unchanged returns an error unless all functions are in the state that the plan was made from.
func (b Binder) unchanged(changes []Change) error {
	var errs []error
	for _, c := range changes {
		now, err := Read(b.Root, c.Address)
		if err == nil && now != c.Before {
			err = fmt.Errorf("%s: %w (%s)", c.Address, ErrChanged, now.Driver)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// steps returns the steps of a plan of the change.
func (c *Binding) steps(p Plan, save func() error) []change.Step {
	before, after := c.asked(p, save)
	return c.binder.steps(p, before, after)
}

// steps returns the steps of a plan: take functions from the containers' specs, stop services, load
// modules, ask the gate, bind functions, open groups, add functions to the specs, then start
// services.
func (b Binder) steps(p Plan, asked, changed change.Step) []change.Step {
	steps := b.withdraw(p)
	run := func(ctx context.Context, argv []string) error {
		_, err := b.Kernel.Run(ctx, argv)
		return err
	}
	// Persistence mode returns once the daemon that keeps it runs again, so by the first step.
	var switched []pci.Address
	if len(p.Services.Off) > 0 {
		steps = append(steps, change.Step{
			Apply: func(context.Context) error { return nil },
			Undo: func(ctx context.Context) error {
				return errors.Join(host.Map(switched, func(a pci.Address) error { return run(ctx, persistence(a, true)) })...)
			},
		})
	}
	for _, unit := range p.Services.Stop {
		steps = append(steps, change.Step{
			Apply: func(ctx context.Context) error { return b.stop(ctx, unit) },
			Undo:  func(ctx context.Context) error { return b.start(ctx, unit) },
		})
	}
	for _, a := range p.Services.Off {
		steps = append(steps, change.Step{Apply: func(ctx context.Context) error {
			switched = append(switched, a)
			return run(ctx, persistence(a, false))
		}})
	}
	if functions := p.Idle(); len(functions) > 0 {
		steps = append(steps, change.Step{Apply: func(ctx context.Context) error { return b.idle(ctx, functions, nil) }})
	}
	for _, name := range p.Load {
		steps = append(steps, change.Step{Apply: func(ctx context.Context) error { return b.Kernel.Load(ctx, name) }})
	}
	steps = append(steps, asked)
	for _, c := range p.Changes {
		steps = append(steps, change.Step{
			Apply: func(context.Context) error { return b.bring(c) },
			Undo: func(context.Context) error {
				if c.Any { // the plan does not know the driver that the probe selects
					now, err := Read(b.Root, c.Address)
					if err != nil {
						return err
					}
					c.After = now
				}
				return b.bring(c.inverse())
			},
		})
	}
	steps = append(steps, changed)
	if len(p.Groups) > 0 {
		steps = append(steps, change.Step{Apply: func(context.Context) error { return b.prove(p.Groups) }})
	}
	steps = append(steps, b.offer(p)...)
	for _, unit := range p.Services.Start {
		steps = append(steps, change.Step{
			Apply: func(ctx context.Context) error { return b.start(ctx, unit) },
			// So that it finds the GPUs that return when it is started again.
			Undo: func(ctx context.Context) error { return b.stop(ctx, unit) },
		})
	}
	for _, a := range p.Services.On {
		steps = append(steps, change.Step{Apply: func(ctx context.Context) error { return run(ctx, persistence(a, true)) }})
	}
	return steps
}

// bring makes a change, whatever part of it is already made. A function that was bound to a third
// driver meanwhile is left as it is, with an error.
func (b Binder) bring(c Change) error {
	now, err := Read(b.Root, c.Address)
	if err != nil {
		return err
	}
	if !slices.Contains([]Name{"", c.Before.Driver, c.After.Driver}, now.Driver) {
		return fmt.Errorf("%s: %w (%s)", c.Address, ErrChanged, now.Driver)
	}
	for _, s := range c.steps(now) {
		if err := b.do(c.Address, s); err != nil {
			return fmt.Errorf("%s: %s: %w", c.Address, s.does, err)
		}
	}
	return nil
}

// do makes a write and checks its effect.
func (b Binder) do(a pci.Address, s step) error {
	if err := b.Kernel.Write(s.Write); err != nil {
		return err
	}
	for end := time.Now().Add(b.Settle); ; time.Sleep(poll) {
		now, err := Read(b.Root, a)
		if err != nil {
			return err
		}
		late := time.Now().After(end)
		switch {
		case now == s.to && !s.any:
			return nil
		case s.any && pci.LeavesAlone(string(now.Driver)):
			return fmt.Errorf("%s %w", now.Driver, ErrTakenAgain)
		case s.any && (now.Driver != "" || late):
			return nil // or no driver of the host matches
		case late && now.Override != s.to.Override:
			return fmt.Errorf("%w: driver_override is %s", errNotTaken, now.Override)
		case late:
			return fmt.Errorf("%w: bound to %s", errNotTaken, now.Driver)
		}
	}
}

// prove returns an error unless groups can be assigned to guests: their members must have suitable
// drivers, and if one is bound to vfio-pci, opening the group must succeed. A group that a guest
// has opened meanwhile needs no further proof.
func (b Binder) prove(groups []int) error {
	if len(groups) == 0 {
		return nil
	}
	devices, _, err := pci.Scan(b.Root, pci.Options{})
	if err != nil {
		return err
	}
	var errs []error
	for _, g := range iommu.Groups(devices) {
		if !slices.Contains(groups, g.Number) {
			continue
		}
		if g.Viable != host.Yes {
			blockers := host.Map(g.Blockers, func(b iommu.Blocker) string { return b.Address.String() + " " + b.Reason })
			errs = append(errs, fmt.Errorf("IOMMU group %d: %w: %s", g.Number, ErrNotViable, strings.Join(blockers, ", ")))
			continue
		}
		if !hasVFIO(devices, g.Number) {
			continue // with only pci-stub there is no group to open
		}
		if err := b.Kernel.TryGroup(g.Number); err != nil && !errors.Is(err, ErrInUse) {
			errs = append(errs, fmt.Errorf("IOMMU group %d: %w", g.Number, err))
		}
	}
	return errors.Join(errs...)
}

// hasVFIO reports whether a member of a group is bound to a VFIO driver.
func hasVFIO(devices []pci.Device, group int) bool {
	return slices.ContainsFunc(devices, func(d pci.Device) bool {
		return d.IOMMUGroup != nil && *d.IOMMUGroup == group && d.Driver != nil && strings.Contains(*d.Driver, "vfio")
	})
}
