package driver

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"gpustack/host"
	"gpustack/host/iommu"
	"gpustack/host/journal"
	"gpustack/host/pci"
)

// Kernel is what a Binder asks to act: [Live], or a test's.
type Kernel interface {
	// Write writes to sysfs. The error is host.ErrStuck where the kernel does not return.
	Write(w Write) error
	// Load makes the kernel have a driver.
	Load(ctx context.Context, driver string) error
	// TryGroup has an IOMMU group opened and closed, as a guest's process would.
	TryGroup(group int) error
}

// Binder carries plans out, recorded in the journal.
type Binder struct {
	Root    host.Root
	Kernel  Kernel
	Journal *journal.Journal
	Settle  time.Duration // that the kernel has to show what it was asked for
}

// Errors of what the kernel was asked.
var (
	// ErrChanged says that a function is not as the plan or the journal has it.
	ErrChanged = errors.New("is held by another driver since")
	// ErrNotTaken says that a write was taken, and did not do what it was for.
	ErrNotTaken = errors.New("the kernel took it and did not do it")
	// ErrTakenAgain says that a driver which leaves functions alone has taken one that
	// goes back to the host.
	ErrTakenAgain = errors.New("takes it by its ids again")
	// ErrNotViable says that no guest could have a group.
	ErrNotViable = errors.New("is not viable")
	// ErrNotTakenBack says that some functions could not be brought back.
	ErrNotTakenBack = errors.New("could not be taken back")
)

// poll is how often the kernel is asked whether it has done something.
const poll = 10 * time.Millisecond

// Apply makes a plan's changes, recorded before the first. Should one fail, those made
// are taken back, the last first, and no entry is left; where that fails too, the entry
// stays as it is for the next run. When ctx ends, the running step ends first, and then all is
// rolled back in the same way: the error wraps the cause of ctx.
func (b Binder) Apply(ctx context.Context, p Plan, command string) (journal.Entry, error) {
	if cause := context.Cause(ctx); cause != nil {
		return journal.Entry{}, fmt.Errorf("%w, nothing was changed", cause)
	}
	if err := b.unchanged(p.Changes); err != nil {
		return journal.Entry{}, err
	}
	boot, err := bootID(b.Root)
	if err != nil {
		return journal.Entry{}, err
	}
	record := Record{Boot: boot, Release: p.Release, Functions: p.Changes}
	e, err := b.Journal.Begin(journal.KindDrivers, command, record)
	if err != nil {
		return journal.Entry{}, errors.Join(err, b.Journal.Forget(e))
	}
	done, err := b.make(ctx, p)
	if err != nil {
		back := b.takeBack(p.Changes[:done])
		if back == nil && !errors.Is(err, host.ErrStuck) {
			return journal.Entry{}, errors.Join(rolledBack(ctx, err, p), b.Journal.Forget(e))
		}
		return e, errors.Join(err, back)
	}
	for i, c := range p.Changes {
		if !c.Any {
			continue
		}
		if record.Functions[i].After, err = Read(b.Root, c.Address); err != nil {
			return e, err
		}
	}
	return b.Journal.Update(e, journal.Done, record)
}

// rolledBack adds to the error of an interrupted run what was rolled back and what was not.
func rolledBack(ctx context.Context, err error, p Plan) error {
	if cause := context.Cause(ctx); cause == nil || !errors.Is(err, cause) {
		return err
	}
	err = fmt.Errorf("%w, all drivers were rolled back", err)
	if len(p.Load) > 0 {
		err = fmt.Errorf("%w; modules stay loaded: %s", err, strings.Join(p.Load, ", "))
	}
	return err
}

// unchanged is an error unless all functions are as they were planned from.
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

// make makes the changes of a plan, and returns how many are to be taken back after an
// error: not the one that the kernel is stuck with, which is out of reach. When ctx ends, the
// error is its cause, even after the last change.
func (b Binder) make(ctx context.Context, p Plan) (begun int, err error) {
	for _, name := range p.Load {
		if err := context.Cause(ctx); err != nil {
			return 0, err
		}
		if err := b.Kernel.Load(ctx, name); err != nil {
			return 0, err
		}
	}
	for i, c := range p.Changes {
		if err := context.Cause(ctx); err != nil {
			return i, err
		}
		if err := b.bring(c); errors.Is(err, host.ErrStuck) {
			return i, err
		} else if err != nil {
			return i + 1, err
		}
	}
	if err := context.Cause(ctx); err != nil {
		return len(p.Changes), err
	}
	if err := b.prove(p.Groups); err != nil {
		return len(p.Changes), err
	}
	return len(p.Changes), context.Cause(ctx)
}

// bring makes a change from wherever it has come to. A function that a driver of
// somebody else's has taken meanwhile is left to it, with an error.
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

// do makes a write, and sees that the kernel does what it was for.
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
			return nil // or no driver wants it
		case late && now.Override != s.to.Override:
			return fmt.Errorf("%w: driver_override is %s", ErrNotTaken, now.Override)
		case late:
			return fmt.Errorf("%w: it has %s", ErrNotTaken, now.Driver)
		}
	}
}

// takeBack brings functions back, the last first.
func (b Binder) takeBack(changes []Change) error {
	var errs []error
	for _, c := range slices.Backward(changes) {
		if c.Any { // the driver that the probe has found is not in the plan
			now, err := Read(b.Root, c.Address)
			if err != nil {
				errs = append(errs, fmt.Errorf("%w: %w", ErrNotTakenBack, err))
				continue
			}
			c.After = now
		}
		if err := b.bring(c.inverse()); err != nil {
			errs = append(errs, fmt.Errorf("%w: %w", ErrNotTakenBack, err))
		}
	}
	return errors.Join(errs...)
}

// prove sees that guests could have groups now: by who holds their members, and, where
// VFIO has one, by opening it. A group that a guest has meanwhile is proved by that.
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
			continue // there is nothing to open while all is pci-stub's
		}
		if err := b.Kernel.TryGroup(g.Number); err != nil && !errors.Is(err, ErrInUse) {
			errs = append(errs, fmt.Errorf("IOMMU group %d: %w", g.Number, err))
		}
	}
	return errors.Join(errs...)
}

// hasVFIO tells whether a driver of VFIO's holds a member of a group.
func hasVFIO(devices []pci.Device, group int) bool {
	return slices.ContainsFunc(devices, func(d pci.Device) bool {
		return d.IOMMUGroup != nil && *d.IOMMUGroup == group && d.Driver != nil && strings.Contains(*d.Driver, "vfio")
	})
}
