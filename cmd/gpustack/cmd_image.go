package main

import (
	"cmp"
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/document"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
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
addresses are enough for the memory regions of the flavor's devices. Properties that are
not checked are named. Changes nothing.

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

type imageOptions struct {
	image       image.Options
	inventories document.Source
}

// parseImage reads what both commands have.
func parseImage(c *cli.Context, f *args.Faults) imageOptions {
	o := image.Options{Image: f.Arguments(c, "IMAGE")[0], Purpose: image.Purpose(f.Choice(c, "profile"))}
	return imageOptions{o, documentsOf(c, "inventory")}
}

func parseImageCheck(c *cli.Context, f *args.Faults) imageOptions {
	opts := parseImage(c, f)
	o := &opts.image
	o.Flavor, o.Purpose = c.String("flavor"), cmp.Or(o.Purpose, image.ForGPU)
	args.AddIf(f, o.Flavor == "", "--flavor is missing", host.Textf("'%s' shows the flavors that request devices", host.NewCommand("flavor list")))
	f.Require(c, "inventory", "alias")
	o.Products = parseProducts(c, f)
	return opts
}

func runImageCheck(ctx context.Context, u *term.UI, o given, opts imageOptions) error {
	hosts, err := nova.ReadInventories(opts.inventories, nova.ScopeGPUs)
	if err != nil {
		return err
	}
	compute, err := cloud.ConnectCompute(ctx, o.cloud)
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

func newImageSetCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "set",
		Usage:     "set the image properties that guests with GPUs need",
		ArgsUsage: "IMAGE",
		Description: `
Plans what an image, by its name or id, lacks for guests with GPUs, shows the difference,
asks, changes it with one request, reads it back and records the change. "gpustack undo"
restores the values that were not changed since. Existing servers keep the properties of
the image that it had when they were created, until they are rebuilt.

  gpu      min_disk is at least the size of the image's disk. With an inventory that has a
           GPU with a memory region of 16 GiB or more: machine type q35, UEFI, and the
           addresses of the host's processor (hw_maxphysaddr_mode)
  windows  the same, and os_type=windows, virtio disk and network, and multiqueue

A property that the cloud's release does not read, or that demands a trait that no compute
node reports to Placement, is left out, and the plan says why. --property takes precedence:
a property that it names is planned in any case, with a warning.

` + cloudHelp + `

EXAMPLES
  gpustack image set debian-12 --profile gpu
  gpustack image set debian-12 --profile gpu --min-disk 40 --min-ram 8G --inventory machines/
  gpustack image set windows-10 --profile windows --property img_hide_hypervisor_id= --dry-run
  gpustack image set windows-10 --profile windows --yes -o json`,
		Flags: changingCloud(
			purposeFlag("plan for `GUESTS` gpu or windows"),
			&cli.StringSliceFlag{Name: "property", Usage: "set the property `KEY=VALUE`; KEY= removes it (repeatable)"},
			&cli.StringFlag{Name: "min-disk", Usage: "`SIZE` that the disk of flavors must have, in GiB without a unit (default: that of the image)"},
			&cli.StringFlag{Name: "min-ram", Usage: "`SIZE` that the memory of flavors must have, in MiB without a unit"},
			inventoryFlag("plan for the GPUs in `FILE`, JSON or YAML of host scan"),
		),
		Action: action(u, parseImageSet, runImageSet),
	}
}

func parseImageSet(c *cli.Context, f *args.Faults) imageOptions {
	opts := parseImage(c, f)
	o := &opts.image
	args.AddIf(f, o.Purpose == "" && !c.IsSet("profile"), "--profile is missing", "write --profile gpu or --profile windows")
	o.MinDisk = f.Size(c, "min-disk", 0, sizeIn(flavor.GiB))
	o.MinRAM = f.Size(c, "min-ram", 0, sizeIn(flavor.MiB))
	o.Properties = map[string]*string{}
	for _, property := range c.StringSlice("property") {
		name, value, err := image.ParseProperty(property)
		if err != nil {
			f.AddEach("--property: ", err, nil)
			continue
		}
		_, twice := o.Properties[name]
		args.AddIf(f, twice, "--property: "+name+" is given twice", "")
		o.Properties[name] = value
	}
	return opts
}

func runImageSet(ctx context.Context, u *term.UI, g given, opts imageOptions) error {
	hosts, err := nova.ReadInventories(opts.inventories, nova.ScopeGPUs)
	if err != nil {
		return err
	}
	o, err := openObjects(ctx, u, g)
	if err != nil {
		return err
	}
	seen, err := image.Observe(ctx, o.compute, opts.image, hosts)
	if err != nil {
		return err
	}
	plan, err := image.NewPlan(opts.image, seen)
	if err != nil {
		return err
	}
	report := views.NewImageSet(o.head(ctx, plan.Changed(), plan.Warnings...), o.compute, opts.image.Purpose, plan)
	return o.carryOut(ctx, u, objectPlan{
		work:     change.Work{Command: "image set " + plan.Name, Change: image.Kind(o.compute).New(plan.Move)},
		show:     func() { views.PrintImagePlan(u, report) },
		question: "change the image?", summary: views.ImageSummary(plan.Move),
		done: func() string {
			return fmt.Sprintf("changed image %s, id %s", term.Printable(plan.Name), term.Printable(plan.ID))
		},
	}, &report)
}
