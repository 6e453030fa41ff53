package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/bind"
	"gpustack/host/change"
	"gpustack/host/check"
	"gpustack/host/driver"
	"gpustack/host/gate"
	"gpustack/host/guard"
	"gpustack/host/machine"
	"gpustack/host/selection"
)

// Code that host bind, host release and undo share.

func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: driver.DefaultTimeout, Usage: "give the kernel `TIME` for each write to sysfs"}
}

// parseTimeout reads timeoutFlag.
func parseTimeout(c *cli.Context, f *args.Faults) time.Duration {
	timeout := c.Duration("timeout")
	if timeout <= 0 {
		f.Add(args.UsageError("--timeout: not a time to wait: "+timeout.String(), "--timeout takes a time such as 30s or 2m"))
	}
	return timeout
}

// driversOptions are the options of host bind and host release.
type driversOptions struct {
	decision
	root    string
	prepare selection.Options
	timeout time.Duration
	service time.Duration // for a service to stop or start
	mode    bind.Mode
	to      machine.Role // of host release; "" for the host
	command string
}

// changing is a planned change of drivers on an observed machine.
type changing struct {
	u       *term.UI
	root    host.Root
	kernel  driver.Live
	engine  change.Engine
	machine machine.Machine
	uses    machine.Uses
}

// recoverAndObserve reads a machine, after what an interrupted run has left is recovered.
func recoverAndObserve(ctx context.Context, u *term.UI, root host.Root, opts driversOptions, release bool) (changing, error) {
	engine := newEngine(u, root, opts.timeout)
	if err := recoverEntries(ctx, u, engine, opts.decision, 0); err != nil {
		return changing{}, err
	}
	return observeDrivers(u, root, engine, opts.timeout, release)
}

// observeDrivers reads a machine. To release functions, it reads nothing of what the host needs:
// that must not keep functions from the host.
func observeDrivers(u *term.UI, root host.Root, engine change.Engine, timeout time.Duration, release bool) (changing, error) {
	c := changing{u: u, root: root, kernel: driver.Live{Runner: newRunner(u, root), Timeout: timeout}, engine: engine}
	var running guard.Running
	var session, usesErr error
	subjects := machine.RunningKernel | machine.Reboot
	if !release {
		subjects |= machine.Needs
		running, session = readRunning(root, c.kernel)
	}
	c.machine = machine.Observe(root, subjects, machine.Options{Running: running})
	unread := errors.Join(c.machine.Obstacles()...)
	if unread == nil {
		c.uses, usesErr = machine.ObserveUses(root, c.machine.Devices.Value, c.kernel.Ready() == nil)
	}
	return c, errors.Join(session, unread, usesErr)
}

// services adds to the uses of functions what programs of the running machine show, and reports
// whether it did: only if a plan unbinds the driver nvidia, since nvidia-smi initializes the GPUs.
func (c *changing) services(ctx context.Context, plan driver.Plan, mode bind.Mode) bool {
	if len(plan.Idle()) == 0 || !c.uses.Running || !mode.Live {
		return false
	}
	c.uses.ObserveServices(ctx, c.kernel.Run, c.machine.Devices.Value, mode.StopServices)
	return true
}

// readRunning reads what only a running machine shows: the ssh session that gpustack was started
// in, and its interfaces. For any other root it returns the zero value. The error is that of the
// session: without it, the guard protects the interface by its address alone.
func readRunning(root host.Root, kernel driver.Live) (running guard.Running, session error) {
	if kernel.Ready() != nil {
		return guard.Running{}, nil
	}
	return gate.ReadRunning(root)
}

// show prints a plan and carries it out if the operator confirms it.
func (c changing) show(ctx context.Context, opts driversOptions, plan bind.Plan, question string) error {
	if err := c.kernel.Ready(); err != nil && len(plan.Changes)+len(plan.Containers) > 0 && !opts.dryRun {
		return err
	}
	specs, err := c.withdrawn(plan.Plan)
	if err != nil {
		return err
	}
	head := newReport(c.root, check.RebootRequired(c.machine), len(plan.Changes)+len(plan.Containers) > 0, plan.Warnings...)
	report := views.NewDrivers(head, plan, specs)
	showPlan(c.u, opts.decision, &report, func() {
		views.PrintDrivers(c.u, report, plan, c.machine.Devices.Value)
		if report.Changed && !plan.Release && len(plan.Containers) == 0 && c.machine.Contract.Value == nil {
			c.u.Printf("\nlasts until the next boot; '%s' makes it permanent\n", term.Printable(c.u.Completed("gpustack host prepare")))
		}
	}, plan.Warnings...)
	return decide(c.u, opts.decision, question, views.DriversSummary(c.u, plan.Plan, c.machine.Devices.Value), &report, func() error {
		binder := binder(c.u, c.root, opts.timeout, opts.prepare.Allow...)
		binder.Service = opts.service
		binding := binder.New(plan.Plan)
		err := applyWork(ctx, c.u, c.engine, opts.format, change.Work{Command: opts.command, Change: binding}, &report)
		if err != nil {
			return err
		}
		for i, f := range binding.Functions() {
			report.Changes[i].After = f.After
			if f.Any && f.After.Driver == "" {
				addWarnings(c.u, &report, fmt.Sprintf("%s: no driver has claimed it", f.Address))
			}
		}
		return nil
	})
}

// driversSettled returns an error if an earlier run's sysfs write is still blocked in the kernel.
// Read-only commands call it first: reading driver_override would block too.
func driversSettled(ctx context.Context, u *term.UI, root host.Root) error {
	return driversSettledIn(ctx, u, root, change.Machine(root).Observe())
}

// driversSettledIn is driversSettled with the machine's journal.
func driversSettledIn(ctx context.Context, u *term.UI, root host.Root, journal change.Seen) error {
	const patience = 2 * time.Second
	return binder(u, root, patience).Settled(ctx, journal)
}
