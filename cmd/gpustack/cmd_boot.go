package main

import (
	"context"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/steps"
)

// newBootCommand returns the hidden command that gpustack-boot.service runs.
func newBootCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:   "boot",
		Usage:  "carry out the recorded steps of every boot",
		Hidden: true,
		Description: `
Carries out what gpustack has recorded for every boot: VFs, their identities and
drivers, and what containers get: device nodes and CDI specs. Each step has a deadline, and
a step that fails fails only the steps that need it. The result is in
/run/gpustack/boot.json. Run again, it completes what is missing and changes nothing else;
VFs that are in use are never destroyed.

With --revert it restores what the steps of this boot have changed and the records no
longer want, and remakes VFs that are recorded otherwise, or refuses if a VF that would go
is in use. Then it makes the nodes and CDI specs of containers as they are recorded.`,
		Flags: []cli.Flag{
			args.RootFlag(),
			&cli.BoolFlag{Name: "revert", Usage: "restore what the records no longer want"},
		},
		Action: action(u, parseBoot, runBoot),
	}
}

type bootOptions struct {
	root   host.Root
	revert bool
}

func parseBoot(c *cli.Context, f *args.Faults) bootOptions {
	return bootOptions{f.Root(c), c.Bool("revert")}
}

func runBoot(ctx context.Context, u *term.UI, _ given, opts bootOptions) error {
	if err := u.Run.Begin(host.Plain("run: systemctl restart " + steps.Unit)); err != nil {
		return err
	}
	if opts.revert {
		return newNode(u, opts.root).Steps().Revert(ctx)
	}
	result, err := newNode(u, opts.root).Steps().Run(ctx)
	views.PrintSteps(u, result)
	return err
}
