package main

import (
	"context"
	"fmt"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/cmd/gpustack/views"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/checklist"
	"gpustack/host/machine"
	"gpustack/operate/node"
)

// checkCommand is a command that runs the checks of one list on a machine.
type checkCommand struct {
	name               string // "host check"; of those with --metrics
	usage, description string
	flags              []cli.Flag // of this command alone
	// check observes the machine, judges it and returns the report.
	check func(context.Context, *term.UI, checkInput) (checkReport, error)
}

// checkInput is what a check is asked to judge.
type checkInput struct {
	root    host.Root
	journal change.Seen                // of the machine
	words   func(flag string) []string // the values of a flag of the command alone
}

// checkReport is the report of a check: a document, of which people get a part.
type checkReport interface {
	Checked() views.Check
}

// checkHelp is part of the description of each check.
const checkHelp = `Prints the verdict with what to do next, then failures and warnings, each with its effect,
with the message that users see, and a remedy. --all prints what every check has found. What
cannot be read, for example in a support archive or by users other than root, is n/a, never pass.`

// newCheckCommand returns the command check of a subject.
func newCheckCommand(u *term.UI, k checkCommand) *cli.Command {
	return &cli.Command{
		Name:        "check",
		Usage:       k.usage,
		Description: k.description,
		Flags:       append(reading(k.flags...), &cli.BoolFlag{Name: "all", Usage: "list every check, in its order; json and yaml always do"}),
		Action: action(u, parseCheck, func(ctx context.Context, u *term.UI, o given, opts checkOptions) error {
			return inspect(ctx, u, k, o, opts)
		}),
	}
}

type checkOptions struct {
	all     bool
	metrics string // "" for none
	words   func(flag string) []string
}

// warnsInterrupted: a check, and status, reads the journal once, and warns of interrupted changes by itself.
func (checkOptions) warnsInterrupted() {}

func parseCheck(c *cli.Context, f *args.Faults) checkOptions {
	return checkOptions{c.Bool("all"), parseMetrics(c, f), c.StringSlice}
}

// inspect checks the machine below the root.
func inspect(ctx context.Context, u *term.UI, k checkCommand, o given, opts checkOptions) error {
	root := o.root
	journal, interrupted := change.Look(ctx, root)
	u.Warn(interrupted...)
	if err := node.Settled(ctx, root, journal); err != nil {
		return err
	}
	if err := machine.Find(root); err != nil {
		return err
	}
	report, err := k.check(ctx, u, checkInput{root, journal, opts.words})
	if err != nil {
		return err
	}
	checked := report.Checked()
	u.Warn(checked.Warnings...)
	u.Document.Show(report)
	if o.format == term.FormatTable {
		views.PrintCheck(u, checked, opts.all)
	}
	if err := writeMetrics(u, opts.metrics, k.name, checked.Metrics); err != nil {
		return err
	}
	switch {
	case host.Failed(checked.Findings):
		return errDifferent
	case checked.Verdict == checklist.Unknown:
		return fmt.Errorf("%s: %w", root.Path("/"), checklist.ErrUnknown)
	}
	return nil
}
