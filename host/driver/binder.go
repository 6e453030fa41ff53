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

// Kernel carries out a Binder's requests: [Live], or a test's.
type Kernel interface {
	// Write writes to sysfs. The error is host.ErrStuck if the write is stuck in the kernel.
	Write(w Write) error
	// Load loads the module of a driver.
	Load(ctx context.Context, driver string) error
	// TryGroup opens and closes an IOMMU group, as a guest's process would.
	TryGroup(group int) error
	// Ready returns an error unless this is the running kernel of the root.
	Ready() error
}

// Binder is the kind of changes of drivers.
type Binder struct {
	Root   host.Root
	Kernel Kernel
	Settle time.Duration // how long the kernel has to show what was requested
	// Patience is how long a write of an earlier run has to end before what it left is
	// recovered or read.
	Patience time.Duration
}

// Errors of requests to the kernel.
var (
	// ErrChanged says that a function is not as the plan or the journal has it.
	ErrChanged = host.WithHint(errors.New("is now bound to another driver"), "'gpustack host scan' shows the drivers; host bind and host release plan again from there")
	// ErrNotTaken says that the kernel accepted a write without effect.
	ErrNotTaken = host.WithHint(errors.New("the kernel accepted the write but the driver did not change"), "the kernel's log says why: journalctl -k, or dmesg")
	// ErrTakenAgain says that vfio-pci or pci-stub has claimed a function that is to be returned to
	// the host.
	ErrTakenAgain = host.WithHint(errors.New("re-claimed the function through its ids= list"), "load the host's driver first with modprobe, or run 'gpustack host prepare --remove' and reboot")
	// ErrNotViable says that no guest could be assigned a group.
	ErrNotViable = host.WithHint(errors.New("is not viable"), "the kernel's log says more: journalctl -k, or dmesg")
)

// poll is how often the kernel is asked whether it has done something.
const poll = 10 * time.Millisecond

// Name is the kind's name in the journal.
func (Binder) Name() string { return change.KindDrivers }

// New returns the change that a plan makes.
func (b Binder) New(p Plan) *Binding {
	return &Binding{binder: b, plan: p, record: Record{Release: p.Release, Functions: slices.Clone(p.Changes)}}
}

// Open returns the change that an entry records.
func (b Binder) Open(_ context.Context, e change.Entry) (change.Change, error) {
	r, err := ParseRecord(e)
	return &Binding{binder: b, record: r, status: e.Status, current: true}, err
}

// Binding is a change of drivers.
type Binding struct {
	binder Binder
	plan   Plan // what Apply makes
	record Record
	// Of an entry:
	status  change.Status
	current bool // this boot's
}

// Kind is the name of its kind.
func (*Binding) Kind() string { return change.KindDrivers }

// Record writes the functions, and the boot that the change ends with, into an entry.
func (c *Binding) Record(e *change.Entry) error {
	if c.record.Boot == "" {
		boot, err := bootID(c.binder.Root)
		if err != nil {
			return err
		}
		c.record.Boot = boot
	}
	return e.SetDetail(c.record)
}

