package main

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host"
	"gpustack/host/change"
	"gpustack/host/snapshot"
)

// app is the command-line application for one command line.
type app struct {
	*cli.App
	line *args.Line
	ui   *term.UI
}

// newApp returns the application with all commands.
func newApp(u *term.UI, words []string) app {
	a := &cli.App{
		Name:    "gpustack",
		Usage:   "configure GPU passthrough for OpenStack Nova on bare-metal hosts",
		Version: programVersion(),
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "version", Usage: "print the version"},
		},
		Commands: newCommands(u),
		Action:   action(u, parseRoot, runRoot),
	}
	line := args.Parse(a, words)
	u.Document.Format, u.Document.Kind, u.Words = line.Format, strings.Join(line.Path, " "), line.WithoutSecrets()
	below := func(c host.Command) host.Command {
		c = args.Below(c, line.Root)
		if line.Release != "" && !c.IsElsewhere() && !c.HasFlag("release") && takes(a.Commands, c, "release") {
			c = c.Flag("release", line.Release) // which the machine may not show
		}
		if line.Tree != "" && c.HasFlag("root") && !c.HasFlag("dry-run") && !c.HasFlag("render") && takes(a.Commands, c, "dry-run") {
			c = c.Flag("dry-run") // a snapshot is only read
		}
		return c
	}
	u.Document.Head = func(kind string) any { return newHead(cmp.Or(line.Tree, line.Root), kind) }
	u.Complete = func(text string) string { return args.AtRoot(text, line.Root) }
	u.Document.Command = below
	return app{a, line, u}
}

// takes reports whether a command has a flag.
func takes(commands []*cli.Command, c host.Command, flag string) bool {
	for path, found := range args.Commands(commands) {
		if path == c.Name() {
			return args.FindFlag(found.Flags, flag) != nil
		}
	}
	return false
}

// newCommands returns the complete list of commands.
func newCommands(u *term.UI) []*cli.Command {
	return append([]*cli.Command{
		in("On each compute node", newStatusCommand(u)),
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
				newContainerTestCommand(u),
			},
		},
		{
			Name:     "nova",
			Usage:    "OpenStack Nova's services",
			Category: "On controllers and compute nodes",
			Subcommands: []*cli.Command{newNovaConfigureCommand(u), newNovaCheckCommand(u), newNovaExplainCommand(u), newNovaDevicesCommand(u),
				newNovaDrainCommand(u), newNovaEnableCommand(u)},
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
		{
			Name:        "fleet",
			Usage:       "documents of many compute nodes",
			Category:    "Many nodes",
			Subcommands: []*cli.Command{newFleetShowCommand(u), newFleetDiffCommand(u), newFleetPlanCommand(u)},
		},
		in("Repair of Nova's database", newRepairMigrationCommand(u)),
		in(groupRecord, newHistoryCommand(u)),
		in(groupRecord, newUndoCommand(u)),
		in(groupShell, newCompletionCommand(u)),
		in(groupShell, &cli.Command{Name: "help", Usage: "print the whole page of a command", ArgsUsage: "[COMMAND]"}), // args.Parse answers it
		newCompleteCommand(u),
		newBootCommand(u),
	}, newHelperCommands(u)...)
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
	if a.line.Help && !a.line.Unknown {
		a.ui.Help(a.line.HelpText())
		return nil
	}
	return a.RunContext(ctx, a.line.Arranged())
}

// unpack unpacks the snapshot that --root names, if it names one, into a temporary folder that the
// command reads in its place, and that remove removes.
func (a app) unpack() (remove func(), err error) {
	remove = func() {}
	c, file := a.line.Command, a.line.Root
	if _, err := snapshot.FormatOf(file); err != nil || a.line.Help || c == nil || c.Hidden || args.FindFlag(c.Flags, "root") == nil {
		return remove, nil
	}
	if info, err := os.Stat(file); err != nil || !info.Mode().IsRegular() {
		return remove, nil // [host.NewRoot] says why it cannot be read, or reads the folder
	}
	tree, err := snapshot.ReadFile(file, nil)
	if err != nil {
		return remove, err
	}
	folder, err := os.MkdirTemp("", "gpustack-root-")
	if err != nil {
		return remove, fmt.Errorf("%s is unpacked into a temporary folder: %w", file, err)
	}
	a.line.Tree, a.ui.Tree, a.ui.Snapshot = folder, folder, file
	return func() { os.RemoveAll(folder) }, tree.Unpack(folder) //nolint:errcheck // it is below the temporary folder
}

// errSnapshot is the error of a command that would write below a snapshot.
func errSnapshot(file string) error {
	return host.WithHint(fmt.Errorf("--root %s: a snapshot is only read", file),
		host.Textf("add --dry-run, or unpack it first: %s", host.NewCommand("host unpack").Arg(file).Arg("DIR").Elsewhere()))
}

// action combines the two halves of a command. parse reads the options from the command line and
// collects all its errors; run is called only if there are none.
func action[T any](u *term.UI, parse func(*cli.Context, *args.Faults) T, run func(context.Context, *term.UI, T) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		f := args.FaultsOf(c)
		f.Paths(c)
		opts := parse(c, f)
		if err := f.Err(); err != nil {
			return err
		}
		if _, ok := any(opts).(interface{ warnsInterrupted() }); !ok && !c.Command.Hidden {
			u.Warn(change.AllWarnings(c.Context, c.String("root"))...)
		}
		if o, ok := any(opts).(interface{ isQuiet() bool }); ok {
			u.Quiet = o.isQuiet()
		}
		if o, ok := any(opts).(interface{ isFull() bool }); ok {
			u.Full = o.isFull()
		}
		if o, ok := any(opts).(interface{ writes() bool }); ok {
			if u.Snapshot != "" && o.writes() {
				return errSnapshot(u.Snapshot)
			}
			u.Run.MayChange()
		}
		u.Waits("%s: %s", c.Command.HelpName, c.Command.Usage)
		return run(c.Context, u, opts)
	}
}

type rootOptions struct {
	version bool
	app     *cli.App
}

func parseRoot(c *cli.Context, f *args.Faults) rootOptions {
	f.Arguments(c)
	return rootOptions{c.Bool("version"), c.App}
}

// runRoot runs gpustack without a command.
func runRoot(_ context.Context, u *term.UI, opts rootOptions) error {
	if opts.version {
		u.Printf("gpustack %s\n", programVersion())
		return nil
	}
	u.Help(args.AppHelp(opts.app))
	return nil
}
