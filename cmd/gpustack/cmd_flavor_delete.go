package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
	"gpustack/nova/cloud"
	"gpustack/nova/flavor"
)

func newFlavorDeleteCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "delete",
		Usage:     "delete a flavor whose guests get devices",
		ArgsUsage: "NAME",
		Description: `
Shows the flavor with this name or id, asks, deletes it and records that. "gpustack undo"
creates it again, with the same id. Flavors that instances of any project have, and
flavors that do not request devices, are refused.

` + cloudHelp + `

EXAMPLES
  gpustack flavor delete gpu.k4200.2
  gpustack flavor delete gpu.k4200.2 --os-cloud lab --yes

EXIT STATUS
  0  the flavor is deleted
  1  the flavor could not be deleted
  2  --dry-run: the flavor can be deleted
  130  interrupted: nothing was changed, unless the error says otherwise`,
		Flags:  append([]cli.Flag{args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML), args.DryRunFlag(), args.YesFlag(), args.QuietFlag()}, cloudFlags()...),
		Action: action(u, parseFlavorDelete, runFlavorDelete),
	}
}

type flavorDeleteOptions struct {
	decision
	cloud cloudOptions
	name  string
}

func parseFlavorDelete(c *cli.Context, f *args.Faults) flavorDeleteOptions {
	return flavorDeleteOptions{parseDecision(c, f), parseCloud(c, f), f.Arguments(c, "NAME")[0]}
}

// flavorDeleteReport is the output of flavor delete (docs/json.md).
type flavorDeleteReport struct {
	views.Report
	Cloud   string          `json:"cloud"`
	Changes []cloud.Request `json:"changes"`
	Before  flavor.State    `json:"before"`
}

func runFlavorDelete(ctx context.Context, u *term.UI, opts flavorDeleteOptions) error {
	_, compute, err := connect(ctx, u, opts.cloud)
	if err != nil {
		return err
	}
	engine, err := newObjectEngine(ctx, u, compute, opts.decision)
	if err != nil {
		return err
	}
	all, err := compute.Flavors(ctx)
	if err != nil {
		return err
	}
	f, err := cloud.FindFlavor(all, opts.name)
	if err != nil {
		return err
	}
	before, err := flavor.Complete(ctx, compute, f)
	if err != nil {
		return err
	}
	if !isGPU(before.Flavor) {
		return args.UsageError("flavor "+f.Name+" does not request devices", "delete it with: openstack flavor delete "+f.ID)
	}
	servers, err := compute.Servers(ctx, f.ID)
	if err != nil {
		return err
	}
	if err := flavor.CheckUnused(f, servers); err != nil {
		return err
	}
	deletion := flavor.Kind{Compute: compute}.New(flavor.Move{Before: before})
	report := flavorDeleteReport{Report: newReport(engine.Store.Root, newNode(u, engine.Store.Root).RebootRequired(ctx), true), Cloud: compute.URL,
		Before: *before, Changes: deletion.Requests()}
	showPlan(u, opts.decision, &report, func() {
		u.Printf("deletes flavor %s at %s:\n%s", term.Printable(f.Name), term.Printable(compute.URL), term.Printable(indented(flavor.Text(before))))
		views.PrintRequests(u, report.Changes)
	})
	return decide(u, opts.decision, "delete it?", views.FlavorSummary(deletion.Move), &report, func() error {
		if err := applyWork(ctx, u, engine, opts.format, change.Work{Command: "flavor delete " + f.Name, Change: deletion}, &report); err != nil {
			return err
		}
		if opts.format == term.FormatTable {
			u.Note("deleted flavor %s", term.Printable(f.Name))
		}
		return nil
	})
}
