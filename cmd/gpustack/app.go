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
	}
	a.Action = action(u, parseVersion, func(_ context.Context, u *term.UI, _ given, version bool) error {
		if version {
			u.Printf("gpustack %s\n", programVersion())
		} else {
			u.Help(args.AppHelp(a))
		}
		return nil
	})
	line := args.Parse(a, words)
	a.Metadata[keyUI] = u
	u.Document.Format, u.Document.Kind, u.Words = line.Format, strings.Join(line.Path, " "), line.Shown
	below := func(c host.Command) host.Command {
		c = line.Repeat(args.Below(c, line.Root), func(flag string) bool { return takes(a.Commands, c, flag) })
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
		group("host", "the machine the GPUs are in", "On each compute node",
			newHostScanCommand(u), newHostPrepareCommand(u), newCheckCommand(u, hostCheck()),
			newHostBindCommand(u), newHostReleaseCommand(u), newHostGuestsCommand(u),
			newHostSnapshotCommand(u), newHostUnpackCommand(u)),
		group("rdma", "InfiniBand and RDMA adapters", "On each compute node",
			newRDMAScanCommand(u), newCheckCommand(u, rdmaCheck()), newRDMAPrepareCommand(u),
			newRDMATestCommand(u)),
		group("container", "GPUs and RDMA adapters for containers", "On each compute node",
			newCheckCommand(u, containerCheck()), newContainerPrepareCommand(u),
			newContainerTestCommand(u)),
		group("nova", "OpenStack Nova's services", "On controllers and compute nodes",
			newNovaConfigureCommand(u), newNovaCheckCommand(u), newNovaExplainCommand(u),
			newNovaDevicesCommand(u), newNovaDrainCommand(u), newNovaEnableCommand(u)),
		group("flavor", "flavors whose guests get devices", "Flavors",
			newFlavorCreateCommand(u), newFlavorListCommand(u), newFlavorDeleteCommand(u),
			newFlavorTestCommand(u)),
		group("image", "images that guests with GPUs boot from", "Images",
			newImageCheckCommand(u), newImageSetCommand(u)),
		group("fleet", "documents of many compute nodes", "Many nodes",
			newFleetShowCommand(u), newFleetDiffCommand(u), newFleetPlanCommand(u)),
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

// group returns a command that has others, all listed in the help below a title.
func group(name, usage, title string, commands ...*cli.Command) *cli.Command {
	return &cli.Command{Name: name, Usage: usage, Category: title, Subcommands: commands}
}

// in returns a command that is listed in a group.
func in(title string, c *cli.Command) *cli.Command {
	c.Category = title
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

// action combines the two halves of a command. parse reads its own options from the command line
// and collects all their errors; run is called only if there are none.
func action[T any](u *term.UI, parse func(*cli.Context, *args.Faults) T, run func(context.Context, *term.UI, given, T) error) cli.ActionFunc {
	return func(c *cli.Context) error {
		f := args.FaultsOf(c)
		f.Paths(c)
		if c.Command.ArgsUsage == "" {
			f.Arguments(c)
		}
		o, opts := parseCommon(c, f), parse(c, f)
		if err := f.Err(); err != nil {
			return err
		}
		if _, ok := any(opts).(interface{ warnsInterrupted() }); !ok && !c.Command.Hidden {
			u.Warn(change.AllWarnings(c.Context, c.String("root"))...)
		}
		u.Quiet, u.Full = o.quiet, o.full
		if args.FindFlag(c.Command.Flags, "yes") != nil {
			if u.Snapshot != "" && writes(c) {
				return errSnapshot(u.Snapshot)
			}
			u.Run.MayChange()
		}
		u.Waits("%s: %s", c.Command.HelpName, c.Command.Usage)
		return run(c.Context, u, o, opts)
	}
}

func parseVersion(c *cli.Context, _ *args.Faults) (version bool) { return c.Bool("version") }
