package main

import (
	"context"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/templates"
)

// shells are the shells with a completion script.
var shells = []string{"bash", "zsh", "fish"}

func newCompletionCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a shell completion script",
		ArgsUsage: strings.Join(shells, "|"),
		Description: `
Prints the completion script of a shell. make install installs all three.

EXAMPLES
  source <(gpustack completion bash)
  gpustack completion fish > ~/.config/fish/completions/gpustack.fish

EXIT STATUS
  0  the script is printed
  1  there is no script for that shell`,
		Action: action(u, parseCompletion, runCompletion),
	}
}

func parseCompletion(c *cli.Context, f *faults) (shell string) {
	shell = f.arguments(c, "SHELL")[0]
	if shell != "" && !slices.Contains(shells, shell) {
		f.add(&usageError{"unknown shell " + quoted(shell), "there are scripts for " + listed(shells, "and")})
	}
	return shell
}

func runCompletion(_ context.Context, u *ui, shell string) error {
	u.printf("%s", map[string]string{
		"bash": templates.BashCompletion,
		"zsh":  templates.ZshCompletion,
		"fish": templates.FishCompletion,
	}[shell])
	return nil
}

// newCompleteCommand returns the hidden command that the completion scripts run.
func newCompleteCommand(u *ui) *cli.Command {
	return &cli.Command{
		Name:      "complete",
		Usage:     "print completions of a command line",
		ArgsUsage: "-- WORD…",
		Hidden:    true,
		Description: `
Prints a line for each completion of the last WORD: the completion, a tab, and its
description. Prints nothing if a file name or any other word may follow.

EXIT STATUS
  0  always`,
		Action: action(u, parseComplete, runComplete),
	}
}

type completeOptions struct {
	app   *cli.App
	words []string
}

func parseComplete(c *cli.Context, _ *faults) completeOptions {
	return completeOptions{c.App, c.Args().Slice()}
}

func runComplete(_ context.Context, u *ui, opts completeOptions) error {
	if len(opts.words) == 0 {
		return nil
	}
	last := opts.words[len(opts.words)-1]
	for _, offer := range offers(opts.app, opts.words[:len(opts.words)-1], last) {
		if strings.HasPrefix(offer[0], last) {
			u.printf("%s\t%s\n", offer[0], offer[1])
		}
	}
	return nil
}

// offers returns the completions of next after words, each with its description.
func offers(a *cli.App, words []string, next string) (offers [][2]string) {
	line := commandLine{app: a, faults: &faults{}}
	for rest := words; len(rest) > 0; {
		rest = line.take(rest)
	}
	if flag := line.open(); flag != nil {
		if choice, ok := flag.(choiceFlag); ok {
			for _, word := range choice.words {
				offers = append(offers, [2]string{word, ""})
			}
		}
		return offers
	}
	if strings.HasPrefix(next, "-") {
		for _, flag := range line.known() {
			_, usage := describeFlag(flag)
			offers = append(offers, [2]string{"--" + flag.Names()[0], usage})
		}
		return append(offers, [2]string{"--help", "show help"})
	}
	for _, c := range line.subcommands() {
		if !c.Hidden {
			offers = append(offers, [2]string{c.Name, c.Usage})
		}
	}
	if line.command != nil && line.command.Name == "completion" && len(line.arguments) == 0 {
		for _, shell := range shells {
			offers = append(offers, [2]string{shell, ""})
		}
	}
	return offers
}
