// Package args is the command line: what an operator types, and the texts about it. [Parse] splits
// arguments, [FaultsOf] collects all errors of a command line, [NewCompletion] completes words for
// shells. It formats help. urfave/cli v2 declares commands and flags, reads values and suggests
// names; this package does what it cannot: options after arguments, and all errors at once.
//
// It prints nothing, and looks at the machine only for whether an argument is a folder.
package args

import (
	"iter"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"gpustack/host"
)

// Line is a command line split into commands, flags and arguments. Users may write flags
// anywhere ("gpustack --root DIR host scan", "gpustack host snapshot FILE --root DIR"), but
// urfave/cli v2 accepts only the order command, flags, arguments; it would treat a flag after an
// argument as an argument and ignore it.
type Line struct {
	app       *cli.App
	at        *cli.Command // Command, or what the program has without one
	faults    *Faults      // unknown commands and flags
	flags     []option
	arguments []string

	Shown   []string // the words, without the program's name, with the hash of each value that may contain secrets in its place
	Path    []string // names of the command and its parents
	Command *cli.Command
	Help    bool   // help is requested, which takes precedence over errors in flags and arguments
	Whole   bool   // the whole page is requested: gpustack help COMMAND
	Unknown bool   // a command is unknown: there is no help to print
	Format  string // of the output: the value of --output, of any command, or ""
	Root    string // the value of --root, or ""
	Tree    string // the folder into which the snapshot that --root names is unpacked, or ""
}

// Repeat adds the flags of the line without which a command that it prints would be about another
// cloud, database or release. takes reports whether the command has a flag.
func (l *Line) Repeat(c host.Command, takes func(flag string) bool) host.Command {
	for _, o := range l.flags {
		switch o.name {
		case "os-cacert", "release": // the machine may not show its release
		case "insecure":
			if o.value == "false" {
				continue
			}
			o.value = ""
		case "os-cloud", "os-region-name":
			if c.Name() == "undo" { // its entry has the cloud
				continue
			}
		case "database", "api-database":
			o.value = "URL" // which may have a password
		case "conf":
			if l.Path[0] == "repair-migration" {
				break
			}
			if role, file, is := strings.Cut(o.value, "="); is && role != "compute" {
				o.value = file
			}
			// Others read several files: that of a controller of this machine has the databases.
			if c.Name() != "repair-migration" || !path.IsAbs(o.value) || strings.Contains(o.value, ",") {
				continue
			}
		default:
			continue
		}
		if !c.IsElsewhere() && !c.HasFlag(o.name) && takes(o.name) {
			c = c.Flag(o.name, o.value)
		}
	}
	return c
}

// option is a flag as it is given.
type option struct {
	words       []string // the value is a separate word, or part of the flag's
	name, value string
	hasValue    bool
}

// Parse splits a command line, whose first word is the program's name, for an application. It
// disables defaults of urfave/cli, so that a.Run reports errors as Parse does.
func Parse(a *cli.App, args []string) *Line {
	line := newLine(a, args[min(1, len(args)):])
	line.faults.command = strings.Join(append([]string{a.Name}, line.Path...), " ")
	line.Format, line.Root = line.last("output", "o"), line.last("root")
	line.check()
	tame(a, line.faults)
	return line
}

// newLine splits the words of a command line, without the program's name.
func newLine(a *cli.App, words []string) *Line {
	line := &Line{app: a, at: &cli.Command{Flags: a.Flags, Subcommands: a.Commands}, faults: &Faults{}, Shown: slices.Clone(words)}
	for len(words) > 0 {
		words = line.take(words)
	}
	return line
}

// take consumes one word, and the value of a flag, and returns the remaining words.
func (l *Line) take(words []string) (rest []string) {
	word, rest := words[0], words[1:]
	switch {
	case word == "--":
		l.arguments = append(l.arguments, rest...)
		return nil
	case len(word) > 1 && word[0] == '-':
		return l.takeFlag(word, rest)
	case len(l.arguments) > 0 || len(l.at.Subcommands) == 0:
		l.arguments = append(l.arguments, word)
	case word == "help":
		l.Help, l.Whole = true, true
	default:
		l.descend(word)
	}
	return rest
}

