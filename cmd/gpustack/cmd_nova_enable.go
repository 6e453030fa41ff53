package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/nova/drain"
)

func newNovaEnableCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "enable",
		Usage:     "enable a compute service that nova drain has disabled",
		ArgsUsage: "HOST",
		Description: `
Shows the compute service of HOST, asks, enables it, reads it back and records the change.
"gpustack undo" disables it again, with the same reason. A service that was disabled by
other means is refused: its reason does not begin with "gpustack TIME ID: ". It does not
matter which machine has disabled it.

` + cloudHelp + `

EXAMPLES
  gpustack nova enable gpu7 --os-cloud lab --yes`,
		Flags:  changingCloud(),
		Action: action(u, parseNovaEnable, runNovaEnable),
	}
}

func parseNovaEnable(c *cli.Context, f *args.Faults) (novaHost string) {
	return f.Arguments(c, "HOST")[0]
}

func runNovaEnable(ctx context.Context, u *term.UI, g given, novaHost string) error {
	o, err := openObjects(ctx, u, g)
	if err != nil {
		return err
	}
	service, err := drain.Find(ctx, o.compute, novaHost)
	if err != nil {
		return err
	}
	move, err := drain.NewEnabling(service)
	if err != nil {
		return err
	}
	report := views.NewNovaDrain(o.head(ctx, move.Changed()), o.compute, service, move)
	showPlan(u, g, &report, func() { report.PrintPlan(u, nil) }, report.Warnings...)
	return decide(u, g, "enable it?", views.ServiceSummary(move), &report, func() error {
		return setService(ctx, u, o, "nova enable "+service.Host, move, &report)
	})
}
