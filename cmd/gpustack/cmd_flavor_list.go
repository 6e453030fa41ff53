package main

import (
	"context"
	"slices"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	clouds "gpustack/operate/cloud"
)

func newFlavorListCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "list",
		Usage: "list the flavors whose guests get devices",
		Description: `
Lists the flavors that request devices and that the user may see; an administrator also
sees private flavors and the projects that may use them. With --conf or --inventory it
shows which hosts can provide the devices of each flavor when all devices are free.
Without --conf an alias stands for the product that host scan gives that name. Changes
nothing.

` + cloudHelp + `

EXAMPLES
  gpustack flavor list
  gpustack flavor list --conf controller=/etc/nova/nova.conf --inventory gpu1.json
  gpustack flavor list --os-cloud lab -o json`,
		Flags: append(reading(
			confsFlag("check against", ""),
			releaseFlag(),
			inventoryFlag("check against the hardware in `FILE`, JSON or YAML of host scan"),
		), cloudFlags(timeoutOfCloud)...),
		Action: action(u, parseFlavorList, runFlavorList),
	}
}

func parseFlavorList(c *cli.Context, f *args.Faults) clouds.OfferOptions {
	return clouds.OfferOptions{Confs: parseConfs(c, f, ""), Release: parseRelease(c, f), Inventories: documentsOf(c, "inventory")}
}

func runFlavorList(ctx context.Context, u *term.UI, o given, opts clouds.OfferOptions) error {
	offers, err := clouds.ReadOffers(o.root, opts)
	if err != nil {
		return err
	}
	compute, err := connect(ctx, o.cloud)
	if err != nil {
		return err
	}
	flavors, warnings, err := clouds.ListFlavors(ctx, compute, offers)
	if err != nil {
		return err
	}
	report := views.FlavorList{Schema: 1, Cloud: compute.URL, Flavors: flavors, Warnings: slices.Concat(offers.Warnings, warnings)}
	if o.format != term.FormatTable {
		u.Document.Show(report)
		return nil
	}
	views.PrintFlavors(u, report, len(offers.Sides)+len(offers.Hosts) > 0)
	return nil
}
