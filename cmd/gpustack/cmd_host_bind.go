package main

import (
	"context"
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
	"gpustack/host/machine"
	"gpustack/host/selection"
	"gpustack/operate/node"
)

func newHostBindCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "bind",
		Usage: "bind GPUs to vfio-pci now, until the next boot",
		Description: `
Binds the selected functions, together with all functions of their cards and IOMMU groups,
to vfio-pci: sets driver_override, unbinds the present driver, has the function probed and
reads back which driver it has. Finally it opens each group, as a guest would. If a step
fails, the steps before it are rolled back. Recorded: "gpustack undo" and "gpustack host
release" return the functions to their drivers. Run again, it plans nothing.

--device names exactly the functions that are selected. Without it, these are
the functions that host prepare has recorded, or else every NVIDIA GPU. The rules are those
of host prepare: a selected GPU leaves the host with the other functions of its card, and
every other function only with --allow ADDRESS. The error prints complete commands that are
accepted. Nothing lifts the refusal of what the root file system needs, of a disk that the
kernel has claimed, of functions that processes or guests have open, or of those that have
virtual functions or mediated devices. What is on a disk stays there: a guest that gets it
can read and overwrite it.

A function that is recorded for containers is bound if --device names its address. It is
refused while a process has it open, which is named with its container. Then the CDI specs
lose it, and if no process has opened it meanwhile, it is unbound; else the specs are put
back. It stays recorded for containers: host release --to container returns it to them, and
so does the next boot. Other functions of containers in its card or IOMMU group are refused.

Unbinding a GPU from its driver, above all nvidia and nouveau, may hang forever. It is done
with --live only; host prepare and a reboot need no unbinding. A write to sysfs that does
not return within --timeout is abandoned; then only a reboot helps.

The driver nvidia hangs while a GPU is open or in persistence mode. --stop-services stops
nvidia-persistenced, DCGM and dcgm-exporter, and nvidia-fabricmanager if no GPU stays with
the host, where they have a GPU open, switches off persistence mode, and checks that no
process has the GPU open before it is unbound. It starts the services again if GPUs stay
with the host; else undo and host release do. Every other process that has the GPU open
is listed and refused. No module is unloaded.

EXAMPLES
  gpustack host bind --dry-run
  gpustack host bind --device 0000:84:00.0 --live
  gpustack host bind --device 0000:84:00.0 --live --stop-services
  gpustack host bind --driver pci-stub --yes`,
		Flags: changing(
			&cli.StringSliceFlag{Name: "device", Usage: "select `DEVICE`: an address, or VENDOR:PRODUCT for all of a product (repeatable)"},
			&cli.StringSliceFlag{Name: "allow", Usage: "let the function at `ADDRESS` leave the host (repeatable)"},
			nvswitchFlag(),
			args.Choice(&cli.StringFlag{Name: "driver",
				Usage: "bind functions to `DRIVER`: vfio-pci or pci-stub (unless recorded, vfio-pci)"}, []string{"", machine.VFIO, machine.Stub}),
			&cli.BoolFlag{Name: "live", Usage: "also unbind drivers whose unbinding may hang"},
			&cli.BoolFlag{Name: "stop-services", Usage: "with --live: stop NVIDIA's services that have the GPUs open, and switch off persistence mode"},
			&cli.DurationFlag{Name: "service-timeout", Value: node.ServiceTimeout, Usage: "give each service `TIME` to stop or start"},
			timeoutFlag(),
		),
		Action: action(u, parseHostBind, runHostBind),
	}
}

func parseHostBind(c *cli.Context, f *args.Faults) driversOptions {
	opts := parseHostRelease(c, f)
	opts.prepare.Allow = addresses(c, f, "allow")
	opts.prepare.Driver = f.Choice(c, "driver")
	opts.prepare.NVSwitch = machine.NVSwitch(f.Choice(c, "nvswitch"))
	opts.mode = bind.Mode{Live: c.Bool("live"), StopServices: c.Bool("stop-services")}
	f.Require(c, "live", "stop-services")
	opts.service = f.Positive(c, "service-timeout")
	return opts
}

func runHostBind(ctx context.Context, u *term.UI, o given, opts driversOptions) error {
	d, err := recoverAndObserve(ctx, u, o, opts, false)
	if err != nil {
		return err
	}
	plan, err := d.PlanBind(ctx, opts.prepare, opts.mode)
	if err != nil {
		return views.ExplainBind(err, opts.prepare, opts.mode, o.repeated()...)
	}
	return changeDrivers(ctx, u, d, o, opts, plan, "bind them now?")
}

func newHostReleaseCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "release",
		Usage: "return GPUs to their host drivers now, until the next boot",
		Description: `
Returns the selected functions, together with all functions of their cards and IOMMU
groups, to the drivers that they had before gpustack host bind. A function that has been
bound to vfio-pci since the boot gets the driver that the kernel has for it. The drivers
are read back. Recorded: "gpustack undo" binds the functions again. Run again, it plans
nothing.

--device names exactly the functions that are selected. Without it, these are
the functions that host prepare has recorded and host bind has bound, or else every NVIDIA
GPU. Functions that are assigned to a guest are refused.

A function that is recorded for containers and was bound by host bind returns to its driver
only: containers are not offered it until the next boot. --to container returns it to them:
its device nodes are made, the CDI spec has it again, and is read back. Without --device it
returns all functions of containers. If one of them cannot be offered, all is rolled back.

When a GPU returns to the driver nvidia, services that host bind --stop-services has
stopped are started, and persistence mode is switched on again where it was.

EXAMPLES
  gpustack host release --dry-run
  gpustack host release --device 0000:84:00.0 --yes
  gpustack host release --to container --device 0000:84:00.0`,
		Flags: changing(
			&cli.StringSliceFlag{Name: "device", Usage: "select `DEVICE`: an address, or VENDOR:PRODUCT for all of a product (repeatable)"},
			args.Choice(&cli.StringFlag{Name: "to", Usage: "return functions to `ROLE`: host, or container for those that containers had"},
				[]string{"", string(machine.OfHost), string(machine.OfContainer)}),
			timeoutFlag(),
		),
		Action: action(u, parseReleaseTo, runHostRelease),
	}
}

func parseHostRelease(c *cli.Context, f *args.Faults) driversOptions {
	return driversOptions{prepare: selection.Options{Add: selectors(c, f, "device")}, timeout: f.Positive(c, "timeout"), service: node.ServiceTimeout}
}

// parseReleaseTo parses the options of host release, which host bind shares but one.
func parseReleaseTo(c *cli.Context, f *args.Faults) driversOptions {
	opts := parseHostRelease(c, f)
	opts.to = machine.Role(f.Choice(c, "to"))
	return opts
}

func runHostRelease(ctx context.Context, u *term.UI, o given, opts driversOptions) error {
	d, err := recoverAndObserve(ctx, u, o, opts, true)
	if err != nil {
		return err
	}
	plan, err := d.PlanRelease(opts.prepare, opts.to)
	if err != nil {
		return views.Called{Name: "host release", Flags: o.repeated()}.Explain(err)
	}
	return changeDrivers(ctx, u, d, o, opts, plan, "release them now?")
}

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
	return decide(u, o, &report, question, views.DriversSummary(u, plan.Plan.Plan, devices), func() {
		views.PrintDrivers(u, report, plan.Plan, devices)
		if report.Next != nil {
			u.Printf("\nlasts until the next boot; '%s' makes it permanent\n", u.Command(report.Next.Command))
		}
	}, func() error {
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
	}, plan.Warnings...)
}
