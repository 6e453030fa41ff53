package main

import (
	"cmp"
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/document"
	"gpustack/nova"
	"gpustack/nova/image"
)

func newImageCheckCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "check whether guests of a flavor can boot an image",
		ArgsUsage: "IMAGE",
		Description: `
Compares an image, by its name or id, with the flavor whose guests will boot it: disk and
RAM, values that Nova rejects or ignores, traits that no compute node reports, hidden
hypervisor, secure boot, and for Windows guests operating system, disk and network. With
inventories of the compute nodes it also checks whether machine type, firmware and
addresses are enough for the memory regions of the flavor's devices. Changes nothing.

The devices of an alias are those whose product has its name, or a name that begins with
it, or the product that --alias gives. Traits are asked of Placement, which needs an
administrator; otherwise they are not checked.

` + cloudHelp + `

EXAMPLES
  gpustack image check debian-12 --flavor gpu.k4200.2
  gpustack image check windows-10 --flavor gpu.k4200.2
  gpustack image check debian-12 --flavor gpu.k4200.2 --inventory machines/ -o json`,
		Flags: append([]cli.Flag{
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			&cli.StringFlag{Name: "flavor", Usage: "`NAME` or id of the flavor of the guests"},
			purposeFlag("check for `GUESTS` gpu or windows (default: by os_type of the image)"),
			inventoryFlag("check against the devices in `FILE`, JSON or YAML of host scan"),
			&cli.StringSliceFlag{Name: "alias", Usage: "with --inventory, the product of `ALIAS`, as NAME=VENDOR:PRODUCT (repeatable)"},
		}, cloudFlags(timeoutOfCloud)...),
		Action: action(u, parseImageCheck, runImageCheck),
	}
}

// purposeFlag returns the flag for what the guests of an image are.
func purposeFlag(usage string) cli.Flag {
	return args.Choice(&cli.StringFlag{Name: "profile", Usage: usage}, []string{"", string(image.ForGPU), string(image.ForWindows)})
}

type imageCheckOptions struct {
	image       image.Options
	inventories document.Source
}

func parseImageCheck(c *cli.Context, f *args.Faults) imageCheckOptions {
	opts := imageCheckOptions{inventories: documentsOf(c, "inventory")}
	o := &opts.image
	o.Image, o.Flavor, o.Purpose = f.Arguments(c, "IMAGE")[0], c.String("flavor"), cmp.Or(image.Purpose(f.Choice(c, "profile")), image.ForGPU)
	if o.Flavor == "" {
		f.Add(args.UsageError("--flavor is missing", host.Textf("'%s' shows the flavors that request devices", host.NewCommand("flavor list"))))
	}
	f.Require(c, "inventory", "alias")
	o.Products = parseProducts(c, f)
	return opts
}

func runImageCheck(ctx context.Context, u *term.UI, o given, opts imageCheckOptions) error {
	hosts, err := nova.ReadInventories(opts.inventories, nova.ScopeGPUs)
	if err != nil {
		return err
	}
	compute, err := connect(ctx, o.cloud)
	if err != nil {
		return err
	}
	seen, err := image.Observe(ctx, compute, opts.image, hosts)
	if err != nil {
		return err
	}
	report := views.NewImageCheck(compute, opts.image.Purpose, seen, image.Check(opts.image.Purpose, seen))
	return showReport(u, o.format, report, func() { views.PrintImageCheck(u, report) }, report.Passed)
}
