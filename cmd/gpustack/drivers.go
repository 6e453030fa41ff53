package main

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/bind"
	"gpustack/host/change"
	"gpustack/host/check"
	"gpustack/host/driver"
	"gpustack/host/machine"
	"gpustack/host/selection"
	"gpustack/operate/node"
)

// Code that host bind, host release and undo share.

func timeoutFlag() cli.Flag {
	return &cli.DurationFlag{Name: "timeout", Value: driver.DefaultTimeout, Usage: "wait `TIME` for each answer of the kernel to a write to sysfs"}
}

// driversOptions are the options of host bind and host release.
type driversOptions struct {
	prepare selection.Options
	timeout time.Duration
	service time.Duration // for a service to stop or start
	mode    bind.Mode
	to      machine.Role // of host release; "" for the host
}

// recoverAndObserve reads a machine, after what an interrupted run has left is recovered.
func recoverAndObserve(ctx context.Context, u *term.UI, o given, opts driversOptions, release bool) (node.Drivers, error) {
	n := newNode(u, o.root, opts.prepare.Allow...)
	if err := recoverEntries(ctx, u, newNode(u, o.root).Engine(opts.timeout), o, 0); err != nil {
		return node.Drivers{}, err
	}
	return n.ObserveDrivers(opts.timeout, release)
}

// changeDrivers prints a plan and carries it out if the operator confirms it.
func changeDrivers(ctx context.Context, u *term.UI, d node.Drivers, o given, opts driversOptions, plan node.DriversPlan, question string) error {
	changed := len(plan.Changes)+len(plan.Containers) > 0
	if err := d.Ready(); err != nil && changed && !o.dryRun {
		return err
	}
	report := views.NewDrivers(newReport(d.Node.Root, check.RebootRequired(d.Machine), changed, plan.Warnings...), plan.Plan, views.FileChanges(plan.Specs))
	devices := d.Machine.Devices.Value
	if changed && !plan.Release && len(plan.Containers) == 0 && d.Machine.Contract.Value == nil {
		report.Next = host.NewNext(host.NewCommand("host prepare"))
	}
	showPlan(u, o, &report, func() {
		views.PrintDrivers(u, report, plan.Plan, devices)
		if report.Next != nil {
			u.Printf("\nlasts until the next boot; '%s' makes it permanent\n", u.Command(report.Next.Command))
		}
	}, plan.Warnings...)
	return decide(u, o, question, views.DriversSummary(u, plan.Plan.Plan, devices), &report, func() error {
		binding := d.Change(plan, opts.service)
		err := applyWork(ctx, u, d.Node.Engine(opts.timeout), o.format, change.Work{Command: o.command, Change: binding}, &report)
		if err != nil {
			return err
		}
		for i, f := range binding.Functions() {
			report.Drivers[i].After = f.After
			if f.Any && f.After.Driver == "" {
				addWarnings(u, &report, fmt.Sprintf("%s: no driver has claimed it", f.Address))
			}
		}
		return nil
	})
}
