package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/nova/drain"
)

func newFleetStatusCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:  "status",
		Usage: "list the compute services that gpustack has disabled, since when and at which step",
		Description: `
Reads the compute services of the cloud and lists those that "gpustack nova drain" has
disabled, on this machine or another, with the earliest first. It goes by the reasons that
Nova keeps, and changes nothing. Before Nova Stein, services of a cell that does not answer
are missing from the list.

` + cloudHelp + `

EXAMPLES
  gpustack fleet status
  gpustack fleet status --os-cloud lab -o json

EXIT STATUS
  0  the services are listed, and there may be none
  1  error: the services cannot be read`,
		Flags:  append([]cli.Flag{args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML)}, cloudFlags()...),
		Action: action(u, parseFleetStatus, runFleetStatus),
	}
}

type fleetStatusOptions struct {
	format string
	cloud  cloudOptions
}

func parseFleetStatus(c *cli.Context, f *args.Faults) fleetStatusOptions {
	f.Arguments(c)
	return fleetStatusOptions{f.Choice(c, "output"), parseCloud(c, f)}
}

func runFleetStatus(ctx context.Context, u *term.UI, opts fleetStatusOptions) error {
	compute, err := connect(ctx, u, opts.cloud)
	if err != nil {
		return err
	}
	services, err := compute.ComputeServices(ctx)
	if err != nil {
		return err
	}
	report := views.NewFleetStatus(compute, drain.NewStatus(services))
	return showReport(u, opts.format, report, func() { report.Print(u) }, true)
}
