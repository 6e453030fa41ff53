package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/driver"
	"gpustack/host/journal"
	"gpustack/host/pci"
	"gpustack/host/prepare"
)

func newHostReleaseCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:  "release",
		Usage: "give GPUs back to the host now, until the next boot",
		Description: `
Gives the functions selected, all of their cards and all of their IOMMU groups back to
the drivers that held them before gpustack host bind. Of one that was held for guests
since the machine was started, the driver that the kernel has for it gets it, or
whichever takes it. What holds it then is read back. Recorded: "gpustack undo" holds them
for guests again. Run again it plans nothing.

Selects what --device and --vendor name, else what host prepare has recorded and what
host bind has taken, else every NVIDIA display function. What a guest has is refused.

EXAMPLES
  gpustack host release --dry-run
  gpustack host release --device 0000:84:00.0 --yes

EXIT STATUS
  0  the host has the functions, or had them already
  1  it could not get them, and they are as they were unless the error says otherwise
  2  --dry-run: there is something to do
  130  interrupted: nothing was changed, or all was rolled back unless the error says otherwise`,
		Flags: []cli.Flag{
			rootFlag(),
			outputFlag(formatTable, formatJSON, formatYAML),
			&cli.StringSliceFlag{Name: "device", Usage: "select `DEVICE`: an address, or VENDOR:PRODUCT for all of a product (repeatable)"},
			&cli.StringSliceFlag{Name: "vendor", Usage: "select the display functions made by `VENDOR`, four digits (repeatable)"},
			timeoutFlag(), dryRunFlag(), yesFlag(),
		},
		Action: action(u, parseHostRelease, runHostRelease),
	}
}

func parseHostRelease(c *cli.Context, f *faults) driversOptions {
	f.arguments(c)
	return driversOptions{
		decision: parseDecision(c, f),
		root:     c.String("root"),
		prepare: prepare.Options{
			Add:     values(f, c, "device", pci.ParseSelector),
			Vendors: values(f, c, "vendor", pci.ParseID),
		},
		timeout: parseTimeout(c, f),
		command: "host release" + selected(c, "device", "vendor"),
	}
}

func runHostRelease(ctx context.Context, u *ui, opts driversOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	c, err := u.observe(ctx, root, opts.decision, opts.timeout)
	if err != nil {
		return err
	}
	entries, err := journal.List(root)
	if err != nil {
		return err
	}
	taken, err := driver.Taken(root, entries)
	if err != nil {
		return err
	}
	plan, err := c.node.Release(root, opts.prepare, c.uses, taken)
	if err != nil {
		return err
	}
	return c.show(ctx, opts, plan, "give them back now?")
}
