// Package node has the use cases on a compute node that join several subjects: what host prepare,
// host bind, host release and the steps of every boot do, and the undo of files and drivers. Each
// is Observe → Plan → Apply: values that a command prints, and asks about between the last two.
//
// What only reads takes a root. A [Node] plans and carries out changes, [Drivers] those of drivers
// that change now, and [Steps] carries out what is recorded for every boot. It prints nothing and
// knows no cloud.
package node

import (
	"context"
	"errors"
	"slices"
	"time"

	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/edit"
	"gpustack/host/gate"
	"gpustack/host/guard"
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
	Origin  change.Origin            // is recorded in new entries
	Version string                   // of gpustack
	Warn    func(warnings ...string) // prints what a change could not do, while it is made
	Allow   []pci.Address            // the functions whose refusals --allow lifts
}

// binder returns the kind of change for drivers of the machine. timeout is the maximum time for
// each write to sysfs, and for waiting for an earlier run's write.
func (n Node) binder(timeout time.Duration) driver.Binder {
	return driver.Binder{Root: n.Root, Kernel: driver.Live{Runner: n.Runner, Timeout: timeout}, Settle: settle, Service: ServiceTimeout, Patience: timeout,
		Offering: offering(n.Runner), Gate: gate.Drivers(n.Root, n.Allow, claim)}
}

// Steps returns what carries out the steps of every boot on the machine.
func (n Node) Steps() Steps { return Steps(n) }

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
				return n.Steps().Revert(ctx)
			}
			return prepare.Rebuild(ctx, n.Runner, p)
		},
		Current: func(recorded []host.Program) ([]host.Program, error) {
			return prepare.CurrentPrograms(n.Root, recorded)
		},
	}
}

// recordedFiles returns the kind of change for files of the machine below root, to read what
// entries record.
func recordedFiles(root host.Root) change.Files {
	return change.Files{Root: root, Masked: conf.Masked, Keep: keepReporting, Reverts: map[string]change.Revert{nova.Grammar: nova.Revert}}
}

// files returns the kind of change for files of the machine. Changes are refused while what runs on
// the machine prevents what follows from them.
func (n Node) files() change.Files {
	files := recordedFiles(n.Root)
	files.Permit = func(plan edit.Changes) ([]pci.Identity, error) {
		allowed := gate.Allowed{Functions: n.Allow}
		lifted, err := gate.Permit(n.Root, plan, steps.Made, allowed)
		if err = errors.Join(steps.PermitFiles(n.Root, plan), err); err != nil || !n.Root.IsMachine() {
			return lifted, err
		}
		more, err := n.Steps().permit(plan, allowed)
		return slices.Concat(lifted, more), err
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