// flag returns a flag of the command, or else the flag of that name of another one, for flags may
// stand before the command, or nil.
func (l *Line) flag(name string) cli.Flag {
	flags := slices.Clone(l.at.Flags)
	for _, c := range Commands(l.app.Commands) {
		flags = append(flags, c.Flags...)
	}
	return FindFlag(append(flags, l.app.Flags...), name)
}

// descend consumes the name of a command.
func (l *Line) descend(name string) {
	known := l.at.Subcommands
	for _, c := range known {
		if c.HasName(name) {
			l.Path, l.Command, l.at = append(l.Path, name), c, c
			return
		}
	}
	if l.Unknown {
		return // words after an unknown command are not checked
	}
	l.Unknown = true
	known = shown(known)
	var elsewhere []string // gpustack scan
	for path := range Visible(l.app.Commands) {
		if strings.HasSuffix(path, " "+name) {
			elsewhere = append(elsewhere, "'"+l.app.Name+" "+path+"'")
		}
	}
	if similar := strings.Trim(strings.TrimPrefix(cli.SuggestCommand(known, name), "Did you mean"), ` ?"`); elsewhere == nil && alike(similar, name) {
		elsewhere = []string{similar}
	}
	hint := ""
	if elsewhere != nil {
		hint = "did you mean " + host.Listed(elsewhere, "or") + "? "
	}
	at := strings.Join(append([]string{l.app.Name}, l.Path...), " ")
	l.faults.Add(UsageError("unknown command "+strconv.Quote(strings.Join(append(l.Path, name), " ")),
		hint+"the commands are "+host.Listed(names(known), "and")+"; see "+at+" --help"))
}

// takeFlag consumes a flag. Its command may still be unknown, but a flag has a value in all
// commands or in none, so its name is enough to decide whether a value follows. The word after an
// unknown flag of a command may be its value, and is not repeated in errors.
func (l *Line) takeFlag(word string, rest []string) []string {
	name, value, hasValue := cutFlag(word)
	if name == "help" || name == "h" {
		l.Help = true
		return rest
	}
	flag := l.flag(name)
	if flag == nil && !strings.HasPrefix(word, "--") {
		if short := word[1:2]; TakesValue(l.flag(short)) { // -ojson
			l.flags = append(l.flags, option{[]string{word[:2], word[2:]}, short, word[2:], true})
			return rest
		}
	}
	follows := TakesValue(flag)
	if flag == nil && len(rest) > 0 {
		isCommand := slices.ContainsFunc(l.at.Subcommands, func(c *cli.Command) bool { return c.HasName(rest[0]) })
		follows = !isCommand && !strings.HasPrefix(rest[0], "-")
	}
	words := []string{word}
	if follows && !hasValue && len(rest) > 0 {
		words, value, hasValue, rest = append(words, rest[0]), rest[0], true, rest[1:]
	}
	if at := len(l.Shown) - len(rest) - 1; isSecret(flag) && hasValue { // the last word is the value, or ends with it
		l.Shown[at] = strings.TrimSuffix(l.Shown[at], value) + host.Hash([]byte(value))
	}
	l.flags = append(l.flags, option{words, name, value, hasValue})
	return rest
}

func cutFlag(word string) (name, value string, hasValue bool) {
	return strings.Cut(strings.TrimLeft(word, "-"), "=")
}

// FindFlag returns the flag with a name, or nil.
func FindFlag(flags []cli.Flag, name string) cli.Flag {
	for _, flag := range flags {
		if slices.Contains(flag.Names(), name) {
			return flag
		}
	}
	return nil
}

// TakesValue reports whether a flag has a value; nil has none.
func TakesValue(flag cli.Flag) bool {
	documented, ok := flag.(cli.DocGenerationFlag)
	return ok && documented.TakesValue()
}

func isRepeatable(flag cli.Flag) bool {
	list, ok := flag.(cli.DocGenerationSliceFlag)
	return ok && list.IsSliceFlag()
}

// last returns the last value of a flag, also if the command has no such flag: a program that asks
// for a document gets one that says so.
func (l *Line) last(names ...string) (last string) {
	for _, o := range l.flags {
		if slices.Contains(names, o.name) {
			last = o.value
		}
	}
	return last
}

