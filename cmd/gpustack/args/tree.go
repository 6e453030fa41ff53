package args

import (
	"iter"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
)

// tame disables urfave/cli v2 defaults in every command: printing the whole help after a wrong
// flag, treating a wrong command as an argument of the help command, exiting by itself, and
// splitting values at commas. A fifth, treating flags after an argument as arguments, is handled
// by parseLine.
func tame(a *cli.App, f *Faults) {
	onUsageError := func(c *cli.Context, err error, _ bool) error {
		problem := strings.TrimSuffix(strings.Replace(strings.Replace(err.Error(), " for flag -", " for -", 1), " for -", " for --", 1), ": parse error")
		f.Add(UsageError(problem, invalid(c, f, problem)))
		return f.Err()
	}
	a.Metadata = map[string]any{faultsKey: f}
	a.OnUsageError = onUsageError
	a.ExitErrHandler = func(*cli.Context, error) {}
	a.HideHelp = true    // help.go prints it
	a.HideVersion = true // its flag would also be -v
	a.DisableSliceFlagSeparator = true
	for path, command := range Commands(a.Commands) {
		command.OnUsageError = onUsageError
		command.HideHelp = true
		if len(command.Subcommands) > 0 {
			command.Action = func(*cli.Context) error {
				if len(f.all) == 0 {
					f.Add(UsageError(path+": which command?", "the commands are "+host.Listed(names(command.Subcommands), "and")+"; see "+a.Name+" "+path+" --help"))
				}
				return f.Err()
			}
		}
	}
}

// Commands iterates over a tree of commands, each with its path ("host scan").
func Commands(tree []*cli.Command) iter.Seq2[string, *cli.Command] {
	return func(yield func(string, *cli.Command) bool) {
		for _, c := range tree {
			if !yield(c.Name, c) {
				return
			}
			for path, sub := range Commands(c.Subcommands) {
				if !yield(c.Name+" "+path, sub) {
					return
				}
			}
		}
	}
}

// Visible iterates over the commands of a tree that users run, each with its path, without
// groups and hidden ones.
func Visible(tree []*cli.Command) iter.Seq2[string, *cli.Command] {
	return func(yield func(string, *cli.Command) bool) {
		for path, c := range Commands(tree) {
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
