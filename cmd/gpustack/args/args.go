// Package args is the command line: what an operator types, and the texts about it. [Parse] splits
// arguments, [FaultsOf] collects all errors of a command line, [NewCompletion] completes words for
// shells. It formats help and the manual.
//
// It prints nothing, and looks at the machine only for whether an argument is a folder. The names
// that other programs have for commands and flags are in correct.go.
package args

import (
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"
	"github.com/xrash/smetrics"

	"gpustack/host"
)

// Line is a command line split into commands, flags and arguments. Users may write flags
// anywhere ("gpustack --root DIR host scan", "gpustack host snapshot FILE --root DIR"), but
// urfave/cli v2 accepts only the order command, flags, arguments; it would treat a flag after an
// argument as an argument and ignore it.
type Line struct {
	app      *cli.App
	faults   *Faults  // unknown commands and flags
	words    []string // as given, without the program's name
	corrects bool     // the words are a correction, for which there are no further ones
	pathAt   []int    // the places of Path in words
	secrets  []secretValue
	named    map[string]cli.Flag // the flags of all commands, as far as anyFlag has looked
	unnamed  []cli.Flag          // the others

	Path      []string // names of the command and its parents
	Command   *cli.Command
	flags     [][]string // each with its value, if the value is a separate word
	arguments []string
	Help      bool   // help is requested, which takes precedence over errors in flags and arguments
	Unknown   bool   // a command is unknown: there is no help to print
	Format    string // of the output: the value of --output, of any command, or ""
	Root      string // the value of --root, or ""
}

// Parse splits a command line, whose first word is the program's name, for an application. It
// disables defaults of urfave/cli, so that a.Run reports errors as Parse does.
func Parse(a *cli.App, args []string) *Line {
	line := &Line{app: a, faults: &Faults{}, words: args[min(1, len(args)):]}
	line.faults.line = line
	for rest := line.words; len(rest) > 0; {
		rest = line.take(rest)
	}
	line.faults.command = strings.Join(append([]string{a.Name}, line.Path...), " ")
	line.Format, line.Root = line.last("output", "o"), line.last("root")
	line.check()
	tame(a, line.faults)
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
	case len(l.arguments) > 0 || len(l.subcommands()) == 0:
		l.arguments = append(l.arguments, word)
	case word == "help":
		l.Help = true
	default:
		l.descend(word, len(l.words)-len(words))
	}
	return rest
}

// subcommands returns the commands that may follow.
func (l *Line) subcommands() []*cli.Command {
	if l.Command == nil {
		return l.app.Commands
	}
	return l.Command.Subcommands
}

// known returns the flags of the command.
func (l *Line) known() []cli.Flag {
	if l.Command == nil {
		return l.app.Flags
	}
	return l.Command.Flags
}

// open returns the flag whose value the next word is, or nil.
func (l *Line) open() cli.Flag {
	if len(l.flags) == 0 || len(l.arguments) > 0 {
		return nil
	}
	last := l.flags[len(l.flags)-1]
	name, _, hasValue := cutFlag(last[0])
	if flag := l.ownFlag(name); flag != nil && TakesValue(flag) && len(last) == 1 && !hasValue {
		return flag
	}
	return nil
}

// descend consumes the name of a command, the word with this index.
func (l *Line) descend(name string, at int) {
	subcommands := l.subcommands()
	for _, c := range subcommands {
		if c.HasName(name) {
			l.Path, l.pathAt = append(l.Path, name), append(l.pathAt, at)
			l.Command = c
			return
		}
	}
	if len(l.faults.all) > 0 {
		return // words after an unknown command are not checked
	}
	l.Unknown = true
	l.faults.Add(UsageError("unknown command "+strconv.Quote(strings.Join(append(l.Path, name), " ")), (guess{l}).suggest(at, name, names(subcommands))))
}

// takeFlag consumes a flag. Its command may still be unknown, but a flag has a value in all
// commands or in none, so its name is enough to decide whether a value follows.
func (l *Line) takeFlag(word string, rest []string) []string {
	name, value, hasValue := cutFlag(word)
	if at := len(l.words) - len(rest); (guess{l}).hides(name) {
		switch {
		case hasValue:
			l.secrets = append(l.secrets, secretValue{at - 1, value})
		case len(rest) > 0:
			l.secrets = append(l.secrets, secretValue{at, rest[0]})
		}
	}
	if name == "help" || name == "h" {
		l.Help = true
		return rest
	}
	flag := l.anyFlag(name)
	if flag == nil && !strings.HasPrefix(word, "--") {
		if short := l.anyFlag(word[1:2]); short != nil && TakesValue(short) { // -ojson
			l.flags = append(l.flags, []string{word[:2], word[2:]})
			return rest
		}
	}
	if (guess{l}).takesValue(name) && !hasValue && len(rest) > 0 {
		l.flags = append(l.flags, []string{word, rest[0]})
		return rest[1:]
	}
	l.flags = append(l.flags, []string{word})
	return rest
}