// check adds errors for flags that the command does not have or whose values are missing, and
// removes these flags.
func (l *Line) check() {
	if l.Unknown || len(l.at.Subcommands) > 0 && l.Command != nil {
		l.flags = nil // an unknown or incomplete command has no flags to check
		return
	}
	given := map[string]bool{}
	l.flags = slices.DeleteFunc(l.flags, func(o option) bool {
		flag := FindFlag(l.at.Flags, o.name)
		if flag == nil {
			l.faults.unknown = true
			spelling, _, _ := strings.Cut(o.words[0], "=") // its value may be a secret
			l.faults.Add(UsageError("unknown flag "+spelling, l.suggestFlag(o.name)))
			return true
		}
		problem, full := "", flag.Names()[0]
		switch {
		case TakesValue(flag) && !o.hasValue:
			problem = o.words[0] + ": missing value"
		case TakesValue(flag) && !isRepeatable(flag) && given[full]: // urfave/cli drops all but the last
			problem = "--" + full + " is given twice, and takes one value"
		}
		given[full] = given[full] || problem == ""
		spelling, usage := DescribeFlag(flag)
		AddIf(l.faults, problem != "", problem, spelling+": "+usage)
		return problem != ""
	})
}

// suggestFlag returns the hint for a flag that the command does not have.
func (l *Line) suggestFlag(name string) string {
	see := l.faults.SeeHelp()
	if name == "force" {
		return "there is no --force: --allow ADDRESS lifts the refusal of one function, --yes answers the question; " + see
	}
	similar := cli.SuggestFlag(l.at.Flags, name, true)
	if l.Command == nil || !alike(strings.TrimLeft(similar, "-"), name) || slices.Contains(notSuggested(), similar) {
		return see
	}
	return "did you mean " + similar + "? " + see
}

// notSuggested are flags that a similar word must not lead to: what they do is more than was asked
// for.
func notSuggested() []string {
	return []string{"--none", "--yes", "--apply", "--live", "--take-over", "--claim", "--clean", "--allow-unsafe-interrupts", "--stop-services",
		"--insecure", "--host-is-off", "--allow", "--placement", "--computes-report", "--one-time-use-ok"}
}

// alike reports whether a name that urfave/cli suggests, which it does for every word, has something
// in common with it.
func alike(suggested, name string) bool {
	return len(suggested) > 1 && len(name) > 1 && strings.EqualFold(suggested[:2], name[:2])
}

// Arranged returns the words in the order that urfave/cli accepts.
func (l *Line) Arranged() []string {
	line := append([]string{l.app.Name}, l.Path...)
	for _, o := range l.flags {
		line = append(line, o.words...)
	}
	if l.Tree != "" {
		line = append(line, "--root", l.Tree)
	}
	return append(append(line, "--"), l.arguments...)
}

// tame disables urfave/cli v2 defaults in every command: printing the whole help after a wrong
// flag, treating a wrong command as an argument of the help command, exiting by itself, and
// splitting values at commas. A fifth, treating flags after an argument as arguments, is handled
// by Parse.
func tame(a *cli.App, f *Faults) {
	onUsageError := func(c *cli.Context, err error, _ bool) error {
		problem := strings.TrimSuffix(strings.Replace(strings.Replace(err.Error(), " for flag -", " for -", 1), " for -", " for --", 1), ": parse error")
		hint := f.SeeHelp()
		if _, name, ok := strings.Cut(problem, " for --"); ok && strings.HasPrefix(problem, "invalid value") {
			if _, ok := FindFlag(c.Command.Flags, strings.SplitN(name, ":", 2)[0]).(*cli.DurationFlag); ok {
				hint = "a TIME has a unit, as in 30s or 5m"
			}
		}
		f.Add(UsageError(problem, hint))
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

func names(tree []*cli.Command) []string {
	return host.Map(shown(tree), func(c *cli.Command) string { return c.Name })
}

// shown returns the commands that are not hidden.
func shown(tree []*cli.Command) []*cli.Command {
	return host.Filter(tree, func(c *cli.Command) bool { return !c.Hidden })
}
