package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/machine"
	"gpustack/host/selection"
	"gpustack/operate/node"
)

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
