package main

import (
	"context"
	"errors"
	"iter"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/term"
	"gpustack/host"
)

// app is the command-line application for one command line.
type app struct {
	*cli.App
	line *commandLine
	ui   *term.UI
}

// newApp returns the application with the complete list of commands.
func newApp(u *term.UI, args []string) app {
	a := &cli.App{
		Name:    "gpustack",
		Usage:   "configure GPU passthrough for OpenStack Nova on bare-metal hosts",
		Version: programVersion(),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "version", Usage: "print the version"},
		},
		Commands: []*cli.Command{
			{
				Name:     "host",
				Usage:    "the machine the GPUs are in",
				Category: "On each compute node",
				Subcommands: []*cli.Command{
					newHostScanCommand(u),
					newHostPrepareCommand(u),
					newHostCheckCommand(u),
					newHostBindCommand(u),
					newHostReleaseCommand(u),
					newHostGuestsCommand(u),
					newHostSnapshotCommand(u),
					newHostUnpackCommand(u),
				},
			},
			{
				Name:     "rdma",
				Usage:    "InfiniBand and RDMA adapters",
				Category: "On each compute node",
				Subcommands: []*cli.Command{
					newRDMAScanCommand(u),
					newRDMACheckCommand(u),
					newRDMAPrepareCommand(u),
					newRDMATestCommand(u),
				},
			},
			{
				Name:     "container",
				Usage:    "GPUs and RDMA adapters for containers",
				Category: "On each compute node",
				Subcommands: []*cli.Command{
					newContainerCheckCommand(u),
					newContainerPrepareCommand(u),
				},
			},
			{
				Name:        "nova",
				Usage:       "OpenStack Nova's services",
				Category:    "On controllers and compute nodes",
				Subcommands: []*cli.Command{newNovaConfigureCommand(u), newNovaCheckCommand(u), newNovaExplainCommand(u)},
			},
			{
				Name:        "flavor",
				Usage:       "flavors whose guests get devices",
				Category:    "Flavors",
				Subcommands: []*cli.Command{newFlavorCreateCommand(u), newFlavorListCommand(u), newFlavorDeleteCommand(u), newFlavorTestCommand(u)},
			},
			{
				Name:        "image",
				Usage:       "images that guests with GPUs boot from",
				Category:    "Images",
				Subcommands: []*cli.Command{newImageCheckCommand(u), newImageSetCommand(u)},
			},
			in("Repair of Nova's database", newRepairMigrationCommand(u)),
			in(groupRecord, newHistoryCommand(u)),
			in(groupRecord, newUndoCommand(u)),
			in(groupShell, newCompletionCommand(u)),
			in(groupShell, newManCommand(u)),
			newCompleteCommand(u),
			newWriteAttributeCommand(u),
			newNetlinkRequestCommand(u),
			newClaimDiskCommand(u),
			newBootCommand(u),
		},
		Action: action(u, parseRoot, runRoot),
	}
	line := parseLine(a, args)
	u.Document.Format = line.format
	u.Complete = func(text string) string { return atRoot(text, line.root) }
	tame(a, line.faults)
	return app{a, line, u}
}

// Groups of commands in the help and in the manual. Commands are listed in the order of an
// operator's tasks.
const (
	groupRecord = "Record of changes"
	groupShell  = "Shell and manual"
)

// in returns a command that is listed in a group.
func in(group string, c *cli.Command) *cli.Command {
	c.Category = group
	return c
}

func (a app) run(ctx context.Context) error {
	if a.line.help && !a.line.unknown {
		a.ui.Help(a.line.helpText())
		return nil
	}
	return a.RunContext(ctx, a.line.arranged())
}

// tame disables urfave/cli v2 defaults in every command: printing the whole help after a wrong
// flag, treating a wrong command as an argument of the help command, exiting by itself, and
// splitting values at commas. A fifth, treating flags after an argument as arguments, is handled
// by parseLine.
func tame(a *cli.App, f *faults) {
	onUsageError := func(_ *cli.Context, err error, _ bool) error {
		problem := strings.TrimSuffix(strings.Replace(err.Error(), " for -", " for --", 1), ": parse error")
		f.add(&usageError{problem, f.seeHelp()})
		return f.err()
	}
	a.Metadata = map[string]any{faultsKey: f}
	a.OnUsageError = onUsageError
	a.ExitErrHandler = func(*cli.Context, error) {}
	a.HideHelp = true    // help.go prints it
	a.HideVersion = true // its flag would also be -v
	a.DisableSliceFlagSeparator = true
	for path, command := range commands(a.Commands) {
		command.OnUsageError = onUsageError
		command.HideHelp = true
		if len(command.Subcommands) > 0 {
			command.Action = func(*cli.Context) error {
				if len(f.all) == 0 {
					f.add(&usageError{path + ": which command?", "the commands are " + term.Listed(names(command.Subcommands), "and")})
				}
				return f.err()
			}
		}
	}
}

