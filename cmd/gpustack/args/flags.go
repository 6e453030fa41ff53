package args

import (
	"strings"

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

// secretFlag is a flag of [Secret].
type secretFlag struct{ *cli.StringFlag }

// Secret returns a flag whose value may contain secrets: no text repeats it, and records have its
// hash.
func Secret(flag *cli.StringFlag) cli.Flag { return secretFlag{flag} }

func isSecret(flag cli.Flag) bool {
	_, ok := flag.(secretFlag)
	return ok
}

// Flags that several commands have, each declared once.

// RootFlag returns the flag for the tree of the machine.
func RootFlag() cli.Flag {
	return &cli.StringFlag{Name: "root", Value: "/", Usage: "the `DIR` or snapshot with the machine's files"}
}

// OutputFlag returns the flag for the formats of a command. The first one is the default.
func OutputFlag(formats ...string) cli.Flag {
	return ChoiceFlag{&cli.StringFlag{
		Name: "output", Aliases: []string{"o"}, Value: formats[0], Usage: "`FORMAT` of the output: " + host.Listed(formats, "or"),
	}, formats}
}

// DocumentsFlag returns a repeatable flag for documents in files, folders and standard input.
func DocumentsFlag(name, usage string) cli.Flag {
	return manyPaths{&cli.StringSliceFlag{Name: name, Usage: usage + "; a folder, or - (repeatable)"}, PathRules{Stdin: true}}
}

// AnswerFlags returns the flags that answer the question of a command, and the one that prints no
// plan.
func AnswerFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "yes", Aliases: []string{"y"}, Usage: "apply the plan without a question"},
		&cli.BoolFlag{Name: "quiet", Aliases: []string{"q"}, Usage: "print nothing if nothing changes, else only warnings, the summary and the entry"},
	}
}

// PlanFlags returns the flags of a command that plans, asks and applies.
func PlanFlags() []cli.Flag {
	return append([]cli.Flag{&cli.BoolFlag{Name: "dry-run", Aliases: []string{"n"}, Usage: "stop after the plan"}}, AnswerFlags()...)
}

// ofRun are the flags that say where a command works, what it prints and what it asks, not what it
// does.
const ofRun = " root output yes dry-run diff quiet verbose "

func isOfRun(name string) bool { return strings.Contains(ofRun, " "+name+" ") }

// Recorded returns a command line as the journal has it: the name of the command, its arguments,
// and the flags that were given, in the order of its help, with the hash of a value that may
// contain secrets.
func Recorded(c *cli.Context) string {
	text := strings.TrimPrefix(c.Command.HelpName, c.App.Name+" ")
	add := func(word string) { text += " " + host.ShellWord(host.WithoutCredentials(word)) }
	for _, arg := range c.Args().Slice() {
		add(arg)
	}
	for _, flag := range c.Command.Flags {
		name := flag.Names()[0]
		switch {
		case !c.IsSet(name) || isOfRun(name):
			continue
		case !TakesValue(flag):
			text += " --" + name
			if !c.Bool(name) {
				text += "=false"
			}
			continue
		}
		for _, v := range flagValues(c, name) {
			if isSecret(flag) {
				v = host.Hash([]byte(v))
			}
			text += " --" + name
			add(v)
		}
	}
	return text
}
