package main

import (
	"slices"

	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/args"
	"gpustack/cmd/gpustack/term"
	"gpustack/host/document"
	"gpustack/host/machine"
	"gpustack/nova"
)

// Formats of output for people and for graphviz.
const (
	formatTree = "tree"
	formatDot  = "dot"
)

// reading returns the flags of a command that reads a machine, with its own.
func reading(own ...cli.Flag) []cli.Flag {
	return append([]cli.Flag{args.RootFlag(), args.OutputFlag(term.FormatTable, term.FormatJSON, term.FormatYAML)}, own...)
}

// changing returns the flags of a command that changes a machine, with its own.
func changing(own ...cli.Flag) []cli.Flag {
	return append(append(reading(own...), args.DiffFlag()), args.PlanFlags()...)
}

// changingCloud returns the flags of a command that changes a cloud, with its own.
func changingCloud(own ...cli.Flag) []cli.Flag {
	return slices.Concat(reading(own...)[1:], args.PlanFlags(), cloudFlags(timeoutOfCloud))
}

// belowRoot is what --conf names in every command.
const belowRoot = "`FILE` below the root"

// novaConfFlag returns the flag for the nova.conf of this machine. usage says what is done to it.
func novaConfFlag(usage string) cli.Flag {
	return args.Path(&cli.StringFlag{Name: "conf", Value: nova.DefaultConf, Usage: usage + " " + belowRoot}, args.PathRules{Kind: args.MachineFile})
}

// confsFlag returns the flag for configuration files of several machines, see parseConfs. usage
// says what is done to them, more what holds without them.
func confsFlag(usage, more string) cli.Flag {
	usage += " `[ROLE=]FILE[,FILE]` below the root; relative: a copy (repeatable" + more + ")"
	return args.Paths(&cli.StringSliceFlag{Name: "conf", Usage: usage}, args.PathRules{Kind: args.MachineFile, Stdin: true, Files: func(value string) []string {
		side, _ := nova.ParseSideFiles(value, "") // parseConfs reports its error
		return side.Names
	}})
}

func releaseFlag() cli.Flag {
	return &cli.StringFlag{Name: "release", Value: "auto", Usage: "Nova's `RELEASE`: mitaka to 2026.2, or auto for the installed one"}
}

func inventoryFlag(usage string) cli.Flag {
	return args.DocumentsFlag("inventory", usage)
}

func nvswitchFlag() cli.Flag {
	return args.Choice(&cli.StringFlag{
		Name: "nvswitch", Usage: "which `SIDE` gets the NVSwitches of the GPUs: host or guest (default: as recorded)",
	}, []string{"", string(machine.SwitchesToHost), string(machine.SwitchesToGuest)})
}

// keyUI is where the metadata of the application have the terminal.
const keyUI = "ui"

// uiOf returns the terminal of a command, for what its options read and print later.
func uiOf(c *cli.Context) *term.UI { return c.App.Metadata[keyUI].(*term.UI) }

// documentsOf returns the documents at the paths that a flag of the kind [args.HandedOver] names.
func documentsOf(c *cli.Context, flag string) document.Source {
	return documentsAt(uiOf(c), c.StringSlice(flag)...)
}

// documentsAt returns the documents at some paths.
func documentsAt(u *term.UI, paths ...string) document.Source {
	return document.Source{Paths: paths, Stdin: u.In, Warn: func(warning string) { u.Warn(warning) }}
}

// parseCommon reads the flags that many commands have. A command without --output reads --root itself.
func parseCommon(c *cli.Context, f *args.Faults) given {
	has := func(flag string) bool { return args.FindFlag(c.Command.Flags, flag) != nil }
	if !has("output") {
		return given{}
	}
	o := given{
		format: f.Choice(c, "output"), dryRun: c.Bool("dry-run"), yes: c.Bool("yes"), quiet: c.Bool("quiet"), full: c.Bool("diff"),
		command: args.Recorded(c),
	}
	if has("root") {
		o.root = f.Root(c)
	}
	if has("os-cloud") {
		o.cloud = parseCloud(c, f)
	}
	return o
}

// writes reports whether a command changes something once it is confirmed.
func writes(c *cli.Context) bool {
	return !c.Bool("dry-run") && c.String("render") == "" && (args.FindFlag(c.Command.Flags, "apply") == nil || c.Bool("apply"))
}
