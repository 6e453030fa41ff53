package main

import (
	"context"
	"errors"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/nova"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
	"gpustack/nova/image"
)

func newImageCheckCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "check",
		Usage:     "check whether guests of a flavor can boot an image and use their GPUs",
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
  gpustack image check debian-12 --flavor gpu.k4200.2 --inventory machines/ -o json

EXIT STATUS
  0  no check has failed; there may be warnings
  1  the image could not be checked
  2  a check has failed`,
		Flags: append([]cli.Flag{
			args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML),
			&cli.StringFlag{Name: "flavor", Usage: "`NAME` or id of the flavor of the guests"},
			purposeFlag("check for `GUESTS` gpu or windows (default: by os_type of the image)"),
			inventoryFlag("check against the devices in `FILE`, JSON or YAML of host scan"),
			&cli.StringSliceFlag{Name: "alias", Usage: "with --inventory, the product of `ALIAS`, as NAME=VENDOR:PRODUCT (repeatable)"},
		}, cloudFlags()...),
		Action: action(u, parseImageCheck, runImageCheck),
	}
}

// purposeFlag returns the flag for what the guests of an image are.
func purposeFlag(usage string) cli.Flag {
	return args.Choice(&cli.StringFlag{Name: "for", Usage: usage}, []string{"", string(image.ForGPU), string(image.ForWindows)})
}

type imageCheckOptions struct {
	format, image, flavor string
	purpose               image.Purpose
	inventories           []string
	products              map[string]flavor.Product
	cloud                 cloudOptions
}

func parseImageCheck(c *cli.Context, f *args.Faults) imageCheckOptions {
	opts := imageCheckOptions{f.Choice(c, "output"), f.Arguments(c, "IMAGE")[0], c.String("flavor"), image.Purpose(f.Choice(c, "for")), c.StringSlice("inventory"),
		map[string]flavor.Product{}, parseCloud(c, f)}
	if opts.flavor == "" {
		f.Add(args.UsageError("--flavor is missing", f.SeeHelp()))
	}
	if opts.purpose == "" {
		opts.purpose = image.ForGPU
	}
	if c.IsSet("alias") && len(opts.inventories) == 0 {
		f.Add(args.UsageError("--alias requires --inventory", f.SeeHelp()))
	}
	for _, a := range args.Values(f, c, "alias", nova.ParseAlias) {
		opts.products[a.Name] = flavor.Product{Vendor: a.VendorID, Product: a.ProductID}
	}
	return opts
}

// imageCheckReport is the output of image check (docs/json.md).
type imageCheckReport struct {
	Schema       int            `json:"schema"`
	Cloud        string         `json:"cloud"`
	Microversion string         `json:"microversion"` // the newest of the cloud
	Passed       bool           `json:"passed"`
	Image        cloud.Image    `json:"image_state"`
	Flavor       cloud.Flavor   `json:"flavor"`
	For          image.Purpose  `json:"for"`
	Findings     []host.Finding `json:"findings"`
}

func runImageCheck(ctx context.Context, u *term.UI, opts imageCheckOptions) error {
	hosts, err := nova.ReadInventories(documentsAt(u, opts.inventories...), nova.ScopeGPUs)
	if err != nil {
		return err
	}
	c, compute, err := connect(ctx, u, opts.cloud)
	if err != nil {
		return err
	}
	all, err := compute.Flavors(ctx)
	if err != nil {
		return err
	}
	found, imageErr := c.Image(ctx, opts.image)
	f, err := cloud.FindFlavor(all, opts.flavor)
	if err = errors.Join(imageErr, err); err != nil {
		return err
	}
	if f.ExtraSpecs, err = compute.ExtraSpecs(ctx, f); err != nil {
		return err
	}
	seen := image.Seen{Image: found, Newest: compute.Newest, Hosts: hosts, Flavor: &f, Products: opts.products}
	if seen.Traits, err = askTraits(ctx, c, seen.Demands(image.Options{Purpose: opts.purpose})); err != nil {
		return err
	}
	report := imageCheckReport{1, compute.URL, compute.Newest.String(), true, found, f, opts.purpose, image.Check(opts.purpose, seen)}
	report.Passed = !host.Failed(report.Findings)
	u.Document.Show(report)
	if opts.format == term.FormatTable {
		u.Printf("image %s for flavor %s at %s\n\n", term.Printable(found.Name), term.Printable(f.Name), term.Printable(compute.URL))
		views.PrintFindings(u, report.Findings)
	}
	if !report.Passed {
		return errDifferent
	}
	return nil
}

// askTraits asks Placement for the compute nodes that have each trait. That Placement refuses or is
// not there is part of the answer: only administrators may ask it.
func askTraits(ctx context.Context, c *cloud.Cloud, traits []string) (image.Traits, error) {
	asked := image.Traits{Nodes: map[string][]string{}}
	if len(traits) == 0 {
		return asked, nil
	}
	placement, err := c.Placement()
	for _, trait := range traits {
		if err != nil {
			break
		}
		asked.Nodes[trait], err = placement.WithTrait(ctx, trait)
	}
	if ctx.Err() != nil {
		return asked, err
	}
	asked.Err = err
	return asked, nil
}
