package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/host/document"
	"gpustack/nova"
	"gpustack/nova/flavor"
	"gpustack/nova/image"
)

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

type imageSetOptions struct {
	image       image.Options
	inventories document.Source
}

func parseImageSet(c *cli.Context, f *args.Faults) imageSetOptions {
	opts := imageSetOptions{inventories: documentsOf(c, "inventory")}
	o := &opts.image
	o.Image = f.Arguments(c, "IMAGE")[0]
	if o.Purpose = image.Purpose(f.Choice(c, "profile")); o.Purpose == "" && !c.IsSet("profile") {
		f.Add(args.UsageError("--profile is missing", "write --profile gpu or --profile windows"))
	}
	o.MinDisk = f.Size(c, "min-disk", 0, sizeIn(flavor.GiB))
	o.MinRAM = f.Size(c, "min-ram", 0, sizeIn(flavor.MiB))
	o.Properties = map[string]*string{}
	for _, property := range c.StringSlice("property") {
		name, value, err := image.ParseProperty(property)
		if err != nil {
			f.AddEach("--property: ", err, nil)
			continue
		}
		if _, twice := o.Properties[name]; twice {
			f.Add(args.UsageError("--property: "+name+" is given twice", ""))
		}
		o.Properties[name] = value
	}
	return opts
}

func runImageSet(ctx context.Context, u *term.UI, g given, opts imageSetOptions) error {
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
