package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/bind"
	"gpustack/host/change"
	"gpustack/host/driver"
	"gpustack/host/pci"
	"gpustack/host/selection"
)

func newHostReleaseCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:  "release",
		Usage: "return GPUs to their host drivers now, until the next boot",
		Description: `
Returns the selected functions, together with all functions of their cards and IOMMU
groups, to the drivers that they had before gpustack host bind. A function that has been
bound to vfio-pci since the boot gets the driver that the kernel has for it. The drivers
are read back. Recorded: "gpustack undo" binds the functions again. Run again, it plans
nothing.

--device and --vendor name exactly the functions that are selected. Without them, these are
the functions that host prepare has recorded and host bind has bound, or else every NVIDIA
GPU. Functions that are assigned to a guest are refused.

When a GPU returns to the driver nvidia, services that host bind --stop-services has
stopped are started, and persistence mode is switched on again where it was.

EXAMPLES
  gpustack host release --dry-run
  gpustack host release --device 0000:84:00.0 --yes

EXIT STATUS
  0  the functions have their host drivers, or had them already
  1  error or refusal: the functions are unchanged unless the error says otherwise
  2  --dry-run: changes are pending
  130  interrupted: nothing was changed, or all was rolled back unless the error says otherwise`,
		Flags: []cli.Flag{
			rootFlag(),
			outputFlag(formatTable, formatJSON, formatYAML),
			&cli.StringSliceFlag{Name: "device", Usage: "select `DEVICE`: an address, or VENDOR:PRODUCT for all of a product (repeatable)"},
			&cli.StringSliceFlag{Name: "vendor", Usage: "select the GPUs made by `VENDOR`, four digits (repeatable)"},
			timeoutFlag(), dryRunFlag(), yesFlag(), quietFlag(),
		},
		Action: action(u, parseHostRelease, runHostRelease),
	}
}

func parseHostRelease(c *cli.Context, f *faults) driversOptions {
	f.arguments(c)
	return driversOptions{
		decision: parseDecision(c, f),
		root:     c.String("root"),
		prepare: selection.Options{
			Add:     values(f, c, "device", pci.ParseSelector),
			Vendors: values(f, c, "vendor", pci.ParseID),
		},
		timeout: parseTimeout(c, f), service: serviceTimeout,
		command: "host release" + selected(c, "device", "vendor"),
	}
}

func runHostRelease(ctx context.Context, u *ui, opts driversOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	c, err := u.observe(ctx, root, opts, true)
	if err != nil {
		return err
	}
	entries, err := change.List(root)
	if err != nil {
		return err
	}
	taken, err := driver.Taken(root, entries)
	if err != nil {
		return err
	}
	stopped, err := driver.Stopped(root, entries)
	if err != nil {
		return err
	}
	plan, err := bind.NewRelease(root, c.machine, opts.prepare, c.uses, taken, stopped)
	if err != nil {
		return opts.called("host release").explain(err, noMore)
	}
	return c.show(ctx, opts, plan, "release them now?")
}