// commands iterates over a tree of commands, each with its path ("host scan").
func commands(tree []*cli.Command) iter.Seq2[string, *cli.Command] {
	return func(yield func(string, *cli.Command) bool) {
		for _, c := range tree {
			if !yield(c.Name, c) {
				return
			}
			for path, sub := range commands(c.Subcommands) {
				if !yield(c.Name+" "+path, sub) {
					return
				}
			}
		}
	}
}

// visibleCommands iterates over the commands of a tree that users run, each with its path, without
// groups and hidden ones.
func visibleCommands(tree []*cli.Command) iter.Seq2[string, *cli.Command] {
	return func(yield func(string, *cli.Command) bool) {
		for path, c := range commands(tree) {
			if !c.Hidden && len(c.Subcommands) == 0 && !yield(path, c) {
				return
			}
		}
	}
}

func names(tree []*cli.Command) (names []string) {
	for _, c := range tree {
		if !c.Hidden {
			names = append(names, c.Name)
		}
	}
	return names
}

// action combines the two halves of a command. parse reads the options from the command line and
// collects all its errors; run is called only if there are none.
func action[T any](u *term.UI, parse func(*cli.Context, *faults) T, run func(context.Context, *term.UI, T) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		f := c.App.Metadata[faultsKey].(*faults)
		f.paths(c)
		opts := parse(c, f)
		if err := f.err(); err != nil {
			return err
		}
		if !c.Command.Hidden {
			warnInterrupted(c.Context, u, c.String("root"))
		}
		if o, ok := any(opts).(interface{ isQuiet() bool }); ok {
			u.Quiet = o.isQuiet()
		}
		if _, ok := any(opts).(interface{ mayChange() }); ok {
			u.Run.MayChange()
		}
		return run(c.Context, u, opts)
	}
}

const faultsKey = "faults"

// faults collects the errors of a command line.
type faults struct {
	command string // as the user called it
	all     []error
}

func (f *faults) add(err error) {
	if err != nil {
		f.all = append(f.all, err)
	}
}

func (f *faults) err() error {
	return errors.Join(f.all...)
}

func (f *faults) seeHelp() string {
	return "see " + f.command + " --help"
}

// arguments returns the positional arguments, of which there must be as many as names.
func (f *faults) arguments(c *cli.Context, names ...string) []string {
	given := c.Args().Slice()
	for i, arg := range given {
		if i >= len(names) {
			f.add(&usageError{"unexpected argument " + strconv.Quote(arg), f.seeHelp()})
		}
	}
	for _, name := range names[min(len(given), len(names)):] {
		f.add(&usageError{name + " is missing", f.seeHelp()})
	}
	return append(given, make([]string, len(names))...)
}

// exclude adds an error for each flag that is given together with one that excludes it.
func (f *faults) exclude(c *cli.Context, flag string, others ...string) {
	for _, other := range others {
		if c.IsSet(flag) && c.IsSet(other) {
			f.add(&usageError{"--" + flag + " and --" + other + " cannot be combined", f.seeHelp()})
		}
	}
}

// choice returns the value of a choiceFlag.
func (f *faults) choice(c *cli.Context, name string) string {
	value := c.String(name)
	flag := findFlag(c.Command.Flags, name).(choiceFlag)
	if !slices.Contains(flag.words, value) {
		words := slices.DeleteFunc(slices.Clone(flag.words), func(w string) bool { return w == "" })
		f.add(&usageError{"--" + name + ": unknown value " + strconv.Quote(value), "--" + name + " takes " + term.Listed(words, "or")})
	}
	return value
}

// values parses each value of a repeatable flag.
func values[T any](f *faults, c *cli.Context, flag string, parse func(string) (T, error)) []T {
	var list []T
	for _, s := range c.StringSlice(flag) {
		v, err := parse(s)
		if err != nil {
			for _, fault := range host.Split(err) {
				f.add(&usageError{"--" + flag + ": " + fault.Error(), ""})
			}
			continue
		}
		list = append(list, v)
	}
	return list
}

// usageError is an error in the command line, with a hint.
type usageError struct {
	problem, hint string
}

// Error returns the problem, which may repeat a word of the command line, without the credentials
// of a URL.
func (e *usageError) Error() string {
	return host.WithoutCredentials(e.problem)
}

// Hint returns the hint, or "".
func (e *usageError) Hint() string {
	return e.hint
}

type rootOptions struct {
	version bool
	app     *cli.App
}

func parseRoot(c *cli.Context, f *faults) rootOptions {
	f.arguments(c)
	return rootOptions{c.Bool("version"), c.App}
}

// runRoot runs gpustack without a command.
func runRoot(_ context.Context, u *term.UI, opts rootOptions) error {
	if opts.version {
		u.Printf("gpustack %s\n", programVersion())
		return nil
	}
	u.Help(appHelp(opts.app))
	return nil
}
