package main

import (
	"context"
	"fmt"
	"strings"

	udiff "github.com/aymanbagabas/go-udiff"
	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
	"gpustack/nova/image"
)

func newImageSetCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "set",
		Usage:     "set the properties of an image that guests with GPUs need",
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
  gpustack image set debian-12 --for gpu
  gpustack image set debian-12 --for gpu --min-disk 40 --min-ram 8G --inventory machines/
  gpustack image set windows-10 --for windows --property img_hide_hypervisor_id= --dry-run
  gpustack image set windows-10 --for windows --yes -o json

EXIT STATUS
  0  the image is as planned, or was before
  1  the change failed; nothing was changed, unless the error says otherwise
  2  --dry-run: there are pending changes
  130  interrupted: nothing was changed, unless the error says otherwise`,
		Flags: append([]cli.Flag{
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			purposeFlag("plan for `GUESTS` gpu or windows"),
			&cli.StringSliceFlag{Name: "property", Usage: "set the property `KEY=VALUE`; KEY= removes it (repeatable)"},
			&cli.StringFlag{Name: "min-disk", Usage: "`SIZE` that the disk of flavors must have, in GiB without a unit (default: that of the image)"},
			&cli.StringFlag{Name: "min-ram", Usage: "`SIZE` that the memory of flavors must have, in MiB without a unit"},
			inventoryFlag("plan for the GPUs in `FILE`, JSON or YAML of host scan"),
			args.DryRunFlag(), args.YesFlag(), args.QuietFlag(),
		}, cloudFlags()...),
		Action: action(u, parseImageSet, runImageSet),
	}
}

type imageSetOptions struct {
	decision
	cloud       cloudOptions
	name        string
	image       image.Options
	inventories []string
}

func parseImageSet(c *cli.Context, f *args.Faults) imageSetOptions {
	opts := imageSetOptions{decision: parseDecision(c, f), cloud: parseCloud(c, f), name: f.Arguments(c, "IMAGE")[0], inventories: c.StringSlice("inventory")}
	o := &opts.image
	if o.Purpose = image.Purpose(f.Choice(c, "for")); o.Purpose == "" && !c.IsSet("for") {
		f.Add(args.UsageError("--for is missing", "write --for gpu or --for windows"))
	}
	in := func(unit flavor.Unit) func(string) (int, error) {
		return func(s string) (int, error) { return flavor.ParseSize(s, unit) }
	}
	o.MinDisk = size(c, f, "min-disk", 0, in(flavor.GiB))
	o.MinRAM = size(c, f, "min-ram", 0, in(flavor.MiB))
	o.Properties = map[string]*string{}
	for _, property := range c.StringSlice("property") {
		name, value, err := image.ParseProperty(property)
		if err != nil {
			addEach(f, "--property: ", err, "")
			continue
		}
		if _, twice := o.Properties[name]; twice {
			f.Add(args.UsageError("--property: "+name+" is given twice", ""))
		}
		o.Properties[name] = value
	}
	return opts
}

// imageSetReport is the output of image set (docs/json.md).
type imageSetReport struct {
	views.Report
	Cloud        string          `json:"cloud"`
	Microversion string          `json:"microversion"` // the newest of the cloud
	For          image.Purpose   `json:"for"`
	Changes      []cloud.Request `json:"changes"`
	Values       []plannedValue  `json:"values"`
	LeftOut      []image.LeftOut `json:"left_out"`
	Before       cloud.Image     `json:"before"`
	After        cloud.Image     `json:"after"`
}

// plannedValue is a change of one value of an image.
type plannedValue struct {
	image.Value
	Reason *string `json:"reason"` // null: the operator has given it
}

func runImageSet(ctx context.Context, u *term.UI, opts imageSetOptions) error {
	hosts, err := nova.ReadInventories(documentsAt(u, opts.inventories...), nova.ScopeGPUs)
	if err != nil {
		return err
	}
	c, compute, err := connect(ctx, u, opts.cloud)
	if err != nil {
		return err
	}
	engine, err := newObjectEngine(ctx, u, compute, opts.decision)
	if err != nil {
		return err
	}
	found, err := c.Image(ctx, opts.name)
	if err != nil {
		return err
	}
	seen := image.Seen{Image: found, Newest: compute.Newest, Hosts: hosts}
	if seen.Traits, err = askTraits(ctx, c, seen.Demands(opts.image)); err != nil {
		return err
	}
	plan, err := image.NewPlan(opts.image, seen)
	if err != nil {
		return err
	}
	report := imageSetReport{
		Report: newReport(engine.Store.Root, newNode(u, engine.Store.Root).RebootRequired(ctx), plan.Changed(), plan.Warnings...),
		Cloud:  compute.URL, Microversion: compute.Newest.String(), For: opts.image.Purpose,
		Changes: append([]cloud.Request{}, plan.Requests()...), Values: []plannedValue{}, LeftOut: plan.LeftOut, Before: plan.Image, After: plan.After,
	}
	for _, v := range plan.Values {
		planned := plannedValue{Value: v}
		if why, ours := plan.Why[v.Name]; ours {
			planned.Reason = &why
		}
		report.Values = append(report.Values, planned)
	}
	showPlan(u, opts.decision, &report, func() { printImagePlan(u, report) }, report.Warnings...)
	return decide(u, opts.decision, "change the image?", views.ImageSummary(plan.Move), &report, func() error {
		made := image.Kind{Compute: compute}.New(plan.Move)
		if err := applyWork(ctx, u, engine, opts.format, change.Work{Command: "image set " + found.Name, Change: made}, &report); err != nil {
			return err
		}
		if opts.format == term.FormatTable {
			u.Note("changed image %s, id %s", term.Printable(found.Name), term.Printable(found.ID))
		}
		return nil
	})
}

// printImagePlan prints the plan as text.
func printImagePlan(u *term.UI, r imageSetReport) {
	notes := []string{r.Before.Visibility, "of project " + r.Before.Owner}
	if r.Before.Protected {
		notes = append(notes, "protected from deletion")
	}
	if r.Before.Hidden {
		notes = append(notes, "hidden")
	}
	u.Printf("image %s at %s (%s)\n", term.Printable(r.Before.Name), term.Printable(r.Cloud), term.Printable(strings.Join(notes, ", ")))
	if r.Changed {
		name := "image " + r.Before.Name
		u.Diff(udiff.Unified(name, name, image.Text(r.Before), image.Text(r.After)))
	} else {
		u.Printf("%s\nnothing to do: the image is as planned\n", term.Printable(indented(image.Text(r.Before))))
	}
	var reasons, left strings.Builder
	for _, v := range r.Values {
		if v.Reason != nil {
			fmt.Fprintf(&reasons, "  %s: %s\n", v.Name, *v.Reason)
		}
	}
	for _, l := range r.LeftOut {
		fmt.Fprintf(&left, "  %s=%s: %s\n", l.Name, l.Value, l.Reason)
	}
	for _, list := range []struct{ title, text string }{{"reasons", reasons.String()}, {"left out", left.String()}} {
		if list.text != "" {
			u.Printf("\n%s:\n%s", list.title, term.Printable(list.text))
		}
	}
	if r.Changed {
		views.PrintRequests(u, r.Changes)
	}
}
