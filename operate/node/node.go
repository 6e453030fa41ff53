// Package node has the use cases on a compute node that join several subjects: what host prepare,
// host bind, host release and the steps of every boot do, and the undo of files and drivers. Each
// is Observe → Plan → Apply: values that a command prints, and asks about between the last two.
package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/check"
	"gpustack/host/container"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/pci"
	"gpustack/host/prepare"
	"gpustack/host/steps"
	"gpustack/nova"
	"gpustack/nova/conf"
)

// settle is the maximum time until a write has its effect.
const settle = 2 * time.Second

// ServiceTimeout is the default time until a service has stopped or started. systemd gives a
// service 90 s to stop (systemd-system.conf(5), DefaultTimeoutStopSec), and then kills it.
const ServiceTimeout = 100 * time.Second

// Node is a machine whose files and drivers a command reads and changes.
type Node struct {
	Root    host.Root
	Runner  host.Runner              // starts programs of the machine
	Origin  *change.Origin           // is recorded in new entries
	Version string                   // of gpustack
	Warn    func(warnings ...string) // prints what a change could not do, while it is made
	Allow   []pci.Address            // the functions whose refusals --allow lifts
}

// kernel returns what writes to sysfs of the machine. timeout is the maximum time of each write.
func (n Node) kernel(timeout time.Duration) driver.Live {
	return driver.Live{Runner: n.Runner, Timeout: timeout}
}

// binder returns the kind of change for drivers of the machine. timeout is the maximum time for
// each write to sysfs, and for waiting for an earlier run's write.
func (n Node) binder(timeout time.Duration) driver.Binder {
	return driver.Binder{Root: n.Root, Kernel: n.kernel(timeout), Settle: settle, Service: ServiceTimeout, Patience: timeout,
		Offering: n.offering(), Gate: gate.Drivers(n.Root, n.Allow, claim)}
}

// claim opens a disk exclusively, in a process of its own, until it is released.
func claim(disk string) (release func() error, err error) {
	held, err := guard.Claim(driver.DefaultTimeout, disk)
	if err != nil {
		return nil, err
	}
	return held.Release, nil
}

// Engine returns the engine for changes of files and drivers of the machine. timeout is that of
// [Node.binder].
func (n Node) Engine(timeout time.Duration) change.Engine {
	return change.Engine{
		Store:  change.Machine(n.Root),
		Origin: n.Origin,
		Kinds:  []change.Kind{n.files(), n.binder(timeout)},
		Run: func(ctx context.Context, p host.Program) error {
			if p.Kind == host.RevertBoot {
				return n.Revert(ctx)
			}
			return prepare.Rebuild(ctx, n.Runner, p)
		},
		Current: func(recorded []host.Program) ([]host.Program, error) {
			return prepare.CurrentPrograms(n.Root, recorded)
		},
	}
}

// RecordedFiles returns the kind of change for files of the machine below root, to read what
// entries record.
func RecordedFiles(root host.Root) change.Files {
	return change.Files{Root: root, Masked: conf.Masked, Keep: keepReporting, Reverts: map[string]change.Revert{nova.Grammar: nova.Revert},
		Older: prepare.Older(root), EachBoot: container.IsBootSpec}
}

// files returns the kind of change for files of the machine. Changes are refused while what runs on
// the machine prevents what follows from them.
func (n Node) files() change.Files {
	files := RecordedFiles(n.Root)
	files.Permit = func(plan edit.Plan) ([]host.Lift, error) {
		allowed := gate.Allowed{Functions: n.Allow}
		lifted, err := gate.Permit(n.Root, plan, allowed)
		if err = errors.Join(steps.PermitFiles(n.Root, plan), err); err != nil || !n.Root.IsMachine() {
			return lifted, err
		}
		more, err := n.permitRevert(plan, allowed)
		return slices.Concat(lifted, slices.DeleteFunc(more, func(l host.Lift) bool { return slices.Contains(lifted, l) })), err
	}
	return files
}

// keepReporting is a [change.Keep]: undo of nova configure leaves report_in_placement set, which
// Nova cannot switch off.
func keepReporting(e change.Entry, now, before []byte) ([]byte, error) {
	if e.Topic().Subject != change.OfNova {
		return before, nil
	}
	return nova.KeepReporting(now, before)
}

// RebootRequired reports whether the machine has to be rebooted, nil if that is unknown. Commands
// that have not observed the machine call it. If a write to sysfs of an earlier run is stuck in the
// kernel, it reads no function: that would block too.
func (n Node) RebootRequired(ctx context.Context) *bool {
	_, reboot := n.Observe(ctx, 0)
	return reboot
}

// Observe observes subjects of the machine, which may be 0, and whether the machine has to be
// rebooted, as [Node.RebootRequired]: the machine is read once for both.
func (n Node) Observe(ctx context.Context, subjects machine.Subject) (m machine.Machine, reboot *bool) {
	journal := change.Machine(n.Root).Observe()
	err := n.binder(0).Settled(ctx, journal)
	if err == nil {
		subjects |= machine.Reboot
	}
	if subjects != 0 {
		m = machine.Observe(n.Root, subjects, machine.Options{Journal: &journal})
	}
	switch stuck := errors.Is(err, host.ErrStuck); {
	case stuck:
		return m, &stuck
	case err != nil:
		return m, nil
	}
	return m, check.RebootRequired(m)
}

// Settled returns an error if an earlier run's sysfs write is still blocked in the kernel.
// Read-only commands call it first: reading driver_override would block too.
func (n Node) Settled(ctx context.Context) error {
	return n.SettledIn(ctx, change.Machine(n.Root).Observe())
}

// SettledIn is Settled for a look at the machine's journal.
func (n Node) SettledIn(ctx context.Context, journal change.Seen) error {
	const patience = 2 * time.Second
	return n.binder(patience).Settled(ctx, journal)
}

// ReadRunning reads what only a running machine shows: the ssh session that gpustack was started
// in, and its interfaces. For any other root it returns the zero value. The error is that of the
// session: without it, the guard protects the interface by its address alone.
func (n Node) ReadRunning() (running guard.Running, session error) {
	if n.kernel(0).Ready() != nil {
		return guard.Running{}, nil
	}
	return gate.ReadRunning(n.Root)
}
