package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/host"
	"gpustack/host/pci"
	"gpustack/host/prepare"
)

func newHostBindCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:  "bind",
		Usage: "give GPUs to guests now, without a reboot, until the next boot",
		Description: `
Has vfio-pci hold the functions selected, all of their cards and all of their IOMMU
groups: sets driver_override, unbinds what holds a function, has it probed, and reads
back what holds it then. In the end it opens each group, as a guest would. Should a step
fail, those before it are rolled back. Recorded: "gpustack undo" and "gpustack host
release" give back what held the functions before. Run again it plans nothing.

Selects what --device and --vendor name, else what host prepare has recorded, else every
NVIDIA display function. What the host itself needs is refused: its disks, its way to the
network and to this ssh session, its console. --allow lifts one refusal, except that of
the root file system's disk. What processes or guests have open is refused, and so are
functions with virtual functions enabled.

Drivers of display functions, nvidia and nouveau above all, may never return from letting
one go. They are not asked to unless --live is given: host prepare and a reboot need not
ask. A write that the kernel does not return from within --timeout is left to itself, and
only a reboot helps.

EXAMPLES
  gpustack host bind --dry-run
  gpustack host bind --device 0000:84:00.0 --live
  gpustack host bind --driver pci-stub --yes

EXIT STATUS
  0  the functions are held for guests, or were already
  1  they could not be, and are as they were unless the error says otherwise
  2  --dry-run: there is something to do
  130  interrupted: nothing was changed, or all was rolled back unless the error says otherwise`,
		Flags: []cli.Flag{
			rootFlag(),
			outputFlag(formatTable, formatJSON, formatYAML),
			&cli.StringSliceFlag{Name: "device", Usage: "select `DEVICE`: an address, or VENDOR:PRODUCT for all of a product (repeatable)"},
			&cli.StringSliceFlag{Name: "vendor", Usage: "select the display functions made by `VENDOR`, four digits (repeatable)"},
			&cli.StringSliceFlag{Name: "allow", Usage: "lift the refusal of the function at `ADDRESS` (repeatable)"},
			choiceFlag{&cli.StringFlag{Name: "driver", Usage: "hold functions with `DRIVER`: vfio-pci or pci-stub (unless recorded, vfio-pci)"}, []string{"", prepare.VFIO, prepare.Stub}},
			&cli.BoolFlag{Name: "live", Usage: "unbind drivers too that may never return from it"},
			timeoutFlag(), dryRunFlag(), yesFlag(),
		},
		Action: action(u, parseHostBind, runHostBind),
	}
}

func parseHostBind(c *cli.Context, f *faults) driversOptions {
	opts := parseHostRelease(c, f)
	opts.prepare.Allow = values(f, c, "allow", pci.ParseAddress)
	opts.prepare.Driver = f.choice(c, "driver")
	opts.live = c.Bool("live")
	opts.command = "host bind" + selected(c, "device", "vendor", "allow")
	if d := opts.prepare.Driver; d != "" {
		opts.command += " --driver " + d
	}
	if opts.live {
		opts.command += " --live"
	}
	return opts
}

// selected is how functions were selected on the command line, by those flags.
func selected(c *cli.Context, flags ...string) (words string) {
	for _, name := range flags {
		for _, value := range c.StringSlice(name) {
			words += " --" + name + " " + value
		}
	}
	return words
}

func runHostBind(ctx context.Context, u *ui, opts driversOptions) error {
	root, err := host.NewRoot(opts.root)
	if err != nil {
		return err
	}
	c, err := u.observe(ctx, root, opts.decision, opts.timeout)
	if err != nil {
		return err
	}
	plan, err := c.node.Bind(root, opts.prepare, c.uses, opts.live)
	if err != nil {
		return err
	}
	return c.show(ctx, opts, plan, "bind them now?")
}
