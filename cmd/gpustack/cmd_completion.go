package main

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/offers"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/templates"
)

// shells are the shells with a completion script.
var shells = []string{"bash", "zsh", "fish"}

func newCompletionCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a shell completion script",
		ArgsUsage: strings.Join(shells, "|"),
		Description: `
Prints the completion script of a shell. make install installs all three.

EXAMPLES
  source <(gpustack completion bash)
  gpustack completion fish > ~/.config/fish/completions/gpustack.fish`,
		Action: action(u, parseCompletion, runCompletion),
	}
}

func parseCompletion(c *cli.Context, f *args.Faults) (shell string) {
	shell = f.Arguments(c, "SHELL")[0]
	args.AddIf(f, shell != "" && !slices.Contains(shells, shell), "unknown shell "+strconv.Quote(shell), "there are scripts for "+host.Listed(shells, "and"))
	return shell
}

func runCompletion(_ context.Context, u *term.UI, _ given, shell string) error {
	u.Raw(map[string]string{
		"bash": templates.BashCompletion,
		"zsh":  templates.ZshCompletion,
		"fish": templates.FishCompletion,
	}[shell])
	return nil
}

// newCompleteCommand returns the hidden command that the completion scripts run.
func newCompleteCommand(u *term.UI) *cli.Command {
	return &cli.Command{
		Name:      "complete",
		Usage:     "print completions of a command line",
		ArgsUsage: "-- WORD…",
		Hidden:    true,
		Description: `
Prints a line for each completion of the last WORD: the completion, a tab, and its
description. A line that begins with a tab says that the name of a file ("files") or folder
("dirs") may follow, which the shell completes; after another tab is the part of WORD before
the name. Reads files of the machine below --root, and connects to nothing. What cannot be
read has no completions.`,
		Flags:  []cli.Flag{args.RootFlag()},
		Action: action(u, parseComplete, runComplete),
	}
}

type completeOptions struct {
	app   *cli.App
	root  string // of commands that have no --root
	words []string
}

func parseComplete(c *cli.Context, _ *args.Faults) completeOptions {
	return completeOptions{c.App, c.String("root"), c.Args().Slice()}
}

func runComplete(ctx context.Context, u *term.UI, _ given, opts completeOptions) error {
	if len(opts.words) == 0 {
		return nil
	}
	c := args.NewCompletion(opts.app, opts.words, opts.root)
	offered, paths, before := c.Complete(offers.Values(ctx, c))
	for _, o := range offered {
		u.Printf("%s\t%s\n", term.Printable(o.Word), term.Printable(term.OneLine(o.Text)))
	}
	if paths != "" {
		u.Printf("\t%s\t%s\n", paths, term.Printable(before))
	}
	return nil
}