func cutFlag(word string) (name, value string, hasValue bool) {
	return strings.Cut(strings.TrimLeft(word, "-"), "=")
}

// anyFlag returns the flag that has a name in any command, the first of several, or nil. It looks
// at no more of the several hundred flags than it must: a command line asks for one or two names.
func (l *Line) anyFlag(name string) cli.Flag {
	if l.named == nil {
		l.named, l.unnamed = map[string]cli.Flag{}, slices.Clone(l.app.Flags)
		for _, c := range Commands(l.app.Commands) {
			l.unnamed = append(l.unnamed, c.Flags...)
		}
	}
	for l.named[name] == nil && len(l.unnamed) > 0 {
		flag := l.unnamed[0]
		l.unnamed = l.unnamed[1:]
		for _, name := range flag.Names() {
			if l.named[name] == nil {
				l.named[name] = flag
			}
		}
	}
	return l.named[name]
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

// TakesValue reports whether a flag has a value.
func TakesValue(flag cli.Flag) bool {
	documented, ok := flag.(cli.DocGenerationFlag)
	return ok && documented.TakesValue()
}

// last returns the last value of a flag, also if the command has no such flag: a program that asks
// for a document gets one that says so.
func (l *Line) last(names ...string) (last string) {
	for _, words := range l.flags {
		name, value, hasValue := cutFlag(words[0])
		if !slices.Contains(names, name) {
			continue
		}
		if !hasValue && len(words) > 1 {
			value = words[1]
		}
		last = value
	}
	return last
}

// check adds errors for flags that the command does not have or whose values are missing, and
// removes these flags.
func (l *Line) check() {
	if len(l.faults.all) > 0 || len(l.subcommands()) > 0 && l.Command != nil {
		l.flags = nil // an unknown or incomplete command has no flags to check
		return
	}
	var unknown []string
	l.flags = slices.DeleteFunc(l.flags, func(words []string) bool {
		name, _, hasValue := cutFlag(words[0])
		switch flag := FindFlag(l.known(), name); {
		case flag == nil:
			unknown = append(unknown, words[0])
			return true
		case TakesValue(flag) && len(words) == 1 && !hasValue:
			spelling, usage := DescribeFlag(flag)
			l.faults.Add(UsageError(words[0]+": missing value", spelling+": "+usage))
			return true
		}
		return false
	})
	l.unknownFlags(unknown)
}

// unknownFlags adds errors for flags that the command does not have, with the command line that was
// probably meant.
func (l *Line) unknownFlags(unknown []string) {
	if len(unknown) == 0 || l.corrects {
		for _, word := range unknown {
			l.faults.Add(unknownFlag(word, ""))
		}
		return
	}
	words, means := (guess{l}).replace(unknown)
	meant, ok := (guess{l}).commandLine(words)
	if l.Command == nil {
		meant, ok = (guess{l}).withCommand()
	}
	for _, word := range unknown {
		var hint host.Text
		switch {
		case ok:
			hint = Meant(meant)
		case strings.Trim(word, "-") == "force":
			hint = host.Text("there is no --force: --allow ADDRESS lifts the refusal of one function, --yes answers the question; " + l.faults.SeeHelp())
		case means[word] != "":
			hint = host.Text(didYouMean(means[word]) + l.faults.SeeHelp())
		default:
			hint = host.Text(l.faults.SeeHelp())
		}
		l.faults.Add(unknownFlag(word, hint))
	}
}

// unknownFlag is the error about a flag that the command does not have. Nothing is known of its
// value, which may be a secret.
func unknownFlag(word string, hint host.Text) error {
	name, _, _ := strings.Cut(word, "=")
	return UsageError("unknown flag "+name, hint)
}

// didYouMean returns a question that names what may be meant, or "".
func didYouMean(meant ...string) string {
	if len(meant) == 0 {
		return ""
	}
	return "did you mean " + host.Listed(meant, "or") + "? "
}

// closest returns the known word that is most similar to word, or "".
func closest(word string, known []string) string {
	best, likeness := "", 0.85 // words with a lower similarity have little in common
	for _, k := range known {
		if l := smetrics.JaroWinkler(word, k, 0.7, 4); l > likeness {
			best, likeness = k, l
		}
	}
	return best
}

// Arranged returns the words in the order that urfave/cli accepts.
func (l *Line) Arranged() []string {
	line := append([]string{l.app.Name}, l.Path...)
	for _, words := range l.flags {
		line = append(line, words...)
	}
	return append(append(line, "--"), l.arguments...)
}
