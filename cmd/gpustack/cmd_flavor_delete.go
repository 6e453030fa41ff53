package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host/change"
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
  gpustack flavor delete gpu.k4200.2 --os-cloud lab --yes`,
		Flags:  changingCloud(),
		Action: action(u, parseFlavorDelete, runFlavorDelete),
	}
}

func parseFlavorDelete(c *cli.Context, f *args.Faults) (name string) {
	return f.Arguments(c, "NAME")[0]
}

func runFlavorDelete(ctx context.Context, u *term.UI, g given, nameOrID string) error {
	o, err := openObjects(ctx, u, g)
	if err != nil {
		return err
	}
	move, err := flavor.PlanDeletion(ctx, o.compute, nameOrID)
	if err != nil {
		return err
	}
	plan, name := flavor.Plan{Move: move}, move.Name()
	report := views.NewFlavorPlan(o.head(ctx, true), o.compute, plan, nil)
	return o.carryOut(ctx, u, objectPlan{
		work:     change.Work{Command: "flavor delete " + name, Change: flavor.Kind(o.compute).New(move)},
		show:     func() { views.PrintFlavorPlan(u, report, plan) },
		question: "delete it?", summary: views.FlavorSummary(move),
		done: func() string { return "deleted flavor " + term.Printable(name) },
	}, &report)
}
