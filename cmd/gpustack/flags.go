package main

import (
	"github.com/urfave/cli/v2"

	"gpustack/cmd/gpustack/term"
	"gpustack/host/machine"
)

// formatTree is a format of output for people.
const formatTree = "tree"

// choiceFlag is a flag whose value must be one of a list of words.
type choiceFlag struct {
	*cli.StringFlag
	words []string
}

// Flags that several commands have, each declared once.

func rootFlag() cli.Flag {
	return &cli.StringFlag{Name: "root", Value: "/", Usage: "the `DIR` that contains the machine's file tree"}
}

// outputFlag returns the flag for the formats of a command. The first one is the default.
func outputFlag(formats ...string) cli.Flag {
	return choiceFlag{&cli.StringFlag{
		Name: "output", Aliases: []string{"o"}, Value: formats[0], Usage: "`FORMAT` of the output: " + term.Listed(formats, "or"),
	}, formats}
}

// novaConfFlag returns the flag for the nova.conf of this machine.
func novaConfFlag(usage string) cli.Flag {
	return onePath{&cli.StringFlag{Name: "conf", Value: defaultConf, Usage: usage}, pathRules{kind: machineFile}}
}

// confsFlag returns the flag for configuration files of several machines, see parseConfs.
func confsFlag(usage string) cli.Flag {
	return manyPaths{&cli.StringSliceFlag{Name: "conf", Usage: usage}, pathRules{handedOver, true, func(value string) []string {
		_, files := cutConf(value)
		return files
	}}}
}

func releaseFlag() cli.Flag {
	return &cli.StringFlag{Name: "release", Value: "auto", Usage: "Nova's `RELEASE`: mitaka to 2026.1, or auto for the installed one"}
}

// documentsFlag returns a repeatable flag for documents in files, folders and standard input.
func documentsFlag(name, usage string) cli.Flag {
	return manyPaths{&cli.StringSliceFlag{Name: name, Usage: usage + "; a folder, or - (repeatable)"}, pathRules{kind: handedOver, stdin: true}}
}

func inventoryFlag(usage string) cli.Flag {
	return documentsFlag("inventory", usage)
}

func nvswitchFlag() cli.Flag {
	return choiceFlag{&cli.StringFlag{
		Name: "nvswitch", Usage: "which `SIDE` gets the NVSwitches of the GPUs: host or guest (default: as recorded)",
	}, []string{"", string(machine.SwitchesToHost), string(machine.SwitchesToGuest)}}
}

func dryRunFlag() cli.Flag {
	return &cli.BoolFlag{Name: "dry-run", Usage: "stop after the plan"}
}

func yesFlag() cli.Flag {
	return &cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "apply the plan without a question"}
}

func quietFlag() cli.Flag {
	return &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print nothing if nothing changes, else only warnings, the summary and the entry"}
}

// parseDecision reads the flags of every command that changes something.
func parseDecision(c *cli.Context, f *faults) decision {
	return decision{f.choice(c, "output"), c.Bool("dry-run"), c.Bool("yes"), c.Bool("quiet")}
}
