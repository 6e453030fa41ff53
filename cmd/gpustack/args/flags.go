package args

import (
	"github.com/urfave/cli/v2"

	"gpustack/host"
)

// ChoiceFlag is a flag whose value must be one of a list of words.
type ChoiceFlag struct {
	*cli.StringFlag
	Words []string
}

// Choice returns a flag whose value must be one of words.
func Choice(flag *cli.StringFlag, words []string) ChoiceFlag {
	return ChoiceFlag{flag, words}
}

// Flags that several commands have, each declared once.

// RootFlag returns the flag for the tree of the machine.
func RootFlag() cli.Flag {
	return &cli.StringFlag{Name: "root", Value: "/", Usage: "the `DIR` that contains the machine's file tree"}
}

// OutputFlag returns the flag for the formats of a command. The first one is the default.
func OutputFlag(formats ...string) cli.Flag {
	return ChoiceFlag{&cli.StringFlag{
		Name: "output", Aliases: []string{"o"}, Value: formats[0], Usage: "`FORMAT` of the output: " + host.Listed(formats, "or"),
	}, formats}
}

// DocumentsFlag returns a repeatable flag for documents in files, folders and standard input.
func DocumentsFlag(name, usage string) cli.Flag {
	return manyPaths{&cli.StringSliceFlag{Name: name, Usage: usage + "; a folder, or - (repeatable)"}, PathRules{Kind: HandedOver, Stdin: true}}
}

// DryRunFlag returns the flag that stops after the plan.
func DryRunFlag() cli.Flag {
	return &cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "stop after the plan"}
}

// DiffFlag returns the flag that prints plans in full.
func DiffFlag() cli.Flag {
	return &cli.BoolFlag{Name: "diff", Usage: "show the plan in full: each file as a diff, each write to sysfs"}
}

// YesFlag returns the flag that answers the question.
func YesFlag() cli.Flag {
	return &cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "apply the plan without a question"}
}

// QuietFlag returns the flag that prints no plan.
func QuietFlag() cli.Flag {
	return &cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print nothing if nothing changes, else only warnings, the summary and the entry"}
}
