package main

import (
	"context"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/term"
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
		f.add(&usageError{"unknown shell " + strconv.Quote(shell), "there are scripts for " + term.Listed(shells, "and")})
	}
	return shell
}

func runCompletion(_ context.Context, u *term.UI, shell string) error {
	u.Printf("%s", map[string]string{
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
read has no completions.

EXIT STATUS
  0  always`,
		Flags:  []cli.Flag{rootFlag()},
		Action: action(u, parseComplete, runComplete),
	}
}

type completeOptions struct {
	app   *cli.App
	root  string // of commands that have no --root
	words []string
}

func parseComplete(c *cli.Context, _ *faults) completeOptions {
	return completeOptions{c.App, c.String("root"), c.Args().Slice()}
}

func runComplete(ctx context.Context, u *term.UI, opts completeOptions) error {
	if len(opts.words) == 0 {
		return nil
	}
	last := len(opts.words) - 1
	offers, paths, before := complete(ctx, u, opts, opts.words[:last], opts.words[last])
	for _, o := range offers {
		u.Printf("%s\t%s\n", term.Printable(o.word), term.Printable(term.OneLine(o.text)))
	}
	if paths != noPaths {
		u.Printf("\t%s\t%s\n", paths, term.Printable(before))
	}
	return nil
}

// offer is a completion: a word with its description.
type offer struct{ word, text string }

// complete returns the completions of next after words, and whether the shell completes paths,
// after which part of next.
func complete(ctx context.Context, u *term.UI, opts completeOptions, words []string, next string) (offers []offer, paths pathsOf, before string) {
	line := commandLine{app: opts.app, faults: &faults{}}
	for rest := words; len(rest) > 0; {
		rest = line.take(rest)
	}
	v := completer{ctx: ctx, u: u, line: &line, next: next, machine: opts.root}
	flag, assigned := line.open(), ""
	if name, value, hasValue := cutFlag(next); flag == nil && hasValue && strings.HasPrefix(next, "-") {
		if flag = line.ownFlag(name); flag == nil || !takesValue(flag) {
			return nil, noPaths, ""
		}
		assigned, v.next = strings.TrimSuffix(next, value), value
	}
	switch {
	case flag != nil:
		offers, paths = v.ofFlag(flag)
	case strings.HasPrefix(next, "-"):
		offers = line.flagOffers()
	case len(line.faults.all) > 0: // the command is unknown
	case len(line.subcommands()) > 0:
		offers = commandOffers(line.subcommands())
	default:
		offers, paths = v.ofArgument()
	}
	offers = slices.DeleteFunc(offers, func(o offer) bool { return o.word == "" || !strings.HasPrefix(o.word, v.next) })
	for i := range offers {
		offers[i].word = assigned + offers[i].word
	}
	before = assigned
	if flag != nil && isRoleFiles(flag) {
		before += v.next[:strings.LastIndexAny(v.next, "=,")+1]
	}
	return offers, paths, before
}

// commandOffers returns the commands of a group.
func commandOffers(tree []*cli.Command) (offers []offer) {
	for _, c := range tree {
		if !c.Hidden {
			offers = append(offers, offer{c.Name, c.Usage})
		}
	}
	return offers
}

// flagOffers returns the flags that may follow: all of the command, without those that are given
// already and can be given only once.
func (l *commandLine) flagOffers() (offers []offer) {
	given := map[string]bool{}
	for _, words := range l.flags {
		name, _, _ := cutFlag(words[0])
		if flag := l.ownFlag(name); flag != nil {
			given[flag.Names()[0]] = true
		}
	}
	for _, flag := range l.known() {
		if documented, ok := flag.(cli.DocGenerationSliceFlag); given[flag.Names()[0]] && (!ok || !documented.IsSliceFlag()) {
			continue
		}
		_, usage := describeFlag(flag)
		offers = append(offers, offer{"--" + flag.Names()[0], usage})
	}
	return append(offers, offer{"--help", "show help"})
}

// ownFlag returns a flag of the command, or else the flag of that name of another one: flags may
// stand before the command.
func (l *commandLine) ownFlag(name string) cli.Flag {
	if flag := findFlag(l.known(), name); flag != nil {
		return flag
	}
	return l.anyFlag(name)
}