// Check returns an error if a function has another driver than planned or recorded. What an
// earlier boot has changed needs no check. Before recovery and before functions are read, writes
// of an earlier run have to end (host.ErrStuck); recovery needs the running kernel.
func (c *Binding) Check(ctx context.Context, p change.Purpose) error {
	if p == change.ToApply {
		return c.binder.unchanged(c.plan.Changes)
	}
	if current, err := c.record.Current(c.binder.Root); err != nil || !current {
		return err
	}
	if p == change.ToUndo {
		if c.status != change.Done {
			return nil // Recover looks
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

// Functions are the functions of the change, as recorded: After of one that any driver may claim
// names that driver once the change is made.
func (c *Binding) Functions() []Change { return c.record.Functions }

// Release reports whether functions are returned to the host, not assigned to guests.
func (c *Binding) Release() bool { return c.record.Release }

// Back returns the plan that undoes the change: it has no changes where the machine was booted
// since. Its error names every function that prevents it.
func (c *Binding) Back() (Plan, error) {
	return c.record.back(c.binder.Root)
}

// Apply makes the plan's changes, all or none. When ctx ends, the running step ends first, and then
// all is rolled back. If the kernel is stuck in a step (host.ErrStuck), the change is open.
func (c *Binding) Apply(ctx context.Context, _ func() error) (change.Outcome, error) {
	outcome, err := change.Run(ctx, c.binder.steps(c.plan), change.OnError)
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

// Undo returns functions to the drivers that they had before. Where that fails for one, the change
// is open. When ctx ends, the running step ends first, and then all functions are bound again as
// they were.
func (c *Binding) Undo(ctx context.Context, _ func() error) (change.Outcome, error) {
	p, err := c.Back()
	if err != nil {
		return change.Open, err
	}
	switch outcome, err := change.Run(ctx, c.binder.steps(p), change.OnInterrupt); outcome {
	case change.Stands:
		return change.Reverted, nil
	case change.None:
		return change.Stands, rolledBack(ctx, err, p)
	default:
		return change.Open, err
	}
}

// Recover ends, in this boot, what a killed run has left: an IOMMU group of which some functions
// are changed and some are not goes to the host. One that is changed whole stays, since a guest
// may have it already. When ctx ends, the running group is ended first.
func (c *Binding) Recover(ctx context.Context, _ func() error) (change.Outcome, string, error) {
	current, err := c.record.Current(c.binder.Root)
	if err != nil {
		return change.Open, "", err
	}
	var stay []Change
	if current {
		for _, group := range c.record.groups() {
			if err := context.Cause(ctx); err != nil {
				return change.Open, "", err
			}
			changed, err := c.binder.settle(group, c.record.Release)
			if err != nil {
				return change.Open, "", err
			}
			if changed {
				stay = append(stay, group...)
			}
		}
	}
	switch {
	case len(stay) > 0:
		c.record.Functions = stay
		var names []string
		for _, f := range stay {
			names = append(names, f.Address.String())
		}
		return change.Stands, "was interrupted: complete IOMMU groups stay as changed: " + strings.Join(names, ", "), nil
	case c.status == change.Undoing:
		return change.Reverted, "", nil
	case !current:
		return change.None, "was interrupted, and the machine was booted since, which reverted it", nil
	}
	return change.None, "", nil
}

// rolledBack adds to the error of an interrupted run what was rolled back and what was not.
func rolledBack(ctx context.Context, err error, p Plan) error {
	if cause := context.Cause(ctx); cause == nil || !errors.Is(err, cause) || errors.Is(err, change.ErrNotReverted) {
		return err
	}
	err = fmt.Errorf("%w, all drivers were rolled back", err)
	if len(p.Load) > 0 {
		err = fmt.Errorf("%w; modules stay loaded: %s", err, strings.Join(p.Load, ", "))
	}
	return err
}

// unchanged returns an error unless all functions are as they were planned from.
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

// steps are those of a plan: modules are loaded, functions bound, and in the end groups are opened.
func (b Binder) steps(p Plan) []change.Step {
	var steps []change.Step
	for _, name := range p.Load {
		steps = append(steps, change.Step{Apply: func(ctx context.Context) error { return b.Kernel.Load(ctx, name) }})
	}
	for _, c := range p.Changes {
		steps = append(steps, change.Step{
			Apply: func(context.Context) error { return b.bring(c) },
			Undo: func(context.Context) error {
				if c.Any { // the driver that the probe has found is not in the plan
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
	if len(p.Groups) > 0 {
		steps = append(steps, change.Step{Apply: func(context.Context) error { return b.prove(p.Groups) }})
	}
	return steps
}

// bring makes a change from wherever it has come to. A function that was bound to a third driver
// meanwhile is left there, with an error.
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

// do makes a write and checks that it has the effect that it was made for.
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
			return nil // or no driver matches it
		case late && now.Override != s.to.Override:
			return fmt.Errorf("%w: driver_override is %s", ErrNotTaken, now.Override)
		case late:
			return fmt.Errorf("%w: bound to %s", ErrNotTaken, now.Driver)
		}
	}
}

// prove returns an error unless groups could be assigned to guests now, by the drivers of their
// members, and, where one is bound to vfio-pci, by opening the group. A group that a guest has
// opened meanwhile is proved by that.
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
		if g.Viable == nil || !*g.Viable {
			var blockers []string
			for _, blocker := range g.Blockers {
				blockers = append(blockers, blocker.Address.String()+" "+blocker.Reason)
			}
			errs = append(errs, fmt.Errorf("IOMMU group %d: %w: %s", g.Number, ErrNotViable, strings.Join(blockers, ", ")))
			continue
		}
		if !hasVFIO(devices, g.Number) {
			continue // with pci-stub alone there is nothing to open
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
